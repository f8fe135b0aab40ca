"""An operation that waits for a condition, for a bounded time, and is answered at most once.

Kafka's names: `try_complete` checks the condition, `force_complete` ends the wait. Of the condition, the
deadline and a direct call only the first runs `on_complete`; after `Purgatory.cancel` none does. An operation
does not know what else waits; it notifies its keeper when its wait ends.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, Protocol

from minibroker.purgatory.timing_wheel import TimerTask

Ending = Literal["completed", "expired", "cancelled"]


class Keeper(Protocol):
    """Keeps operations that wait."""

    def release(self, operation: DelayedOperation, keys: Sequence[Hashable], ending: Ending) -> None:
        """Note that the wait of `operation`, watched under `keys`, has ended."""


class DelayedOperation(TimerTask):
    """Subclass with `try_complete`, `on_complete` and perhaps `on_end` and `on_expiration`."""

    __slots__ = ("_keeper", "_keys", "delay_ms", "is_completed")

    def __init__(self, delay_ms: int) -> None:
        super().__init__()
        self.delay_ms = delay_ms
        self.is_completed = False
        self._keeper: Keeper | None = None
        self._keys: Sequence[Hashable] = ()

    def try_complete(self) -> bool:
        """If the condition holds, return `force_complete()`; otherwise False, with nothing changed."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Answer. Runs once, when the operation no longer waits."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Runs after `on_complete` if it was the deadline that completed the operation."""

    def on_end(self) -> None:
        """Runs once, when the wait has ended: completed, expired or abandoned."""

    @property
    def watched_keys(self) -> Sequence[Hashable]:
        """The keys under which it waits, or has waited."""
        return self._keys

    def force_complete(self) -> bool:
        """Complete now; False if the wait had ended before."""
        if not self._end("completed"):
            return False
        self.on_complete()
        return True

    def on_timeout(self) -> None:
        if self._end("expired"):
            self.on_complete()
            self.on_expiration()

    def abandon(self) -> bool:
        """End the wait without an answer; False if it had ended before."""
        return self._end("cancelled")

    def kept_by(self, keeper: Keeper, keys: Sequence[Hashable]) -> None:
        """Begin the wait; notify `keeper` of its end. An operation waits once in its life."""
        if self._keeper is not None or self.is_completed:
            raise ValueError("a delayed operation waits only once")
        self._keeper = keeper
        self._keys = keys

    def _end(self, ending: Ending) -> bool:
        if self.is_completed:
            return False
        self.is_completed = True
        if self._keeper is not None:
            self._keeper.release(self, self._keys, ending)
        self.on_end()
        return True
