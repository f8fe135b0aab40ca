"""Consume, transform, produce, exactly once, while the broker and those who do it are killed at random.

The transformers (drivers/transformer.py and its likes in other languages) copy a topic in transactions that carry
their offsets. What must come out is what went in: nothing lost, nothing twice, in order in each partition; and a
reader of what is committed, who reads on meanwhile, must have seen just that.

MINIBROKER_EOS_RECORDS says how many records; 100,000 are the whole test.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from minibroker.broker.transaction.transaction import TransactionState
from minibroker.protocol.batches import iter_all_records, scan_batches
from minibroker.protocol.transaction_records import EPOCHS_PER_TRANSACTION, TransactionRecord, decode_value
from tests.integration.conftest import StartMinibroker
from tests.integration.drivers.line_protocol import Deadline
from tests.integration.librdkafka import values_in
from tests.integration.topics import create_topic
from tests.integration.transformers import PARTITIONS, SOURCE, TARGET, Source, transforming

RECORDS = int(os.environ.get("MINIBROKER_EOS_RECORDS", "10000"))
RECORDS_PER_KILL = 1_500
SLOWEST_RECORDS_A_SECOND = 100
LONGEST_BEFORE_A_KILL_SECONDS = 0.3  # after more was written: at any moment of what is done with it
LOOK_AGAIN_SECONDS = 0.02
SETTINGS: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "log.retention.ms": -1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}
WITH_V2 = ("java-4.4", "franz-go")
OF_TRANSACTIONS = pytest.mark.ability("transactions")
AT_NIGHT = [OF_TRANSACTIONS, pytest.mark.nightly]


@pytest.mark.timeout(120 + RECORDS // SLOWEST_RECORDS_A_SECOND)
@pytest.mark.parametrize(
    ("libraries", "share"),
    [
        pytest.param(("kafka-python", "java"), 2, id="kafka-python and java", marks=OF_TRANSACTIONS),
        pytest.param(WITH_V2, 2, id="transactions v2", marks=[OF_TRANSACTIONS, pytest.mark.ability("transactions v2")]),
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
