"""Chooses the congestion control of connections: no pacing between processes of one host.

Some systems pace by default (`bbr`), with a kernel timer for every few packets. Within a host that gains nothing, and
took half of the broker's CPU time for a consumer at full speed (benchmarks/, consume). `reno` does not pace, every
Linux kernel has it, and any user may choose it. Connections from other hosts keep the system's default.

A connection that began paced stays paced, so the option is set on the listener, and its connections inherit it.
"""

from __future__ import annotations

import contextlib
import socket
from functools import cache

WITHIN_HOST = b"reno"
OPTION = getattr(socket, "TCP_CONGESTION", None)  # on Linux
NAME_BYTES = 16  # TCP_CA_NAME_MAX
LOOPBACK_V4 = "127."
LOOPBACK_V6 = "::1"
MAPPED_V4 = "::ffff:"


def start_unpaced(listener: socket.socket) -> None:
    """Let connections that `listener` accepts begin without pacing; no effect on systems without the option."""
    default_algorithm()  # opens a socket, so before a thousand clients use up the descriptors
    _choose(listener, WITHIN_HOST)


def keep_default_outside(sock: socket.socket, peer_host: str, local_host: str) -> None:
    """Give an accepted connection the system's default, if its peer is on another host."""
    if not is_within_host(peer_host, local_host) and (default := default_algorithm()) is not None:
        _choose(sock, default)


def is_within_host(peer_host: str, local_host: str) -> bool:
    """Whether both ends, addresses in text, are on this host."""
    peer_host = peer_host.removeprefix(MAPPED_V4)
    return (
        peer_host == local_host.removeprefix(MAPPED_V4) or peer_host.startswith(LOOPBACK_V4) or peer_host == LOOPBACK_V6
    )


@cache
def default_algorithm() -> bytes | None:
    """The congestion control of a new connection; None if the system does not report it."""
    if OPTION is None:
        return None
    with socket.socket() as unused, contextlib.suppress(OSError):
        return unused.getsockopt(socket.IPPROTO_TCP, OPTION, NAME_BYTES).rstrip(b"\0")
    return None


def _choose(sock: socket.socket, algorithm: bytes) -> None:
    if OPTION is not None:
        with contextlib.suppress(OSError):  # without effect the connection is only slower
            sock.setsockopt(socket.IPPROTO_TCP, OPTION, algorithm)
