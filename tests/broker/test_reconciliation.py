"""A member's way to its target assignment: each step of the table, and that no partition ever has two owners."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.wings.consumer.member import ConsumerMember, MemberState
from minibroker.broker.wings.consumer.reconciliation import Target, reconciled
from minibroker.protocol.errors import ErrorCode, KafkaError

T, U = bytes(15) + b"\1", bytes(15) + b"\2"
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def member(
    state: MemberState = STABLE, epoch: int = 5, assigned: Any = (), revoking: Any = (), in_epoch: int = 5
) -> ConsumerMember:
    def owned(partitions: Any) -> dict[bytes, dict[int, int]]:
        return {T: dict.fromkeys(partitions, in_epoch)} if partitions else {}

    return ConsumerMember("m", epoch, epoch - 1, state, assigned=owned(assigned), pending_revocation=owned(revoking))


def shown(each: ConsumerMember) -> tuple[Any, ...]:
    """State, epoch, and the partitions of T with their epochs: assigned, and to be revoked."""
    return each.state, each.member_epoch, dict(each.assigned.get(T, {})), dict(each.pending_revocation.get(T, {}))


# Before, target epoch, target, others' partitions, what the member reports, whether it subscribes anew; and after.
STEPS: list[tuple[ConsumerMember, int, Any, Any, Any, bool, tuple[Any, ...]]] = [
    # Stable: nothing new, all at once, only what is free, first what it has to give up.
    (member(assigned=[0]), 5, [0], [], None, False, (STABLE, 5, {0: 5}, {})),
    (member(assigned=[0]), 6, [0, 1], [], None, False, (STABLE, 6, {0: 5, 1: 6}, {})),
    (member(assigned=[0]), 6, [0, 1, 2], [1], None, False, (UNRELEASED, 6, {0: 5, 2: 6}, {})),
    (member(assigned=[0, 1]), 6, [0], [], None, False, (UNREVOKED, 5, {0: 5}, {1: 5})),
    (member(assigned=[0, 1]), 6, [0, 2], [], {T: [0, 1]}, False, (UNREVOKED, 5, {0: 5}, {1: 5})),
    # It has given them up already, by what it reports.
    (member(assigned=[0, 1]), 6, [0, 2], [], {T: [0]}, False, (STABLE, 6, {0: 5, 2: 6}, {})),
    # Unrevoked: waits for the report, whatever the target does meanwhile.
    (member(UNREVOKED, 5, [0], [1]), 7, [0, 2], [], None, False, (UNREVOKED, 5, {0: 5}, {1: 5})),
    (member(UNREVOKED, 5, [0], [1]), 7, [0, 2], [], {T: [0, 1]}, False, (UNREVOKED, 5, {0: 5}, {1: 5})),
    (member(UNREVOKED, 5, [0], [1]), 7, [0, 2], [], {T: [0]}, False, (STABLE, 7, {0: 5, 2: 7}, {})),
    (member(UNREVOKED, 5, [0], [1]), 7, [], [], {T: [0]}, False, (UNREVOKED, 5, {}, {0: 5})),
    # What it was to revoke comes back to it: nobody else can have had it.
    (member(UNREVOKED, 5, [0], [1]), 7, [0, 1], [], {T: [0]}, False, (STABLE, 7, {0: 5, 1: 7}, {})),
    # Unreleased: takes what the others have released since.
    (member(UNRELEASED, 6, [0]), 6, [0, 1], [1], None, False, (UNRELEASED, 6, {0: 5}, {})),
    (member(UNRELEASED, 6, [0]), 6, [0, 1], [], None, False, (STABLE, 6, {0: 5, 1: 6}, {})),
    # A topic that it does not subscribe to any more goes at once, in the same epoch.
    (member(assigned=[0, 1]), 5, [0, 1], [], None, True, (STABLE, 5, {0: 5, 1: 5}, {})),
]  # fmt: skip


@pytest.mark.parametrize("step", STEPS, ids=range(len(STEPS)))
def test_a_step_is_that_of_the_table(step: tuple[Any, ...]) -> None:
    before, epoch, wanted, others, reported, is_new, after = step
    own = {**before.assigned.get(T, {}), **before.pending_revocation.get(T, {})}
    target = Target(epoch, {T: frozenset(wanted)}, {T}, lambda _, partition: partition in own or partition in others)

    assert shown(reconciled(before, target, reported, is_subscription_new=is_new)) == after


def test_topics_that_a_member_leaves_are_revoked_at_once_and_go_when_it_reports_that() -> None:
    before = member(assigned=[0])._replace(assigned={T: {0: 5}, U: {0: 5}}, pending_revocation={})
    target = Target(5, {T: frozenset({0})}, {U}, lambda *_: False)

    revoking = reconciled(before, target, None, is_subscription_new=True)
    done = reconciled(before, target, {U: [0]}, is_subscription_new=True)

    assert (revoking.state, revoking.assigned, revoking.pending_revocation) == (UNREVOKED, {U: {0: 5}}, {T: {0: 5}})
    assert (done.state, done.assigned, done.pending_revocation) == (STABLE, {U: {0: 5}}, {})
    again = reconciled(revoking, target._replace(topic_ids=set()), None, is_subscription_new=True)
    assert (again.assigned, again.pending_revocation) == ({}, {T: {0: 5}, U: {0: 5}})


def test_a_member_in_a_later_kafkas_state_has_to_come_without_partitions() -> None:
    before = member(MemberState.UNKNOWN, 5, [0])
    target = Target(6, {T: frozenset({1})}, {T}, lambda *_: False)

    with pytest.raises(KafkaError) as refused:
        reconciled(before, target, None, is_subscription_new=False)
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert shown(reconciled(before, target, {}, is_subscription_new=False)) == (STABLE, 6, {1: 6}, {})


PARTITIONS = range(6)
TARGETS = st.lists(st.permutations(PARTITIONS), min_size=1, max_size=4)
BEATS = st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40)


@given(targets=TARGETS, beats=BEATS)
def test_no_partition_has_two_owners_and_all_members_get_their_targets(
    targets: list[list[int]], beats: list[tuple[int, bool]]
) -> None:
    """Three members heartbeat in any order, while targets change; each reports at times what it has."""
    members = [ConsumerMember(str(number), 1) for number in range(3)]
    epoch, shares = 1, [list(PARTITIONS), [], []]

    def beat(number: int, *, reports: bool) -> None:
        owned = {
            (t, p)
            for each in members
            for owns in (each.assigned, each.pending_revocation)
            for t in owns
            for p in owns[t]
        }
        target = Target(epoch, {T: frozenset(shares[number])}, {T}, lambda t, p: (t, p) in owned)
        reported = {T: list(members[number].assigned.get(T, ()))} if reports else None
        members[number] = reconciled(members[number], target, reported, is_subscription_new=False)
        assigned = [p for each in members for p in each.assigned.get(T, ())]
        assert len(assigned) == len(set(assigned))

    for turn, target in enumerate(targets):
        epoch += 1
        shares = [target[:2], target[2:3], target[3:]]
        for number, reports in beats[turn :: len(targets)]:
            beat(number, reports=reports)
    for number in (0, 1, 2) * 3:
        beat(number, reports=True)

    assert [sorted(each.assigned.get(T, ())) for each in members] == [sorted(each) for each in shares]
    assert all(each.is_reconciled_to(epoch) for each in members)
