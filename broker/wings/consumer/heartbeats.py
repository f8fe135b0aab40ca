"""ConsumerGroupHeartbeat: by it a member joins, stays, gets its assignment, and leaves (KIP-848).

As kafka 4.4 GroupMetadataManager.consumerGroupHeartbeat. A heartbeat that changes nothing writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from minibroker.broker.group.group import Group
from minibroker.broker.group.group_configs import HEARTBEAT_INTERVAL_MS
from minibroker.broker.group.group_kind import AnyGroup
from minibroker.broker.group.member_timers import Deadline
from minibroker.broker.pending import Pending, then
from minibroker.broker.wings.consumer.changes import GroupChanges
from minibroker.broker.wings.consumer.draft import Draft
from minibroker.broker.wings.consumer.group import ConsumerGroup
from minibroker.broker.wings.consumer.member import Assignment, ConsumerMember, new_member_id, rows_of
from minibroker.broker.wings.consumer.migration import Migration
from minibroker.broker.wings.consumer.regex_refresh import RegexRefresh
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import group_key
from minibroker.protocol.message_values import CLASSIC, LEAVE_EPOCH, NEW_EPOCH, STATIC_LEAVE_EPOCH

logger = logging.getLogger(__name__)

UNCHANGED = -1  # of a timeout


class HeartbeatRequest(NamedTuple):
    """A ConsumerGroupHeartbeat. What is None, or UNCHANGED, is as in the member's last one.

    `may_describe` is whether its client may describe a topic.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topic_names: Sequence[str] | None
    topic_regex: str | None
    server_assignor: str | None
    owned: Mapping[bytes, Sequence[int]] | None
    client_id: str
    client_host: str
    must_bring_member_id: bool
    may_describe: Callable[[str], bool]

    @property
    def is_full(self) -> bool:
        """Whether it has all that a member has to say, as after an error: then its assignment is answered too."""
        is_subscribing = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != UNCHANGED and is_subscribing and self.owned is not None


class HeartbeatResult(NamedTuple):
    """The answer. `assignment` is None if it is as before."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: list[tuple[bytes, list[int]]] | None = None


class Heartbeats:
    """Serves the members of the consumer protocol."""

    def __init__(self, changes: GroupChanges, migration: Migration, regexes: RegexRefresh) -> None:
        self._changes = changes
        self._groups = changes.groups
        self._config = changes.config
        self._migration = migration
        self._regexes = regexes

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResult | Pending[HeartbeatResult]:
        """Take a heartbeat. Raises KafkaError."""
        self._check(request)
        refusal = self._groups.check(request.group_id)
        if refusal is not ErrorCode.NONE:
            raise KafkaError(refusal)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(request)
        if not request.member_id:
            request = request._replace(member_id=new_member_id())
        return self._stay(request, self._draft_for(request))

    def _check(self, request: HeartbeatRequest) -> None:
        """As kafka 4.4 GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid."""
        epoch = request.member_epoch
        problem = None
        if (request.must_bring_member_id or epoch > 0 or epoch == LEAVE_EPOCH) and is_blank(request.member_id):
            problem = "MemberId can't be empty."
        elif is_blank(request.group_id):
            problem = "GroupId can't be empty."
        elif is_blank(request.instance_id):
            problem = "InstanceId can't be empty."
        elif is_blank(request.rack_id):
            problem = "RackId can't be empty."
        elif epoch == NEW_EPOCH and request.rebalance_timeout_ms == UNCHANGED:
            problem = "RebalanceTimeoutMs must be provided in first request."
        elif epoch == NEW_EPOCH and (request.owned is None or request.owned):
            problem = "TopicPartitions must be empty when (re-)joining."
        elif epoch == NEW_EPOCH and request.topic_names is None and request.topic_regex is None:
            problem = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
            problem = "InstanceId can't be null."
        elif epoch < STATIC_LEAVE_EPOCH:
            problem = "MemberEpoch is invalid."
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
        supported = self._config.group_consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in supported:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(supported)}.",
            )

    # -- the group --------------------------------------------------------------------------------------------

    def _draft_for(self, request: HeartbeatRequest) -> Draft:
        """A draft of the group: a new one for its first member, or a classic one's, which becomes a group of this
        protocol."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return Draft(group)
        if request.member_epoch != NEW_EPOCH or (group is not None and group.kind != CLASSIC):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, missing(request.group_id, group))
        classic = self._groups.find(Group, request.group_id)
        if classic is None:
            return Draft(ConsumerGroup(request.group_id))
        tombstone = (group_key(request.group_id), None, ())
        if classic.is_empty:
            return Draft(ConsumerGroup(request.group_id, classic.offsets), classic, [tombstone])
        upgraded = self._migration.consumer_group_of(classic)
        draft = Draft(upgraded, classic, [tombstone])
        draft.put_all(upgraded.records())
        return draft

    # -- a member that joins or stays -------------------------------------------------------------------------

    def _stay(self, request: HeartbeatRequest, draft: Draft) -> HeartbeatResult | Pending[HeartbeatResult]:
        changes, group_id = self._changes, request.group_id
        changes.check_room(draft.group, request.member_id, request.instance_id)
        before = self._member_for(request, draft)
        member = with_request(before, request)
        if member != before:
            draft.put(member.record(group_id))
        regex_status = self._regexes.change(draft, before, member)
        is_new_subscription = member.topic_names != before.topic_names or regex_status.is_changed
        assignor_before = self._assignor_before(request.group_id)
        why = None
        if member.topic_names != before.topic_names or regex_status.is_resolved:
            joins = request.member_epoch == NEW_EPOCH and before.member_epoch == NEW_EPOCH
            why = f"member {member.member_id} {'joins' if joins else 'subscribes anew'}"
        elif draft.group.preferred_assignor(changes.default_assignor, member.member_id) != assignor_before:
            why = "its members ask for another assignor"
        changes.refresh(draft, why)
        changes.assign(draft, member.member_id)
        if member.member_id not in draft.group.members:  # it subscribes to nothing, and has said nothing else
            draft.put(member.record(group_id))
        updated = changes.reconcile(draft, member.member_id, request.owned, is_subscription_new=is_new_subscription)
        outcome = changes.commit(draft)
        check_appended(outcome)
        changes.keep_alive(group_id, updated)
        changes.watch_revocation(group_id, before, updated)
        if before.classic is not None:
            for deadline in (Deadline.JOIN, Deadline.SYNC):
                changes.timers.cancel(group_id, updated.member_id, deadline)
        self._regexes.refresh(group_id, may_describe=request.may_describe, is_needed=regex_status.needs_refresh)
        is_told = request.member_epoch == NEW_EPOCH or request.is_full or before.assigned != updated.assigned
        result = HeartbeatResult(
            updated.member_id,
            updated.member_epoch,
            self._changes.group_configs.value(group_id, HEARTBEAT_INTERVAL_MS),
            rows_of(updated.assigned) if is_told else None,
        )
        return then(outcome, partial(answered, result))

    def _assignor_before(self, group_id: str) -> str:
        group, default = self._groups.find(ConsumerGroup, group_id), self._changes.default_assignor
        return default if group is None else group.preferred_assignor(default)

    def _member_for(self, request: HeartbeatRequest, draft: Draft) -> ConsumerMember:
        """The member before this heartbeat: a new one, or that whose place a static member takes."""
        group, member_id, instance_id = draft.group, request.member_id, request.instance_id
        is_joining = request.member_epoch == NEW_EPOCH
        if instance_id is None:
            member = group.members.get(member_id)
            if member is None and not is_joining:
                raise unknown_member(member_id, group.group_id)
            if is_joining:
                logger.info("group %s: member %s joins", group.group_id, member_id)
            member = member or ConsumerMember(member_id)
            check_epoch(member, request)
            return member
        static = group.static_member(instance_id)
        if not is_joining:
            return self._static_member(static, request)
        if static is None:
            logger.info("group %s: static member %s (%s) joins", group.group_id, instance_id, member_id)
            return group.member_or_new(member_id)
        if static.classic is None and static.member_epoch != STATIC_LEAVE_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {static.member_id} member.",
            )
        return replace_static(draft, static, member_id)

    def _static_member(self, static: ConsumerMember | None, request: HeartbeatRequest) -> ConsumerMember:
        member = known_static(static, request.member_id, request.instance_id)
        check_epoch(member, request)
        return member

    # -- a member that leaves ---------------------------------------------------------------------------------

    def _leave(self, request: HeartbeatRequest) -> HeartbeatResult | Pending[HeartbeatResult]:
        """As kafka 4.4 GroupMetadataManager.consumerGroupLeave."""
        group_id, member_id = request.group_id, request.member_id
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            message = f"Group {group_id} not found." if group is None else missing(group_id, group)
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
        if request.instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                raise unknown_member(member_id, group_id)
        else:
            member = known_static(group.static_member(request.instance_id), member_id, request.instance_id)
        result = HeartbeatResult(member_id, request.member_epoch)
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH:
            logger.info("group %s: static member %s leaves for a while", group_id, request.instance_id)
            outcome = self._leave_for_a_while(group, member)
        else:
            outcome = self._changes.remove(group, [member], f"member {member_id} leaves")
        return then(outcome, partial(answered, result))

    def _leave_for_a_while(self, group: ConsumerGroup, member: ConsumerMember) -> ErrorCode | Pending[ErrorCode]:
        """Keep a static member's partitions for it, for its session timeout."""
        draft = Draft(group)
        kept = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()}
        leaving = member._replace(member_epoch=STATIC_LEAVE_EPOCH, assigned=kept, pending_revocation={})
        draft.put(leaving.assignment_record(group.group_id))
        return self._changes.commit(draft)


def check_appended(outcome: ErrorCode | Pending[ErrorCode]) -> None:
    """Raises KafkaError if an append is known to have failed."""
    if not isinstance(outcome, Pending) and outcome is not ErrorCode.NONE:
        raise KafkaError(outcome)


def answered(result: HeartbeatResult, error: ErrorCode) -> HeartbeatResult:
    if error is not ErrorCode.NONE:
        raise KafkaError(error)
    return result


def is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def missing(group_id: str, group: AnyGroup | None) -> str:
    return f"Consumer group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."


def unknown_member(member_id: str, group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def known_static(static: ConsumerMember | None, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The static member, if this is its client. Raises KafkaError."""
    if static is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if static.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {static.member_id}.",
        )
    return static


def check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    """Refuse an epoch that is not the member's, nor the one before, whose answer may have been lost.

    As kafka 4.4 throwIfConsumerGroupMemberEpochIsInvalid.
    """
    epoch = request.member_epoch
    if epoch in (NEW_EPOCH, member.member_epoch):
        return
    relation = "greater" if epoch > member.member_epoch else "smaller"
    if relation == "smaller" and epoch == member.previous_member_epoch and is_within(request.owned, member.assigned):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def is_within(owned: Mapping[bytes, Sequence[int]] | None, assigned: Mapping[bytes, Mapping[int, int]]) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in assigned and all(each in assigned[topic_id] for each in partitions)
        for topic_id, partitions in owned.items()
    )


def replace_static(draft: Draft, static: ConsumerMember, member_id: str) -> ConsumerMember:
    """Put a new member in the place of a static one; return it."""
    group = draft.group
    logger.info("group %s: static member %s is back, as %s", group.group_id, static.instance_id, member_id)
    target: Assignment = group.target_of(static.member_id)
    member = static._replace(member_id=member_id, member_epoch=NEW_EPOCH, previous_member_epoch=NEW_EPOCH)
    draft.remove(static.member_id)
    draft.put(
        member.record(group.group_id),
        group.target_of_member_record(member_id, target),
        member.assignment_record(group.group_id),
    )
    return member


def with_request(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """The member with what its heartbeat brings."""
    names = request.topic_names
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == UNCHANGED else timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if request.topic_regex is None else request.topic_regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )
