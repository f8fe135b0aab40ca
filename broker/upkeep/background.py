"""Work that no request waits for: what a coordinator begins when a timer fires, or for several clients at once.

Plain functions hand over a coroutine; one task runs each in a task of its own. What is left when the broker stops is
closed unfinished: its records were appended before, and closing the logs flushes them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Coroutine
from typing import Any

import trio

logger = logging.getLogger(__name__)


class Background:
    """Runs what it is handed, while `run` runs."""

    def __init__(self) -> None:
        self._hand_over, self._handed_over = trio.open_memory_channel[Coroutine[Any, Any, None]](math.inf)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Have `work` done soon. An exception it raises is logged, and ends nothing else."""
        self._hand_over.send_nowait(work)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                async for work in self._handed_over:
                    nursery.start_soon(self._do, work)
        finally:
            self._close_waiting()

    async def _do(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            logger.exception("background work failed: a defect of minibroker")

    def _close_waiting(self) -> None:
        while True:
            try:
                self._handed_over.receive_nowait().close()
            except trio.WouldBlock:
                return
