"""A cluster of three brokers of ours, as confluent-kafka's clients see it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from minibroker import Cluster
from tests.integration.clusters import WAIT_SECONDS, new_topic, produce, producer_of, read, roles, until

RECORDS = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    cluster.restore()
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


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
