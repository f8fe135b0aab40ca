"""Tells connections that bytes have arrived: one epoll of our own, on which one task waits.

trio arms its epoll anew for each wait, a system call and a task switch per request; here a socket is registered once,
edge-triggered, and its connection called on the spot. That halves what a small request costs (benchmarks/, requests).
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

import trio

END_EVENTS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
# Connections called in one pass: then the loop looks at everything else there is to do.
MAX_CALLS_PER_PASS = 64


class Poller:
    """Calls `on_readable(is_end)` after bytes, or the end of the stream, have arrived at a socket.

    Edge-triggered: a callee that does not read until nothing is left is not called again for what it left.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
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
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            calls_left = MAX_CALLS_PER_PASS
            # Looked at again at once: a pass of the loop costs as much as two small requests.
            while calls_left > 0 and (ready := self._epoll.poll(0, calls_left)):
                calls_left -= len(ready)
                for fd, events in ready:
                    callee = self._callees.get(fd)
                    if callee is not None:  # it may have been unregistered by one called before it
                        callee(events & END_EVENTS != 0)
