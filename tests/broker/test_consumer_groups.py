"""Groups of the consumer protocol at the handlers: what is not in the conversations with Apache Kafka 4.4.0.

Deadlines, settings, restarts and loads, failures of the log, the way between the protocols, and rights.
"""

from __future__ import annotations

import gc
import sys
import uuid
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest
import trio

from minibroker.broker.cluster import topic_admin
from minibroker.broker.cluster.sections import GROUP_CONFIGS
from minibroker.broker.group.group_topics import topic_hash
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.replica.decisions import PartitionState, TopicMetadata
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wings.consumer.assignors import ASSIGNORS
from minibroker.broker.wings.consumer.group import ConsumerGroupState
from minibroker.broker.wings.consumer.member import ConsumerMember
from minibroker.broker.wings.consumer.member_counts import MemberCounts
from minibroker.broker.wings.consumer.wing import ConsumerWing
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.group_clients import subscription

pytestmark = pytest.mark.time_jumps

SETTINGS: dict[str, object] = {
    "offsets_topic_num_partitions": 1,
    "group_initial_rebalance_delay_ms": 0,
    "group_consumer_assignment_interval_ms": 0,
}
GROUP_RESOURCE = 32  # of DescribeConfigs
# Of kafka 4.4 Utils.computeTopicHash for the topic below, whose brokers have no racks, or two.
KAFKAS_HASHES = [2440286799289759334, 1251112124776226475]


class Members:
    """Asks as the members of one group, and knows the epochs of those of the consumer protocol."""

    def __init__(self, broker: InMemoryBroker, group_id: str = "g") -> None:
        self.broker = broker
        self.group_id = group_id
        self.epochs: dict[str, int] = {}

    async def find(self) -> None:
        await self.broker.call(ApiKey.FIND_COORDINATOR, 1, key=self.group_id)

    async def beat(self, member_id: str, epoch: int | None = None, **body: Any) -> Any:
        epoch = self.epochs.get(member_id, 0) if epoch is None else epoch
        given: dict[str, Any] = {"group_id": self.group_id, "member_id": member_id, "member_epoch": epoch}
        answer = await self.broker.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **given | body)
        if answer.error_code == ErrorCode.NONE and epoch >= 0:
            self.epochs[member_id] = answer.member_epoch
        return answer

    async def join(self, member_id: str, **body: Any) -> Any:
        given: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
        if "subscribed_topic_regex" not in body:
            given["subscribed_topic_names"] = ["t"]
        return await self.beat(member_id, 0, **given | body)

    async def has(self, member_id: str, *partitions: int) -> Any:
        """Heartbeat with the partitions that the member has."""
        return await self.beat(member_id, topic_partitions=[(self.topic_id(), list(partitions))])

    def topic_id(self, name: str = "t") -> bytes:
        topic_id: bytes = self.broker.parts.metadata_cache.topics[name].topic_id.bytes
        return topic_id

    async def describe(self) -> Any:
        body: dict[str, Any] = {"group_ids": [self.group_id], "include_authorized_operations": True}
        return (await self.broker.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **body)).groups[0]

    async def join_classic(self, member_id: str = "", *owned: int, **body: Any) -> Any:
        given: dict[str, Any] = {"group_id": self.group_id, "member_id": member_id, "session_timeout_ms": 10_000}
        given |= {"rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
        given |= {"protocols": [("range", subscription(*owned))]}
        return await self.broker.call(ApiKey.JOIN_GROUP, 5 if "group_instance_id" in body else 3, **given | body)

    async def listed(self) -> list[tuple[str, str]]:
        answer = await self.broker.call(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])
        return [(row.group_state, row.group_type) for row in answer.groups if row.group_id == self.group_id]


async def members_of(broker: InMemoryBroker, partitions: int = 4) -> Members:
    """A broker's group without members, and a topic for it."""
    members = Members(broker)
    await members.find()
    await broker.create_topic("t", partitions)
    return members


@pytest.fixture
async def members(make_broker: MakeBroker) -> Members:
    return await members_of(make_broker(**SETTINGS))


# -- deadlines ------------------------------------------------------------------------------------------------


async def test_deadlines_leave_the_timer_with_their_members(members: Members) -> None:
    timer = members.broker.timers.timer
    before = len(timer)

    for number in range(3):
        await members.join(f"m{number}")
        await members.beat("m0")
    for number in range(3):
        await members.beat(f"m{number}", -1)

    assert len(timer) == before


# -- settings -------------------------------------------------------------------------------------------------


async def test_topics_of_an_expression_are_looked_up_when_there_are_new_ones_and_after_the_interval(
    make_broker: MakeBroker,
) -> None:
    members = await members_of(make_broker(**SETTINGS, group_consumer_regex_refresh_interval_ms=60_000), 1)
    clock = members.broker.clock
    await members.join("a", subscribed_topic_regex="t.*")
    assert [row.partitions for row in (await members.beat("a")).assignment.topic_partitions] == [[0]]
    await members.broker.create_topic("t2")
    await members.beat("a")
    early = await members.beat("a")
    clock.wall_now_ms += 10_001
    await members.beat("a")
    assert early.assignment is None
    assert len((await members.beat("a")).assignment.topic_partitions) == 2

    group = members.broker.parts.groups.get("g")
    assert group is not None
    looked_up_ms = []
    for _ in range(2):
        clock.wall_now_ms += 35_000
        await members.beat("a")
        looked_up_ms.append(group_of(members).resolved["t.*"].timestamp_ms)

    assert looked_up_ms == [clock.wall_now_ms - 70_000, clock.wall_now_ms]


def group_of(members: Members) -> Any:
    return members.broker.parts.groups.get(members.group_id)


# -- groups of any size ---------------------------------------------------------------------------------------


def note_call(calls: list[str], frame: FrameType, event: str, _: object) -> None:
    calls.append(f"{event} {frame.f_code.co_qualname}")


@pytest.mark.pure
@pytest.mark.parametrize(
    "body",
    [{}, {"instance_id": "i", "server_assignor": "range"}, {"subscribed_topic_regex": "t"}],
    ids=["by name", "static", "by expression"],
)
async def test_a_heartbeat_costs_the_same_in_a_group_of_any_size(make_broker: MakeBroker, body: dict[str, Any]) -> None:
    members = await members_of(make_broker(**SETTINGS), partitions=40)
    calls: dict[int, list[str]] = {}

    def body_of(member_id: str) -> dict[str, Any]:
        return body | ({"instance_id": member_id} if "instance_id" in body else {})

    for size in (4, 40):
        for number in range(len(members.epochs), size):
            await members.join(f"m{number}", **body_of(f"m{number}"))
        for member_id in [*members.epochs] * 3:
            owned = group_of(members).members[member_id].assigned
            await members.beat(member_id, topic_partitions=list(owned.items()), **body_of(member_id))
        assert group_of(members).state is ConsumerGroupState.STABLE
        beat = {"group_id": "g", "member_id": "m1", "member_epoch": members.epochs["m1"], **body_of("m1")}
        gc.disable()  # else a collection may come in between
        sys.setprofile(partial(note_call, calls.setdefault(size, [])))
        try:
            members.broker.dispatch(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **beat)
        finally:
            sys.setprofile(None)
            gc.enable()

    assert calls[4] == calls[40]


def test_counts_are_of_the_members_as_they_are() -> None:
    random = Random(5)
    counts, members = MemberCounts(), dict[str, ConsumerMember]()
    for _ in range(300):
        name = random.choice("abcd")
        before = members.pop(name, None)
        if random.random() < 0.8:
            owned: dict[str, Any] = {
                random.choice(["assigned", "pending_revocation"]): {
                    bytes(1): dict.fromkeys(random.sample(range(4), 2), 1)
                }
            }
            members[name] = (before or ConsumerMember(name))._replace(
                instance_id=random.choice([None, name.upper()]),
                topic_names=frozenset(random.sample("tuv", 2)),
                topic_regex=random.choice([None, "", "x", "y"]),
                server_assignor=random.choice([None, *ASSIGNORS]),
                **owned,
            )
        counts.change(before, members.get(name))

        all_members = members.values()
        assert counts.topics == Counter(topic for each in all_members for topic in each.topic_names)
        assert counts.regexes == Counter(each.topic_regex for each in all_members if each.topic_regex)
        assert counts.assignors == Counter(each.server_assignor for each in all_members if each.server_assignor)
        owners = [partitions for each in all_members for partitions in (each.assigned, each.pending_revocation)]
        assert counts.owners == Counter(
            (topic, partition) for each in owners for topic in each for partition in each[topic]
        )
        assert counts.static_ids == {each.instance_id: each.member_id for each in all_members if each.instance_id}


# -- the log --------------------------------------------------------------------------------------------------


@pytest.mark.pure
async def test_a_change_that_cannot_be_stored_changes_nothing(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await members.join("a")
    before = group_of(members)
    with monkeypatch.context() as patch:
        patch.setattr(OffsetStore, "append", lambda *_: ErrorCode.NOT_COORDINATOR)
        refused = [
            await members.join("b"),
            await members.beat("a", subscribed_topic_names=["u"]),
            await members.beat("a", -1),
        ]
        classic = await members.join_classic()

        await members.broker.call(ApiKey.CREATE_PARTITIONS, 1, topics=[("t", 5, None)], timeout_ms=1000)
        refused.append(await members.beat("a"))

    assert {each.error_code for each in refused} == {classic.error_code} == {ErrorCode.NOT_COORDINATOR}
    assert group_of(members) is before
    assert (await members.beat("a")).assignment.topic_partitions[0].partitions == [0, 1, 2, 3, 4]
    assert (await members.join("b")).error_code == ErrorCode.NONE


@pytest.mark.pure
async def test_a_removal_that_cannot_be_stored_is_tried_again(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await members.join("a")
    with monkeypatch.context() as patch:
        patch.setattr(OffsetStore, "append", lambda *_: ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await trio.sleep(46)
        kept = await members.listed()
    await trio.sleep(1)

    assert (kept, await members.listed()) == ([("Stable", "consumer")], [("Empty", "consumer")])
    group = group_of(members)
    assert group.rebalance_reason == "member a is removed: its session has ended"
    assert list(group.missed_members) == ["a"]


def test_the_hash_of_a_topic_is_that_of_kafka() -> None:
    replicas = {number: PartitionState(0, 0, (0, 1), (0, 1)) for number in range(3)}
    topic = TopicMetadata("flights-é", uuid.UUID(int=0x0123456789ABCDEF_FEDCBA9876543210), replicas)

    assert [topic_hash(topic, racks) for racks in ({}, {0: "b", 1: "a"})] == KAFKAS_HASHES


# -- between the protocols ------------------------------------------------------------------------------------


async def test_beside_apache_kafka_2_0_there_are_no_such_groups(make_broker: MakeBroker) -> None:
    config = make_broker(**SETTINGS).parts.config

    assert ConsumerWing.is_asked_for(config, ServeOptions())
    assert not ConsumerWing.is_asked_for(config, ServeOptions(zookeeper="127.0.0.1:2181"))


# -- rights ---------------------------------------------------------------------------------------------------


async def test_the_configs_of_all_groups_are_bounded(make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_admin, "CONFIGS_MAX_BYTES", 10_000)
    broker = make_broker()

    async def outcome(name: str, operation: int = 0) -> ErrorCode:
        rows = [(GROUP_RESOURCE, name, [("consumer.session.timeout.ms", operation, "50000")])]
        answer = await broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=rows, validate_only=False)
        return ErrorCode(answer.responses[0].error_code)

    first, second = "x" * 9000, "y" * 1000
    refused = [await outcome(each) for each in (first, second, first)]
    assert refused == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert broker.state.get(GROUP_CONFIGS).keys() == {first}
    assert [await outcome(first, 1), await outcome(second)] == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize(
    ("least", "most", "config"),
    [
        (
            "group.consumer.min.session.timeout.ms",
            "group.consumer.max.session.timeout.ms",
            "consumer.session.timeout.ms",
        ),
        (
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
            "consumer.heartbeat.interval.ms",
        ),
        (
            "group.consumer.min.assignment.interval.ms",
            "group.consumer.max.assignment.interval.ms",
            "consumer.assignment.interval.ms",
        ),
    ],
)
async def test_a_group_keeps_configs_of_its_own_within_the_bounds_of_the_broker(
    make_broker: MakeBroker, tmp_path: Path, least: str, most: str, config: str
) -> None:
    broker = make_broker(tmp_path, **{least: 6000, most: 7000})

    async def outcome(value: int) -> ErrorCode:
        rows = [(GROUP_RESOURCE, "g", [(config, 0, str(value))])]
        answer = await broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=rows, validate_only=False)
        return ErrorCode(answer.responses[0].error_code)

    async def value() -> str:
        answer = await broker.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[(GROUP_RESOURCE, "g", [config])])
        return str(answer.results[0].configs[0].value)

    assert [await outcome(each) for each in (5999, 7001)] == [ErrorCode.INVALID_CONFIG] * 2
    assert await outcome(6500) == ErrorCode.NONE
    assert await value() == "6500"
    for bounds, kept in (((6000, 7000), "6500"), ((6600, 7000), "6600"), ((6000, 6400), "6400")):
        broker.close()
        broker = make_broker(tmp_path, **dict(zip((least, most), bounds, strict=True)))
        assert await value() == kept
