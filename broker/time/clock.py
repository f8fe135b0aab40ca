"""The broker's two clocks: the monotonic clock for timeouts, the wall clock for stored times.

Timeouts follow the monotonic clock (trio's own, so that tests may jump it); record timestamps and retention follow the
wall clock. All code in `broker/` reads the time from here. Tests may advance both (turnable_clock.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

# Seconds as a float can fall short of their millisecond: 8.001 s are 8000.999999999999 ms. A task that slept until a
# deadline must find that it has passed.
FLOAT_ERROR_MS = 1e-6


class Clock:
    """Milliseconds since an arbitrary start (`monotonic_ms`) and since the epoch (`wall_ms`); for one run of trio."""

    _seconds: Callable[[], float] | None = None  # of trio's clock, which `trio.current_time` would look up each time

    def monotonic_ms(self) -> int:
        seconds = self._seconds
        if seconds is None:
            seconds = self._seconds = trio.lowlevel.current_clock().current_time
        return int(seconds() * 1000 + FLOAT_ERROR_MS)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
