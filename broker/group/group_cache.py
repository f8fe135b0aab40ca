"""The groups of this broker by id, and whether it coordinates a group: every request of a group checks that first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from minibroker.broker.group.group import Group
from minibroker.broker.group.group_kind import AnyGroup, GroupKind
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import CLASSIC

G = TypeVar("G")


class GroupCache:
    """`partition_for` maps a group to its partition of `__consumer_offsets`.

    `refusal` is whether this broker leads that partition, or why not, until `is_stopped`; `log_end` is its log's end.
    """

    def __init__(
        self,
        partition_for: Callable[[str], int | None],
        refusal: Callable[[str], ErrorCode],
        log_end: Callable[[str], int] = lambda group_id: 0,
        *,
        may_be_unnamed: bool = False,
    ) -> None:
        self.may_be_unnamed = may_be_unnamed
        self._partition_for = partition_for
        self._refusal = refusal
        self._log_end = log_end
        self._groups: dict[str, AnyGroup] = {}
        self._partitions: dict[str, int] = {}  # of groups
        self._unseen: dict[str, int] = {}  # groups of which nothing is stored, with the log's end at their beginning
        self.kinds: dict[str, GroupKind] = {}  # by name
        self.is_stopped = False

    def stop(self) -> None:
        """Serve no more requests of groups."""
        self.is_stopped = True

    def check(self, group_id: str, *, may_be_unnamed: bool | None = None) -> ErrorCode:
        """Return NONE, or why this broker cannot serve the group (as kafka 2.0.1 GroupCoordinator.validateGroupStatus).

        `may_be_unnamed`: clients that only commit offsets may use the empty group id. Else some releases know it too.
        """
        if not group_id and not (self.may_be_unnamed if may_be_unnamed is None else may_be_unnamed):
            return ErrorCode.INVALID_GROUP_ID
        if self.is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._refusal(group_id)

    def get(self, group_id: str) -> AnyGroup | None:
        return self._groups.get(group_id)

    def seen(self) -> list[AnyGroup]:
        """The groups that administrators see."""
        return [group for group in self._groups.values() if self._is_seen(group.group_id)]

    def _is_seen(self, group_id: str) -> bool:
        """Whether anything is stored in the group's partition since the group began."""
        if group_id in self._unseen and self._log_end(group_id) > self._unseen[group_id]:
            del self._unseen[group_id]
        return group_id not in self._unseen

    def get_seen(self, group_id: str) -> AnyGroup | None:
        """A group if administrators see it."""
        return self._groups.get(group_id) if self._is_seen(group_id) else None

    def find(self, kind: type[G], group_id: str) -> G | None:
        """A group of this class."""
        group = self._groups.get(group_id)
        return group if isinstance(group, kind) else None

    def described(self, kind: type[G], group_id: str, what: str) -> G:
        """A group of this class, which is `what`, for administrators. Raises KafkaError."""
        refusal = self.check(group_id)
        if refusal is not ErrorCode.NONE:
            raise KafkaError(refusal)
        group = self._groups.get(group_id)
        if not isinstance(group, kind):
            why = "not found" if group is None else f"is not {what}"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")
        return group

    def add_kind(self, kind: GroupKind) -> None:
        """Serve groups of this kind too."""
        self.kinds[kind.name] = kind

    def kind_of(self, group: AnyGroup) -> GroupKind:
        """The kind that serves a group."""
        return self.kinds[group.kind]

    def serving(self, group_id: str) -> GroupKind:
        """The kind that answers the requests of a group; the classic one if there is no such group here."""
        group = self._groups.get(group_id)
        if group is None or self.check(group_id) is not ErrorCode.NONE:
            return self.kinds[CLASSIC]
        return self.kinds[group.kind]

    def get_or_add(self, group_id: str) -> AnyGroup:
        group = self._groups.get(group_id)
        return self.add(Group(group_id)) if group is None else group

    def add(self, group: Group) -> Group:
        self.replace(group)
        return group

    def add_unseen(self, group_id: str) -> Group:
        """Add a group that administrators do not see before something is stored (as kafka 4.4 CoordinatorRuntime)."""
        self._unseen[group_id] = self._log_end(group_id)
        return self.add(Group(group_id))

    def replace(self, group: AnyGroup) -> None:
        """Have this group, in place of one with its id."""
        self._groups[group.group_id] = group
        partition = self._partition_for(group.group_id)
        if partition is not None:
            self._partitions[group.group_id] = partition

    def remove(self, group: AnyGroup, now_ms: int) -> None:
        """Set the group's state to Dead, and remove it."""
        group.die(now_ms)
        self._groups.pop(group.group_id, None)
        self._partitions.pop(group.group_id, None)
        self._unseen.pop(group.group_id, None)

    def all(self) -> list[AnyGroup]:
        return list(self._groups.values())

    def of(self, partition: int) -> list[AnyGroup]:
        """The groups of a partition, also after its topic is gone."""
        return [self._groups[group_id] for group_id, known in self._partitions.items() if known == partition]
