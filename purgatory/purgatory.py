"""Delayed operations by the keys that may complete them, each with a deadline in the shared timer.

The rule, in one thread: `try_complete_else_watch` checks first and then watches, with nothing in between that
lets another task run, so no event is missed and Kafka's second check is not needed. Code that changes what
a key stands for calls `check_and_complete(key)` afterwards; for a key without watchers that is one look-up.

An operation is watched under many keys and completed under one. It stays in the lists of the others, done
and ignored, until such a list is walked anyway, or more than `purge_interval` waits have ended since the last
purge. A purge cleans only the lists those were in: keys where nothing happened cost nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from minibroker.purgatory.delayed_operation import DelayedOperation, Ending
from minibroker.purgatory.timing_wheel import Timer


class Observer(Protocol):
    """Sees waits begin and end, of any purgatory that it is given to."""

    def parked(self, operation: DelayedOperation) -> None:
        """A wait has begun."""

    def woken(self, purgatory: Purgatory, operation: DelayedOperation, ending: Ending) -> None:
        """A wait has ended; the operation has not answered yet."""


class Purgatory:
    """Holds operations of one kind while they wait. Several purgatories may share a timer. Not for several threads.

    Operations may watch, complete and cancel others from their hooks. An exception from a hook leaves through
    the call that set it off; that operation stays completed and every other stays watched.
    """

    def __init__(
        self, name: str, timer: Timer, *, purge_interval: int = 1000, observer: Observer | None = None
    ) -> None:
        self.name = name
        self._timer = timer
        self._purge_interval = purge_interval
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self._left_behind: list[Sequence[Hashable]] = []  # keys of operations completed since the last purge
        self.delayed = 0  # operations that wait now
        self.endings: dict[Ending, int] = {"completed": 0, "expired": 0, "cancelled": 0}  # of waits, since the start
        self.purged = 0  # entries removed from lists
        self._observer = observer

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable], now_ms: int) -> bool:
        """Complete `operation` if its condition holds (True), else have it wait for its `delay_ms` (False).

        `keys` say what may make the condition hold; the sequence must not change while the operation waits.
        """
        if not keys:
            raise ValueError("an operation without keys could only wait for its deadline")
        if operation.try_complete():
            return True
        if operation.is_completed:
            return False  # completed by a consequence of its own check
        operation.kept_by(self, keys)
        self.delayed += 1
        for key in keys:
            watchers = self._watchers.get(key)
            if watchers is None:
                self._watchers[key] = [operation]
            else:
                watchers.append(operation)
        self._timer.add(operation, now_ms + operation.delay_ms)
        if self._observer is not None:
            self._observer.parked(operation)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Complete the operations under `key` whose condition now holds; return how many."""
        watchers = self._watchers.get(key)
        return 0 if watchers is None else self._complete_watched(key, watchers)

    def complete_all(self, key: Hashable) -> None:
        """Complete the operations under `key` whatever their condition says."""
        for operation in tuple(self._watchers.get(key, ())):
            operation.force_complete()

    def cancel(self, operation: DelayedOperation) -> bool:
        """End the wait without an answer, for a client that is gone; False if it had ended before."""
        return operation.abandon()

    def release(self, operation: DelayedOperation, keys: Sequence[Hashable], ending: Ending) -> None:
        """Note that the wait of `operation` has ended. The operation calls this, once."""
        self._timer.cancel(operation)
        self.delayed -= 1
        self.endings[ending] += 1
        if self._observer is not None:
            self._observer.woken(self, operation, ending)
        self._left_behind.append(keys)
        if len(self._left_behind) > self._purge_interval:
            self._purge()

    @property
    def watched(self) -> int:
        """The number of entries of lists, as Kafka's PurgatorySize: an operation under three keys is three."""
        return sum(map(len, self._watchers.values()))

    def _complete_watched(self, key: Hashable, watchers: list[DelayedOperation]) -> int:
        """Try each of `watchers`: a copy, for one may watch or complete others under the same key."""
        completed_before = completed_now = 0
        for operation in watchers.copy():
            if operation.is_completed:
                completed_before += 1
            elif operation.try_complete():
                completed_now += 1
        if completed_before or completed_now:
            self._purge_key(key)
        return completed_now

    def _purge(self) -> None:
        left_behind, self._left_behind = self._left_behind, []
        for key in {key for keys in left_behind for key in keys}:
            self._purge_key(key)

    def _purge_key(self, key: Hashable) -> None:
        """Drop completed operations from the list of `key`, and the list when it is empty."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return
        waiting = [operation for operation in watchers if not operation.is_completed]
        self.purged += len(watchers) - len(waiting)
        if waiting:
            self._watchers[key] = waiting
        else:
            del self._watchers[key]
