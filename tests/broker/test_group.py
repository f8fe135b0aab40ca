"""The state of a group, and what changes it: no broker, no clock."""

from __future__ import annotations

import pytest

from minibroker.broker.group.group import VALID_PREVIOUS_STATES, Group, GroupState, subscribed_topics
from minibroker.broker.group.member import JoinResult, Member, SyncResult
from minibroker.broker.group.offsets import GroupOffsets
from minibroker.protocol.consumer_protocol import read_subscription
from minibroker.protocol.group_records import GroupRecord

NOW_MS = 1000
SUBSCRIBED_TO_A = b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xffand more"


class Answers:
    """Keeps what it is answered."""

    def __init__(self) -> None:
        self.given: list[JoinResult | SyncResult] = []

    def resolve(self, value: JoinResult | SyncResult, /) -> None:
        self.given.append(value)


def member(member_id: str, *protocols: str, instance_id: str | None = None, metadata: bytes = b"") -> Member:
    return Member(
        member_id,
        group_instance_id=instance_id,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=len(member_id) * 1000,
        session_timeout_ms=6000,
        protocols=[(name, metadata) for name in protocols or ("range",)],
    )


def group_of(*members: Member, protocol_type: str = "consumer") -> Group:
    group = Group("group")
    for each in members:
        group.add(each, protocol_type)
    return group


def stable(*members: Member) -> Group:
    group = group_of(*members)
    group.become(GroupState.PREPARING_REBALANCE, NOW_MS)
    group.begin_generation(NOW_MS)
    group.become(GroupState.STABLE, NOW_MS)
    return group


@pytest.mark.parametrize("after", GroupState)
def test_a_group_goes_only_where_the_table_allows(after: GroupState) -> None:
    for before in GroupState:
        group = Group("group")
        group.state = before
        if before in VALID_PREVIOUS_STATES[after]:
            group.become(after, NOW_MS)
            assert (group.state, group.state_timestamp_ms) == (after, NOW_MS)
        else:
            with pytest.raises(ValueError, match="cannot become"):
                group.become(after, NOW_MS)
            assert group.state is before


def test_the_table_of_states_is_that_of_kafka() -> None:
    assert {state.value: sorted(each.value for each in before) for state, before in VALID_PREVIOUS_STATES.items()} == {
        "PreparingRebalance": ["CompletingRebalance", "Empty", "Stable"],
        "CompletingRebalance": ["PreparingRebalance"],
        "Stable": ["CompletingRebalance"],
        "Empty": ["PreparingRebalance"],
        "Dead": ["CompletingRebalance", "Dead", "Empty", "PreparingRebalance", "Stable"],
    }


def test_a_rebalance_may_take_as_long_as_its_most_patient_member_allows() -> None:
    assert group_of(member("a"), member("abc"), member("ab")).rebalance_timeout_ms == 3000
    assert Group("group").rebalance_timeout_ms == 0


def test_a_member_that_has_joined_leads() -> None:
    first, second = member("a", instance_id="one"), member("b", instance_id="two")
    group = group_of(first, second)
    assert not group.elect_joined_leader()

    second.join_reply = Answers()

    assert group.elect_joined_leader()
    assert group.is_leader("b")


def test_a_group_comes_back_from_its_record_as_it_was() -> None:
    first, second = member("a", "x", "y", instance_id="one", metadata=b"m"), member("b", "y")
    group = stable(first, second)

    record = group.record({"a": b"p0", "b": b"p1"})
    restored = Group.from_record("group", record, GroupOffsets())

    assert record == GroupRecord("consumer", 1, "y", "a", NOW_MS, record.members)
    assert (restored.state, restored.generation_id, restored.leader_id) == (GroupState.STABLE, 1, "a")
    assert {each.member_id: each.assignment for each in restored.members.values()} == {"a": b"p0", "b": b"p1"}
    assert restored.static_members == {"one": "a"}
    assert restored.record() == record
    assert restored.supports("consumer", [("y", b"")]) and not restored.supports("consumer", [("x", b"")])


def test_a_group_without_members_comes_back_empty() -> None:
    record = GroupRecord("consumer", 7, None, None, NOW_MS, ())

    group = Group.from_record("group", record, GroupOffsets())

    assert (group.state, group.generation_id, group.protocol_type) == (GroupState.EMPTY, 7, "consumer")
    assert Group.from_record("group", None, GroupOffsets()).protocol_type is None


def test_a_consumer_group_without_readable_metadata_may_be_subscribed_to_anything() -> None:
    reader = member("a", metadata=SUBSCRIBED_TO_A)
    group = stable(reader)

    assert (group.is_subscribed_to("a"), group.is_subscribed_to("b")) == (True, False)
    group.update(reader, reader.terms._replace(protocols=[("sticky", SUBSCRIBED_TO_A)]))
    assert group.is_subscribed_to("b")
    assert stable(member("a", metadata=b"\0")).is_subscribed_to("b")
    assert not Group("group").is_subscribed_to("b")


def test_a_member_of_a_generation_is_kept_alive_by_waiting() -> None:
    waiting = member("a")
    assert not waiting.is_kept_alive
    waiting.join_reply = Answers()
    assert waiting.is_kept_alive
    waiting.is_new = True
    assert not waiting.is_kept_alive


def test_a_subscription_of_a_later_version_is_read_as_the_last_known_one() -> None:
    """As kafka 4.4 ConsumerProtocol does: later versions have more fields at their end."""
    later = b"\0\x09" + bytes.fromhex("00000001 000161 ffffffff 00000000 ffffffff 000172") + b"and more"

    assert (subscribed_topics(later), read_subscription(later).rack_id) == (["a"], "r")
