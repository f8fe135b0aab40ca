"""Members of the classic protocol in a group of the consumer protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

To its client such a group looks like one with a single member: each JoinGroup is answered at once, its generation is
the member's epoch, and SyncGroup brings what the coordinator has assigned. Where a member has to give up partitions, or
may have more, its heartbeats are answered with REBALANCE_IN_PROGRESS, so that it joins again with what it still owns.
As kafka 4.4 GroupMetadataManager.classicGroupJoinToConsumerGroup and its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.broker.group.member import JoinResult, MemberIdentity, SyncResult
from minibroker.broker.group.member_timers import Deadline
from minibroker.broker.group.membership import JoinRequest, SyncRequest
from minibroker.broker.pending import Pending, then
from minibroker.broker.wings.consumer.changes import GroupChanges, has_failed
from minibroker.broker.wings.consumer.draft import Draft
from minibroker.broker.wings.consumer.group import ConsumerGroup
from minibroker.broker.wings.consumer.heartbeats import known_static, replace_static, unknown_member
from minibroker.broker.wings.consumer.member import ClassicMetadata, ConsumerMember, MemberState, new_member_id
from minibroker.broker.wings.consumer.migration import Migration
from minibroker.broker.wings.consumer.reconciliation import Reported
from minibroker.broker.wings.consumer.regex_refresh import RegexRefresh
from minibroker.protocol.consumer_protocol import read_subscription
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.message_values import CONSUMER_PROTOCOL_TYPE

NO_GENERATION = -1  # as kafka 4.4; classic groups answer errors as 2.0.1 does


class ClassicMembers:
    """Serves the members of the classic protocol in groups of the consumer protocol."""

    def __init__(self, changes: GroupChanges, migration: Migration, regexes: RegexRefresh) -> None:
        self._changes = changes
        self._migration = migration
        self._regexes = regexes

    # -- JoinGroup --------------------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, request: JoinRequest) -> JoinResult | Pending[JoinResult]:
        """Join a group that has members, and get an epoch at once."""
        try:
            return self._join(group, request)
        except KafkaError as error:
            return JoinResult(error.code, request.member_id, NO_GENERATION)

    def _join(self, group: ConsumerGroup, request: JoinRequest) -> JoinResult | Pending[JoinResult]:
        if self._migration.is_disabled:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or new_member_id()
        self._changes.check_room(group, member_id, request.group_instance_id)
        if not supports(group, request):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id and request.must_know_member_id:
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id, NO_GENERATION)
        changes, draft = self._changes, Draft(group)
        before = self._member_for(draft, request, member_id)
        subscription = subscription_of(request)
        member = with_join(before, request, subscription)
        if member != before:
            draft.put(member.record(group.group_id))
        regex = self._regexes.change(draft, before, member)
        is_new = member.topic_names != before.topic_names or regex.is_changed
        changes.refresh(
            draft, f"member {member_id} {'joins' if before.classic is None else 'subscribes anew'}" if is_new else None
        )
        reported = self._reported(subscription)
        if request.group_instance_id is not None and self._migration.may_be_classic(draft.group, ()):
            return self._downgrade(draft, member, reported, is_new=is_new)
        changes.assign(draft, member_id)
        updated = changes.reconcile(draft, member_id, reported, is_subscription_new=is_new)
        outcome = changes.commit(draft)
        if not has_failed(outcome):
            changes.timers.cancel(group.group_id, member_id, Deadline.JOIN)
            changes.keep_alive(group.group_id, updated)
            changes.expect(group.group_id, updated, Deadline.SYNC, "it has not asked for its assignment in time")
        return then(outcome, lambda error: joined(error, updated))

    def _member_for(self, draft: Draft, request: JoinRequest, member_id: str) -> ConsumerMember:
        group, instance_id = draft.group, request.group_instance_id
        if instance_id is None:
            return group.member_or_new(member_id)
        static = group.static_member(instance_id)
        if request.member_id:
            return known_static(static, member_id, instance_id)
        return group.member_or_new(member_id) if static is None else replace_static(draft, static, member_id)

    def _reported(self, subscription: Any) -> Reported:
        """The partitions that a member says it owns, of topics that exist."""
        id_of, owned = self._changes.topics.id_of, subscription.owned_partitions
        return {topic_id: partitions for topic, partitions in owned if (topic_id := id_of(topic)) is not None}

    def _downgrade(
        self, draft: Draft, member: ConsumerMember, reported: Reported, *, is_new: bool
    ) -> JoinResult | Pending[JoinResult]:
        """Have the group be a classic one again: its last member of the consumer protocol is back as one of that."""
        changes, group = self._changes, draft.group
        is_assigned = group.assignment_epoch >= group.epoch
        if is_assigned:
            member = changes.reconcile(draft, member.member_id, reported, is_subscription_new=is_new)
        why = None if is_assigned else "its assignment is not that of its members"
        outcome = changes.convert_to_classic(draft, (), why)
        return then(outcome, lambda error: joined(error, member))

    # -- SyncGroup --------------------------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, request: SyncRequest) -> SyncResult:
        """Return a member's assignment."""
        try:
            member = self._member(group, request.identity)
            self._check_protocol(member, request)
            if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._expect_join(group, member)
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
            assignment = self._migration.written(protocol_of(member)[1], member.assigned)
        except KafkaError as error:
            return SyncResult(error.code)
        self._changes.timers.cancel(group.group_id, member.member_id, Deadline.SYNC)
        self._changes.keep_alive(group.group_id, member)
        return SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol, assignment)

    def _member(self, group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        """The member of the classic protocol with this identity, in this generation. Raises KafkaError."""
        member_id, instance_id, generation_id = identity
        if instance_id is not None:
            member = known_static(group.static_member(instance_id), member_id, instance_id)
        elif member_id in group.members:
            member = group.members[member_id]
        else:
            raise unknown_member(member_id, group.group_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.member_epoch != generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _check_protocol(self, member: ConsumerMember, request: SyncRequest) -> None:
        is_type = request.protocol_type in (None, CONSUMER_PROTOCOL_TYPE)
        if not (is_type and request.protocol in (None, protocol_of(member)[0])):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Give a member that has to join again its rebalance timeout to do so."""
        if not self._changes.timers.has(group.group_id, member.member_id, Deadline.JOIN):
            self._changes.expect(group.group_id, member, Deadline.JOIN, "it has not joined again in time")

    # -- Heartbeat --------------------------------------------------------------------------------------------

    def heartbeat(self, group: ConsumerGroup, identity: MemberIdentity) -> ErrorCode:
        """Return NONE, or REBALANCE_IN_PROGRESS for a member that has to join again."""
        try:
            member = self._member(group, identity)
        except KafkaError as error:
            return error.code
        self._changes.keep_alive(group.group_id, member)
        is_behind = member.member_epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS
        may_have_more = member.state is MemberState.UNRELEASED_PARTITIONS and next(group.lacking(member), None) is None
        if is_behind or may_have_more:
            self._expect_join(group, member)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # -- LeaveGroup -------------------------------------------------------------------------------------------

    def leave(
        self, group: ConsumerGroup, leaving: Sequence[MemberIdentity]
    ) -> list[tuple[MemberIdentity, ErrorCode]] | Pending[list[tuple[MemberIdentity, ErrorCode]]]:
        """Remove members together; return the error of each."""
        answers: list[tuple[MemberIdentity, ErrorCode]] = []
        members: dict[str, ConsumerMember] = {}
        for identity in leaving:
            try:
                member = self._leaving(group, identity)
                members[member.member_id] = member
                answers.append((identity, ErrorCode.NONE))
            except KafkaError as error:
                answers.append((identity, error.code))
        if not members:
            return answers
        outcome = self._changes.remove(group, list(members.values()), f"{', '.join(members)} leaves")
        return then(outcome, lambda error: [(who, refusal or error) for who, refusal in answers])

    def _leaving(self, group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        member_id, instance_id, _ = identity
        if instance_id is None:
            if member_id not in group.members:
                raise unknown_member(member_id, group.group_id)
            return group.members[member_id]
        static = group.static_member(instance_id)
        return known_static(static, member_id or (static.member_id if static is not None else ""), instance_id)


def supports(group: ConsumerGroup, request: JoinRequest) -> bool:
    """Whether all members of the classic protocol have one of the protocols that this one has."""
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    theirs = [{name for name, _ in each.classic.protocols} for each in group.members.values() if each.classic]
    return any(all(name in names for names in theirs) for name, _ in request.protocols)


def subscription_of(request: JoinRequest) -> Any:
    """The subscription in its first protocol's metadata. Raises KafkaError."""
    try:
        return read_subscription(request.protocols[0][1])
    except KafkaProtocolError:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None


def with_join(member: ConsumerMember, request: JoinRequest, subscription: Any) -> ConsumerMember:
    """The member with what its JoinGroup brings."""
    return member._replace(
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMetadata(request.session_timeout_ms, tuple((name, data) for name, data in request.protocols)),
    )


def protocol_of(member: ConsumerMember) -> tuple[str, bytes]:
    """The name and the metadata of the first protocol of a member, which its client uses."""
    assert member.classic is not None
    return member.classic.protocols[0]


def joined(error: ErrorCode, member: ConsumerMember) -> JoinResult:
    if error is not ErrorCode.NONE:
        return JoinResult(error, member.member_id, NO_GENERATION)
    return JoinResult(
        ErrorCode.NONE, member.member_id, member.member_epoch, CONSUMER_PROTOCOL_TYPE, protocol_of(member)[0]
    )
