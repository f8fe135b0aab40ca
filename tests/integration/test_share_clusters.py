"""Share groups in a cluster of three, by confluent-kafka's ShareConsumer, while a broker dies, or hands over.

What was accepted, and answered so, is never delivered again; what was in flight comes again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from benchmarks.apache_kafka import KafkaUnavailable
from benchmarks.later_kafka import LaterKafka
from minibroker import Broker, Cluster
from minibroker.cli.app import main
from minibroker.client.address import parse_address
from minibroker.client.connection import Connection
from minibroker.protocol.api_table import API_TABLE, ApiKey
from minibroker.protocol.primitives import topic_id_text
from tests.integration.clusters import WAIT_SECONDS, Served, new_topic, produce, producer_of, read, roles, until

pytestmark = [pytest.mark.ability("share groups", "confluent-kafka")]

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
LEADER, KEEPER, COORDINATOR = 1, 2, 3  # of the topic, of the states, of the group
STATES, GROUPS = "__share_group_state", "__consumer_offsets"
LIMIT = 3  # deliveries
RECORDS = 12
numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "offsets.topic.num.partitions": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.share.min.heartbeat.interval.ms": 100,
        "group.share.heartbeat.interval.ms": 200,
        "group.share.min.record.lock.duration.ms": 1000,
        "group.share.record.lock.duration.ms": 2000,
    }
    with Cluster(brokers=3, settings=settings) as cluster:
        yield cluster


class Sharer:
    """A member of a group. `accepted` are offsets whose acceptance was answered, `counts` the deliveries of each."""

    def __init__(self, cluster: Served, group: str, topic: str) -> None:
        self.accepted: set[int] = set()
        self.counts: dict[int, list[int]] = {}
        self._topic = topic
        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "topic.metadata.refresh.interval.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[int]:
        """Poll once; return the offsets that came."""
        offsets = []
        for message in self._consumer.poll(timeout=0.2):
            assert message.error() is None, message.error()
            offset, count = message.offset(), message.delivery_count()
            assert offset is not None
            assert count is not None
            assert offset not in self.accepted, f"{offset} is delivered after it was accepted"
            self.counts.setdefault(offset, []).append(count)
            offsets.append(offset)
        return offsets

    def say(self, kinds: dict[int, AcknowledgeType]) -> bool:
        """Acknowledge records; return whether all was answered without an error."""
        for offset, kind in kinds.items():
            self._consumer.acknowledge_offset(self._topic, 0, offset, kind)
        if any(self._consumer.commit_sync(timeout=WAIT_SECONDS).values()):
            return False
        self.accepted |= {offset for offset, kind in kinds.items() if kind is ACCEPT}
        return True

    def take_all(self, kind_of: Callable[[int], AcknowledgeType], are_done: Callable[[], bool]) -> None:
        """Read and acknowledge until that is so."""

        def step() -> bool:
            offsets = self.poll()
            if offsets:
                self.say({offset: kind_of(offset) for offset in offsets})
            return are_done()

        until(step)

    def close(self) -> None:
        self._consumer.close()


def configure(cluster: Served, group: str, **configs: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_SECONDS)


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    cluster.restore()
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


class Scene:
    """A topic, a group with a dead-letter queue, and a member with records in flight; each role at another broker."""

    def __init__(self, cluster: Cluster, admin: AdminClient) -> None:
        self.name = f"t{next(numbers)}"
        self.letters = f"dlq.{self.name}"
        self.cluster = cluster
        new_topic(admin, self.name, [[LEADER, KEEPER, COORDINATOR]])
        new_topic(
            admin, self.letters, [[KEEPER, COORDINATOR, LEADER]], **{"errors.deadletterqueue.group.enable": "true"}
        )
        configure(
            cluster,
            self.name,
            share_auto_offset_reset="earliest",
            share_delivery_count_limit=str(LIMIT),
            errors_deadletterqueue_topic_name=self.letters,
        )
        produce(producer_of(cluster), self.name, [b"%d" % number for number in range(RECORDS)])
        self.sharer = self.member()
        until(lambda: bool(self.sharer.poll()) or len(self.sharer.counts) == RECORDS)
        for topic, broker_id in ((STATES, KEEPER), (GROUPS, COORDINATOR)):
            cluster.until_isr(topic, 0, [1, 2, 3])
            cluster.move_leader(topic, 0, broker_id)
        assert sorted(self.sharer.counts) == list(range(RECORDS))

    def member(self) -> Sharer:
        return Sharer(self.cluster, self.name, self.name)


@pytest.mark.parametrize("victim", [LEADER, KEEPER, COORDINATOR])
def test_a_broker_is_killed_while_records_are_in_flight(cluster: Cluster, admin: AdminClient, victim: int) -> None:
    scene = Scene(cluster, admin)
    first = scene.sharer
    assert first.say(dict.fromkeys(range(1, 5), ACCEPT) | {0: RELEASE, 5: REJECT})  # the others are in flight
    cluster.kill(victim)

    second = scene.member()
    second.accepted = first.accepted | {5}
    rest = {*range(RECORDS)} - second.accepted - {0}
    first.close()
    second.take_all(
        lambda offset: RELEASE if offset == 0 else ACCEPT,
        lambda: rest <= second.accepted and second.counts.get(0, [])[-1:] == [LIMIT],
    )

    assert second.counts[0] == [2, 3]
    cluster.restore()
    assert read(cluster, scene.letters, 2) == [b"", b""]
    second.close()


@pytest.mark.parametrize("how", ["election", "reassignment"])
def test_another_broker_takes_over_while_records_are_in_flight(cluster: Cluster, admin: AdminClient, how: str) -> None:
    scene = Scene(cluster, admin)
    first = scene.sharer
    assert first.say(dict.fromkeys(range(1, 5), ACCEPT) | {0: RELEASE})
    for topic in (scene.name, STATES, GROUPS):
        cluster.move_leader(topic, 0, 3 if topic != GROUPS else 1)
    if how == "reassignment":
        arguments = ["topics", "move", scene.name, "--to", "2,1", "-b", cluster.bootstrap_servers]
        assert main(arguments) == 0
        until(lambda: roles(admin, scene.name) == [(2, [1, 2])])
    else:
        assert main(["topics", "elect", scene.name, "-b", cluster.bootstrap_servers]) == 0
        until(lambda: roles(admin, scene.name)[0][0] == LEADER)

    rest = {*range(RECORDS)} - first.accepted
    second = scene.member()
    second.accepted |= first.accepted
    first.close()
    second.take_all(lambda offset: ACCEPT, lambda: rest <= second.accepted)
    assert second.counts[0] == [2]
    second.close()


def test_groups_are_described_reset_and_deleted(
    cluster: Cluster, admin: AdminClient, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(cluster, admin)
    control = str(cluster.broker(1)._control_path)

    def groups(*arguments: str) -> str:
        assert main(["groups", *arguments, "-b", cluster.bootstrap_servers]) == 0
        return capsys.readouterr().out

    with cluster.broker(LEADER).explain(api="ShareAcknowledge") as explained:
        assert scene.sharer.say({0: ACCEPT, 2: ACCEPT, 3: RELEASE})
        [acknowledgement] = explained.wait(1)
    assert f"Group {scene.name}: another broker coordinates it" in str(acknowledgement)
    assert f"{scene.name}-0: 3 is available; delivery 1" in str(acknowledgement)
    described = groups("describe", scene.name, "--control", control)
    assert f"lag {RECORDS - 2}, share group" in described
    assert [line.split()[2:5] for line in described.splitlines()[-4:]] == [
        ["1", "acquired", "1"],
        ["2", "acknowledged", "1"],
        ["3", "available", "1"],
        ["4-11", "acquired", "1"],
    ]
    with cluster.broker(COORDINATOR).explain(api="ShareGroupHeartbeat") as beats:
        beats.wait(1)  # librdkafka says once that it leaves, and would say so to the coordinator of before
    scene.sharer.close()
    until(lambda: "Empty" in groups("describe", scene.name))
    groups("reset", scene.name, "--to", "5", "--execute")
    assert f"lag {RECORDS - 5}, share group" in groups("describe", scene.name)

    again = scene.member()
    again.take_all(lambda offset: ACCEPT, lambda: again.accepted == {*range(5, RECORDS)})
    again.close()
    until(lambda: "Empty" in groups("describe", scene.name))
    groups("delete", scene.name)
    assert scene.name not in groups("list", "-o", "json")


INITIALIZE, READ, WRITE = (
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
)
DELETE, SUMMARIZE = ApiKey.DELETE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
UNINITIALIZED = "operation on uninitialized share partition not allowed."
OLD_LEADER = "The leader epoch in the request is older than the epoch on the broker."
OLD_STATE = "The coordinator rejected the request because the state epoch did not match."
# What is asked of one partition, and what Apache Kafka 4.4.0 answered: error, message, and what else there is.
OF_STATES: list[tuple[ApiKey, tuple[object, ...], tuple[object, ...]]] = [
    (READ, (0,), (42, f"Read {UNINITIALIZED}", 0, 0, [])),
    (SUMMARIZE, (0,), (0, None, 0, 0, -1, -1)),
    (WRITE, (0, 0, 0, 0, []), (42, f"Write {UNINITIALIZED}")),
    (DELETE, (), (0, None)),
    (INITIALIZE, (5, -1), (0, None)),
    (SUMMARIZE, (0,), (0, None, 5, 0, -1, -1)),
    (INITIALIZE, (4, -1), (124, OLD_STATE)),
    (READ, (3,), (0, None, 5, -1, [])),
    (SUMMARIZE, (2,), (0, None, 5, 3, -1, -1)),
    (READ, (2,), (74, OLD_LEADER, 0, 0, [])),
    (READ, (-1,), (42, "The leader epoch cannot be a negative number.", 0, 0, [])),
    (WRITE, (5, 2, 0, 0, []), (74, OLD_LEADER)),
    (WRITE, (4, 3, 0, 0, []), (124, OLD_STATE)),
    (WRITE, (6, 3, 0, 2, [(2, 4, 2, 1), (7, 9, 0, 2)]), (0, None)),
    (SUMMARIZE, (3,), (0, None, 5, 3, 0, 2)),
    (WRITE, (5, 4, 0, 2, [(3, 5, 0, 1)]), (0, None)),
    (WRITE, (5, 4, -1, 2, [(7, 8, 2, 1)]), (0, None)),
    (WRITE, (5, 4, -1, 2, [(7, 8, 1, 1)]), (0, None)),
    (READ, (4,), (0, None, 5, 0, [(2, 4, 2, 1), (5, 5, 0, 1), (7, 9, 0, 2)])),
    (WRITE, (5, 4, 5, 2, []), (0, None)),
    (WRITE, (5, 4, 2, 2, []), (0, None)),
    (READ, (4,), (0, None, 5, 5, [(5, 5, 0, 1), (7, 9, 0, 2)])),
    (DELETE, (), (0, None)),
    (READ, (4,), (42, f"Read {UNINITIALIZED}", 0, 0, [])),
]


def test_states_are_kept_as_apache_kafka_keeps_them(cluster: Cluster, admin: AdminClient) -> None:
    scene = Scene(cluster, admin)
    keeper = cluster.broker(KEEPER).bootstrap_servers
    with Connection(parse_address(keeper), client_id="other-broker") as connection:
        topic_id = connection.ask(ApiKey.METADATA, 12, topics=[(bytes(16), scene.name)]).topics[0].topic_id

        def ask(api: ApiKey, *fields: object, topic_id: bytes = topic_id, partition: int = 0) -> tuple[object, ...]:
            topics = [(topic_id, [(partition, *fields)])]
            answer = connection.ask(api, API_TABLE[api].versions[1], group_id="states", topics=topics)
            return tuple(answer.results[0].partitions[0])[1:]

        for number, (api, fields, expected) in enumerate(OF_STATES):
            assert ask(api, *fields) == expected, f"{number}: {api.name} {fields}"
        not_hosted = (3, "This server does not host this topic-partition.")
        assert ask(INITIALIZE, 4, -1, partition=9) == not_hosted
        assert ask(INITIALIZE, 4, -1, topic_id=b"x" * 16) == not_hosted
        assert ask(READ, 4, partition=-1)[:2] == (42, "The partition id cannot be a negative number.")

        keys = ["g:bad:0", f"states:{topic_id_text(topic_id)}:0"]
        found = connection.ask(ApiKey.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=keys).coordinators
        assert [(each.node_id, each.error_code) for each in found] == [(-1, 42), (KEEPER, 0)]
    scene.sharer.close()


def test_a_cluster_of_two_has_share_groups() -> None:
    with Cluster(brokers=2) as cluster:
        produce(producer_of(cluster), "t", [b"a"])
        configure(cluster, "g", share_auto_offset_reset="earliest")
        sharer = Sharer(cluster, "g", "t")
        sharer.take_all(lambda offset: ACCEPT, lambda: sharer.accepted == {0})
        sharer.close()


def test_a_leader_that_knew_a_group_begins_where_it_is_reset_to(cluster: Cluster, admin: AdminClient) -> None:
    scene = Scene(cluster, admin)
    group = f"{scene.name}-raw"
    configure(cluster, group, share_auto_offset_reset="earliest")
    own: dict[str, Any] = {"group_id": group, "member_id": "m"}
    size: dict[str, Any] = {
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
        "forgotten_topics": [],
    }
    at = [parse_address(cluster.broker(each).bootstrap_servers) for each in (LEADER, COORDINATOR)]
    with Connection(at[0], client_id="m") as leader, Connection(at[1], client_id="m") as coordinator:
        topic_id = leader.ask(ApiKey.METADATA, 12, topics=[(bytes(16), scene.name)]).topics[0].topic_id

        def beat(epoch: int) -> bool:
            body: dict[str, Any] = {"member_epoch": epoch, "rack_id": None, "subscribed_topic_names": [scene.name]}
            return not coordinator.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **own, **body).error_code

        def first_offset() -> int:
            topics: list[Any] = [(topic_id, [(0, [])])]
            fetched = leader.ask(
                ApiKey.SHARE_FETCH, 2, **own, **size, share_session_epoch=0, max_wait_ms=10_000, topics=topics
            )
            leader.ask(ApiKey.SHARE_FETCH, 2, **own, **size, share_session_epoch=-1, max_wait_ms=0, topics=[])
            return int(fetched.responses[0].partitions[0].acquired_records[0].first_offset)

        until(lambda: beat(0))
        assert first_offset() == 0
        assert beat(-1)
        altered = coordinator.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=[(scene.name, [(0, 5)])])
        assert altered.responses[0].partitions[0].error_code == 0
        assert beat(0)
        assert first_offset() == 5
    scene.sharer.close()


class Address(NamedTuple):
    """The brokers of a Kafka that is not ours."""

    bootstrap_servers: str


@pytest.mark.nightly
def test_apache_kafka_and_a_minibroker_go_on_with_what_the_other_kept(tmp_path: Path) -> None:
    """A directory of 4.4.0, with records that are accepted, and others delivered once, goes there and back again."""
    kafka = LaterKafka(tmp_path, {"group.share.min.record.lock.duration.ms": "1000"}, release="4.4.0")
    try:
        try:
            kafka.start()
        except KafkaUnavailable as reason:
            pytest.skip(str(reason))  # the jars could not be fetched: it says what to do
        theirs = Address(kafka.bootstrap)
        configure(theirs, "g", share_auto_offset_reset="earliest")
        produce(producer_of(theirs), "t", [b"%d" % number for number in range(RECORDS)])
        deliveries_of(theirs, {*range(4)}, count=1)
        kafka.kill()

        with Broker(data_dir=tmp_path / "data", settings={"broker.id": 0}) as ours:
            deliveries_of(ours, {*range(4, 8)}, count=2)

        kafka.restart()
        deliveries_of(theirs, {*range(8, RECORDS)}, count=3)
    finally:
        kafka.kill()


def deliveries_of(brokers: Served, accepted: set[int], *, count: int) -> None:
    """A member gets what is left, each record for that time, accepts these and releases the others."""
    member = Sharer(brokers, "g", "t")
    until(lambda: bool(member.poll()))
    left = range(min(accepted), RECORDS)
    assert member.counts == {offset: [count] for offset in left}
    assert member.say({offset: ACCEPT if offset in accepted else RELEASE for offset in left})
    member.close()
