"""A clock that tests can turn: real time, plus what it was turned by.

Timeouts (trio's clock) and what is written down (the wall clock) are turned together. A turn is not one jump: it goes
from deadline to deadline, and what one of them starts is done, in tasks and threads, before the next has come: so all
happens in its order, and a timeout that another one has set fires in the same turn. To turn by a month is not to live
through it: after some minutes the steps are longer (see `ClockTurner.advance`).
"""

from __future__ import annotations

import logging
import math
import time

import trio
from trio.testing import wait_all_tasks_blocked

from minibroker.broker.time.clock import Clock

logger = logging.getLogger(__name__)

TURNED_SECONDS_MAX = 100 * 365 * 86_400.0  # in all: dates stay ones that clients can read

EXACT_SECONDS = 300.0
EXACT_STEPS_MAX = 1000
LONG_STEPS = 50

PATIENCE_SECONDS = 10.0  # of real time, for all that a turn has started
LEAST_PATIENCE_SECONDS = 0.005  # with a step, when there is none left: for tasks to run that have no need of threads
THREAD_POLL_SECONDS = 0.000_2


class TurnableClock(Clock, trio.abc.Clock):
    """The broker's clock and trio's (`trio.run(..., clock=it)`) in one: both run as real time does, and are turned."""

    def __init__(self) -> None:
        self.turned_seconds = 0.0

    def start_clock(self) -> None:
        """Nothing to do: it runs."""

    def current_time(self) -> float:
        return time.perf_counter() + self.turned_seconds

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()

    def wall_ms(self) -> int:
        return super().wall_ms() + math.floor(self.turned_seconds * 1000)


class ClockTurner:
    """Turns `clock`, by which this trio run goes."""

    def __init__(self, clock: TurnableClock) -> None:
        self._clock = clock
        self._turning = trio.Lock()

    def now(self) -> int:
        """The broker's wall clock, in milliseconds since the epoch."""
        return self._clock.wall_ms()

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass; return when all that was due has happened. Raises ValueError for what is no such time.

        The first 5 minutes of a turn are taken from deadline to deadline (1000 at most: who asks again and again, a
        moment apart, cannot make it endless), the rest in at most 50 steps. What falls into one step happens at its
        end: requests, groups, transactions and connections in the order of their deadlines even so, upkeep and
        compaction once. What has not come to rest within 10 s of real time is not waited for.
        """
        async with self._turning:
            check_turn(seconds, self._clock.turned_seconds)
            patience = await self._settle(PATIENCE_SECONDS)
            left, at_least, steps = float(seconds), 0.0, 0
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
            logger.warning("while its clock was turned, the broker did not come to rest in %.0f s", PATIENCE_SECONDS)
            return 0.0
        return left


def check_turn(seconds: float, turned_seconds: float) -> None:
    """Raises ValueError unless a clock turned by `turned_seconds` can be turned by `seconds` more."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds != seconds:
        raise ValueError(f"{seconds!r} is no number of seconds")
    if seconds < 0:
        raise ValueError(f"a clock is turned forward only, not by {seconds} s")
    if seconds > TURNED_SECONDS_MAX - turned_seconds:
        years = TURNED_SECONDS_MAX / 365 / 86_400
        raise ValueError(f"that is too far: a clock is turned by {years:.0f} years in all")
