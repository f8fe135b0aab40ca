"""Consume, transform, produce, exactly once, while the broker and those who do it are killed at random.

The transformers (drivers/transformer.py and its likes in other languages) copy a topic in transactions that carry
their offsets. What must come out is what went in: nothing lost, nothing twice, in order in each partition; and a
reader of what is committed, who reads on meanwhile, must have seen just that.

MINIBROKER_EOS_RECORDS says how many records; 100,000 are the whole test.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Producer

from minibroker.broker.transaction.transaction import TransactionState
from minibroker.protocol.batches import iter_all_records, scan_batches
from minibroker.protocol.transaction_records import EPOCHS_PER_TRANSACTION, TransactionRecord, decode_value
from tests.integration.clients import UnavailableError, go_program, java_driver, node_program, python_driver
from tests.integration.conftest import StartMinibroker
from tests.integration.drivers.line_protocol import Deadline
from tests.integration.librdkafka import read_from_beginning, take, values_in
from tests.integration.topics import create_topic
from tests.setup_clients import ROOT

RECORDS = int(os.environ.get("MINIBROKER_EOS_RECORDS", "10000"))
RECORDS_PER_TRANSACTION = 750
RECORDS_PER_KILL = 1_500
PARTITIONS = 4
READ_SECONDS = 30.0
SLOWEST_RECORDS_A_SECOND = 100
LONGEST_BEFORE_A_KILL_SECONDS = 0.3  # after more was written: at any moment of what is done with it
LOOK_AGAIN_SECONDS = 0.02
SOURCE, TARGET, GROUP = "source", "target", "transformers"
SETTINGS: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "log.retention.ms": -1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}
PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "confluent-kafka": lambda: [*python_driver("transformer"), "confluent-kafka"],
    "kafka-python": lambda: [*python_driver("transformer"), "kafka-python"],
    "java": lambda: java_driver("3.9.0", "JavaTransformer"),
    "java of 4.4": lambda: java_driver("4.4.0", "JavaTransformer"),
    "franz-go": partial(go_program, "transform"),
    "kafkajs": partial(node_program, "kafkajs_transformer"),
}


WITH_V2 = ("java of 4.4", "franz-go")
OF_TRANSACTIONS = pytest.mark.ability("transactions")
AT_NIGHT = [OF_TRANSACTIONS, pytest.mark.nightly]


class Reader(threading.Thread):
    """Reads what is committed, from the beginning, for as long as it is let; the values by partition."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.is_stopping = threading.Event()
        settings = {"isolation_level": "read_committed", "reconnect_backoff_max_ms": 200}
        self._consumer = read_from_beginning(bootstrap, TARGET, PARTITIONS, **settings)

    @property
    def count(self) -> int:
        return sum(map(len, self.values))

    def run(self) -> None:
        while not self.is_stopping.is_set():
            take(self._consumer, self.values)
        self._consumer.close()


class Transformers:
    """So many processes with transactional ids of their own; one that ends is started again."""

    def __init__(self, libraries: Sequence[str], bootstrap: str, log: IO[bytes]) -> None:
        try:
            commands = [PROGRAMS[library]() for library in libraries]
        except UnavailableError as error:
            pytest.skip(str(error))
        settings = json.dumps({"records_per_transaction": RECORDS_PER_TRANSACTION})
        self._commands = [
            [*command, bootstrap, GROUP, SOURCE, TARGET, f"transformer-{number}", settings]
            for number, command in enumerate(commands)
        ]
        self._log = log
        self._processes = [self._start(command) for command in self._commands]
        self.ended = 0

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=ROOT)

    def kill(self, number: int) -> None:
        """kill -9; it is started again as all that end are."""
        self._processes[number].kill()
        self._processes[number].wait()

    def start_those_that_ended(self) -> None:
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self.ended += 1
                self._processes[number] = self._start(self._commands[number])

    def kill_all(self) -> None:
        for number in range(len(self._processes)):
            self.kill(number)


class Source:
    """Numbered records are written to the source; `values` are what it has, by partition."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.count = 0
        self._bootstrap = bootstrap

    def write(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(self.count, self.count + count):
            partition = number % PARTITIONS
            self.values[partition].append(b"%d" % number)
            producer.produce(SOURCE, b"%d" % number, b"key-%d" % (number % 97), partition=partition)
        self.count += count
        assert producer.flush(READ_SECONDS) == 0


@contextmanager
def transforming(libraries: Sequence[str], bootstrap: str, log_path: Path) -> Iterator[tuple[Transformers, Reader]]:
    with log_path.open("wb") as log:
        transformers, reader = Transformers(libraries, bootstrap, log), Reader(bootstrap)
        reader.start()
        try:
            yield transformers, reader
        finally:
            transformers.kill_all()
            reader.is_stopping.set()
            reader.join(READ_SECONDS)


@pytest.mark.timeout(120 + RECORDS // SLOWEST_RECORDS_A_SECOND)
@pytest.mark.parametrize(
    ("libraries", "share"),
    [
        pytest.param(("kafka-python", "java"), 2, id="kafka-python and java", marks=OF_TRANSACTIONS),
        pytest.param(WITH_V2, 2, id="transactions v2", marks=pytest.mark.ability("transactions v2")),
        pytest.param(
            *(("confluent-kafka", "confluent-kafka"), 1),
            id="confluent-kafka",
            marks=[OF_TRANSACTIONS, pytest.mark.nightly],
        ),
        pytest.param(("kafkajs",), 3, id="kafkajs", marks=AT_NIGHT),
    ],
)
def test_each_record_comes_out_once_and_in_order_after_kills(
    libraries: tuple[str, ...], share: int, start_in_place: StartMinibroker, tmp_path: Path
) -> None:
    """`share` is the part of the records that these libraries get: one in so many."""
    rng = random.Random(len(libraries[0]))
    count = RECORDS // share
    kills = count // RECORDS_PER_KILL
    assert kills >= 2, "one of a transformer, and one of the broker"
    broker = start_in_place(settings=SETTINGS)
    for topic in (SOURCE, TARGET):
        create_topic(broker, topic, partitions=PARTITIONS)
    source = Source(broker.bootstrap)
    deadline = Deadline(60 + count / SLOWEST_RECORDS_A_SECOND)

    with transforming(libraries, broker.bootstrap, tmp_path / "transformers.log") as (transformers, reader):

        def wait_for(records: int) -> None:
            while reader.count < records:
                deadline.seconds_left(f"{records} of {source.count} records, have {reader.count}")
                transformers.start_those_that_ended()
                time.sleep(LOOK_AGAIN_SECONDS)

        for number in range(kills):
            source.write(count // kills)
            wait_for(source.count - 2 * RECORDS_PER_KILL)
            time.sleep(rng.random() * LONGEST_BEFORE_A_KILL_SECONDS)
            if number % 2:
                broker.kill()
                broker = start_in_place(settings=SETTINGS)
            else:
                transformers.kill(rng.randrange(len(libraries)))
        wait_for(source.count)
        written = values_in(broker.bootstrap, SOURCE, PARTITIONS)
        found = values_in(broker.bootstrap, TARGET, PARTITIONS)

    has_epochs = {each.client_version == EPOCHS_PER_TRANSACTION for each in ended_transactions(broker.data_dir)}
    assert has_epochs == {libraries == WITH_V2}

    have = {"source": written, "target": found, "reader": reader.values}
    wrong = {name: differences(values, source.values) for name, values in have.items()}
    assert wrong == {"source": [], "target": [], "reader": []}


def ended_transactions(data_dir: Path) -> Iterator[TransactionRecord]:
    """The stored states of transactions that have ended."""
    for path in data_dir.glob("__transaction_state-*/*.log"):
        data = path.read_bytes()
        for batch in scan_batches(data, 0, len(data)):
            for record in iter_all_records(data, batch, max_decompressed_bytes=len(data)):
                state = decode_value(record.value or b"")
                if state.status >= TransactionState.COMPLETE_COMMIT:
                    yield state


def differences(found: list[list[bytes]], wanted: list[list[bytes]]) -> list[str]:
    """Describe each partition that has not what is wanted."""
    wrong = []
    for partition, (values, right) in enumerate(zip(found, wanted, strict=True)):
        if values != right:
            lost, twice = len(set(right) - set(values)), len(values) - len(set(values))
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(values, right, strict=False)))
            wrong.append(
                f"partition {partition}: {lost} of {len(right)} values are lost, {twice} are there twice;"
                f" the first {same} are as they should be"
            )
    return wrong
