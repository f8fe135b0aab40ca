"""Clients at work on a real broker: the history that they record is clean, and a planted duplicate is found in it."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from minibroker import Broker
from minibroker.history.checking import check
from minibroker.history.findings import Finding
from minibroker.history.lines import read_lines
from minibroker.history.recorder import HistoryWriter, RecordedConsumer, RecordedProducer
from minibroker.history.transcripts import read_transcripts
from tests.integration.threads import caught

pytestmark = pytest.mark.integration

PARTITIONS = range(3)
ROUNDS = 30
QUIET = {"log_level": 0}
Place = tuple[str, int]


def judged(path: Path, broker: Broker) -> tuple[list[Finding], list[Finding]]:
    """The findings in what the clients recorded, and in what the broker did."""
    return check(read_lines(path)), check(read_transcripts([broker.transcript.path]))


class Workload:
    """Threads that send and poll, each a process of the history."""

    def __init__(self, broker: Broker, history: HistoryWriter) -> None:
        self._address = {"bootstrap.servers": broker.bootstrap_servers, **QUIET}
        self._history = history
        self._is_over = threading.Event()

    def run(self) -> None:
        producers = [partial(self._produce, f"p{number}") for number in range(2)]
        producers += [partial(self._transact, f"x{number}") for number in range(2)]
        consumers = [partial(self._consume, f"c{number}", rounds) for number, rounds in enumerate((200, 5, 200))]
        failures: list[BaseException] = []
        threads = [threading.Thread(target=caught, args=(each, failures)) for each in (*producers, *consumers)]
        for thread in threads:
            thread.start()
        for thread in threads[: len(producers)]:
            thread.join()
        self._is_over.set()
        for thread in threads:
            thread.join()
        assert failures == []

    def read_all(self, expected: int) -> None:
        consumer = self._consumer("last", "read_committed")
        consumer.assign([("t", number, 0) for number in PARTITIONS])
        read = 0
        while read < expected:
            found = len(consumer.poll())
            assert found, f"{read} of {expected} records"
            read += found
        consumer.close()

    def _producer(self, process: str, **settings: Any) -> RecordedProducer:
        producer = Producer({**self._address, "enable.idempotence": True, **settings})
        if settings:
            producer.init_transactions(30)
        return RecordedProducer(self._history, process, producer)

    def _consumer(self, process: str, isolation: str) -> RecordedConsumer:
        settings = {"group.id": "g", "auto.offset.reset": "earliest", "isolation.level": isolation}
        return RecordedConsumer(self._history, process, Consumer({**self._address, **settings}), isolation)

    def _produce(self, process: str) -> None:
        producer = self._producer(process)
        for number in range(ROUNDS * 5):
            producer.send("t", f"{process} {number}", number % len(PARTITIONS))
        assert producer.flush() == 0

    def _transact(self, process: str) -> None:
        producer = self._producer(process, **{"transactional.id": process})
        consumer = self._consumer(process, "read_committed")
        consumer.assign([("t", number, 0) for number in PARTITIONS])
        for number in range(ROUNDS):
            producer.begin()
            for partition in PARTITIONS:
                producer.send("t", f"{process} {number} {partition}", partition)
            consumer.poll(0.01)
            assert producer.flush() == 0
            (producer.abort if number % 3 == 2 else producer.commit)()
        consumer.close()

    def _consume(self, process: str, rounds: int) -> None:
        """Be a member for some rounds; the others get its partitions."""
        consumer = self._consumer(process, "read_uncommitted" if process == "c0" else "read_committed")
        consumer.subscribe(["t"])
        for _ in range(rounds):
            consumer.poll(0.1)
            if self._is_over.is_set():
                break
        consumer.close()


def test_producers_transactions_and_a_rebalancing_group_leave_a_clean_history(tmp_path: Path) -> None:
    with Broker(transcript=True, settings={"num.partitions": "3"}) as broker, HistoryWriter(tmp_path / "h") as history:
        broker.create_topic("t", partitions=len(PARTITIONS))
        workload = Workload(broker, history)
        workload.run()
        workload.read_all(2 * ROUNDS * 5 + 2 * (ROUNDS * 2 // 3) * len(PARTITIONS))

        assert judged(tmp_path / "h", broker) == ([], [])


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_an_answer_that_was_lost_makes_a_duplicate_of_a_producer_without_idempotence(
    tmp_path: Path, is_idempotent: bool
) -> None:
    with Broker(transcript=True, control=True) as broker, HistoryWriter(tmp_path / "h") as history:
        broker.create_topic("t", partitions=1)
        broker.faults.disconnect(api="produce", when="after", times=1)
        address = {"bootstrap.servers": broker.bootstrap_servers, **QUIET}
        producer = RecordedProducer(history, "p", Producer({**address, "enable.idempotence": is_idempotent}))
        consumer = RecordedConsumer(history, "c", Consumer({**address, "group.id": "g"}))

        producer.send("t", "a", 0)
        assert producer.flush() == 0
        producer.send("t", "b", 0)
        assert producer.flush() == 0
        consumer.assign([("t", 0, 0)])
        values = ["a", "b"] if is_idempotent else ["a", "a", "b"]
        read: list[str | None] = []
        while len(read) < len(values):
            read += [record.value for record in consumer.poll()]
        consumer.close()

        assert read == values
        expected = [] if is_idempotent else [("duplicate", (0, 1))]
        for findings in judged(tmp_path / "h", broker):
            assert [(each.kind, each.offsets) for each in findings] == expected
