"""A cluster of ours in the hands of confluent-kafka: topics with chosen replicas, writes, reads and waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

WAIT_SECONDS = 20.0
POLL_SECONDS = 0.02
# librdkafka asks for a new leader once a second, which is most of the time that a test waits.
QUICK_REFRESH = {"topic.metadata.refresh.fast.interval.ms": 50, "retry.backoff.ms": 50, "log_level": 0}


class Served(Protocol):
    """One broker or several, which clients reach at this address."""

    @property
    def bootstrap_servers(self) -> str: ...


def new_topic(admin: AdminClient, name: str, assignment: Sequence[Sequence[int]], **configs: str) -> str:
    for future in admin.create_topics(
        [NewTopic(name, len(assignment), replica_assignment=[list(each) for each in assignment], config=configs)]
    ).values():
        future.result(WAIT_SECONDS)
    until(lambda: roles(admin, name) == [(brokers[0], sorted(brokers)) for brokers in assignment])
    return name


def roles(admin: AdminClient, name: str) -> list[tuple[int, list[int]]]:
    """The leader and the in-sync replicas of each partition."""
    partitions = admin.list_topics(name, timeout=WAIT_SECONDS).topics[name].partitions
    return [(partitions[number].leader, sorted(partitions[number].isrs)) for number in sorted(partitions)]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(POLL_SECONDS)


def produce(producer: Producer, topic: str, values: Sequence[bytes]) -> None:
    failed: list[object] = []
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0
    assert failed == []


def read(cluster: Served, topic: str, count: int, *, partition: int = 0, **settings: object) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # with a dead broker, the topic of offsets may lack a replica to be made
            **QUICK_REFRESH,
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


def producer_of(cluster: Served, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **QUICK_REFRESH, **settings})
