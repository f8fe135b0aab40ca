"""The membership of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the rebalances they cause.

As kafka 2.0.1 GroupCoordinator; later features as in the release that brought them: required member ids (2.2), static
members (2.3, 2.4), protocol type and name in SyncGroup (2.5). Every change of a group is a plain function; a request
that waits leaves a reply, which a later change resolves.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import Habit
from minibroker.broker.group.delayed_join import DelayedHeartbeat
from minibroker.broker.group.group import Group, GroupState
from minibroker.broker.group.group_cache import GroupCache
from minibroker.broker.group.member import JoinResult, JoinTerms, Member, MemberIdentity, Protocols, Reply, SyncResult
from minibroker.broker.group.rebalance import Rebalances
from minibroker.broker.pending import Pending, then
from minibroker.broker.time.clock import Clock
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import LONGEST_STRING_BYTES
from minibroker.purgatory.timing_wheel import Timer
from minibroker.storage import chance

logger = logging.getLogger(__name__)

# A new member cannot heartbeat while its first join waits; this removes it if its client is gone (KAFKA-7610).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
MEMBER_ID_SUFFIX_BYTES = len(f"-{chance.new_uuid()}")


class JoinRequest(NamedTuple):
    """A JoinGroup. `must_know_member_id`: a new member first gets an id, and joins again with it.
    `can_skip_assignment`: a leader may be told to leave the assignment as it is."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    must_know_member_id: bool
    can_skip_assignment: bool
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols

    @property
    def terms(self) -> JoinTerms:
        return JoinTerms(self.protocols, self.session_timeout_ms, self.rebalance_timeout_ms)


class SyncRequest(NamedTuple):
    """A SyncGroup; only the leader's has assignments."""

    group_id: str
    identity: MemberIdentity
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class Membership:
    """Joins, syncs, heartbeats and leaves of all groups."""

    def __init__(
        self, groups: GroupCache, rebalances: Rebalances, *, config: KafkaConfig, clock: Clock, timer: Timer
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._config = config
        self._asks_for_member_first = Habit.ASKS_FOR_MEMBER_FIRST in config.profile.habits
        self._clock = clock
        self._timer = timer

    # -- JoinGroup --------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest) -> JoinResult | Pending[JoinResult]:
        """Join a group. The answer comes when the rebalance that this begins, or takes part in, is complete."""
        refusal = self.refuse_join(request)
        if refusal is not ErrorCode.NONE:
            return JoinResult(refusal, request.member_id)
        group = self._groups.find(Group, request.group_id) or self._groups.add(Group(request.group_id))
        reply: Pending[JoinResult] = Pending()
        self._join(group, request, reply)
        self._rebalances.check(group)
        return reply.outcome()

    def refuse_join(self, request: JoinRequest) -> ErrorCode:
        """Return NONE, or why a JoinGroup is refused whatever the state of its group."""
        refusal = self._groups.check(request.group_id, may_be_unnamed=False)
        if refusal is not ErrorCode.NONE:
            return refusal
        least, greatest = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not least <= request.session_timeout_ms <= greatest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if request.member_id and self._groups.get(request.group_id) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        longest = max(len(name.encode()) for name in (request.client_id, request.group_instance_id or ""))
        fits = longest + MEMBER_ID_SUFFIX_BYTES <= LONGEST_STRING_BYTES
        return ErrorCode.NONE if fits else ErrorCode.INVALID_REQUEST

    def _join(self, group: Group, request: JoinRequest, reply: Reply[JoinResult]) -> None:
        member_id, instance_id = request.member_id, request.group_instance_id
        if not group.supports(request.protocol_type, request.protocols):
            reply.resolve(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif not member_id:
            self._join_anew(group, request, reply)
        elif member_id in group.pending_members and instance_id is None:
            self._add_member(group, member_id, request, reply)
        elif group.is_fenced(member_id, instance_id):
            reply.resolve(JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id))
        elif member_id not in group.members or (instance_id is not None and group.static_member(instance_id) is None):
            reply.resolve(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
        else:
            self._join_again(group, group.members[member_id], request.terms, reply)

    def _join_anew(self, group: Group, request: JoinRequest, reply: Reply[JoinResult]) -> None:
        member_id = f"{request.group_instance_id or request.client_id}-{chance.new_uuid()}"
        static = group.static_member(request.group_instance_id)
        if static is not None:
            self._replace_static_member(group, static, member_id, request, reply)
        elif request.must_know_member_id:
            self._add_pending_member(group, member_id, request.session_timeout_ms)
            reply.resolve(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add_member(group, member_id, request, reply)

    def _add_pending_member(self, group: Group, member_id: str, session_timeout_ms: int) -> None:
        """Expect a client to join with its new id; rebalances wait for it, for a session timeout at most."""

        def on_expired() -> None:
            del group.pending_members[member_id]
            self._rebalances.check(group)

        heartbeat = group.pending_members[member_id] = DelayedHeartbeat(self._timer, on_expired)
        heartbeat.expect_by(self._clock.monotonic_ms() + session_timeout_ms)

    def _remove_pending_member(self, group: Group, member_id: str) -> None:
        pending = group.pending_members.pop(member_id, None)
        if pending is not None:
            pending.cancel()

    def _add_member(self, group: Group, member_id: str, request: JoinRequest, reply: Reply[JoinResult]) -> None:
        self._remove_pending_member(group, member_id)
        member = Member(
            member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
        )
        group.add(member, request.protocol_type)
        member.await_generation(reply, is_new=True)
        self.watch(group, member)
        member.expect_heartbeat(self._clock.monotonic_ms(), NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalances.maybe_prepare(group, f"member {member_id} has joined")

    def _join_again(self, group: Group, member: Member, terms: JoinTerms, reply: Reply[JoinResult]) -> None:
        """Repeat the answer if the member joins the generation it is in: its last answer may have been lost."""
        is_leader, is_same = group.is_leader(member.member_id), member.matches(terms.protocols)
        if group.state is GroupState.COMPLETING_REBALANCE and is_same:
            reply.resolve(group.join_result(member.member_id, with_members=is_leader))
        elif group.state is GroupState.STABLE and is_same and not is_leader:
            reply.resolve(group.join_result(member.member_id, with_members=False))
        else:
            # A leader with unchanged metadata may join again to assign partitions anew, after its topics have changed.
            self._park_join(group, member, terms, reply)
            self._rebalances.maybe_prepare(group, f"member {member.member_id} has joined again")

    def _park_join(self, group: Group, member: Member, terms: JoinTerms, reply: Reply[JoinResult]) -> None:
        member.answer_join(JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))  # of a connection before
        group.update(member, terms)
        member.await_generation(reply)

    def _replace_static_member(
        self, group: Group, member: Member, member_id: str, request: JoinRequest, reply: Reply[JoinResult]
    ) -> None:
        """Give a static member that is back a new id and, if nothing else has changed, its old assignment.

        As kafka 2.4 GroupCoordinator.updateStaticMemberAndRebalance. A leader that came back would
        assign anew, and a stable group would not get that assignment: so the answer tells it to skip that (KIP-814), or
        names the leader by its old id.
        """
        old_id, old_leader, old_terms = member.member_id, group.leader_id, member.terms
        group.rename(member, member_id)
        self._park_join(group, member, request.terms, reply)
        member.expect_heartbeat(self._clock.monotonic_ms())
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
            self._rebalances.maybe_prepare(group, f"static member {member.group_instance_id} is back")
            return

        def on_stored(error: ErrorCode) -> None:
            member.forget_join(reply)
            if error is not ErrorCode.NONE and group.members.get(member_id) is member:
                group.rename(member, old_id)
                group.update(member, old_terms)
            leads = error is ErrorCode.NONE and request.can_skip_assignment and group.is_leader(member_id)
            result = group.join_result(member_id if error is ErrorCode.NONE else "", with_members=leads)
            if error is not ErrorCode.NONE or not request.can_skip_assignment:
                result = result._replace(error=error, leader=old_leader or "")
            reply.resolve(result._replace(skips_assignment=leads))

        then(self._rebalances.store(group, group.record()), on_stored)

    # -- SyncGroup --------------------------------------------------------------------------------------------

    def sync(self, request: SyncRequest) -> SyncResult | Pending[SyncResult]:
        """Return a member's assignment, once the leader's SyncGroup has brought it and it is stored.

        REBALANCE_IN_PROGRESS while the group is loaded: its last rebalance is lost, and begins again with a join.
        As kafka 2.0.1 GroupCoordinator.handleSyncGroup.
        """
        refusal = self._groups.check(request.group_id)
        if refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
        if refusal is not ErrorCode.NONE:
            return SyncResult(refusal)
        group = self._groups.find(Group, request.group_id)
        if group is None:
            return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
        refusal = refuse_sync(group, request)
        if refusal is not ErrorCode.NONE:
            return SyncResult(refusal)
        member = group.members[request.identity.member_id]
        if group.state is GroupState.STABLE:
            member.expect_heartbeat(self._clock.monotonic_ms())
            return group.sync_result(member)
        member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))  # of a connection before
        reply: Pending[SyncResult] = Pending()
        member.await_assignment(reply)
        if group.is_leader(member.member_id):
            self._rebalances.assign(group, request.assignments)
        return reply.outcome()

    # -- Heartbeat --------------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, identity: MemberIdentity, *, keeps_while_syncing: bool = False) -> ErrorCode:
        """Return NONE, or what the member has to do.

        While the leader assigns, a heartbeat is refused and keeps no member, so that a slow leader is expelled (as
        kafka 2.0.1). With `keeps_while_syncing` it is one like any other (as kafka 3.9). While the group is loaded,
        any heartbeat is taken: the member may be in it.
        """
        refusal = self._groups.check(group_id)
        if refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        if refusal is not ErrorCode.NONE:
            return refusal
        group = self._groups.find(Group, group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        refusal = group.refuse_fenced(identity)
        if refusal is not ErrorCode.NONE:
            return refusal
        member = group.members.get(identity.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_syncing = group.state is GroupState.COMPLETING_REBALANCE
        if is_syncing and not keeps_while_syncing:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if identity.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        member.expect_heartbeat(self._clock.monotonic_ms())
        return ErrorCode.NONE if is_syncing or group.state is GroupState.STABLE else ErrorCode.REBALANCE_IN_PROGRESS

    def watch(self, group: Group, member: Member) -> None:
        """Give a member a deadline; `expect_heartbeat` sets it."""
        member.watch_by(DelayedHeartbeat(self._timer, partial(self._on_heartbeat_expired, group, member)))

    def _on_heartbeat_expired(self, group: Group, member: Member) -> None:
        # A member counts as alive while its request waits; the answer will set the deadline of its next heartbeat.
        if group.state is GroupState.DEAD or member.is_kept_alive:
            return
        logger.info("group %s: member %s has failed", group.group_id, member.member_id)
        self._remove(group, member, "has failed")

    # -- LeaveGroup -------------------------------------------------------------------------------------------

    def leave(
        self, group_id: str, leaving: Sequence[MemberIdentity]
    ) -> tuple[ErrorCode, list[tuple[MemberIdentity, ErrorCode]]]:
        """Return an error for the request, or one for each member."""
        refusal = self._groups.check(group_id)
        if refusal is not ErrorCode.NONE:
            return refusal, []
        group = self._groups.find(Group, group_id)
        return ErrorCode.NONE, [
            (identity, ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave(group, identity))
            for identity in leaving
        ]

    def _leave(self, group: Group, identity: MemberIdentity) -> ErrorCode:
        """Remove a member; administrators name a static member by its instance id alone (KIP-345)."""
        member_id, instance_id, _ = identity
        if member_id and group.is_fenced(member_id, instance_id):
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id in group.pending_members and instance_id is None:
            self._remove_pending_member(group, member_id)
            self._rebalances.check(group)
            return ErrorCode.NONE
        member = group.static_member(instance_id) or group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(group, member, "has left")
        return ErrorCode.NONE

    def _remove(self, group: Group, member: Member, why: str) -> None:
        """Remove a member; answer its waiting requests, so that its client, if still there, tries again."""
        member.answer_join(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        member.answer_sync(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        member.forget_heartbeat()
        group.remove(member)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.check(group)
        else:
            self._rebalances.maybe_prepare(group, f"member {member.member_id} {why}")


def refuse_sync(group: Group, request: SyncRequest) -> ErrorCode:
    identity = request.identity
    if group.is_fenced(identity.member_id, identity.group_instance_id):
        return ErrorCode.FENCED_INSTANCE_ID
    if identity.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if identity.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol is not None and request.protocol != group.protocol:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE
