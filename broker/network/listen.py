"""Opens the listening sockets, before anything heavy is imported.

A client that connects while the broker starts waits in the backlog instead of being refused.
"""

from __future__ import annotations

import socket

BACKLOG = 65535  # the kernel cuts it to net.core.somaxconn; a full one costs a client a second


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
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock
