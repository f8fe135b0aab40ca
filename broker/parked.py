"""A request that waits: the operation that will end the wait, and what makes the response then.

A handler that cannot answer yet returns `Parked`. Nothing runs meanwhile, no task and no coroutine: what completes the
operation (an append, its deadline) calls `on_ready`, and the connection answers on the spot.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import trio

from minibroker.purgatory.delayed_operation import DelayedOperation

T = TypeVar("T")


class ParkedOperation(DelayedOperation):
    """A delayed operation that tells who waits for it: `on_ready` is called once, when the wait is over."""

    __slots__ = ("on_ready",)

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.on_ready: Callable[[], None] | None = None

    async def wait(self) -> None:
        """Have this task wait; leave the purgatory when it is cancelled (the broker stops, the client idles)."""
        if self.is_completed:
            return

        def leave(_: object) -> trio.lowlevel.Abort:
            self.on_ready = None
            self.abandon()
            return trio.lowlevel.Abort.SUCCEEDED

        self.on_ready = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
        await trio.lowlevel.wait_task_rescheduled(leave)

    def on_complete(self) -> None:
        on_ready, self.on_ready = self.on_ready, None
        if on_ready is not None:
            on_ready()


class Parked(Generic[T]):
    """What a handler returns for a request whose `operation` waits in a purgatory; `finish` makes the answer."""

    __slots__ = ("finish", "operation")

    def __init__(self, operation: ParkedOperation, finish: Callable[[], T]) -> None:
        self.operation = operation
        self.finish = finish
