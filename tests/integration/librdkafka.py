"""Consumers of confluent-kafka inside a test's own process, where its driver (drivers/) would be in the way."""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tests.integration.drivers.librdkafka import translate
from tests.integration.drivers.line_protocol import Deadline

PATIENCE_SECONDS = 60.0


def consumer_of(bootstrap: str, group: str = "nobody", **settings: Any) -> Consumer:
    """Commits nothing by itself unless it is asked to."""
    ours = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    return Consumer(ours | translate(settings))


def value_of(message: Message) -> bytes | None:
    """The value of a record; None of the event that a partition has been read to its end. Raises AssertionError."""
    error = message.error()
    if error is None:
        return message.value() or b""
    assert error.code() == KafkaError._PARTITION_EOF, error
    return None


def read_from_beginning(bootstrap: str, topic: str, partitions: int = 1, **settings: Any) -> Consumer:
    """A consumer of the first so many partitions, which begins with what they have."""
    consumer = consumer_of(bootstrap, **settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    return consumer


def take(consumer: Consumer, values: list[list[bytes]]) -> set[int]:
    """Add what one poll brings to the values, by partition; the partitions that were read to their ends."""
    at_end: set[int] = set()
    for message in consumer.consume(1000, 0.1):
        partition, error = message.partition() or 0, message.error()
        if error is None:
            values[partition].append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(partition)
    return at_end


def values_in(
    bootstrap: str, topic: str, partitions: int = 1, *, isolation: str = "read_committed"
) -> list[list[bytes]]:
    """The values of each partition from the first to the present end, as that reader sees them."""
    consumer = read_from_beginning(bootstrap, topic, partitions, isolation_level=isolation, enable_partition_eof=True)
    values: list[list[bytes]] = [[] for _ in range(partitions)]
    at_end: set[int] = set()
    deadline = Deadline(PATIENCE_SECONDS)
    while len(at_end) < partitions:
        deadline.seconds_left(f"the end of {topic} after {[len(each) for each in values]} records")
        at_end |= take(consumer, values)
    consumer.close()
    return values
