"""Playing records into a topic, in the order they are given, and ending the stream so that it is complete.

The rule: nothing is lost or doubled (idempotent producer, all acknowledged), records of one key keep their
order, and the records that end the stream go out only when every other one has been acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from minibroker.demo.flights import Message as Record
from minibroker.spark_jobs.flight_delays import END_OF_STREAM

FLUSH_TIMEOUT_SECONDS = 60


class ReplayFailed(RuntimeError):
    """A record was not acknowledged; the message says why."""


def create_topic(bootstrap: str, topic: str, *, partitions: int) -> None:
    """Create the topic. Raises KafkaException, also if there is one of that name."""
    # Records are as old as the flights: with a retention the broker would delete them on arrival. And a year
    # passes in seconds: with the usual segment.ms it would begin a new file for each week of it.
    config = {"retention.ms": "-1", "segment.ms": str(2**63 - 1)}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # its futures end with it, so it needs a name
    created = admin.create_topics([NewTopic(topic, partitions, 1, config=config)], operation_timeout=30)
    created[topic].result()


def replay(
    bootstrap: str,
    topic: str,
    records: Iterable[Record],
    *,
    partitions: int,
    acknowledged: Callable[[], None],
) -> None:
    """Send every record, then the end of the stream; call `acknowledged` for each. Raises ReplayFailed."""
    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is None:
            acknowledged()
        else:
            refused.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,  # what matters comes back as an error
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # as Kafka's Java producer
            "linger.ms": 20,
            "queue.buffering.max.messages": 50_000,
        }
    )
    for record in records:
        _send(producer, topic, record, on_delivery)
        if refused:
            break
    _flush(producer, refused)
    end = json.dumps({"scheduled_departure": END_OF_STREAM}).encode()
    for partition in range(partitions):
        producer.produce(topic, partition=partition, value=end, on_delivery=on_delivery)
    _flush(producer, refused)


def _send(
    producer: Producer, topic: str, record: Record, on_delivery: Callable[[KafkaError | None, Message], None]
) -> None:
    while True:
        try:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                timestamp=record.timestamp_ms,
                on_delivery=on_delivery,
            )
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _flush(producer: Producer, refused: list[KafkaError]) -> None:
    waiting = producer.flush(FLUSH_TIMEOUT_SECONDS)
    if refused:
        raise ReplayFailed(refused[0].str())
    if waiting:
        raise ReplayFailed(f"{waiting:,} records not acknowledged after {FLUSH_TIMEOUT_SECONDS} s")
