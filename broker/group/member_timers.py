"""The deadlines of members of the consumer protocol: each kind at most once a member."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from minibroker.broker.group.delayed_join import DelayedHeartbeat
from minibroker.broker.time.clock import Clock
from minibroker.purgatory.timing_wheel import Timer


class Deadline(Enum):
    """A thing that a member has to do in time, or it is removed."""

    SESSION = auto()  # any request
    REBALANCE = auto()  # leave its epoch, with partitions to revoke
    JOIN = auto()  # join again, of the classic protocol
    SYNC = auto()  # ask for its assignment, of the classic protocol


class MemberTimers:
    """The deadlines by group and member."""

    def __init__(self, timer: Timer, clock: Clock) -> None:
        self._timer = timer
        self._clock = clock
        self._running: dict[tuple[str, str], dict[Deadline, DelayedHeartbeat]] = {}

    def expect(
        self, group_id: str, member_id: str, deadline: Deadline, within_ms: int, expire: Callable[[], None]
    ) -> None:
        """Call `expire` in `within_ms`, in place of the call that this deadline had before."""
        self.cancel(group_id, member_id, deadline)
        running = self._running.setdefault((group_id, member_id), {})
        running[deadline] = delayed = DelayedHeartbeat(self._timer, expire)
        delayed.expect_by(self._clock.monotonic_ms() + within_ms)

    def keep_alive(self, group_id: str, member_id: str, within_ms: int, expire: Callable[[], None]) -> None:
        """Let the member's session end in `within_ms`: each heartbeat moves that."""
        delayed = self._running.get((group_id, member_id), {}).get(Deadline.SESSION)
        if delayed is None or not delayed.is_pending:
            self.expect(group_id, member_id, Deadline.SESSION, within_ms, expire)
        else:
            delayed.expect_by(self._clock.monotonic_ms() + within_ms)

    def has(self, group_id: str, member_id: str, deadline: Deadline) -> bool:
        delayed = self._running.get((group_id, member_id), {}).get(deadline)
        return delayed is not None and delayed.is_pending

    def cancel(self, group_id: str, member_id: str, deadline: Deadline) -> None:
        running = self._running.get((group_id, member_id))
        delayed = None if running is None else running.pop(deadline, None)
        if delayed is not None:
            delayed.cancel()
        if running is not None and not running:
            del self._running[group_id, member_id]

    def cancel_all(self, group_id: str, member_id: str) -> None:
        for delayed in self._running.pop((group_id, member_id), {}).values():
            delayed.cancel()
