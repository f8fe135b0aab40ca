"""Kinds of group: each serves the requests of its groups, and has records of its own in `__consumer_offsets`.

The core has the classic groups (`classic_groups.py`). A wing may add another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from minibroker.broker.group.member import JoinResult, MemberIdentity, SyncResult
from minibroker.broker.group.offsets import Commit, GroupOffsets
from minibroker.broker.pending import Pending
from minibroker.broker.replica.coordinator_log import Contents
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record

LeaveAnswer = tuple[ErrorCode, list[tuple[MemberIdentity, ErrorCode]]]


class AnyGroup(Protocol):
    """A group, of whatever kind."""

    group_id: str
    offsets: GroupOffsets
    rebalance_reason: str
    missed_members: Sequence[str]
    state_timestamp_ms: int

    @property
    def kind(self) -> str:
        """The name of its kind, as ListGroups has it: `classic`, `consumer`."""

    @property
    def state(self) -> Enum:
        """The value is the state's name in ListGroups."""

    @property
    def protocol_type(self) -> str | None: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def members(self) -> dict[str, Any]:
        """The members by id."""

    @property
    def is_empty(self) -> bool: ...
    @property
    def is_consumer_group(self) -> bool:
        """Whether its members are consumers."""

    def is_leader(self, member_id: str) -> bool: ...
    def is_subscribed_to(self, topic: str) -> bool: ...
    def die(self, now_ms: int) -> None:
        """Note that it has been removed."""


class LoadedGroups(Protocol):
    """The groups of a partition that is being loaded, as their records have made them until now."""

    def other(self, group_id: str, make: Callable[[str, GroupOffsets], AnyGroup] | None) -> Any:
        """The group of a kind beside classic; if there is none, `make` one in place of a classic one, else None."""

    def drop_other(self, group_id: str) -> None:
        """Forget a group whose last record is a tombstone; its committed offsets stay."""


class GroupKind(Protocol):
    """Serves groups of one kind. A `group` is one of these."""

    @property
    def name(self) -> str: ...
    @property
    def has_offsets(self) -> bool:
        """Whether members commit offsets."""

    @property
    def goes_with_its_offsets(self) -> bool:
        """Whether a group without members goes with its last offset.

        Else the check for expired offsets removes it, which keeps those of topics that the group subscribes to.
        """

    @property
    def expires(self) -> bool:
        """Whether a group without members and offsets is removed when offsets expire."""

    # -- requests of the classic protocol ---------------------------------------------------------------------

    def join(self, request: Any) -> JoinResult | Pending[JoinResult]: ...
    def sync(self, request: Any) -> SyncResult | Pending[SyncResult]: ...
    def heartbeat(self, group_id: str, identity: MemberIdentity, *, keeps_while_syncing: bool = False) -> ErrorCode: ...
    def leave(self, group_id: str, leaving: Sequence[MemberIdentity]) -> LeaveAnswer | Pending[LeaveAnswer]: ...

    # -- offsets ----------------------------------------------------------------------------------------------

    def refuse_commit(self, group: Any, commit: Commit, *, has_member_epochs: bool) -> ErrorCode:
        """Return NONE, or why a member may not commit. `has_member_epochs`: its client knows the consumer protocol."""

    def refuse_transactional_commit(self, group: Any, commit: Commit) -> ErrorCode:
        """Return NONE, or why a producer may not commit for a member."""

    def refuse_fetch(self, group: Any, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE, or why a member may not read the group's offsets."""

    # -- the log ----------------------------------------------------------------------------------------------

    def read(self, record: Record, loaded: LoadedGroups) -> bool:
        """Take a record of this kind; return False for one that is not. Raises UnreadableRecordError."""

    def begin(self, group: Any) -> None:
        """Coordinate a group that was loaded: the sessions of its members begin anew."""

    def end(self, group: Any) -> None:
        """Another broker coordinates the group, or none: answer what waits for it, and forget its deadlines."""

    def empty(self, group: Any) -> ErrorCode | Pending[ErrorCode]:
        """Delete what is kept of a group beside its records, before an administrator deletes it."""

    def tombstones(self, group: Any) -> Sequence[Contents]:
        """The records that delete a group; none for one that was never stored."""

    # -- for those who look -----------------------------------------------------------------------------------

    def assignor_of(self, group: Any) -> str | None:
        """The protocol that the members have agreed on, or the assignor of the next assignment."""

    def progress_of(self, group: Any, member_id: str) -> tuple[Any, ...]:
        """A member's epoch, the partitions that it revokes, and the ones that another member has yet to release.

        Of a share group also the first records in flight.
        """
