"""Minibrokers and Apache Kafka 2.0.1 in one cluster: minibroker leads, follows and controls, and Kafka's brokers see
nothing else than one of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.frames import FrameError, ask, metadata
from minibroker.cli.app import main
from tests.integration.brokers import Minibroker
from tests.integration.mixed_cluster import MixedCluster, produce, read

OURS = 3
SOON: dict[str, str | int] = {"replica.high.watermark.checkpoint.interval.ms": 500}  # finds a directory that fails


@pytest.fixture(scope="module")
def cluster(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """Apache Kafka brokers 1, which controls, and 2, and minibroker 3. A test restores what it stops."""
    cluster = MixedCluster(jars, tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start_kafka(1)
        cluster.start_kafka(2)
        start(cluster, OURS)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(autouse=True)
def kafka_sees_no_error(cluster: MixedCluster) -> Iterator[None]:
    """No error in the logs of Kafka's brokers: they take ours for one of them. Starts what a test has ended."""
    yield
    for broker_id, broker in cluster.brokers.items():
        if not broker.is_running:
            start(cluster, broker_id)
    assert {each: cluster.errors_of(each) for each in (1, 2)} == {1: [], 2: []}


def values(count: int, first: int = 0) -> list[str]:
    return [f"value {number}" for number in range(first, first + count)]


def pause(cluster: MixedCluster, broker_id: int) -> None:
    os.kill(cluster.brokers[broker_id].pid, signal.SIGSTOP)


def resume(cluster: MixedCluster, broker_id: int) -> None:
    os.kill(cluster.brokers[broker_id].pid, signal.SIGCONT)


def produce_unreplicated(cluster: MixedCluster, leader: int, topic: str) -> None:
    """Write the offsets 5 to 7, of which a follower that stands still has at most the first: that ends its fetch."""
    produce(cluster.bootstrap(leader), topic, values(1, 5), acks=1)
    assert produce(cluster.bootstrap(leader), topic, values(2, 6), acks=1) == [6, 7]


def restart(cluster: MixedCluster, broker_id: int) -> None:
    cluster.brokers[broker_id].kill()
    start(cluster, broker_id)


def start(cluster: MixedCluster, broker_id: int) -> None:
    cluster.await_gone(broker_id)
    if broker_id == OURS:
        cluster.start_ours(OURS, **SOON)
    else:
        cluster.start_kafka(broker_id)


def test_minibroker_leads_a_follower_of_kafka(cluster: MixedCluster) -> None:
    cluster.create_topic("led", [OURS, 1])
    cluster.await_isr("led", OURS, 1)
    assert produce(cluster.bootstrap(OURS), "led", values(100)) == list(range(100))
    assert cluster.await_same_logs("led", OURS, 1)


def test_minibroker_follows_a_leader_of_kafka(cluster: MixedCluster) -> None:
    cluster.create_topic("followed", [1, OURS])
    assert produce(cluster.bootstrap(1), "followed", values(100)) == list(range(100))
    assert cluster.await_same_logs("followed", OURS, 1)
    cluster.await_isr("followed", 1, OURS)


def test_the_status_of_replicas_of_both_kinds_is_shown(
    cluster: MixedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("shown", [1, OURS])
    produce(cluster.bootstrap(1), "shown", values(10))

    def replicas() -> list[tuple[int, ...]]:
        assert main(["cluster", "status", "shown", "-b", cluster.bootstrap(1), "-o", "json"]) == 0
        names = ("broker_id", "log_start_offset", "high_watermark", "log_end_offset")
        return [tuple(row[name] for name in names) for row in json.loads(capsys.readouterr().out)]

    cluster.eventually(lambda: replicas() == [(1, 0, 10, 10), (OURS, 0, 10, 10)], lambda: str(replicas()))


def test_a_topic_that_minibroker_creates_for_a_client_is_led_as_kafkas_controller_says(cluster: MixedCluster) -> None:
    wanted = metadata("created-at-ours")

    def shown() -> bool:
        with suppress(FrameError):  # LEADER_NOT_AVAILABLE
            return bool(ask("127.0.0.1", cluster.brokers[OURS].port, wanted)[1].topics)
        return False

    cluster.eventually(shown, lambda: "no metadata of the topic")
    assert cluster.await_state("created-at-ours", 0, lambda state: state.leader >= 0).controller_epoch == 1
    assert produce(cluster.bootstrap(OURS), "created-at-ours", values(3)) == [0, 1, 2]


@pytest.mark.nightly
def test_a_follower_that_stands_still_leaves_the_isr_and_comes_back(cluster: MixedCluster) -> None:
    cluster.create_topic("still-ours", [1, OURS])
    cluster.create_topic("still-kafka", [OURS, 2])
    for topic, stopped, isr in (("still-kafka", 2, (OURS, 2)), ("still-ours", OURS, (1, OURS))):
        cluster.await_isr(topic, *isr)
        pause(cluster, stopped)
        try:
            produce(cluster.bootstrap(isr[0]), topic, values(3), acks=1)
            state = cluster.await_isr(topic, isr[0])
            assert (state.leader_epoch, state.controller_epoch) == (0, 1)
        finally:
            resume(cluster, stopped)
        cluster.await_isr(topic, *isr)
        cluster.await_same_logs(topic, *isr)


@pytest.mark.parametrize(("killed", "paused"), [(2, OURS), pytest.param(OURS, 2, marks=pytest.mark.nightly)])
def test_a_killed_leader_truncates_to_the_log_of_the_next_leader(
    cluster: MixedCluster, killed: int, paused: int
) -> None:
    topic = f"killed-{killed}"
    cluster.create_topic(topic, [killed, paused])
    cluster.await_isr(topic, killed, paused)
    produce(cluster.bootstrap(killed), topic, values(5))
    pause(cluster, paused)
    try:
        produce_unreplicated(cluster, killed, topic)
        cluster.brokers[killed].kill()
    finally:
        resume(cluster, paused)
    state = cluster.await_state(topic, 0, lambda state: state.leader == paused)
    assert state.leader_epoch >= 1
    assert produce(cluster.bootstrap(paused), topic, values(3, 100))[0] <= 6
    start(cluster, killed)
    cluster.await_isr(topic, paused, killed)
    assert b"value 102" in cluster.await_same_logs(topic, paused, killed)


@pytest.mark.nightly
def test_a_minibroker_that_has_lost_its_log_begins_where_the_leaders_begins(cluster: MixedCluster) -> None:
    cluster.create_topic("lost", [1, OURS])
    cluster.await_isr("lost", 1, OURS)
    produce(cluster.bootstrap(1), "lost", values(10))
    ours = cluster.brokers[OURS]
    ours.kill()
    for path in (ours.data_dir / "lost-0").iterdir():
        path.unlink()
    (ours.data_dir / "lost-0").rmdir()
    cluster.await_isr("lost", 1)
    cluster.await_unseen(OURS, by=1)  # the deletion of records waits for replicas on live brokers
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap(1)})
    for future in admin.delete_records([TopicPartition("lost", 0, 4)]).values():
        future.result(30)
    start(cluster, OURS)
    cluster.await_isr("lost", 1, OURS)
    produce(cluster.bootstrap(1), "lost", values(3, 10))
    consumed = read(cluster.bootstrap(OURS), "lost", 9)
    assert consumed == values(6, 4) + values(3, 10)


def test_three_replicas_are_equal_after_a_load_with_acks_all(cluster: MixedCluster) -> None:
    cluster.create_topic("load", [OURS, 1, 2], [1, 2, OURS], min_insync_replicas="2")
    payload = ["x" * 1000 + str(number) for number in range(10_000)]
    for number in range(2):
        produce(cluster.bootstrap(OURS), "load", payload, number=number, **{"compression.type": "lz4"})
        cluster.await_same_logs("load", 1, 2, OURS, number=number)
    cluster.await_isr("load", OURS, 1, 2)


def test_a_stopped_minibroker_hands_its_partitions_over(cluster: MixedCluster) -> None:
    cluster.create_topic("handed", [OURS, 1], [2, OURS])
    cluster.await_isr("handed", OURS, 1)
    cluster.await_isr("handed", 2, OURS, number=1)
    cluster.stop(OURS)
    led, followed = cluster.state("handed", 0), cluster.state("handed", 1)
    assert led is not None
    assert (led.leader, led.in_sync_replicas) == (1, (1,))
    assert followed is not None
    assert followed.in_sync_replicas == (2,)
    start(cluster, OURS)
    cluster.await_isr("handed", 1, OURS)


@pytest.mark.nightly
def test_a_minibroker_that_has_lost_its_log_directory_ends_and_others_lead(cluster: MixedCluster) -> None:
    cluster.create_topic("directory", [OURS, 1])
    cluster.await_isr("directory", OURS, 1)
    produce(cluster.bootstrap(OURS), "directory", values(1))
    ours = cluster.brokers[OURS]
    aside = ours.data_dir.rename(ours.data_dir.with_name("aside"))
    try:
        assert isinstance(ours, Minibroker)
        assert ours.wait_for_exit() == 1
        assert (
            "has failed, and others lead in place of this broker; name another directory with --data-dir DIR"
            in ours.log_text
        )
    finally:
        aside.rename(ours.data_dir)
    state = cluster.state("directory")
    assert state is not None
    assert (state.leader, state.in_sync_replicas) == (1, (1,))
    start(cluster, OURS)
    cluster.await_isr("directory", 1, OURS)


@pytest.mark.nightly
def test_a_transaction_of_kafkas_coordinator_is_whole_in_minibrokers_partition(cluster: MixedCluster) -> None:
    cluster.create_topic("__transaction_state", [2], cleanup_policy="compact")
    cluster.create_topic("transactions", [OURS, 1])
    producer = Producer({"bootstrap.servers": cluster.bootstrap(OURS), "transactional.id": "mixed", "log_level": 0})
    producer.init_transactions(60)
    for number, ends in enumerate(
        (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)
    ):
        producer.begin_transaction()
        for value in values(3, number * 10):
            producer.produce("transactions", value, partition=0)
        ends(60)
    committed = values(3) + values(3, 20)
    assert read(cluster.bootstrap(OURS), "transactions", 6, isolation="read_committed") == committed
    cluster.await_same_logs("transactions", OURS, 1)
    restart(cluster, OURS)  # the other one leads: it has the aborted ones from our bytes
    cluster.await_state("transactions", 0, lambda state: state.leader == 1)
    assert read(cluster.bootstrap(1), "transactions", 6, isolation="read_committed") == committed
