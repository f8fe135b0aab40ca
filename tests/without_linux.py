"""Runs `minibroker` as on a system without what Linux has, such as macOS: `python -m tests.without_linux serve ...`.

What is missing there is taken away before the broker is imported, and an epoll stands in for the kqueue.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

READ, ADD, CLEAR, DELETE, EOF = -1, 0x0001, 0x0020, 0x0002, 0x8000  # as on macOS
EDGE_OF_ARRIVALS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
NAMES = {"KQ_FILTER_READ": READ, "KQ_EV_ADD": ADD, "KQ_EV_CLEAR": CLEAR, "KQ_EV_DELETE": DELETE, "KQ_EV_EOF": EOF}


class Kevent(NamedTuple):
    ident: int
    filter: int = READ
    flags: int = ADD


class Kqueue:
    """A kqueue as far as the broker uses it, by an epoll."""

    def __init__(self) -> None:
        self._epoll = select.epoll()

    def fileno(self) -> int:
        return self._epoll.fileno()

    def control(self, changes: list[Kevent] | None, most: int, timeout: float | None = None) -> list[Kevent]:
        for change in changes or ():
            assert change.filter == READ
            if change.flags & DELETE:
                self._epoll.unregister(change.ident)
            else:
                assert change.flags == ADD | CLEAR
                self._epoll.register(change.ident, EDGE_OF_ARRIVALS)
        if not most:
            return []
        return [
            Kevent(fd, flags=EOF if events & (select.EPOLLRDHUP | select.EPOLLHUP) else 0)
            for fd, events in self._epoll.poll(timeout, most)
        ]


# The module `select` of such a system, as far as the broker uses it.
SELECT = SimpleNamespace(**NAMES, kqueue=Kqueue, kevent=Kevent)


def take_linux_away() -> None:
    """Remove what only Linux has, but for trio, which goes on with its epoll."""
    for module, names in {
        os: ("fdatasync", "posix_fallocate", "O_PATH", "sched_yield"),
        socket: ("MSG_MORE", "TCP_CONGESTION", "TCP_INFO"),
        time: ("pthread_getcpuclockid",),
    }.items():
        for name in names:
            delattr(module, name)
    real_exists = Path.exists

    def exists(path: Path, **options: Any) -> bool:
        return not str(path).startswith("/proc") and real_exists(path, **options)

    Path.exists = exists  # type: ignore[method-assign, assignment]
    arrivals.select = SELECT  # type: ignore[attr-defined, assignment]
    sys.platform = "darwin"


if __name__ == "__main__":
    import trio  # noqa: F401

    from minibroker.broker.network import arrivals

    take_linux_away()
    from minibroker.__main__ import main

    sys.exit(main())
