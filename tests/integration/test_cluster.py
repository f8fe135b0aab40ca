"""A cluster of three brokers of ours, as confluent-kafka's clients see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from minibroker import Cluster

WAIT_SECONDS = 20.0
POLL_SECONDS = 0.02
RECORDS = 300
# librdkafka asks for a new leader once a second, which is most of the time that a test waits.
QUICK_REFRESH = {"topic.metadata.refresh.fast.interval.ms": 50, "retry.backoff.ms": 50, "log_level": 0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    cluster.restore()
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def new_topic(admin: AdminClient, name: str, assignment: Sequence[Sequence[int]]) -> str:
    for future in admin.create_topics(
        [NewTopic(name, len(assignment), replica_assignment=[list(each) for each in assignment])]
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


def read(cluster: Cluster, topic: str, count: int, *, partition: int = 0, **settings: object) -> list[bytes]:
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


def producer_of(cluster: Cluster, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **QUICK_REFRESH, **settings})


def test_brokers_know_each_other_and_one_controls(cluster: Cluster, admin: AdminClient) -> None:
    metadata = admin.list_topics(timeout=WAIT_SECONDS)

    assert sorted(metadata.brokers) == [1, 2, 3]
    addresses = {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}
    assert addresses == set(cluster.bootstrap_servers.split(","))
    assert metadata.controller_id in (1, 2, 3)


def test_a_follower_leads_where_the_leader_was_killed_and_nothing_is_lost(cluster: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, "killed-leader", [[1, 2, 3]])
    producer = producer_of(cluster, **{"enable.idempotence": True})
    values = [b"%d" % number for number in range(RECORDS)]
    produce(producer, topic, values[:100])

    cluster.kill(1)
    produce(producer, topic, values[100:200])
    until(lambda: roles(admin, topic) == [(2, [2, 3])])

    cluster.start(1)
    until(lambda: roles(admin, topic) == [(2, [1, 2, 3])])
    produce(producer, topic, values[200:])
    assert read(cluster, topic, RECORDS) == values


def test_a_leader_that_returns_truncates_what_was_acknowledged_by_it_alone(
    cluster: Cluster, admin: AdminClient
) -> None:
    topic = new_topic(admin, "truncated", [[1, 2]])
    produce(producer_of(cluster), topic, [b"kept"])
    cluster.pause(2)
    for value in (b"on its way", b"lost"):  # the follower's fetch that waits may be answered with the first one
        produce(producer_of(cluster, acks=1), topic, [value])
    cluster.kill(1)
    cluster.resume(2)
    until(lambda: roles(admin, topic) == [(2, [2])])

    produce(producer_of(cluster), topic, [b"after"])
    cluster.start(1)
    until(lambda: roles(admin, topic) == [(2, [1, 2])])
    logs = [(cluster.broker(each).data_dir / f"{topic}-0" / f"{0:020}.log").read_bytes() for each in (1, 2)]
    assert logs[0] == logs[1]
    assert b"kept" in logs[0]
    assert b"after" in logs[0]
    assert b"lost" not in logs[0]


def test_a_broker_that_stops_in_order_hands_its_partitions_over(cluster: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, "stopped", [[3, 1, 2]])
    producer = producer_of(cluster)
    produce(producer, topic, [b"before"])

    cluster.stop(3)

    assert roles(admin, topic) == [(1, [1, 2])]
    assert "Traceback" not in cluster.broker(3).last_log_lines()
    produce(producer, topic, [b"after"])
    assert read(cluster, topic, 2) == [b"before", b"after"]


def test_all_brokers_start_again_with_what_they_had(cluster: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, "restarted", [[2, 3, 1]])
    produce(producer_of(cluster), topic, [b"kept"])

    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    cluster.start()

    until(lambda: roles(admin, topic)[0][1] == [1, 2, 3])
    assert read(cluster, topic, 1) == [b"kept"]


def test_topics_settings_and_deletions_reach_all_brokers(cluster: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, "deleted", [[1, 2, 3]])
    logs = [cluster.broker(each).data_dir / f"{topic}-0" for each in cluster.broker_ids]
    until(lambda: all(log.is_dir() for log in logs))

    for future in admin.delete_topics([topic]).values():
        future.result(WAIT_SECONDS)

    until(lambda: topic not in admin.list_topics(timeout=WAIT_SECONDS).topics)
    until(lambda: not any(log.is_dir() for log in logs))
