"""Opens the listening sockets, before anything heavy is imported.

A client that connects while the broker starts waits in the backlog instead of being refused.

A free port is taken where the kernel takes none for clients. A client that goes on trying to connect while its broker
is down may else be given the broker's port for its own end, and be its own peer: the broker that is started again
finds its address in use, for a minute.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minibroker.broker.network.congestion import start_unpaced

BACKLOG = 65535  # the kernel cuts it to net.core.somaxconn; a full one costs a client a second
CLIENT_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST_FREE_PORT = 20_000
LEAST_CHOICE = 1000
ATTEMPTS = 50


def listen(host: str, port: int) -> socket.socket:
    """Bind and listen on one address; port 0 takes a free one. Raises OSError naming the address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
    """Bind to a port of `address`'s host that no client is given; to any, if none of those is free."""
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
    """Some ports below those that clients are given, by chance; none where that is not known, or leaves no choice."""
    try:
        first_of_clients = int(CLIENT_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return
    if first_of_clients - FIRST_FREE_PORT >= LEAST_CHOICE:
        choice = first_of_clients - FIRST_FREE_PORT
        for _ in range(ATTEMPTS):
            yield FIRST_FREE_PORT + int.from_bytes(os.urandom(4), "big") % choice
