"""Classic groups as a kind of group: what their members may commit, and their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.broker.config.profiles import Habit
from minibroker.broker.group.group import Group, GroupState
from minibroker.broker.group.group_kind import LoadedGroups
from minibroker.broker.group.member import MemberIdentity
from minibroker.broker.group.membership import Membership
from minibroker.broker.group.offset_store import group_contents
from minibroker.broker.group.offsets import Commit
from minibroker.broker.replica.coordinator_log import Contents
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_values import CLASSIC
from minibroker.protocol.record import Record


class ClassicGroups(Membership):
    """Serves classic groups, and clients of no group that only commit offsets. A GroupKind."""

    name: str = CLASSIC
    has_offsets: bool = True
    expires: bool = True

    @property
    def goes_with_its_offsets(self) -> bool:
        """Whether an empty group goes with its last offset, before expired offsets are looked for."""
        return Habit.KEEPS_EMPTY_GROUPS not in self._config.profile.habits

    def refuse_commit(self, group: Group, commit: Commit, *, has_member_epochs: bool) -> ErrorCode:
        """Return NONE, or why a member may not commit; a commit keeps a member alive."""
        refusal = refuse_commit(group, commit.identity, asks_for_member_first=self._asks_for_member_first)
        member = group.members.get(commit.identity.member_id) if refusal is ErrorCode.NONE else None
        if member is not None:
            member.expect_heartbeat(self._clock.monotonic_ms())
        return refusal

    def refuse_transactional_commit(self, group: Group, commit: Commit) -> ErrorCode:
        """Return NONE, or why not (as kafka 2.5 GroupCoordinator.doTxnCommitOffsets).

        Requests of 2.0.1 name no member.
        """
        identity = commit.identity
        if group.is_fenced(identity.member_id, identity.group_instance_id):
            return ErrorCode.FENCED_INSTANCE_ID
        if identity.member_id and identity.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if identity.generation_id >= 0 and identity.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def refuse_fetch(self, group: Group, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE: anyone may read."""
        return ErrorCode.NONE

    def read(self, record: Record, loaded: LoadedGroups) -> bool:
        """Return False: the loader reads records of classic groups itself, with those of offsets."""
        return False

    def begin(self, group: Group) -> None:
        """Coordinate a group that was loaded: the sessions of its members begin anew."""
        self._groups.replace(group)
        now_ms = self._clock.monotonic_ms()
        for member in group.members.values():
            self.watch(group, member)
            member.expect_client(now_ms)

    def end(self, group: Group) -> None:
        """Answer the requests that wait: their clients look for another coordinator."""
        self._rebalances.unload(group, ErrorCode.NOT_COORDINATOR)

    def empty(self, group: Group) -> ErrorCode:
        """There is nothing else."""
        return ErrorCode.NONE

    def tombstones(self, group: Group) -> Sequence[Contents]:
        """The record that deletes a group; none for one that was never stored."""
        is_in_log = group.generation_id > 0 or bool(group.offsets.active_producers)
        return [group_contents(group.group_id, None)] if is_in_log else []

    def assignor_of(self, group: Group) -> str | None:
        """The protocol that the members have agreed on."""
        return group.protocol

    def progress_of(self, group: Group, member_id: str) -> tuple[Any, ...]:
        """Nothing: a member has its assignment whole."""
        return ()


def refuse_commit(group: Group, identity: MemberIdentity, *, asks_for_member_first: bool) -> ErrorCode:
    """Return NONE, or why this member may not commit (as kafka 2.0.1 GroupCoordinator.doCommitOffsets)."""
    refusal = group.refuse_fenced(identity)
    if refusal is not ErrorCode.NONE:
        return refusal
    if identity.generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if group.state is GroupState.COMPLETING_REBALANCE and not asks_for_member_first:
        return ErrorCode.REBALANCE_IN_PROGRESS
    if identity.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if identity.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    is_assigned = group.state is not GroupState.COMPLETING_REBALANCE
    return ErrorCode.NONE if is_assigned else ErrorCode.REBALANCE_IN_PROGRESS
