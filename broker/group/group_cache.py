"""The groups of this broker by id, and whether it coordinates a group: every request of a group checks that first.

All groups are loaded before the first request is read, so no group is COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from collections.abc import Callable

from minibroker.broker.group.group import Group, GroupState
from minibroker.protocol.errors import ErrorCode


class GroupCache:
    """`partition_for` maps a group to its partition of `__consumer_offsets`; to None until the topic exists."""

    def __init__(self, partition_for: Callable[[str], int | None]) -> None:
        self._partition_for = partition_for
        self._groups: dict[str, Group] = {}
        self.is_active = False

    def check(self, group_id: str, *, may_be_unnamed: bool = False) -> ErrorCode:
        """Return NONE, or why this broker cannot serve the group (as kafka 2.0.1 GroupCoordinator.validateGroupStatus).

        `may_be_unnamed`: clients that only commit offsets may use the empty group id.
        """
        if not group_id and not may_be_unnamed:
            return ErrorCode.INVALID_GROUP_ID
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._partition_for(group_id) is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def get_or_add(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        return self.add(Group(group_id)) if group is None else group

    def add(self, group: Group) -> Group:
        self._groups[group.group_id] = group
        return group

    def remove(self, group: Group, now_ms: int) -> None:
        """Set the group's state to Dead, and remove it."""
        group.become(GroupState.DEAD, now_ms)
        self._groups.pop(group.group_id, None)

    def all(self) -> list[Group]:
        return list(self._groups.values())
