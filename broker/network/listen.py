"""Opens the listening sockets, before the heavy imports.

A client that connects while the broker starts waits in the backlog instead of being refused.

A free port is chosen outside of the kernel's range of client ports. Otherwise the kernel might give the broker's port
to a client that retries while its broker is down, and connect it to itself: the restarted broker would find its address
in use, for a minute.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minibroker.broker.network.congestion import start_unpaced

BACKLOG = 65535  # the kernel limits it to net.core.somaxconn; a full one costs a client a second
CLIENT_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST_FREE_PORT = 20_000
LEAST_CHOICE = 1000
ATTEMPTS = 50


def listen(host: str, port: int) -> socket.socket:
    """Bind and listen on one address; port 0 takes a free one. Raises OSError naming the address."""
    # Python encodes a string by the rules for international names, whose tables take 0.13 MB.
    name = host.encode() if host.isascii() else host
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if port == 0:
            bind_to_free_port(sock, address)
        else:
            sock.bind(address)
        start_unpaced(sock)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock


def bind_to_free_port(sock: socket.socket, address: tuple[Any, ...]) -> None:
    """Bind to a port outside of the range of client ports; to any port, if none of those is free."""
    for port in candidates():
        try:
            sock.bind((address[0], port, *address[2:]))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
        else:
            return
    sock.bind(address)


def candidates() -> Iterator[int]:
    """Yield random ports below the range of client ports; none if the range is unknown, or leaves none."""
    try:
        first_of_clients = int(CLIENT_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return
    if first_of_clients - FIRST_FREE_PORT >= LEAST_CHOICE:
        choice = first_of_clients - FIRST_FREE_PORT
        for _ in range(ATTEMPTS):
            yield FIRST_FREE_PORT + int.from_bytes(os.urandom(4), "big") % choice
