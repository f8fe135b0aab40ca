"""Work beside the requests: an fsync in a thread, a request that a fault holds back.

Plain functions hand it over; each piece runs in a task of its own. Work that has not begun when the broker stops never
does: its records are in the log, and closing the log flushes them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar

import trio

from minibroker.broker.pending import Pending

logger = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[], Awaitable[None]]
Steps = Iterator[float | None]  # each with the seconds to wait before the next one


class Cancellation:
    """The source of a Pending that a task resolves: abandoning it cancels the task."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()

    def abandon(self) -> None:
        self.scope.cancel()


class Background:
    """Runs work in tasks, while `run` runs."""

    def __init__(self) -> None:
        self._hand_over, self._handed_over = trio.open_memory_channel[Work](math.inf)
        self._is_running = False

    def start(self, work: Work) -> None:
        """Run `work` soon. Its exception is logged; other work goes on."""
        self._hand_over.send_nowait(work)

    def promise(self, work: Callable[[], Awaitable[T]]) -> Pending[T]:
        """Run `work` soon; return a Pending of its result or exception. Abandoning the Pending cancels the work."""
        cancellation = Cancellation()
        pending: Pending[T] = Pending(cancellation)

        async def run() -> None:
            with cancellation.scope:
                try:
                    value = await work()
                except Exception as error:
                    pending.fail(error)
                else:
                    pending.resolve(value)

        self.start(run)
        return pending

    def run_steps(self, steps: Steps) -> None:
        """Take the first step at once, and others with the tasks of clients in between.

        Before `run` runs, all are taken at once, so that a start is complete; but for those that come after a pause.
        """

        async def run(pause_seconds: float | None) -> None:
            await trio.sleep(pause_seconds or 0)
            for pause_seconds in steps:
                await trio.sleep(pause_seconds or 0)

        for pause_seconds in steps:
            if self._is_running or pause_seconds:
                self.start(partial(run, pause_seconds))
                return

    async def run(self) -> None:
        self._is_running = True
        async with trio.open_nursery() as nursery:
            async for work in self._handed_over:
                nursery.start_soon(self._run, work)

    async def _run(self, work: Work) -> None:
        try:
            await work()
        except Exception:
            logger.exception("background work failed: a defect of minibroker")
