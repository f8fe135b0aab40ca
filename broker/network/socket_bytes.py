"""The bytes that sockets have received and sent, as the kernel of Linux counts them: a request costs nothing for it.

    socket_bytes = SocketBytes()
    socket_bytes.note_closing("PLAINTEXT", sock)      # before each socket is closed
    socket_bytes.closed["PLAINTEXT"]                  # and `transferred` of those that are open

These are the bytes of TCP's stream, encrypted with TLS. Bytes that wait in a buffer of the kernel are received, and not
yet sent.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)  # None: another system
# struct tcp_info of Linux 4.1 ends behind bytes_received, that of Linux 4.19 behind bytes_retrans.
INFO_BYTES = 216
ACKED_AND_RECEIVED = struct.Struct("=QQ")
ACKED_AT = 120
SENT_AND_SENT_AGAIN = struct.Struct("=QQ")
SENT_AT = 200
# States after the peer's FIN, which is counted as a byte.
PEER_HAS_ENDED = frozenset({7, 8, 9, 11})  # CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING


class Transferred(NamedTuple):
    """Bytes of one socket, or of several."""

    received: int = 0
    sent: int = 0

    def plus(self, other: Transferred) -> Transferred:
        return Transferred(self.received + other.received, self.sent + other.sent)


NOTHING = Transferred()


class SocketBytes:
    """Adds up, by listener, the bytes of connections that have closed."""

    def __init__(self) -> None:
        self.closed: dict[str, Transferred] = {}

    def note_closing(self, listener: str, sock: socket.socket) -> None:
        self.closed[listener] = self.closed.get(listener, NOTHING).plus(transferred(sock))


def transferred(sock: socket.socket) -> Transferred:
    """Return the bytes that a socket has transferred so far; no bytes where the system does not count them."""
    if TCP_INFO is None:
        return NOTHING
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, TCP_INFO, INFO_BYTES)
    except OSError:  # not a socket of TCP
        return NOTHING
    if len(info) < ACKED_AT + ACKED_AND_RECEIVED.size:
        return NOTHING
    sent, received = ACKED_AND_RECEIVED.unpack_from(info, ACKED_AT)
    if len(info) >= INFO_BYTES:
        in_all, again = SENT_AND_SENT_AGAIN.unpack_from(info, SENT_AT)
        sent = in_all - again
    if info[0] in PEER_HAS_ENDED and received:
        received -= 1
    return Transferred(received, sent)
