"""Records a history while clients of confluent-kafka work: `minibroker check` reads it.

    with HistoryWriter("history.jsonl") as history:
        producer = RecordedProducer(history, "p1", Producer({...}))
        producer.send("orders", "order 1", partition=0)
        producer.flush()

A process of a history is a thread with its clients, which may be a producer and a consumer of one name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

# The broker appended nothing. Any other error leaves that open.
REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


class PolledRecord(NamedTuple):
    """A record as a line of a history has it."""

    topic: str
    partition: int
    offset: int
    value: str | None


def polled_record(message: Any) -> PolledRecord:
    value = message.value()
    text = None if value is None else value.decode()
    return PolledRecord(message.topic(), message.partition(), message.offset(), text)


class HistoryWriter:
    """Appends the lines of a history to a file, each in one write: threads and processes may share the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises OSError."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._ids = count()

    def note(self, process: str, event: str, operation: str, **fields: Any) -> None:
        """Write a line. Raises OSError."""
        row = {"process": process, "event": event, "operation": operation, **fields}
        os.write(self._file, json.dumps(row).encode() + b"\n")

    def next_id(self) -> int:
        """Return the number of an operation; several may be in flight."""
        return next(self._ids)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class RecordedProducer:
    """A producer whose sends and transactions are recorded."""

    def __init__(self, history: HistoryWriter, process: str, producer: Producer) -> None:
        self._history = history
        self._process = process
        self._producer = producer

    def send(self, topic: str, value: str, partition: int) -> None:
        """Send a record; its answer is noted by `poll` and `flush`. Raises BufferError and KafkaException."""
        number = self._history.next_id()

        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self._note("ok", "send", id=number, offset=message.offset())
            else:
                event = "fail" if error.code() in REFUSALS else "info"
                self._note(event, "send", id=number, error=str(error))

        self._note("invoke", "send", id=number, topic=topic, partition=partition, value=value)
        try:
            self._producer.produce(topic, value.encode(), partition=partition, on_delivery=on_delivery)
        except (BufferError, KafkaException) as error:
            self._note("fail", "send", id=number, error=str(error))
            raise

    def poll(self, timeout: float = 0) -> None:
        self._producer.poll(timeout)

    def flush(self, timeout: float = 60) -> int:
        """Wait for answers, at most `timeout` seconds; return how many are missing."""
        return int(self._producer.flush(timeout))

    def begin(self) -> None:
        """Begin a transaction. Raises KafkaException."""
        self._producer.begin_transaction()
        self._note("ok", "begin")

    def commit(self, timeout: float = 60) -> None:
        """Commit the transaction. Raises KafkaException; one that is retriable leaves the outcome open."""
        self._note("invoke", "commit")
        try:
            self._producer.commit_transaction(timeout)
        except KafkaException as error:
            self._note("fail" if error.args[0].txn_requires_abort() else "info", "commit", error=str(error))
            raise
        self._note("ok", "commit")

    def abort(self, timeout: float = 60) -> None:
        """Abort the transaction. Raises KafkaException."""
        self._note("invoke", "abort")
        self._producer.abort_transaction(timeout)
        self._note("ok", "abort")

    def _note(self, event: str, operation: str, **fields: Any) -> None:
        self._history.note(self._process, event, operation, **fields)


class RecordedConsumer:
    """A consumer whose polls and assignments are recorded; `isolation` as its configuration has it."""

    def __init__(
        self, history: HistoryWriter, process: str, consumer: Consumer, isolation: str = "read_committed"
    ) -> None:
        self._history = history
        self._process = process
        self._consumer = consumer
        self._isolation = isolation

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to topics; partitions that a rebalance assigns are noted."""
        self._consumer.subscribe(list(topics), on_assign=self._on_assign)
        self._note("ok", "subscribe", topics=list(topics))

    def assign(self, offsets: Iterable[tuple[str, int, int]]) -> None:
        """Read these partitions from these offsets on."""
        places = list(offsets)
        self._consumer.assign([TopicPartition(*place) for place in places])
        self._note("ok", "assign", partitions=[place[:2] for place in places])
        for topic, partition, offset in places:
            self._note("ok", "seek", topic=topic, partition=partition, offset=offset)

    def poll(self, timeout: float = 1, max_records: int = 500) -> list[PolledRecord]:
        """Return the records of a poll; errors of partitions are passed over."""
        self._note("invoke", "poll")
        messages = self._consumer.consume(max_records, timeout)
        records = [polled_record(each) for each in messages if each.error() is None]
        self._note("ok", "poll", records=records, isolation=self._isolation)
        return records

    def close(self) -> None:
        self._consumer.close()
        self._note("ok", "assign", partitions=[])

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Note all partitions: of a cooperative rebalance `partitions` are only the new ones."""
        assigned = {(each.topic, each.partition) for each in (*consumer.assignment(), *partitions)}
        self._note("ok", "assign", partitions=sorted(assigned))

    def _note(self, event: str, operation: str, **fields: Any) -> None:
        self._history.note(self._process, event, operation, **fields)
