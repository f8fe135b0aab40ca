"""Delayed operations of a group: a rebalance that waits for the members, and the deadline of a member's heartbeat.

A rebalance waits in a purgatory as a `DelayedJoin`, under its group's id. A member's deadline is one entry in the
timing wheel, however often it moves.
"""

from __future__ import annotations

from collections.abc import Callable

from minibroker.broker.group.group import Group
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.purgatory.purgatory import Purgatory
from minibroker.purgatory.timing_wheel import Timer, TimerTask


class DelayedJoin(DelayedOperation):
    """A rebalance that waits for all members to join again, for the longest of their rebalance timeouts.

    `complete` ends it with the members that have joined (as kafka 2.0.1 DelayedJoin).
    """

    __slots__ = ("_complete", "_group")

    def __init__(self, group: Group, delay_ms: int, complete: Callable[[Group], None]) -> None:
        super().__init__(delay_ms)
        self._group = group
        self._complete = complete

    def try_complete(self) -> bool:
        return self._group.has_all_members_joined() and self.force_complete()

    def on_complete(self) -> None:
        self._complete(self._group)


class InitialDelayedJoin(DelayedJoin):
    """A new group's first rebalance, which waits for more members than the first (as kafka 2.0.1 InitialDelayedJoin).

    If a member joined during the delay, the delay begins again, while `remaining_ms` of the rebalance timeout are
    left.
    """

    __slots__ = ("_configured_delay_ms", "_now_ms", "_purgatory", "_remaining_ms")

    def __init__(
        self,
        group: Group,
        delay_ms: int,
        complete: Callable[[Group], None],
        *,
        configured_delay_ms: int,
        remaining_ms: int,
        purgatory: Purgatory,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(group, delay_ms, complete)
        self._configured_delay_ms = configured_delay_ms
        self._remaining_ms = remaining_ms
        self._purgatory = purgatory
        self._now_ms = now_ms

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        group = self._group
        if not group.has_new_member or self._remaining_ms == 0:
            super().on_complete()
            return
        group.delay_rebalance()
        again = InitialDelayedJoin(
            group,
            min(self._configured_delay_ms, self._remaining_ms),
            self._complete,
            configured_delay_ms=self._configured_delay_ms,
            remaining_ms=max(self._remaining_ms - self.delay_ms, 0),
            purgatory=self._purgatory,
            now_ms=self._now_ms,
        )
        self._purgatory.try_complete_else_watch(again, (group.group_id,), self._now_ms())


class DelayedHeartbeat(TimerTask):
    """A member's deadline: calls `expire` when it passes, unless `expect_by` has moved it.

    `expect_by` only notes a later deadline; the earlier one, when it passes, is set anew. So a heartbeat costs an
    assignment.
    """

    __slots__ = ("_expected_by_ms", "_expire", "_timer")

    def __init__(self, timer: Timer, expire: Callable[[], None]) -> None:
        super().__init__()
        self._timer = timer
        self._expire = expire
        self._expected_by_ms = 0

    def expect_by(self, deadline_ms: int) -> None:
        self._expected_by_ms = deadline_ms
        if not self.is_pending or deadline_ms < self.deadline_ms:
            self._timer.add(self, deadline_ms)

    def cancel(self) -> None:
        self._timer.cancel(self)

    def on_timeout(self) -> None:
        if self._expected_by_ms > self.deadline_ms:
            self._timer.add(self, self._expected_by_ms)
        else:
            self._expire()
