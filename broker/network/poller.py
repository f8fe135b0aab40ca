"""Calls connections when bytes have arrived: an epoll of its own, on which one task waits.

trio arms its epoll anew for each wait, a system call and a task switch per request; here a socket is registered once,
edge-triggered, and its connection called directly. That halves the cost of a small request (benchmarks/, requests).
And the poller runs as soon as the loop has waited, before any task: an idle broker has cold caches, and switching to a
task then takes as long as the answer (benchmarks/, latency).

It reads the connections with new bytes in a row, then answers them in a row, then sends to them in a row. All but the
first find the code of a step in the core's caches. All but the first send find the clients' core awake: to wake one in
a virtual machine takes as long as to answer a small request. A response that ends a wait, such as one with the record
of an append, is sent at once.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from typing import Protocol

import trio

from minibroker.broker.network import sockets
from minibroker.broker.network.arrivals import ARRIVED, END_EVENTS, ENDED_BY_PEER, ONCE
from minibroker.broker.time.clock import Clock
from minibroker.broker.upkeep.afterwards import Afterwards
from minibroker.storage import real_time

# Connections called in one pass, before the loop runs its tasks.
MAX_CALLS_PER_PASS = 64
# Connections that are read, answered and sent to in a row: more, and clients have nothing to do while they wait.
TOGETHER = 10
# For so long an answer waits for others, if theirs take long: then it is sent.
TOGETHER_SECONDS = 100e-6
# Yielding the core takes a microsecond if no other process wants it. A process that one message wakes takes it for some
# 100 us, a process that computes for milliseconds.
CORE_TAKEN_SECONDS = 20e-6
CORE_WANTED_SECONDS = 500e-6
# While the poller stays awake, tasks have their turn after each request, and that often: a pass of the loop takes ten
# times as long as to poll, and takes the code of an answer out of the core's caches.
TASKS_SECONDS = 200e-6


class Readable(Protocol):
    """The owner of a socket. Its methods must not wait, nor raise; they may be called without a current task."""

    def read(self, is_end: bool) -> bool:
        """Read what has arrived. Return whether it is to be answered.

        The epoll is edge-triggered: what is left unread causes no further call. With `is_end` the end of the stream
        has arrived too.
        """

    def answer(self) -> None:
        """Answer what was read."""

    def send(self) -> None:
        """Send the answers."""


class Poller(trio.abc.Instrument):
    """Has connections read, answer and send after bytes, or the end of the stream, have arrived at their sockets.

    With `busy_poll_seconds` the loop polls for that time after the last bytes, instead of sleeping at once: waking a
    sleeping core takes longer than answering a small request (benchmarks/, latency).
    """

    def __init__(
        self,
        busy_poll_seconds: float = 0.0,
        now_ms: Callable[[], int] | None = None,
        afterwards: Afterwards | None = None,
    ) -> None:
        self.now_ms = Clock().monotonic_ms if now_ms is None else now_ms
        self._afterwards = Afterwards() if afterwards is None else afterwards
        self.pass_ms = 0  # when the last pass with new bytes began
        self._epoll = sockets.new_arrivals()
        self._busy_poll_seconds = busy_poll_seconds
        self._last_bytes_at = 0.0
        self._connections: dict[int, Readable] = {}

    def register(self, sock: socket.socket, connection: Readable) -> None:
        self._connections[sock.fileno()] = connection
        self._epoll.register(sock, ARRIVED | ENDED_BY_PEER | ONCE)

    def unregister(self, sock: socket.socket) -> None:
        """Forget a socket, before it is closed."""
        del self._connections[sock.fileno()]
        self._epoll.unregister(sock)

    async def run(self) -> None:
        """Call until cancelled. The epoll closes with this object, as connections may outlive the task by a step."""
        trio.lowlevel.add_instrument(self)
        try:
            while True:
                await sockets.wait_readable(self._epoll)
                calls_left = MAX_CALLS_PER_PASS
                # Poll again at once: a pass of the loop costs as much as two small requests.
                while calls_left > 0 and (called := self._call_ready(calls_left)):
                    calls_left -= called
                if self._busy_poll_seconds:
                    await self._stay_awake()
        finally:
            with contextlib.suppress(KeyError):  # trio removes an instrument that raised
                trio.lowlevel.remove_instrument(self)

    async def _stay_awake(self) -> None:
        """Call the connections with new bytes until none have arrived for `busy_poll_seconds`.

        Ends early if other processes want the core: on a busy machine their work is worth more than a fast wake-up.
        """
        taken_seconds = 0.0
        tasks_at = 0.0
        while (now := real_time.perf_counter()) < self._last_bytes_at + self._busy_poll_seconds:
            os.sched_yield()
            took_seconds = real_time.perf_counter() - now
            if took_seconds > CORE_TAKEN_SECONDS:
                taken_seconds += took_seconds
                if taken_seconds > CORE_WANTED_SECONDS:
                    return
            if self._call_ready(MAX_CALLS_PER_PASS) or now > tasks_at:
                tasks_at = now + TASKS_SECONDS
                await trio.lowlevel.checkpoint()

    def give_way(self) -> None:
        """Call the connections with new bytes, on behalf of a task that runs for long. Never waits."""
        self._call_ready(MAX_CALLS_PER_PASS)

    def after_io_wait(self, timeout: float) -> None:
        """Call the connections with new bytes; trio calls this hook after each wait of the loop."""
        self._call_ready(MAX_CALLS_PER_PASS)

    def _call_ready(self, most: int) -> int:
        ready = self._epoll.poll(0, most)
        if not ready:
            return 0
        self.pass_ms = self.now_ms()
        for start in range(0, len(ready), TOGETHER):
            self._call_together(ready[start : start + TOGETHER])
        if self._busy_poll_seconds:
            self._last_bytes_at = real_time.perf_counter()
        return len(ready)

    def _call_together(self, ready: list[tuple[int, int]]) -> None:
        self._afterwards.begin_pass()
        unanswered: list[Readable] = []
        for fd, events in ready:
            connection = self._connections.get(fd)
            if connection is not None and connection.read(events & END_EVENTS != 0):  # None: another has ended it
                unanswered.append(connection)
        unsent: list[Readable] = []
        send_at = real_time.perf_counter() + TOGETHER_SECONDS
        for connection in unanswered:
            connection.answer()
            unsent.append(connection)
            if (now := real_time.perf_counter()) > send_at:
                send_at = now + TOGETHER_SECONDS
                _send_to(unsent)
        _send_to(unsent)
        self._afterwards.end_pass()


def _send_to(unsent: list[Readable]) -> None:
    for connection in unsent:
        connection.send()
    unsent.clear()
