"""A connection that encrypts: TLS between the socket and the frames, by OpenSSL on bytes in memory.

Everything else is the plain connection's: one read of the socket is decrypted whole, so nothing waits in OpenSSL for
an edge of the poller. Records of a log are read, encrypted and sent in pieces of `PIECE_BYTES`, so a response takes a
piece of memory and not its size. The handshake takes the same path: its messages leave in the order in which they were
made, before any response.

A client that does not complete its handshake is bounded by `connections.max.idle.ms`, as in Kafka. One that fails it,
sends no TLS, or asks for a renegotiation, is closed with one line in the log.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import trio

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network.connection import AT_THE_END, REPORTED, Connection, Serving
from minibroker.broker.network.response import PIECES_PER_TURN, Chunk, PeerGoneError, send_bytes
from minibroker.broker.wings.security.principal_mapping import NoMatchingRule
from minibroker.broker.wings.security.tls import TlsListener
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice

PIECE_BYTES = 64 * 1024  # four TLS records
PIECES_AT_ONCE = 4  # sent without waking the task
RENEGOTIATING = "TLSv1.2"  # the last version in which a client can ask for it
# The answer to what is not TLS: Java's alert "internal error", as kafka 2.0.1. OpenSSL has none.
ALERT = b"\x15\x03\x03\x00\x02\x02\x50"
NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST")


class TlsConnection(Connection):
    """Owns one accepted socket of a listener with TLS. The principal is known once the handshake is over."""

    __slots__ = ("_incoming", "_is_established", "_listener", "_outgoing", "_pieces", "_tls", "_unsent")

    def __init__(self, sock: socket.socket, client: Client, serving: Serving, *, tls: TlsListener) -> None:
        super().__init__(sock, client, serving)
        self._listener = tls
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None  # from the first bytes on: idle connections cost little
        self._is_established = False
        self._pieces: Iterator[bytes | memoryview] = iter(())  # the rest of the responses that are being sent
        self._unsent: bytes | memoryview = b""  # encrypted, and left over by a full socket

    @property
    def tls_version(self) -> str | None:
        return None if self._tls is None else self._tls.version()

    # -- Receiving

    def _receive(self) -> None:
        """Read once, and decrypt all of it. Raises PeerGoneError and CloseConnectionError."""
        buffer = self._receive_buffer
        try:
            received = self._sock.recv_into(buffer)
        except BlockingIOError:
            self._stream = REPORTED
            return
        except ConnectionError as error:
            raise PeerGoneError(str(error)) from error
        self._note_received(received, received == len(buffer))
        if received == 0:
            if self._tls is not None and not self._is_established:
                raise CloseConnectionError("it left during the TLS handshake")
            return
        if self._tls is None:
            self._tls = self._listener.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(buffer[:received])
        was_established = self._is_established
        try:
            if was_established or self._shake_hands(self._tls):
                self._decrypt(self._tls, buffer)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._refuse(problem_of(error, was_established), b"" if was_established else ALERT)
        if was_established and self._outgoing.pending and self._tls.version() == RENEGOTIATING:
            self._refuse("it asked for a TLS renegotiation")  # nothing else makes a server of TLS 1.2 send by itself

    def _shake_hands(self, tls: ssl.SSLObject) -> bool:
        """Go on with the handshake; return True at its end. Raises SSLError."""
        tls.do_handshake()
        self._is_established = True
        try:
            self.client.authenticate(self._listener.principal_of(tls))
        except (NoMatchingRule, ValueError) as error:
            self._refuse(str(error))
        return True

    def _decrypt(self, tls: ssl.SSLObject, buffer: memoryview) -> None:
        """Feed the frames with all that has arrived. Raises SSLError."""
        decoder, incoming = self._decoder, self._incoming
        read: Callable[[int, memoryview], int] = tls.read  # type: ignore[assignment]
        is_all = False
        while not is_all:
            pending = decoder.pending_view()
            target = buffer if pending is None else pending
            filled = 0
            try:
                while filled < len(target) and not is_all:
                    count = read(len(target) - filled, target[filled:])
                    filled += count
                    if count == 0:  # TLS's own end of the stream; what follows is ignored
                        self._stream = AT_THE_END
                    is_all = count == 0 or not (incoming.pending or tls.pending())
            except ssl.SSLWantReadError:  # a record that has not arrived whole
                is_all = True
            finally:
                if pending is None:
                    decoder.feed(buffer[:filled])
                else:
                    decoder.advance(filled)

    def _refuse(self, reason: str, last_bytes: bytes = b"") -> NoReturn:
        """Send the alert that OpenSSL has made, else `last_bytes`, if the socket takes it, and close."""
        if not self._unsent:
            with contextlib.suppress(OSError):
                self._sock.send(self._outgoing.read() or last_bytes)
        self._is_established = False
        self._out.clear()
        raise CloseConnectionError(reason)

    # -- Sending

    def _send_now(self) -> bool:
        """Send some pieces without waiting. Return False if something is left for the task."""
        if self._out:
            self._take_responses()
        for _ in range(PIECES_AT_ONCE):
            if not self._encrypt():
                self._note_sent(True)
                return True
            try:
                sent = self._sock.send(self._unsent)
            except BlockingIOError:
                return False
            except OSError as error:
                raise PeerGoneError(str(error)) from error
            if sent < len(self._unsent):
                self._unsent = memoryview(self._unsent)[sent:]
                return False
            self._unsent = b""
        return False

    def _has_unsent(self) -> bool:
        return True  # whether there is another piece is not known; sending none costs nothing

    async def _flush(self) -> None:
        if self._out:
            self._take_responses()
        await trio.lowlevel.checkpoint()
        count = 0
        while self._unsent or self._encrypt():
            await send_bytes(self._sock, self._unsent)
            self._unsent = b""
            count += 1
            if count % PIECES_PER_TURN:
                self._poller.give_way()
            else:
                await trio.lowlevel.checkpoint()

    async def _send_bytes(self, data: memoryview) -> None:
        self._pieces = iter((data,))
        await self._flush()

    def _take_responses(self) -> None:
        chunks, self._out, self._out_bytes, self._must_send_slices = self._out, [], 0, False
        self._pieces = pieces_of(chunks)

    def _encrypt(self) -> bool:
        """Encrypt the next piece of the responses into `_unsent`; return False if there is nothing to send."""
        if self._is_established:
            assert self._tls is not None
            while self._outgoing.pending < PIECE_BYTES and (piece := next(self._pieces, None)) is not None:
                self._tls.write(piece)
        if self._outgoing.pending:
            self._unsent = self._outgoing.read()
        return len(self._unsent) > 0

    def _close(self) -> None:
        """Send TLS's own end of the stream, if the socket takes it, and close."""
        if self._is_established and not self._unsent:
            assert self._tls is not None
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            with contextlib.suppress(OSError):
                self._sock.send(self._outgoing.read())
        super()._close()


def pieces_of(chunks: Sequence[Chunk]) -> Iterator[bytes | memoryview]:
    """Iterate over the bytes of responses, at most `PIECE_BYTES` at a time; read each piece when it is taken.

    Raises OSError or EOFError when a log file cannot be read, or is shorter than it was.
    """
    for chunk in chunks:
        if isinstance(chunk, FileSlice):
            end = chunk.position + chunk.size_bytes
            for position in range(chunk.position, end, PIECE_BYTES):
                yield FileSlice(chunk.file, position, min(PIECE_BYTES, end - position)).read()
        elif isinstance(chunk, ConvertedSlice):
            yield from filter(None, chunk.pieces())
        else:
            view = memoryview(chunk)
            for position in range(0, len(view), PIECE_BYTES):
                yield view[position : position + PIECE_BYTES]


def problem_of(error: ssl.SSLError, was_established: bool) -> str:
    """Describe a failure in words for the log."""
    reason = error.reason or str(error)
    if was_established:
        return f"broken TLS ({reason})"
    if reason in NOT_TLS:
        return "the TLS handshake failed: it does not speak TLS"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the TLS handshake failed: its certificate is refused ({error.verify_message})"
    return f"the TLS handshake failed ({reason})"
