"""The topics that a reset between tests has just deleted.

Clients that a test has left open ask for their topics again within milliseconds, and Metadata creates what is missing:
the next test would find a topic that it has not made, or could not make its own. For a moment the connections that are
older than the reset do not create these names; newer ones, and CreateTopics, do.
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.broker.time.clock import Clock

WITHHELD_MS = 1000


class ResetTopics:
    """`number` is that of a connection: they are numbered as they are accepted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._names: frozenset[str] = frozenset()
        self._number = 0
        self._until_ms = 0

    def on_reset(self, names: Iterable[str], number: int) -> None:
        """Note what the reset has deleted that came by this connection."""
        self._names, self._number = frozenset(names), number
        self._until_ms = self._clock.monotonic_ms() + WITHHELD_MS

    def withholds(self, name: str, number: int) -> bool:
        """Whether a connection may not create the name now."""
        is_withheld = name in self._names and number < self._number
        return is_withheld and self._clock.monotonic_ms() < self._until_ms
