"""A clock that tests can advance: real time plus the advanced seconds.

The clock of timeouts (trio's) and the wall clock of timestamps advance together. They do not jump, but go from deadline
to deadline; the tasks and threads that one deadline starts end before the next comes. So deadlines pass in order, and a
timeout that another one sets fires in the same advance. An advance by a month does not stop at every deadline: after
some minutes the steps are longer (see `ClockTurner.advance`).
"""

from __future__ import annotations

import logging
import math
import time

import trio
from trio.testing import wait_all_tasks_blocked

from minibroker.broker.time.clock import Clock

logger = logging.getLogger(__name__)

TURNED_SECONDS_MAX = 100 * 365 * 86_400.0  # in all, so that clients can read the dates

EXACT_SECONDS = 300.0
EXACT_STEPS_MAX = 1000
LONG_STEPS = 50

PATIENCE_SECONDS = 10.0  # of real time, for the tasks and threads that an advance starts
LEAST_PATIENCE_SECONDS = 0.005  # for each step after that, in which tasks without threads run
THREAD_POLL_SECONDS = 0.000_2


class TurnableClock(Clock, trio.abc.Clock):
    """The broker's clock and trio's (`trio.run(..., clock=it)`) in one: real time plus `turned_seconds`."""

    def __init__(self) -> None:
        self.turned_seconds = 0.0

    def start_clock(self) -> None:
        """Do nothing: real time runs already."""

    def current_time(self) -> float:
        return time.perf_counter() + self.turned_seconds

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()

    def wall_ms(self) -> int:
        return super().wall_ms() + math.floor(self.turned_seconds * 1000)


class ClockTurner:
    """Advances `clock`, the clock of this trio run."""

    def __init__(self, clock: TurnableClock) -> None:
        self._clock = clock
        self._turning = trio.Lock()

    def now(self) -> int:
        """Return the broker's wall clock, in milliseconds since the epoch."""
        return self._clock.wall_ms()

    async def advance(self, seconds: float, at_once: bool = False) -> None:
        """Let `seconds` pass; return after everything due has happened. Raises ValueError for an invalid time.

        The first 5 minutes go from deadline to deadline (1000 at most, so that a client which polls cannot make them
        endless), the rest in 50 steps at most. Everything due in a step happens at its end: requests, groups,
        transactions and connections still in the order of their deadlines, upkeep and compaction once. The advance
        waits for tasks and threads for 10 s of real time at most. With `at_once` it is one step.
        """
        async with self._turning:
            check_advance(seconds, self._clock.turned_seconds)
            patience = await self._settle(PATIENCE_SECONDS)
            left, at_least, steps = float(seconds), float(seconds) if at_once else 0.0, 0
            while left > 0:
                if at_least == 0 and (seconds - left >= EXACT_SECONDS or steps >= EXACT_STEPS_MAX):
                    at_least = left / LONG_STEPS
                step = min(left, max(at_least, trio.lowlevel.current_statistics().seconds_to_next_deadline))
                self._clock.turned_seconds += step
                left -= step
                steps += 1
                patience = await self._settle(patience)

    async def _settle(self, patience_seconds: float) -> float:
        """Wait until every task waits for something and no thread works; return the patience that is left."""
        threads = trio.to_thread.current_default_thread_limiter()
        began = time.perf_counter()
        with trio.move_on_after(max(LEAST_PATIENCE_SECONDS, patience_seconds)) as waiting:
            await wait_all_tasks_blocked()
            while threads.borrowed_tokens > 0:
                await trio.sleep(THREAD_POLL_SECONDS)
                await wait_all_tasks_blocked()
        left = patience_seconds - (time.perf_counter() - began)
        if waiting.cancelled_caught and patience_seconds > 0:
            logger.warning("the broker did not come to rest within %.0f s of advancing its clock", PATIENCE_SECONDS)
            return 0.0
        return left


def check_advance(seconds: float, turned_seconds: float) -> None:
    """Raises ValueError unless a clock advanced by `turned_seconds` can advance by `seconds` more."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds != seconds:
        raise ValueError(f"{seconds!r} is not a number of seconds")
    if seconds < 0:
        raise ValueError(f"a clock advances forward only, not by {seconds} s")
    if seconds > TURNED_SECONDS_MAX - turned_seconds:
        years = TURNED_SECONDS_MAX / 365 / 86_400
        raise ValueError(f"that is too far: a clock advances by {years:.0f} years in all")
