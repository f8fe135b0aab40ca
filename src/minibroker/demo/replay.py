"""Plays records into a topic in the given order, at once or at a pace, then ends the stream.

The rule: nothing is lost or doubled (idempotent producer, all acknowledged), records of one key keep their
order, and the records that end the stream go out only when every other one has been acknowledged. They are later than
the last record by so much that the Spark job closes all windows (see spark_jobs/flight_delays.py).

    python -m minibroker.demo.replay --bootstrap-servers HOST:PORT    once: a second run does nothing
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from minibroker.demo import flights
from minibroker.demo.flights import FlightRecord

PARTITIONS = 6
CLOSES_AFTER = timedelta(days=15)  # a window and the watermark of the job, which would take a second to import
AHEAD_SECONDS = 0.02
FLUSH_TIMEOUT_SECONDS = 60
DELIVERY_TIMEOUT_SECONDS = 60
ANSWER_TIMEOUT_SECONDS = 30
REACH_SECONDS = 10.0


class ReplayFailed(RuntimeError):
    """A record was not acknowledged, or an earlier replay was cut short; the message has the reason."""


class ReplayStopped(Exception):
    """The replay was stopped before its end."""


def create_topic(bootstrap: str, topic: str) -> None:
    """Create the topic. Raises KafkaException, also if the topic exists, and ReplayFailed if no broker is there."""
    # Records are as old as the flights: with a retention the broker would delete them on arrival. And a year
    # passes in seconds: with the usual segment.ms it would begin a new file for each week of it.
    config = {"retention.ms": "-1", "segment.ms": str(2**63 - 1)}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # its futures end with it, so it must be kept
    try:
        admin.list_topics(timeout=REACH_SECONDS)
    except KafkaException as error:
        raise ReplayFailed(f"no broker at {bootstrap}; name another with --bootstrap-servers HOST:PORT") from error
    created = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)], operation_timeout=30)
    created[topic].result()


def replay(bootstrap: str, topic: str, records: Iterable[FlightRecord]) -> None:
    """Send every record, then the end of the stream. Raises ReplayFailed."""
    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,  # what matters comes back as an error
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # as Kafka's Java producer
            "delivery.timeout.ms": DELIVERY_TIMEOUT_SECONDS * 1000,
            "linger.ms": 20,
            "queue.buffering.max.messages": 50_000,
        }
    )
    last_ms = 0
    for record in records:
        _send(producer, topic, record, on_delivery)
        last_ms = record.timestamp_ms
        if refused:
            break
    _flush(producer, refused)
    end = end_of_stream(last_ms)
    for partition in range(PARTITIONS):
        producer.produce(topic, partition=partition, value=end, on_delivery=on_delivery)
    _flush(producer, refused)


def end_of_stream(last_ms: int) -> bytes:
    """The value of the record that ends a stream whose last record has this timestamp."""
    time = datetime.fromtimestamp(last_ms / 1000, UTC) + CLOSES_AFTER
    return json.dumps({"scheduled_departure": f"{time:%Y-%m-%dT%H:%M:%SZ}"}).encode()


def paced(
    records: Iterable[FlightRecord],
    *,
    event_seconds_per_second: float,
    stop: threading.Event,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[FlightRecord]:
    """Yield the records with the time between them that their timestamps have, shortened. Raises ReplayStopped.

    When sending them takes longer than that, they come as fast as they are sent.
    """
    first_ms, started = None, now()
    for record in records:
        if first_ms is None:
            first_ms = record.timestamp_ms
        due = started + (record.timestamp_ms - first_ms) / 1000 / event_seconds_per_second
        ahead_seconds = due - now()
        if stop.wait(ahead_seconds) if ahead_seconds > AHEAD_SECONDS else stop.is_set():
            raise ReplayStopped
        yield record


def _send(
    producer: Producer, topic: str, record: FlightRecord, on_delivery: Callable[[KafkaError | None, Message], None]
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


def replay_once(bootstrap: str, topic: str, records: list[FlightRecord]) -> bool:
    """Create and fill the topic; return False if an earlier run has done so. Raises ReplayFailed, KafkaException."""
    try:
        create_topic(bootstrap, topic)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        found, wanted = records_in(bootstrap, topic), len(records) + PARTITIONS
        if found != wanted:
            raise ReplayFailed(
                f"topic {topic} has {found:,} records instead of {wanted:,}; delete it and try again"
            ) from None
        return False
    replay(bootstrap, topic, records)
    return True


def records_in(bootstrap: str, topic: str) -> int:
    """The number of records in a topic that has been written once and never truncated."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "minibroker.demo", "log_level": 0})
    try:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return sum(consumer.get_watermark_offsets(each, ANSWER_TIMEOUT_SECONDS)[1] for each in partitions)
    finally:
        consumer.close()


def main() -> None:
    """Run the replay as a command; exit with status 0, or with 1 and the reason."""
    cli = argparse.ArgumentParser(prog="python -m minibroker.demo.replay", description="The flights, into Kafka.")
    cli.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT")
    cli.add_argument("--topic", default="flights")
    cli.add_argument("--days", type=int, help="only the first days of the year")
    arguments = cli.parse_args()
    records = list(flights.messages(flights.load(arguments.days)))
    try:
        is_new = replay_once(arguments.bootstrap_servers, arguments.topic, records)
    except (KafkaException, ReplayFailed) as reason:
        sys.exit(f"replay: {reason}")
    print(f"{len(records):,} flights are in {arguments.topic}{'' if is_new else ', from an earlier run'}")


if __name__ == "__main__":
    main()
