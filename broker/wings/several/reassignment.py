"""Moves partitions to other brokers, in steps: plans for the controller, as those of `controller.py`.

The new replicas join the old ones; once all of them are in sync, one of them leads and they alone are assigned; then
the others leave the in-sync replicas one by one, and are stopped and deleted. Each step is stored before the next one,
so a controller that takes over goes on with it. As kafka 2.0.1 KafkaController.onPartitionReassignment, asked for as in
later Kafka (KIP-455): partition by partition, and it may be replaced or cancelled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from minibroker.broker.cluster.controller import (
    NOTHING,
    Image,
    Plan,
    changed_topics,
    first_state,
    leaders,
    states_before,
    stop,
    successor,
    with_update,
)
from minibroker.broker.cluster.sections import ASKED_MOVES
from minibroker.broker.cluster.state import Change, Reassignment, TopicState
from minibroker.broker.replica.decisions import PartitionState
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition

Outcome = tuple[ErrorCode, str | None]
Wanted = tuple[TopicPartition, Sequence[int] | None]
Moves = Mapping[TopicPartition, Reassignment | None]  # None: it has ended

ASSIGNMENT = "The manual partition assignment includes"


def reassign(image: Image, wanted: Iterable[Wanted], *, may_change_count: bool = True) -> tuple[Plan, list[Outcome]]:
    """Begin to move partitions to other replicas, None to move one back; return an outcome for each, too.

    A move replaces the one that is going on. If a partition is named twice, its last move counts.
    """
    states: dict[TopicPartition, PartitionState] = {}
    moves: dict[TopicPartition, Reassignment] = {}
    outcomes: list[Outcome] = []
    for topic_partition, replicas in wanted:
        outcomes.append(refused(image, topic_partition, replicas, may_change_count=may_change_count))
        if outcomes[-1][0] is not ErrorCode.NONE:
            continue
        state, going_on = known(image, topic_partition)
        if going_on is None and replicas is not None and tuple(replicas) == state.replicas:
            continue
        move = begun(state, going_on, replicas)
        moves[topic_partition] = move
        every = (*move.replicas, *move.removing)
        if not state.had_leader:
            states[topic_partition] = first_state(image, state._replace(replicas=every))
        elif not set(move.replicas) <= set(state.in_sync_replicas) and set(every) != set(state.replicas):
            after = successor(image, state, state.leader, state.in_sync_replicas)
            states[topic_partition] = after._replace(replicas=every)
    return moved(image, states, moves), outcomes


def as_asked(image: Image, asked: Mapping[TopicPartition, Sequence[int]]) -> Plan:
    """Kafka's tool asks for these moves, in the state: begin the ones that do not go on, and drop refused ones.

    As kafka 2.0.1 KafkaController.maybeTriggerPartitionReassignment.
    """
    wanted: list[Wanted] = []
    going_on: dict[TopicPartition, tuple[int, ...]] = {}
    for topic_partition, replicas in asked.items():
        topic = image.kept_topics.get(topic_partition.topic)
        move = None if topic is None else topic.reassignments.get(topic_partition.partition)
        if move is not None and move.replicas == tuple(replicas):
            going_on[topic_partition] = move.replicas
        else:
            wanted.append((topic_partition, replicas))
    if not wanted:
        return NOTHING
    plan, _ = reassign(image, wanted)
    change = (plan.change or Change())._replace(sections={ASKED_MOVES: going_on})
    return plan._replace(change=change)


def refused(
    image: Image, topic_partition: TopicPartition, replicas: Sequence[int] | None, *, may_change_count: bool = True
) -> Outcome:
    """The reason against a reassignment; NONE if there is none. As kafka 4.4.0 ReplicationControlManager."""
    name, number = topic_partition
    topic = image.kept_topics.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
    if number not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}."
    if replicas is None:
        return (ErrorCode.NONE if number in topic.reassignments else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), None
    if not replicas:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{ASSIGNMENT} an empty replica list."
    checked: list[int] = []
    for broker in sorted(replicas):
        if broker not in image.brokers:
            message = f"{ASSIGNMENT} broker {broker}, but no such broker is registered."
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
        if broker in checked:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{ASSIGNMENT} the broker {broker} more than once."
        checked.append(broker)
    state, going_on = known(image, topic_partition)
    count = len(state.replicas if going_on is None else going_on.replicas)
    if not may_change_count and len(replicas) != count:
        message = f"The replication factor is changed from {count} to {len(replicas)}"
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    return ErrorCode.NONE, None


def begun(state: PartitionState, going_on: Reassignment | None, replicas: Sequence[int] | None) -> Reassignment:
    """The move to replicas, or back: brokers that have or may have a log by now leave in the end, if they do not stay.

    What the partition had before all moves is what a cancelled one goes back to.
    """
    original = state.replicas if going_on is None else going_on.original
    target = original if replicas is None else tuple(replicas)
    there = dict.fromkeys((*state.replicas, *original, *(() if going_on is None else going_on.removing)))
    return Reassignment(target, original, tuple(each for each in there if each not in target))


def continue_reassignments(image: Image) -> Plan:
    """Take the next step of each move that need not wait for in-sync replicas; NOTHING if there is none."""
    states: dict[TopicPartition, PartitionState] = {}
    moves: dict[TopicPartition, Reassignment | None] = {}
    for name, topic in image.kept_topics.items():
        for number, move in topic.reassignments.items():
            topic_partition, state = TopicPartition(name, number), topic.partitions[number]
            after = next_state(image, state, move)
            if after is not None:
                moves[topic_partition] = None if after is state else move._replace(is_caught_up=True)
                if after is not state:
                    states[topic_partition] = after
    return moved(image, states, moves)


def next_state(image: Image, state: PartitionState, move: Reassignment) -> PartitionState | None:
    """The next state of a partition that moves; None while it waits, the same object at its end."""
    in_sync = state.in_sync_replicas
    if not move.is_caught_up:
        if not set(move.replicas) <= set(in_sync):
            return None
        may_lead = [each for each in move.replicas if each in image.staying]
        if not may_lead:
            return None
        leader = state.leader if state.leader in may_lead else may_lead[0]
        return successor(image, state, leader, in_sync)._replace(replicas=move.replicas)
    leaving = next((each for each in move.removing if each in in_sync), None)
    if leaving is None:
        return state
    return successor(image, state, state.leader, tuple(each for each in in_sync if each != leaving))


def moved(image: Image, states: Mapping[TopicPartition, PartitionState], moves: Moves) -> Plan:
    """Write the states and moves. Brokers that leave stop once they are out of the in-sync replicas."""
    if not moves:
        return NOTHING
    topics = {**{name: image.topics[name] for name, _ in moves}, **changed_topics(image, states)}
    for (name, number), move in moves.items():
        others = {each: kept for each, kept in topics[name].reassignments.items() if each != number}
        topics[name] = topics[name]._replace(reassignments=others if move is None else {**others, number: move})
    logs = {each: logs_before(image, each, state) for each, state in states_before(image, states)}
    decisions = with_update(image, leaders(image, states, logs=logs), topics, first=False)
    for broker_id, stopped in stops(image, states, moves).items():
        decisions[broker_id].append(stop(image, stopped))
    return Plan(Change(dict(topics)), decisions)


def logs_before(image: Image, topic_partition: TopicPartition, state: PartitionState) -> tuple[int, ...]:
    going_on = image.topics[topic_partition.topic].reassignments.get(topic_partition.partition)
    return state.replicas if going_on is None else (*state.replicas, *going_on.removing)


def stops(
    image: Image, states: Mapping[TopicPartition, PartitionState], moves: Moves
) -> dict[int, list[TopicPartition]]:
    """The replicas that each live broker deletes now: the new ones are there alone, and these are not in sync."""
    stopped: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for topic_partition, state in states.items():
        move = moves[topic_partition]
        if move is None or not move.is_caught_up:
            continue
        before, going_on = known(image, topic_partition)
        for broker_id in move.removing:
            # One that was out of sync as the move had caught up is stopped already.
            is_due = broker_id in before.in_sync_replicas or going_on is None or not going_on.is_caught_up
            if is_due and broker_id not in state.in_sync_replicas and broker_id in image.brokers:
                stopped[broker_id].append(topic_partition)
    return stopped


def known(image: Image, topic_partition: TopicPartition) -> tuple[PartitionState, Reassignment | None]:
    topic: TopicState = image.topics[topic_partition.topic]
    return topic.partitions[topic_partition.partition], topic.reassignments.get(topic_partition.partition)
