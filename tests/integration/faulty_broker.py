"""A broker with faults to set, and clients of today that write numbers to it and read them again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from minibroker import Broker
from tests.integration.kafka_python import KafkaConsumer, KafkaProducer, TopicPartition
from tests.integration.wire import RawConnection

RECORDS = 200
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "auto.create.topics.enable": False,  # a client of a test before would make its topic again
}
PATIENCE_SECONDS = 60.0
POLL_MS = 1000  # kafka-python 3.0.12 forgets a rebalance that ends between two calls: none shall


@pytest.fixture(scope="module")
def started() -> Iterator[Broker]:
    with Broker(control=True, settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def broker(started: Broker) -> Iterator[Broker]:
    """Without the faults, topics and groups of tests before."""
    started.faults.lift_all()
    started.reset()
    started.create_topic("orders", partitions=1)
    yield started
    started.faults.lift_all()


def connection_to(broker: Broker) -> RawConnection:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return RawConnection(host, int(port))


def kafka_python_writes(broker: Broker, count: int = RECORDS, **settings: Any) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=20, reconnect_backoff_ms=20, **settings
    )
    try:
        for future in [producer.send("orders", b"%d" % number, partition=0) for number in range(count)]:
            future.get(PATIENCE_SECONDS)
    finally:
        producer.close()


def confluent_writes(broker: Broker, count: int = RECORDS, **settings: Any) -> None:
    failed: list[Any] = []
    config = {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20}
    producer = confluent_kafka.Producer(config | settings)
    for number in range(count):
        producer.produce(
            "orders", b"%d" % number, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        if number % 20 == 0:
            producer.flush(PATIENCE_SECONDS)  # batches of their own
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert failed == []


WRITERS = {
    "kafka-python": lambda broker: kafka_python_writes(broker, enable_idempotence=True, linger_ms=1, batch_size=100),
    "confluent-kafka": lambda broker: confluent_writes(broker, **{"enable.idempotence": True}),
}


def values_in(broker: Broker, topic: str = "orders") -> list[int]:
    """All there is in its partition 0."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    values: list[int] = []
    while consumer.position(partition) < end:
        values += [int(record.value) for records in consumer.poll(500).values() for record in records]
    consumer.close()
    return values


def consumer_of(broker: Broker, **settings: Any) -> KafkaConsumer:
    return KafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        retry_backoff_ms=20,
        reconnect_backoff_ms=20,
        **settings,
    )


def read(consumer: KafkaConsumer, count: int, *, patience_seconds: float = PATIENCE_SECONDS) -> list[int]:
    values: list[int] = []
    deadline = time.monotonic() + patience_seconds
    while len(values) < count and time.monotonic() < deadline:
        values += [int(record.value) for records in consumer.poll(POLL_MS).values() for record in records]
    return values


def confluent_consumer(broker: Broker, **settings: Any) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "confluent",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 1500,
        }
        | settings
    )
    consumer.subscribe(["orders"])
    return consumer


def confluent_reads(
    consumer: confluent_kafka.Consumer, count: int, *, patience_seconds: float = PATIENCE_SECONDS
) -> list[int]:
    values: list[int] = []
    deadline = time.monotonic() + patience_seconds
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(int(message.value() or b""))
    return values
