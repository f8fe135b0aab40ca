"""How fast compaction may go: what it reads and writes, and how long it keeps others from running.

It runs in a thread beside the one that serves, and only one of them runs Python at a time. So it stops for a moment
every now and then, and whoever waits for the interpreter goes ahead. With `log.cleaner.io.max.bytes.per.second`
it also stops when it got ahead of that (as kafka 2.0.1 Throttler). Stopping the broker ends every pause.
"""

from __future__ import annotations

import threading
import time

# Others wait at most this long for the interpreter, and then get it: the pause is the least a kernel sleeps.
_SLICE_SECONDS = 0.000_5
_PAUSE_SECONDS = 0.000_05
_IO_CHECK_SECONDS = 0.3
UNLIMITED = 2.0**63


class LogCleaningAbortedError(Exception):
    """The log went away or was changed while it was compacted, or the broker stops: nothing is wrong."""


class CleanerPace:
    """Asked in between by the thread that compacts; `stop` may come from another."""

    def __init__(self, max_bytes_per_second: float = UNLIMITED) -> None:
        self.max_bytes_per_second = max_bytes_per_second
        self._is_stopping = threading.Event()
        self._slice_began = 0.0
        self._period_began = 0.0
        self._period_bytes = 0

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping.is_set()

    def stop(self) -> None:
        """Have whatever is being compacted given up."""
        self._is_stopping.set()

    def begin(self) -> None:
        """Start counting: nothing was done for a while."""
        self._slice_began = self._period_began = time.monotonic()
        self._period_bytes = 0

    def breathe(self) -> None:
        """Let others run if it is time. Raises LogCleaningAbortedError when the broker stops."""
        if self._is_stopping.is_set():
            raise LogCleaningAbortedError("the broker stops")
        if time.monotonic() - self._slice_began > _SLICE_SECONDS:
            time.sleep(_PAUSE_SECONDS)
            self._slice_began = time.monotonic()

    def on_bytes(self, count: int) -> None:
        """Count what was read or written, and wait if that was too much."""
        self._period_bytes += count
        elapsed = time.monotonic() - self._period_began
        if elapsed < _IO_CHECK_SECONDS:
            return
        ahead = self._period_bytes / max(self.max_bytes_per_second, 1.0) - elapsed
        if ahead > 0:
            self._is_stopping.wait(ahead)
        self._period_began, self._period_bytes = time.monotonic(), 0
