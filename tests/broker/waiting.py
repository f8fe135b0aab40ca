"""Waiting, on a clock that jumps, for what a thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

DEADLINE_SECONDS = 60.0


async def until(is_so: Callable[[], bool]) -> None:
    """Let the clock jump from pause to pause until it is so: a thread takes its time, whatever the clock says."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never was"
        await trio.sleep(1)
