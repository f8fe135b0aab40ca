"""The task that advances the timer of the purgatories: it sleeps until the next deadline.

Timers are objects in a wheel, not sleeping tasks: ten thousand waiting fetches cost one sleeping task. A pass fires
`MAX_EXPIRIES_PER_PASS` at most, then lets the loop serve its sockets: trio runs a whole batch of woken tasks before it
polls again, and a burst of thousands would delay all clients.
"""

from __future__ import annotations

import math

import trio

from minibroker.broker.time.clock import Clock
from minibroker.purgatory.timing_wheel import Timer

MAX_EXPIRIES_PER_PASS = 8


class TimerLoop:
    """Drives `timer` by `clock`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._sleep = trio.CancelScope()
        self.timer = Timer(start_ms=clock.monotonic_ms(), on_earlier=self._wake_by)

    def _wake_by(self, deadline_ms: int) -> None:
        """Sleep shorter, after a timer with an earlier deadline was added."""
        deadline = deadline_ms / 1000
        if deadline < self._sleep.deadline:
            self._sleep.deadline = deadline

    async def run(self) -> None:
        while True:
            fired = self.timer.advance(self.clock.monotonic_ms(), max_tasks=MAX_EXPIRIES_PER_PASS)
            if fired >= MAX_EXPIRIES_PER_PASS:
                await trio.lowlevel.checkpoint()
                continue
            next_ms = self.timer.next_deadline_ms()
            self._sleep = trio.CancelScope(deadline=math.inf if next_ms is None else next_ms / 1000)
            with self._sleep:
                await trio.sleep_forever()
