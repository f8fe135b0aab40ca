"""The calls of the system that a session makes, besides the methods of its socket.

A simulation replaces these names.
"""

from __future__ import annotations

import select
import socket
import time

create_connection = socket.create_connection
monotonic = time.monotonic
sleep = time.sleep


def wait_readable(sock: socket.socket, seconds: float) -> bool:
    """Wait until there is something to read, for so long at most; return whether there is."""
    return wait(sock, select.POLLIN, seconds)


def wait_writable(sock: socket.socket, seconds: float) -> bool:
    """Wait until something can be sent, for so long at most; return whether it can."""
    return wait(sock, select.POLLOUT, seconds)


def wait(sock: socket.socket, direction: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(sock, direction)
    return bool(poll.poll(max(0.0, seconds) * 1000))
