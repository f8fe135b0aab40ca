"""A cluster of three brokers of ours, as confluent-kafka's clients see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from minibroker import Broker, Cluster
from minibroker.broker.way.opening import ALWAYS_ANSWERED
from minibroker.conformance.raw_connection import Closed, RawConnection
from minibroker.conformance.requests import fetch_body, frame
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode
from tests.integration.clusters import WAIT_SECONDS, new_topic, produce, producer_of, read, roles, until
from tests.integration.hostile_batches import valid
from tests.integration.sample_requests import sample_body
from tests.integration.wire import connection_to, the_partition
from tests.requests import by_name, list_offsets_body, produce_body

RECORDS = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    cluster.restore()
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def test_a_leader_that_returns_truncates_records_that_it_alone_acknowledged(
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


def test_all_brokers_start_again_with_their_records(cluster: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, "restarted", [[2, 3, 1]])
    produce(producer_of(cluster), topic, [b"kept"])

    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    cluster.start()

    until(lambda: roles(admin, topic)[0][1] == [1, 2, 3])
    assert read(cluster, topic, 1) == [b"kept"]


def test_a_broker_that_starts_answers_no_client_before_it_has_its_roles(cluster: Cluster, admin: AdminClient) -> None:
    controller, starting, _ = sorted(cluster.broker_ids, key=lambda each: each != cluster.controller)
    topic = new_topic(admin, "early", [[starting]])
    broker = cluster.broker(starting)
    cluster.kill(starting)
    cluster.pause(controller)  # nobody gives the other one its roles
    broker.launch()
    until(partial(listens, broker.bootstrap_servers))

    waiting: dict[ApiKey, RawConnection] = {}
    with ExitStack() as open_connections:
        for key in ApiKey:
            if key in API_TABLE and key not in ALWAYS_ANSWERED:
                waiting[key] = open_connections.enter_context(connection_to(broker.bootstrap_servers))
                waiting[key].send(frame(key, early_version(key), **early_body(key, topic)))
        with connection_to(broker.bootstrap_servers) as other:
            assert other.ask_for_versions().error_code == ErrorCode.NONE
            assert other.exchange(b"\0\0\0\1x") is Closed
        assert [key for key, each in waiting.items() if each.has_answer()] == []

        cluster.resume(controller)
        broker.await_ready()
        answers = {
            key: decode_response(key, early_version(key), answer)[1]
            for key, each in waiting.items()
            if (answer := each.receive_frame()) is not Closed
        }
    metadata = answers[ApiKey.METADATA]
    assert sorted(each.node_id for each in metadata.brokers) == [1, 2, 3]
    assert [each.error_code for each in metadata.topics] == [ErrorCode.NONE]
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH):
        assert the_partition(answers[key]).error_code == ErrorCode.NONE, key
    assert the_partition(answers[ApiKey.OFFSET_COMMIT]).error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_stops_although_its_controller_stands_still(cluster: Cluster, admin: AdminClient) -> None:
    controller, stopped, other = sorted(cluster.broker_ids, key=lambda each: each != cluster.controller)
    topic = new_topic(admin, "still", [[stopped, other]])
    cluster.pause(controller)

    cluster.stop(stopped)

    assert cluster.leader_of(topic) == other


def listens(address: str) -> bool:
    try:
        connection_to(address).close()
    except ConnectionRefusedError:
        return False
    return True


def early_version(key: ApiKey) -> int:
    """The newest one in which requests name topics, which most have; of OffsetCommit one that names no member."""
    return {ApiKey.FETCH: 4, ApiKey.PRODUCE: 5, ApiKey.OFFSET_COMMIT: 2}.get(key, API_TABLE[key].versions[0])


def early_body(key: ApiKey, topic: str) -> dict[str, Any]:
    bodies: dict[ApiKey, dict[str, Any]] = {
        ApiKey.METADATA: {"topics": by_name(topic)},
        ApiKey.PRODUCE: produce_body(topic, valid()),
        ApiKey.FETCH: fetch_body((topic, 0, 0)),
        ApiKey.LIST_OFFSETS: list_offsets_body(topic),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": [(topic, [(0, -1, 0)])]},
        ApiKey.OFFSET_COMMIT: {
            "group_id": "g",
            "generation_id": -1,
            "member_id": "",
            "retention_time_ms": -1,
            "topics": [(topic, [(0, 0, -1, -1, "")])],
        },
    }
    return bodies[key] if key in bodies else sample_body(key, early_version(key))._asdict()


def test_topics_settings_and_deletions_reach_all_brokers(cluster: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, "deleted", [[1, 2, 3]])
    logs = [cluster.broker(each).data_dir / f"{topic}-0" for each in cluster.broker_ids]
    until(lambda: all(log.is_dir() for log in logs))

    for future in admin.delete_topics([topic]).values():
        future.result(WAIT_SECONDS)

    until(lambda: topic not in admin.list_topics(timeout=WAIT_SECONDS).topics)
    until(lambda: not any(log.is_dir() for log in logs))


def test_logs_that_a_cluster_does_not_know_are_set_aside(tmp_path: Path) -> None:
    """The logs of a directory from elsewhere, or of a cluster whose state is gone."""
    directory = tmp_path / "1"
    with Broker(data_dir=directory, settings={"broker.id": 1}) as alone:
        produce(producer_of(alone), "known", [b"kept"])

    with Cluster(brokers=2, data_dir=tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        assert "known" not in admin.list_topics(timeout=WAIT_SECONDS).topics

    (stray,) = directory.glob("known-0*")
    assert stray.name.endswith("-stray")
    stray.rename(directory / "known-0")
    with Broker(data_dir=directory, settings={"broker.id": 1}) as alone:
        assert read(alone, "known", 1) == [b"kept"]
