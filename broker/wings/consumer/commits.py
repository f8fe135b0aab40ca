"""Whether a member may commit offsets to a group of the consumer protocol, or read them, in its epoch. Pure.

A member may have an epoch that is not the last one: its heartbeat may be on its way. It may commit then what it has
been assigned in that epoch or before, and owns still. As kafka 4.4 ConsumerGroup.validateOffsetCommit.
"""

from __future__ import annotations

from minibroker.broker.group.group_topics import GroupTopics
from minibroker.broker.group.offsets import Commit
from minibroker.broker.wings.consumer.group import ConsumerGroup
from minibroker.broker.wings.consumer.member import ConsumerMember
from minibroker.protocol.errors import ErrorCode


def refuse_commit(group: ConsumerGroup, commit: Commit, topics: GroupTopics, *, has_member_epochs: bool) -> ErrorCode:
    """Return NONE, or why a member may not commit. `has_member_epochs`: its client knows the consumer protocol."""
    member_id, _, epoch = commit.identity
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and not has_member_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    return refuse_epoch(member, epoch, commit, topics)


def refuse_transactional_commit(group: ConsumerGroup, commit: Commit, topics: GroupTopics) -> ErrorCode:
    """Return NONE, or why a producer may not commit for a member; its requests know only generations."""
    member_id, instance_id, epoch = commit.identity
    if epoch < 0 and (not group.members or (not member_id and instance_id is None)):
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    refusal = refuse_epoch(member, epoch, commit, topics)
    return ErrorCode.ILLEGAL_GENERATION if refusal is ErrorCode.STALE_MEMBER_EPOCH else refusal


def refuse_epoch(member: ConsumerMember, epoch: int, commit: Commit, topics: GroupTopics) -> ErrorCode:
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    is_assigned = epoch < member.member_epoch and all(
        was_assigned(member, topics.id_of(each.topic), each.partition, epoch) for each in commit.records
    )
    return ErrorCode.NONE if is_assigned else stale(member)


def was_assigned(member: ConsumerMember, topic_id: bytes | None, partition: int, epoch: int) -> bool:
    """Whether the member has the partition, and had it in this epoch."""
    assigned_in = None if topic_id is None else member.epoch_of(topic_id, partition)
    return assigned_in is not None and epoch >= assigned_in


def refuse_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Return NONE, or why a member may not read the group's offsets; a client that is no member may."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.member_epoch else stale(member)


def stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
