"""Chooses how the kernel paces what a connection sends: between processes of one host there is nobody to spare.

Some systems pace by default (`bbr`): a timer of the kernel for every few packets. From a host to itself that wins
nothing and took half of what a consumer at full speed cost the broker (benchmarks/, consume). `reno` does not pace,
is in every Linux kernel and free for every user. What leaves the host goes as its administrator has set it.

A connection that began paced stays so, whatever it is told later: so a listener is told, and its connections inherit.
"""

from __future__ import annotations

import contextlib
import socket
from functools import cache

WITHIN_HOST = b"reno"
OPTION = getattr(socket, "TCP_CONGESTION", None)  # Linux has it
NAME_BYTES = 16  # TCP_CA_NAME_MAX
LOOPBACK_V4 = "127."
LOOPBACK_V6 = "::1"
MAPPED_V4 = "::ffff:"


def start_unpaced(listener: socket.socket) -> None:
    """Have what `listener` accepts begin without pacing; no effect where the system knows no such choice."""
    default_algorithm()  # asked while this is one of the first sockets, not beside a thousand clients
    _choose(listener, WITHIN_HOST)


def keep_default_outside(sock: socket.socket, peer_host: str, local_host: str) -> None:
    """Give an accepted connection the system's own choice, if its peer is on another host."""
    if not is_within_host(peer_host, local_host) and (default := default_algorithm()) is not None:
        _choose(sock, default)


def is_within_host(peer_host: str, local_host: str) -> bool:
    """Tell whether both ends, addresses in text, are on this host."""
    peer_host = peer_host.removeprefix(MAPPED_V4)
    return (
        peer_host == local_host.removeprefix(MAPPED_V4) or peer_host.startswith(LOOPBACK_V4) or peer_host == LOOPBACK_V6
    )


@cache
def default_algorithm() -> bytes | None:
    """What the system gives a new connection; None if it does not say."""
    if OPTION is None:
        return None
    with socket.socket() as unused, contextlib.suppress(OSError):
        return unused.getsockopt(socket.IPPROTO_TCP, OPTION, NAME_BYTES).rstrip(b"\0")
    return None


def _choose(sock: socket.socket, algorithm: bytes) -> None:
    if OPTION is not None:
        with contextlib.suppress(OSError):  # not a kernel of Linux's: sent as it is by default, only slower
            sock.setsockopt(socket.IPPROTO_TCP, OPTION, algorithm)
