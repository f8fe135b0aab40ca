"""Tells connections that bytes have arrived: one epoll of our own, on which one task waits.

trio arms its epoll anew for each wait, a system call and a task switch per request; here a socket is registered once,
edge-triggered, and its connection called on the spot. That halves what a small request costs (benchmarks/, requests).
And it is looked at as soon as the loop has waited, before it runs any task: a broker that was idle has its caches cold,
and finding the way to a task then takes as long as the answer (benchmarks/, latency).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable

import trio

END_EVENTS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
# Connections called in one pass: then the loop looks at everything else there is to do.
MAX_CALLS_PER_PASS = 64
# To offer the core takes a microsecond if nobody takes it. Those whom one message wakes take it for some 100 us each,
# those who compute for milliseconds.
CORE_TAKEN_SECONDS = 20e-6
CORE_WANTED_SECONDS = 500e-6


class Poller(trio.abc.Instrument):
    """Calls `on_readable(is_end)` after bytes, or the end of the stream, have arrived at a socket.

    Edge-triggered: a callee that does not read until nothing is left is not called again for what it left.
    The callee may be called where there is no current task, and must not raise.

    With `busy_poll_seconds` the loop goes on looking for so long after the last bytes, instead of sleeping at once:
    a core that sleeps takes longer to wake than a small request takes to answer (benchmarks/, latency).
    """

    def __init__(self, busy_poll_seconds: float = 0.0) -> None:
        self._epoll = select.epoll()
        self._busy_poll_seconds = busy_poll_seconds
        self._last_bytes_at = 0.0
        self._callees: dict[int, Callable[[bool], None]] = {}

    def register(self, sock: socket.socket, on_readable: Callable[[bool], None]) -> None:
        self._callees[sock.fileno()] = on_readable
        self._epoll.register(sock, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)

    def unregister(self, sock: socket.socket) -> None:
        """Before the socket is closed."""
        del self._callees[sock.fileno()]
        self._epoll.unregister(sock)

    async def run(self) -> None:
        """Call until cancelled. The epoll closes with this object: connections may outlive the task by a step."""
        trio.lowlevel.add_instrument(self)
        try:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                calls_left = MAX_CALLS_PER_PASS
                # Looked at again at once: a pass of the loop costs as much as two small requests.
                while calls_left > 0 and (called := self._call_ready(calls_left)):
                    calls_left -= called
                if self._busy_poll_seconds:
                    await self._stay_awake()
        finally:
            with contextlib.suppress(KeyError):  # trio has removed it, had it ever raised
                trio.lowlevel.remove_instrument(self)

    async def _stay_awake(self) -> None:
        """Have the loop go round, which serves who has sent something, until nobody has for a while.

        Ends early when others want the core: on a busy machine their work is worth more than our being awake.
        """
        taken_seconds = 0.0
        while (now := time.perf_counter()) < self._last_bytes_at + self._busy_poll_seconds:
            os.sched_yield()
            took_seconds = time.perf_counter() - now
            if took_seconds > CORE_TAKEN_SECONDS:
                taken_seconds += took_seconds
                if taken_seconds > CORE_WANTED_SECONDS:
                    return
            await trio.lowlevel.checkpoint()

    def give_way(self) -> None:
        """Call those to whom bytes have arrived, for a task that is at work for long. Never waits."""
        self._call_ready(MAX_CALLS_PER_PASS)

    def after_io_wait(self, timeout: float) -> None:
        """Called by the loop, as trio.abc.Instrument."""
        self._call_ready(MAX_CALLS_PER_PASS)

    def _call_ready(self, most: int) -> int:
        ready = self._epoll.poll(0, most)
        for fd, events in ready:
            callee = self._callees.get(fd)
            if callee is not None:  # it may have been unregistered by one called before it
                callee(events & END_EVENTS != 0)
        if ready and self._busy_poll_seconds:
            self._last_bytes_at = time.perf_counter()
        return len(ready)
