"""Minibroker as the controller of Apache Kafka 2.0.1 brokers: the same happens as under a controller of Kafka."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from benchmarks.apache_kafka import kafka_jars
from minibroker.broker.wings.zookeeper_nodes import nodes
from minibroker.protocol.api import ApiKey
from tests.integration.kafka_tools import kafka_tool
from tests.integration.mixed_cluster import MixedCluster, produce
from tests.integration.wire import connection_to

OURS = 3
ROTATED = ([1, 2, OURS], [2, OURS, 1], [OURS, 1, 2])  # the replicas of three partitions
TOPICS = "kafka.admin.TopicCommand"
PREFERRED = "kafka.admin.PreferredReplicaLeaderElectionCommand"
REASSIGN = "kafka.admin.ReassignPartitionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
# No leader finds a lagging follower before its session has expired: which of the two comes first is a race.
SETTINGS: dict[str, str | int] = {"replica.lag.time.max.ms": 20_000, "controlled.shutdown.retry.backoff.ms": 500}


@pytest.fixture
def cluster(jars: Path, tmp_path: Path) -> Iterator[MixedCluster]:
    cluster = MixedCluster(jars, tmp_path)
    try:
        yield cluster
    finally:
        cluster.close()


def start(cluster: MixedCluster, broker_id: int) -> None:
    if broker_id in (OURS, 4):
        cluster.start_ours(broker_id, **SETTINGS)
    else:
        cluster.start_kafka(broker_id, **SETTINGS)


def tree_after_a_life(jars: Path, cluster: MixedCluster, directory: Path) -> dict[str, Any]:
    """Drive the cluster by Kafka's tools through failures and changes; return the nodes that are left.

    Broker 2 ends and returns; the controller is another one.
    """

    def tool(main: str, *arguments: str) -> str:
        return kafka_tool(jars, main, "--zookeeper", cluster.zookeeper, *arguments)

    def all_in_sync(topic: str, *replicas: tuple[int, ...]) -> None:
        for number, each in enumerate(replicas):
            cluster.await_state(topic, number, partial(has_in_sync, each))

    def create(topic: str, assignment: str, *arguments: str) -> None:
        tool(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment, *arguments)

    create("orders", "1:2,2:3,3:1", "--config", "retention.ms=-1")
    create("single", "2,3")
    all_in_sync("orders", (1, 2), (2, 3), (3, 1))
    for number in range(3):
        produce(cluster.bootstrap(1), "orders", [f"value {each}" for each in range(10)], number=number)
    for end in (cluster.kill, cluster.stop):
        end(2)
        cluster.await_gone(2)
        for number in range(2):
            cluster.await_state("orders", number, lambda state: 2 not in state.in_sync_replicas)
        cluster.await_state("single", 0, partial(is_led_by, -1))
        start(cluster, 2)
        all_in_sync("orders", (1, 2), (2, 3), (3, 1))
        all_in_sync("single", (2,), (3,))
    tool(PREFERRED)
    await_no(cluster, nodes.PREFERRED_ELECTION)
    for number, leader in enumerate((1, 2, 3)):
        cluster.await_state("orders", number, partial(is_led_by, leader))
    moves = (("orders", 0, [3, 2]), ("orders", 2, [1, 2]), ("single", 0, [3]))
    rows = [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in moves]
    plan = directory / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    tool(REASSIGN, "--reassignment-json-file", str(plan), "--execute")
    await_no(cluster, nodes.REASSIGNMENT)
    all_in_sync("orders", (3, 2), (2, 3), (1, 2))
    all_in_sync("single", (3,), (3,))
    assert tool(REASSIGN, "--reassignment-json-file", str(plan), "--verify").count("completed successfully") == 3
    tool(TOPICS, "--alter", "--topic", "orders", "--partitions", "4", "--replica-assignment", "1:2,2:3,3:1,3:1")
    cluster.await_isr("orders", 3, 1, number=3)
    entity = ("--entity-type", "topics", "--entity-name", "orders")
    tool(CONFIGS, "--alter", *entity, "--add-config", "max.message.bytes=99")
    create("gone", "1:2:3,2:3:1")
    for number in range(2):
        cluster.await_state("gone", number, lambda state: len(state.in_sync_replicas) == 3)
    cluster.kill(2)
    cluster.await_gone(2)
    tool(TOPICS, "--delete", "--topic", "gone")  # waits for broker 2
    cluster.await_state("gone", 0, partial(is_led_by, -1))
    start(cluster, 2)
    await_no(cluster, nodes.topic_path("gone"))
    await_no(cluster, f"{nodes.DELETE_TOPICS}/gone")
    all_in_sync("orders", (3, 2), (2, 3), (1, 2), (3, 1))
    kept = [("orders", number) for number in range(4)] + [("single", 0), ("single", 1)]
    chains = {f"chain of {topic}-{number}": chain(cluster, topic, number) for topic, number in kept}
    return {**tree_of(cluster), **chains, "metadata": cluster.await_same_metadata()}


def chain(cluster: MixedCluster, topic: str, number: int = 0) -> list[tuple[int, int, list[int], int]]:
    """Leader, epoch, in-sync replicas and controller epoch of each state that a partition has had."""
    return [
        (state.leader, state.leader_epoch, sorted(state.in_sync_replicas), state.controller_epoch)
        for state in cluster.chain_of(topic, number)
    ]


def has_in_sync(replicas: tuple[int, ...], state: nodes.StateNode) -> bool:
    return state.leader >= 0 and {*state.in_sync_replicas} == {*replicas}


def is_led_by(broker_id: int, state: nodes.StateNode) -> bool:
    return state.leader == broker_id


def await_no(cluster: MixedCluster, path: str) -> None:
    cluster.eventually(lambda: cluster.node(path) is None, lambda: f"{path} is there: {cluster.node(path)}")


def tree_of(cluster: MixedCluster) -> dict[str, Any]:
    """The data of all nodes by path, with the version of states; without times and what only one run can have."""
    client = cluster.client()
    found: dict[str, Any] = {}
    paths = [nodes.TOPICS, "/config", "/admin", nodes.ISR_CHANGES]
    while paths:
        path = paths.pop()
        paths += [f"{path}/{name}" for name in client.children(path)]
        node = client.data(path)
        document: Any = json.loads(node.data) if node.data.startswith(b"{") else node.data
        if path.endswith("/state"):
            document["isr"].sort()  # in the order in which they have come back
            document["node version"] = node.stat.version
        found[path] = document
    client.close()
    return found


@pytest.mark.nightly
def test_minibroker_controls_as_kafka_does(jars: Path, tmp_path: Path) -> None:
    trees: dict[int, dict[str, Any]] = {}
    for controller, others in ((1, (2, OURS)), (OURS, (1, 2))):
        directory = tmp_path / str(controller)
        cluster = MixedCluster(jars, directory)
        try:
            for broker_id in (controller, *others):
                start(cluster, broker_id)
            trees[controller] = tree_after_a_life(jars, cluster, directory)
            assert cluster.controller == controller
            if controller == OURS:  # Kafka's controller writes some about partitions whose replicas are all gone
                assert {each: cluster.errors_of(each) for each in (1, 2)} == {1: [], 2: []}
        finally:
            cluster.close()
    assert trees[OURS] == trees[1]


UNCLEAN_CHAIN = [(1, 0, [1, 2]), (1, 1, [1]), (-1, 2, [1]), (2, 3, [2]), (2, 3, [1, 2])]
CLEAN_CHAIN = [(1, 0, [1, 2]), (1, 1, [1]), (-1, 2, [1]), (1, 3, [1]), (1, 3, [1, 2])]


@pytest.mark.nightly
@pytest.mark.parametrize(("controller", "first", "second"), [(1, OURS, 2), (1, 2, OURS), (OURS, 1, 2), (OURS, 2, 4)])
def test_a_replica_that_lacks_records_leads_only_where_that_is_allowed(
    cluster: MixedCluster, controller: int, first: int, second: int
) -> None:
    for broker_id in (controller, first, second):
        start(cluster, broker_id)
    cluster.create_topic("unclean", [first, second], unclean_leader_election_enable="true")
    cluster.create_topic("clean", [first, second])
    for topic in ("unclean", "clean"):
        cluster.await_isr(topic, first, second)
        produce(cluster.bootstrap(first), topic, ["both"])
    cluster.stop(second)
    for topic in ("unclean", "clean"):
        cluster.await_isr(topic, first)
        produce(cluster.bootstrap(first), topic, ["of the first"], acks=1)
    cluster.kill(first)
    cluster.await_gone(first)
    for topic in ("unclean", "clean"):
        cluster.await_state(topic, 0, partial(is_led_by, -1))
    start(cluster, second)
    cluster.await_state("unclean", 0, partial(is_led_by, second))
    assert produce(cluster.bootstrap(second), "unclean", ["of the second"]) == [1]
    start(cluster, first)
    cluster.await_isr("unclean", second, first)
    cluster.await_isr("clean", first, second)
    assert b"of the first" not in cluster.await_same_logs("unclean", first, second)
    assert b"of the first" in cluster.await_same_logs("clean", first, second)
    ids = {first: 1, second: 2, -1: -1}
    chains = {
        topic: [
            (ids[leader], epoch, sorted(ids[each] for each in in_sync))
            for leader, epoch, in_sync, _ in chain(cluster, topic)
        ]
        for topic in ("unclean", "clean")
    }
    assert chains == {"unclean": UNCLEAN_CHAIN, "clean": CLEAN_CHAIN}
    assert cluster.controller == controller


@pytest.mark.nightly
@pytest.mark.parametrize(("controller", "other"), [(1, OURS), (OURS, 1)])
def test_others_take_over_the_partitions_of_a_failed_log_directory(
    cluster: MixedCluster, tmp_path: Path, controller: int, other: int
) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    two: dict[str, str | int] = {
        "log.dirs": ",".join(map(str, directories)),
        "replica.high.watermark.checkpoint.interval.ms": 500,
    }
    for broker_id in (controller, other):
        start(cluster, broker_id)
    cluster.start_kafka(2, **SETTINGS, **two)
    roles = {"led": (2, other), "followed": (other, 2)}
    topics = {f"{role}-{number}": replicas for role, replicas in roles.items() for number in range(2)}
    for topic, replicas in topics.items():
        cluster.create_topic(topic, replicas)
        cluster.await_isr(topic, *replicas)
        produce(cluster.bootstrap(), topic, ["before"])
    failing = next(each for each in directories if (each / "led-0-0").is_dir())
    lost = {topic for topic in topics if (failing / f"{topic}-0").is_dir()}
    assert {topic.partition("-")[0] for topic in lost} == {"led", "followed"}
    aside = failing.rename(tmp_path / "aside")
    for topic, replicas in topics.items():
        in_sync = (other,) if topic in lost else replicas
        state = cluster.await_isr(topic, *in_sync)
        assert (state.leader, state.leader_epoch) == (in_sync[0], 1 if topic in lost else 0)
        produce(cluster.bootstrap(), topic, ["meanwhile"])
    offline = {topic: (2,) if topic in lost else () for topic in topics}
    for broker_id in (controller, other):
        cluster.eventually(partial(shows_offline, cluster, broker_id, offline), lambda: str(offline))
    cluster.stop(2)
    failing.unlink(missing_ok=True)
    aside.rename(failing)
    cluster.await_gone(2)
    cluster.start_kafka(2, **SETTINGS, **two)
    for topic in topics:
        cluster.await_state(topic, 0, lambda state: len(state.in_sync_replicas) == 2)
    assert set(offline_of(cluster, controller).values()) == {()}
    assert cluster.controller == controller


def shows_offline(cluster: MixedCluster, broker_id: int, offline: Mapping[str, Sequence[int]]) -> bool:
    return offline_of(cluster, broker_id) == offline


def offline_of(cluster: MixedCluster, broker_id: int) -> Mapping[str, Sequence[int]]:
    """The offline replicas of each topic's partition, as a broker shows them."""
    with connection_to(cluster.bootstrap(broker_id)) as connection:
        answer = connection.call(ApiKey.METADATA, 5, topics=None, allow_auto_topic_creation=False)
    return {topic.name: tuple(topic.partitions[0].offline_replicas) for topic in answer.topics}


@pytest.mark.nightly
def test_control_goes_from_minibroker_to_kafka_and_back(jars: Path, cluster: MixedCluster) -> None:
    for broker_id in (OURS, 1):
        start(cluster, broker_id)
    cluster.create_topic("orders", [OURS, 1], [1, OURS])
    written: list[int] = []
    for epoch, (controller, other, end) in enumerate(
        ((OURS, 1, cluster.stop), (1, OURS, cluster.stop), (OURS, 1, cluster.kill), (1, OURS, cluster.kill)), 1
    ):
        cluster.await_controller(controller)
        node = cluster.node(nodes.CONTROLLER_EPOCH)
        assert node is not None
        assert node.data == str(epoch).encode()
        for number in range(2):
            cluster.await_state("orders", number, lambda state: len(state.in_sync_replicas) == 2)
        written = produce(cluster.bootstrap(), "orders", [f"value {epoch} {each}" for each in range(10)])
        end(controller)
        cluster.await_controller(other)
        for number in range(2):
            cluster.await_state("orders", number, partial(is_led_by, other))
        written = produce(cluster.bootstrap(other), "orders", [f"value {epoch} {each}" for each in range(10)])
        cluster.await_gone(controller)
        start(cluster, controller)
    assert written[-1] == 79
    cluster.await_isr("orders", OURS, 1)
    cluster.await_same_logs("orders", OURS, 1)
    assert cluster.errors_of(1) == []


@pytest.mark.nightly
def test_a_controller_that_stood_still_finds_that_another_one_controls(jars: Path, cluster: MixedCluster) -> None:
    for broker_id in (OURS, 1):
        start(cluster, broker_id)
    cluster.create_topic("orders", [OURS, 1])
    cluster.await_isr("orders", OURS, 1)
    produce(cluster.bootstrap(OURS), "orders", ["first"])
    pid = cluster.brokers[OURS].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        cluster.await_gone(OURS)
        cluster.await_controller(1)
        cluster.await_isr("orders", 1)
        produce(cluster.bootstrap(1), "orders", ["second"])
    finally:
        os.kill(pid, signal.SIGCONT)
    cluster.await_isr("orders", 1, OURS)
    assert cluster.controller == 1
    cluster.await_same_logs("orders", OURS, 1)
    cluster.await_same_metadata()
    assert cluster.errors_of(1) == []


@pytest.mark.nightly
def test_a_broker_whose_return_kafkas_controller_has_not_noticed_registers_anew(cluster: MixedCluster) -> None:
    cluster.start_kafka(1, **SETTINGS, **{"zookeeper.session.timeout.ms": 30_000})
    cluster.start_ours(OURS, **SETTINGS, **{"zookeeper.session.timeout.ms": 4000})
    cluster.create_topic("orders", [OURS, 1])
    cluster.await_same_metadata()
    path = nodes.broker_path(OURS)
    before = cluster.node(path)
    cluster.kill(OURS)
    os.kill(cluster.brokers[1].pid, signal.SIGSTOP)  # it sees the ids of brokers once the other has returned
    ours = cluster.launch_ours(OURS, **SETTINGS, **{"zookeeper.session.timeout.ms": 4000})

    def has_returned() -> bool:
        node = cluster.node(path)
        return node is not None and before is not None and node.stat.czxid != before.stat.czxid

    cluster.eventually(has_returned, lambda: f"{path} is {cluster.node(path)}")
    os.kill(cluster.brokers[1].pid, signal.SIGCONT)
    ours.wait_until_ready()

    assert "has not noticed that this broker has started" in ours.log_text
    assert sorted(produce(cluster.bootstrap(OURS), "orders", ["after"])) == [0]
    cluster.await_state("orders", 0, lambda state: set(state.in_sync_replicas) == {1, OURS})


def test_changes_asked_of_minibroker_as_the_controller_hold_at_kafka(jars: Path, cluster: MixedCluster) -> None:
    for broker_id in (OURS, 1):
        start(cluster, broker_id)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap(1)})  # Kafka's metadata name the controller

    def done(futures: Mapping[Any, Future[Any]]) -> None:
        for future in futures.values():
            future.result(30)

    done(admin.create_topics([NewTopic("made", 2, 2, config={"retention.ms": "-1"}), NewTopic("gone", 1, 2)]))
    done(admin.create_partitions([NewPartitions("made", 3)]))
    for number in range(3):
        cluster.await_state("made", number, partial(has_in_sync, (1, OURS)))
        produce(cluster.bootstrap(1), "made", ["value"], number=number)
        cluster.await_same_logs("made", 1, OURS, number=number)
    done(admin.delete_topics(["gone"]))
    await_no(cluster, nodes.topic_path("gone"))
    entries = [ConfigEntry("max.message.bytes", "77", incremental_operation=AlterConfigOpType.SET)]
    ours = AdminClient({"bootstrap.servers": cluster.bootstrap(OURS)})
    done(
        ours.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, "made", incremental_configs=entries)])
    )
    cluster.brokers[1].wait_for_log(r"topics/made with config: .*max.message.bytes -> 77")
    assert set(cluster.await_same_metadata()) == {"made"}
    assert cluster.errors_of(1) == []


@pytest.mark.nightly
def test_brokers_serve_on_without_zookeeper_and_go_on_with_it(jars: Path, cluster: MixedCluster) -> None:
    for broker_id in (OURS, 1):
        start(cluster, broker_id)
    cluster.create_topic("orders", [OURS, 1])
    cluster.await_isr("orders", OURS, 1)
    cluster.stop_zookeeper()
    cluster.brokers[OURS].wait_for_log("the connection to ZooKeeper is lost")
    assert produce(cluster.bootstrap(OURS), "orders", ["first", "second"]) == [0, 1]
    cluster.start_zookeeper()
    cluster.create_topic("later", [OURS, 1])
    cluster.await_isr("later", OURS, 1)
    assert cluster.controller == OURS
    cluster.await_same_logs("orders", OURS, 1)
    cluster.await_same_metadata()


@pytest.mark.nightly
@pytest.mark.parametrize(("release", "protocol"), [("1.1.1", "1.1"), ("0.11.0.3", "0.11.0")])
def test_brokers_of_earlier_releases_are_led_followed_and_controlled(
    jars: Path, cluster: MixedCluster, release: str, protocol: str
) -> None:
    """As in the middle of an upgrade: a broker of the release, and one of 2.0.1 with its protocol."""
    spoken = {"inter.broker.protocol.version": protocol, "log.message.format.version": protocol}
    settings = {**SETTINGS, **spoken, "delete.topic.enable": "true"}
    cluster.start_ours(OURS, **settings)
    cluster.start_kafka(1, kafka_jars(release=release), **settings)
    cluster.start_kafka(2, **settings)

    def lives(topic: str) -> None:
        """Each broker leads a partition, all follow, and the preferred leaders are elected."""
        for number, replicas in enumerate(ROTATED):
            cluster.await_state(topic, number, partial(has_in_sync, tuple(replicas)))
        kafka_tool(jars, PREFERRED, "--zookeeper", cluster.zookeeper)
        for number, replicas in enumerate(ROTATED):
            cluster.await_state(topic, number, partial(is_led_by, replicas[0]))
            produce(cluster.bootstrap(), topic, [f"value {each}" for each in range(10)], number=number)
            cluster.await_same_logs(topic, *replicas, number=number)
        cluster.await_same_metadata()

    cluster.create_topic("orders", *ROTATED)
    lives("orders")
    cluster.stop(1)
    cluster.await_gone(1)
    cluster.start_kafka(1, kafka_jars(release=release), **settings)
    lives("orders")
    cluster.stop(OURS)
    cluster.await_gone(OURS)
    cluster.start_ours(OURS, **settings)
    assert cluster.controller != OURS
    lives("orders")
    kafka_tool(jars, TOPICS, "--zookeeper", cluster.zookeeper, "--delete", "--topic", "orders")
    await_no(cluster, nodes.topic_path("orders"))
    assert {each: cluster.errors_of(each) for each in (1, 2)} == {1: [], 2: []}
