"""The broker's two clocks: the monotonic clock for timeouts, the wall clock for stored times.

Timeouts follow the monotonic clock (trio's own, so that tests may jump it); record timestamps and retention follow the
wall clock. All code in `broker/` reads the time from here. Tests may advance both (turnable_clock.py).
"""

from __future__ import annotations

import time

import trio

# Seconds as a float can fall short of their millisecond: 8.001 s are 8000.999999999999 ms. A task that slept until a
# deadline must find that it has passed.
FLOAT_ERROR_MS = 1e-6


class Clock:
    """Milliseconds since an arbitrary start (`monotonic_ms`) and since the epoch (`wall_ms`)."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1000 + FLOAT_ERROR_MS)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
