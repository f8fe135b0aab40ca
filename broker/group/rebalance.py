"""A rebalance: from the first member that joins to the assignment of every member.

prepare -> [members join] -> _complete_join -> [the leader syncs] -> assign -> stored -> Stable
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from minibroker.broker.group.delayed_join import DelayedJoin, InitialDelayedJoin
from minibroker.broker.group.group import Group, GroupState
from minibroker.broker.group.member import JoinResult, SyncResult
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.pending import Pending, then
from minibroker.broker.time.clock import Clock
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import GroupRecord
from minibroker.protocol.text import counted
from minibroker.purgatory.purgatory import Observer, Purgatory
from minibroker.purgatory.timing_wheel import Timer

logger = logging.getLogger(__name__)


class Rebalances:
    """The rebalances of all groups. `initial_delay_ms`: how long a new group waits for more members."""

    def __init__(
        self,
        store: OffsetStore,
        *,
        initial_delay_ms: int,
        clock: Clock,
        timer: Timer,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._initial_delay_ms = initial_delay_ms
        self._clock = clock
        self.joins = Purgatory("Rebalance", timer, observer=observer)

    def maybe_prepare(self, group: Group, why: str) -> None:
        """Begin a rebalance, unless one waits for the members already."""
        if not group.can_become(GroupState.PREPARING_REBALANCE):
            return
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
        delayed = self._initial_join(group) if group.state is GroupState.EMPTY else self._join(group)
        group.begin_rebalance(why, self._clock.wall_ms())
        logger.info("group %s: rebalance after generation %d: %s", group.group_id, group.generation_id, why)
        self.joins.try_complete_else_watch(delayed, (group.group_id,), self._clock.monotonic_ms())

    def check(self, group: Group) -> None:
        """Complete the rebalance if all members have joined, after one has joined or left."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.joins.check_and_complete(group.group_id)

    def _join(self, group: Group) -> DelayedJoin:
        return DelayedJoin(group, group.rebalance_timeout_ms, self._complete_join)

    def _initial_join(self, group: Group) -> DelayedJoin:
        return InitialDelayedJoin(
            group,
            self._initial_delay_ms,
            self._complete_join,
            configured_delay_ms=self._initial_delay_ms,
            remaining_ms=max(group.rebalance_timeout_ms - self._initial_delay_ms, 0),
            purgatory=self.joins,
            now_ms=self._clock.monotonic_ms,
        )

    def _complete_join(self, group: Group) -> None:
        """Go on with the members that have joined (as kafka 2.4 GroupCoordinator.onCompleteJoin).

        Static members stay until their session ends: they come back, and expect their old assignment.
        """
        if group.state is GroupState.DEAD:
            return
        absent = [member for member in group.members.values() if member.join_reply is None]
        missed = [member for member in absent if member.group_instance_id is None]
        if missed:
            group.go_on_without(missed)
        if group.members and not group.elect_joined_leader():
            self.joins.try_complete_else_watch(self._join(group), (group.group_id,), self._clock.monotonic_ms())
            return
        group.begin_generation(self._clock.wall_ms())
        if group.state is GroupState.EMPTY:
            self._store_empty(group)
        else:
            self._answer_joins(group)

    def _store_empty(self, group: Group) -> None:
        """Store the empty generation; if that fails, a restarted broker loads the one before, without live members."""

        def on_stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                logger.warning("group %s: cannot store its empty generation: %s", group.group_id, error.name)

        logger.info("group %s: empty in generation %d", group.group_id, group.generation_id)
        then(self.store(group, group.record()), on_stored)

    def _answer_joins(self, group: Group) -> None:
        now_ms = self._clock.monotonic_ms()
        members = counted(len(group.members), "member")
        logger.info("group %s: generation %d with %s", group.group_id, group.generation_id, members)
        for member in group.members.values():
            is_leader = group.is_leader(member.member_id)
            member.begin_generation(group.join_result(member.member_id, with_members=is_leader), now_ms)

    # -- the assignment ---------------------------------------------------------------------------------------

    def assign(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        """Store the leader's assignments, then answer every member; a member without one gets an empty assignment."""
        generation_id = group.generation_id
        complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}

        def on_stored(error: ErrorCode) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return  # a member joined or left during the append
            if error is not ErrorCode.NONE:
                self._reset_assignments(group, error)
                self.maybe_prepare(group, f"cannot store its assignment: {error.name}")
                return
            group.assign(complete)
            self._answer_syncs(group)
            group.become(GroupState.STABLE, self._clock.wall_ms())

        then(self.store(group, group.record(complete)), on_stored)

    def _answer_syncs(self, group: Group, error: ErrorCode = ErrorCode.NONE) -> None:
        now_ms = self._clock.monotonic_ms()
        for member in group.members.values():
            result = group.sync_result(member) if error is ErrorCode.NONE else SyncResult(error)
            if member.answer_sync(result):
                member.expect_heartbeat(now_ms)

    def _reset_assignments(self, group: Group, error: ErrorCode) -> None:
        group.assign({})
        self._answer_syncs(group, error)

    def store(self, group: Group, record: GroupRecord) -> ErrorCode | Pending[ErrorCode]:
        """Append the group's record; return the error for the client."""
        return self._store.store_group(group.group_id, record)

    # -- the end ----------------------------------------------------------------------------------------------

    def unload(self, group: Group, error: ErrorCode) -> None:
        """Answer the waiting requests of a Dead group (as kafka 2.0.1 onGroupUnloaded)."""
        for member in group.members.values():
            member.answer_join(JoinResult(error, member.member_id))
            member.answer_sync(SyncResult(error))
            member.forget_heartbeat()
        for pending in group.pending_members.values():
            pending.cancel()
        self.joins.complete_all(group.group_id)
