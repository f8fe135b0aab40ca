"""Binds the console's socket. Imported before anything heavy: a browser that comes early waits in the backlog."""

from __future__ import annotations

import socket

from minibroker.any_cluster.address import Address
from minibroker.console.options import ConsoleOptions
from minibroker.errors import CommandFailed

BACKLOG = 100


def listening(options: ConsoleOptions) -> socket.socket:
    """A socket that listens there. Raises CommandFailed."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise CommandFailed(
            f"cannot listen on {Address(options.host, options.port)}: {error.strerror}; choose another address with "
            "--listen HOST:PORT (port 0 takes a free one)"
        ) from error
    return listener
