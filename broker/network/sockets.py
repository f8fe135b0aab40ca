"""The calls of the system that connections make, besides the methods of their sockets.

Nothing else in the broker's core reaches the network (tests/test_layering.py).

A simulation replaces these names, and hands the broker listeners of its own.
"""

from __future__ import annotations

import os
import socket

import trio

from minibroker.broker.network import arrivals

new_arrivals = arrivals.new_arrivals
wait_readable = trio.lowlevel.wait_readable
wait_writable = trio.lowlevel.wait_writable
open_stream = trio.open_tcp_stream


async def open_socket(host: str, port: int) -> socket.socket:
    """Connect, and return a socket of the system, for who does without streams. Raises OSError."""
    stream = await trio.open_tcp_stream(host, port)
    sock = socket.socket(fileno=os.dup(stream.socket.fileno()))
    await stream.aclose()
    return sock


def send_file(sock: socket.socket, fd: int, position: int, size_bytes: int) -> int:
    """Send bytes of a file, as many as the socket takes; return how many. Raises OSError."""
    return os.sendfile(sock.fileno(), fd, position, size_bytes)
