"""The kernel's list of sockets at which bytes have arrived: an epoll on Linux, else a kqueue.

Both are used edge-triggered, with the methods and the events of epoll.
"""

from __future__ import annotations

import select
from typing import Any

ARRIVED = 0x001  # EPOLLIN
ENDED_BY_PEER = 0x2000  # EPOLLRDHUP
END_EVENTS = ENDED_BY_PEER | 0x010 | 0x008  # or EPOLLHUP, or EPOLLERR
ONCE = 1 << 31  # EPOLLET


def new_arrivals() -> Any:
    """Open an epoll, or what has its methods."""
    return select.epoll() if hasattr(select, "epoll") else KernelQueue()


class KernelQueue:
    """A kqueue with those methods of an epoll that the poller uses; it is only asked for arrivals."""

    def __init__(self) -> None:
        self._names: Any = select  # kqueue's names are unknown to type checkers on Linux
        self._queue = self._names.kqueue()

    def fileno(self) -> int:
        return int(self._queue.fileno())

    def register(self, fd: int, events: int) -> None:
        self._change(fd, self._names.KQ_EV_ADD | self._names.KQ_EV_CLEAR)

    def unregister(self, fd: int) -> None:
        self._change(fd, self._names.KQ_EV_DELETE)

    def _change(self, fd: int, flags: int) -> None:
        self._queue.control([self._names.kevent(fd, self._names.KQ_FILTER_READ, flags)], 0)

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        """Return descriptors and events, as epoll does."""
        ended = self._names.KQ_EV_EOF
        return [
            (each.ident, ARRIVED | (ENDED_BY_PEER if each.flags & ended else 0))
            for each in self._queue.control(None, most, timeout)
        ]
