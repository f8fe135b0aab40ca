"""Limits how fast compaction goes: its bytes per second, and how long it holds the interpreter.

Compaction runs in a thread beside the one that serves, and only one of them runs Python at a time. So it pauses every
half millisecond, and the other one goes ahead. With `log.cleaner.io.max.bytes.per.second` it also waits when it has
exceeded that rate (as kafka 2.0.1 Throttler). Stopping the broker ends every pause.
"""

from __future__ import annotations

import threading

from minibroker.storage import real_time

# Another thread waits at most this long for the interpreter, and then gets it: the pause is a kernel's shortest sleep.
_SLICE_SECONDS = 0.000_5
_PAUSE_SECONDS = 0.000_05
_IO_CHECK_SECONDS = 0.3
UNLIMITED = 2.0**63


class LogCleaningAbortedError(Exception):
    """Compaction ends early, and nothing is wrong: the log was changed meanwhile, or the broker stops."""


class CleanerPace:
    """Called by the thread that compacts, between its steps; `stop` may be called by another."""

    def __init__(self, max_bytes_per_second: float = UNLIMITED) -> None:
        self.limit(max_bytes_per_second)
        self._is_stopping = threading.Event()
        self._slice_began = 0.0
        self._period_began = 0.0
        self._period_bytes = 0

    def limit(self, max_bytes_per_second: float) -> None:
        self._max_bytes_per_second = max_bytes_per_second

    def stop(self) -> None:
        """Abort the compaction that is running."""
        self._is_stopping.set()

    def begin(self) -> None:
        """Start to count, after an idle time."""
        self._slice_began = self._period_began = real_time.monotonic()
        self._period_bytes = 0

    def yield_gil(self) -> None:
        """Let other threads run if it is time. Raises LogCleaningAbortedError if the broker stops."""
        if self._is_stopping.is_set():
            raise LogCleaningAbortedError("the broker stops")
        if real_time.monotonic() - self._slice_began > _SLICE_SECONDS:
            real_time.sleep(_PAUSE_SECONDS)
            self._slice_began = real_time.monotonic()

    def on_bytes(self, count: int) -> None:
        """Count bytes that were read or written, and wait if the rate is exceeded."""
        self._period_bytes += count
        elapsed = real_time.monotonic() - self._period_began
        if elapsed < _IO_CHECK_SECONDS:
            return
        ahead = self._period_bytes / max(self._max_bytes_per_second, 1.0) - elapsed
        if ahead > 0:
            self._is_stopping.wait(ahead)
        self._period_began, self._period_bytes = real_time.monotonic(), 0
