"""The next step of a member, on its way from the partitions that it has to its target assignment. Pure.

STABLE                  has its target of its epoch
    -> with a new target: the step below
UNREVOKED_PARTITIONS    has to give up partitions, and stays in its epoch until it says that it has
    -> the member reports partitions without them: the step below
UNRELEASED_PARTITIONS   has its target's epoch, but other members have yet to give up some of its partitions
    -> the step below, with each heartbeat

The step: if the member has partitions that its target lacks, they are to be revoked first (UNREVOKED_PARTITIONS).
Else it gets those of its target that no other member has, in the target's epoch: all (STABLE), or those that are free
(UNRELEASED_PARTITIONS). A partition so never has two owners. Topics that it does not subscribe to any more are revoked
at once, whatever the target. As kafka 4.4 CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from minibroker.broker.wings.consumer.member import Assignment, ConsumerMember, MemberState, Owned
from minibroker.protocol.errors import ErrorCode, KafkaError

Reported = Mapping[bytes, Collection[int]]


class Target(NamedTuple):
    """The target assignment of a member, and its epoch; `topic_ids` of the topics that it subscribes to.

    `is_owned` is whether any member has a partition, this one included.
    """

    epoch: int
    assignment: Assignment
    topic_ids: Collection[bytes]
    is_owned: Callable[[bytes, int], bool]


def reconciled(
    member: ConsumerMember, target: Target, reported: Reported | None, *, is_subscription_new: bool
) -> ConsumerMember:
    """Return the member with what it may have now. `reported` are the partitions that it says it has; None: as before.

    Raises KafkaError(FENCED_MEMBER_EPOCH) in a state that a later Kafka has left it in, unless it has no partitions.
    """
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch != target.epoch:
                return next_step(member, target, reported, member.member_epoch)
        case MemberState.UNREVOKED_PARTITIONS:
            if not reports(reported, member.pending_revocation):
                return next_step(member, target, reported, member.member_epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return next_step(member, target, reported, member.member_epoch)
        case MemberState.UNKNOWN:
            if reported is None or reported:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return next_step(member, target, reported, target.epoch)
    return without_unsubscribed(member, target, reported) if is_subscription_new else member


def next_step(member: ConsumerMember, target: Target, reported: Reported | None, epoch: int) -> ConsumerMember:
    wanted = {
        topic_id: partitions for topic_id, partitions in target.assignment.items() if topic_id in target.topic_ids
    }
    kept, revoked = split(member.assigned, lambda topic_id, partition: partition in wanted.get(topic_id, ()))
    if revoked and reports(reported, revoked):
        return moved(member, MemberState.UNREVOKED_PARTITIONS, epoch, kept, revoked)
    assigned = {topic_id: dict(partitions) for topic_id, partitions in kept.items()}
    is_complete = True
    for topic_id, partitions in wanted.items():
        own = member.pending_revocation.get(topic_id, {})
        for partition in partitions.difference(assigned.get(topic_id, ())):
            if target.is_owned(topic_id, partition) and partition not in own:
                is_complete = False
            else:
                assigned.setdefault(topic_id, {})[partition] = target.epoch
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return moved(member, state, target.epoch, assigned, {})


def without_unsubscribed(member: ConsumerMember, target: Target, reported: Reported | None) -> ConsumerMember:
    """Revoke the topics that the member does not subscribe to any more; its epoch stays."""
    kept, revoked = split(member.assigned, lambda topic_id, _: topic_id in target.topic_ids)
    if not revoked:
        return member
    pending = {topic_id: dict(partitions) for topic_id, partitions in member.pending_revocation.items()}
    for topic_id, partitions in revoked.items():
        pending.setdefault(topic_id, {}).update(partitions)
    if reports(reported, pending):
        return moved(member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, kept, pending)
    return moved(member, member.state, member.member_epoch, kept, member.pending_revocation)


def moved(
    member: ConsumerMember, state: MemberState, epoch: int, assigned: Owned, pending_revocation: Owned
) -> ConsumerMember:
    return member._replace(
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )


def split(owned: Owned, is_kept: Callable[[bytes, int], bool]) -> tuple[Owned, Owned]:
    """Split partitions into those to keep and the others."""
    kept: dict[bytes, dict[int, int]] = {}
    others: dict[bytes, dict[int, int]] = {}
    for topic_id, partitions in owned.items():
        for partition, epoch in partitions.items():
            (kept if is_kept(topic_id, partition) else others).setdefault(topic_id, {})[partition] = epoch
    return kept, others


def reports(reported: Reported | None, owned: Owned) -> bool:
    """Whether the member still has one of these partitions: it may have, if it reports none at all."""
    if reported is None:
        return True
    return any(
        partition in owned.get(topic_id, ()) for topic_id, partitions in reported.items() for partition in partitions
    )
