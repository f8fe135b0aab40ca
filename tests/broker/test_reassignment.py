"""Partitions that move to other brokers: the steps of the controller, by tables. Broker 3 controls, 9 is not alive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from minibroker.broker.cluster.controller import NOTHING, Image, brokers_changed, change_isr, delete_topics
from minibroker.broker.cluster.file_state import FileState
from minibroker.broker.cluster.sections import ASKED_MOVES
from minibroker.broker.cluster.state import Change, Reassignment
from minibroker.broker.replica.decisions import LeaderAndIsr, PartitionState
from minibroker.broker.replica.isr import IsrChange
from minibroker.broker.wings.several.reassignment import as_asked, continue_reassignments, reassign
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.controlled import T0, image_of, played, sent

Step = tuple[int, int, str, str, str]  # leader, epoch, in-sync replicas, replicas; and the decisions for 1, 2 and 3


def step_of(image: Image, decisions: dict[int, str]) -> Step:
    state = image.topics["t"].partitions[0]
    in_sync, replicas = ("".join(map(str, each)) for each in (state.in_sync_replicas, state.replicas))
    return state.leader, state.leader_epoch, in_sync, replicas, " ".join(decisions.get(each, "") for each in (1, 2, 3))


def steps(image: Image, wanted: Sequence[int] | None, *, in_sync: str = "") -> tuple[Image, list[Step]]:
    """Reassign T0 and go on as far as it goes; `in_sync` are those that the leader writes before."""
    plan, outcomes = reassign(image, [(T0, wanted)])
    assert outcomes == [(ErrorCode.NONE, None)]
    image, found = played(image, plan), []
    if T0 in {each for role in plan.decisions.get(1, ()) if isinstance(role, LeaderAndIsr) for each in role.partitions}:
        found.append(step_of(image, sent(plan)))
    if in_sync:
        state = image.topics["t"].partitions[0]
        asked = IsrChange(tuple(map(int, in_sync)), state.leader_epoch, state.state_version)
        image = played(image, change_isr(image, {T0: asked})[0])
    while (plan := continue_reassignments(image)) is not NOTHING:
        image = played(image, plan)
        found.append(step_of(image, sent(plan)))
    return image, found


@pytest.mark.parametrize(
    ("replicas", "isr", "target", "in_sync", "expected"),
    [
        # As kafka 2.0.1 wrote it: (1, 0) to (2, 1), 2 catches up and leads, 1 leaves.
        (
            (1,),
            (1,),
            (2,),
            "12",
            [(1, 1, "1", "21", "LU LU U"), (2, 2, "12", "2", "U LU U"), (2, 3, "2", "2", "UD LU U"), "U U U"],
        ),
        # The leader stays; the one that leaves is not in sync.
        ((1, 2), (1,), (1, 3), "13", [(1, 1, "1", "132", "LU LU LU"), (1, 2, "13", "13", "LU UD LU"), "U U U"]),
        # All are in sync already: the preferred leader changes, and nobody leaves.
        ((1, 2), (1, 2), (2, 1), "", [(1, 1, "12", "21", "LU LU U"), "U U U"]),
        # One more; and two leave, one after the other.
        ((1,), (1,), (1, 2), "12", [(1, 1, "1", "12", "LU LU U"), (1, 2, "12", "12", "LU LU U"), "U U U"]),
        (
            (1, 2, 3),
            (1, 2, 3),
            (3,),
            "",
            [(3, 1, "123", "3", "U U LU"), (3, 2, "23", "3", "UD U LU"), (3, 3, "3", "3", "U UD LU"), "U U U"],
        ),
        # The broker that leaves is not alive: nothing can be deleted there.
        ((1, 9), (1, 9), (1,), "", [(1, 1, "19", "1", "LU U U"), (1, 2, "1", "1", "LU U U"), "U U U"]),
        # It never had a leader.
        ((9,), (), (1,), "", [(1, 0, "1", "19", "LU U U"), (1, 1, "1", "1", "LU U U"), "U U U"]),
    ],
)
def test_a_partition_moves_step_by_step(
    replicas: tuple[int, ...], isr: tuple[int, ...], target: tuple[int, ...], in_sync: str, expected: list[Step | str]
) -> None:
    image = image_of(PartitionState(1 if isr else -1, 0, isr, replicas, 9))

    image, found = steps(image, target, in_sync=in_sync)

    assert found[:-1] == expected[:-1]
    assert found[-1] == (*found[-2][:-1], expected[-1])  # the last step only shows the end
    assert not image.topics["t"].reassignments


def test_a_move_waits_for_its_new_replicas_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    image, found = steps(image_of(PartitionState(1, 0, (1,), (1,), 9)), (2, 3))
    assert found == [(1, 1, "1", "231", "LU LU LU")]
    assert image.topics["t"].reassignments == {0: Reassignment((2, 3), (1,), (1,))}
    plan, _ = reassign(image, [(T0, (2, 3))])
    assert continue_reassignments(played(image, plan)) is NOTHING

    FileState(tmp_path, 0).save("a test", Change(image.topics))
    stored = FileState(tmp_path, 0)
    stored.load([])

    assert stored.topics["t"].reassignments == image.topics["t"].reassignments
    gone = image._replace(brokers={each: image.brokers[each] for each in (2, 3)})
    image = played(gone, brokers_changed(gone, gone=[1]))
    assert continue_reassignments(image) is NOTHING
    deleted = delete_topics(image._replace(is_shared=True), ["t"]).change
    assert deleted is not None and (topic := deleted.topics["t"]) is not None
    assert (topic.reassignments, topic.partitions[0].replicas) == ({}, (2, 3, 1))


@pytest.mark.parametrize(
    ("wanted", "is_back", "adding", "removing"),
    [
        (None, True, (), (3,)),
        ((1, 2), True, (), (3,)),
        ((2, 1), True, (), (3,)),
        ((1, 3), False, (3,), (2,)),
    ],
)
def test_a_move_is_cancelled_or_replaced(
    wanted: tuple[int, ...] | None, is_back: bool, adding: tuple[int, ...], removing: tuple[int, ...]
) -> None:
    image, _ = steps(image_of(PartitionState(1, 0, (1, 2), (1, 2), 9)), (3,))

    plan, outcomes = reassign(image, [(T0, wanted)])

    assert outcomes == [(ErrorCode.NONE, None)]
    move = played(image, plan).topics["t"].reassignments[0]
    assert (set(move.adding), set(move.removing)) == (set(adding), set(removing))
    image, found = steps(image, wanted)
    assert bool(found) is is_back
    if is_back:
        assert found[-2][3:] == ("".join(map(str, wanted or (1, 2))), "LU LU UD")


@pytest.mark.parametrize(
    ("where", "wanted", "code", "message"),
    [
        (T0, (1, 2, 3), "NONE", None),  # as it is
        (T0, None, "NO_REASSIGNMENT_IN_PROGRESS", None),
        (T0, (), "INVALID_REPLICA_ASSIGNMENT", "includes an empty replica list."),
        (T0, (1, 9), "INVALID_REPLICA_ASSIGNMENT", "includes broker 9, but no such broker is registered."),
        (T0, (2, 1, 2), "INVALID_REPLICA_ASSIGNMENT", "includes the broker 2 more than once."),
        (TopicPartition("t", 1), (1,), "UNKNOWN_TOPIC_OR_PARTITION", "Unable to find partition t:1."),
        (TopicPartition("u", 0), None, "UNKNOWN_TOPIC_OR_PARTITION", "Unable to find a topic named u."),
    ],
)
def test_a_reassignment_is_refused_or_not_needed(
    where: TopicPartition, wanted: tuple[int, ...] | None, code: str, message: str | None
) -> None:
    plan, outcomes = reassign(image_of(PartitionState(1, 0, (1,), (1, 2, 3))), [(where, wanted)])

    assert plan is NOTHING
    ((found, text),) = outcomes
    assert found is ErrorCode[code]
    assert (text or "").endswith(message or "")


def test_moves_that_kafkas_tool_asks_for_begin_once_and_refused_ones_are_dropped() -> None:
    image = image_of(PartitionState(1, 0, (1,), (1,)))
    refused = {TopicPartition("unknown", 0): (1,), TopicPartition("t", 1): (9,)}

    plan = as_asked(image, {T0: (2,), **refused})

    assert plan.change is not None
    assert plan.change.sections == {ASKED_MOVES: {}}  # the state keeps those that go on, by their topics
    assert plan.change.topics["t"] is not None
    assert plan.change.topics["t"].reassignments == {0: Reassignment((2,), (1,), (1,))}
    assert as_asked(played(image, plan), {T0: (2,)}) is NOTHING
    assert as_asked(image, refused) == NOTHING._replace(change=Change(sections={ASKED_MOVES: {}}))
