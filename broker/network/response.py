"""Sends an encoded response: bytes by send, file slices by `sendfile`, without copies.

Bytes in front of a slice go with MSG_MORE, so that header and records share a packet. Slices go in pieces of
`SENDFILE_PIECE_BYTES`. Other clients get their turn after each piece, not after a megabyte: those with requests that
need no wait after each piece, by `give_way`; all tasks after two pieces, by a checkpoint. A slice too small to be
worth a system call of its own is read and joined to its neighbours. Down-converted records are converted piece by
piece, as the client takes them.

The 200 ms trap: sendfile corks the tail of what it sent when the next call meets a full socket. Setting
TCP_NODELAY again pushes it out; only then may the task wait.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

import trio

from minibroker.broker.network import sockets
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice

# More follows: of Linux.
MORE: int = getattr(socket, "MSG_MORE", 0)
SENDFILE_PIECE_BYTES = 512 * 1024
PIECES_PER_TURN = 2  # a checkpoint costs ten times as much as `give_way`
# Below this, one pread and a joined send are cheaper than a second system call (benchmarks/, egress).
READ_INSTEAD_BYTES = 8 * 1024
# A throttled response leaves in pieces, each of the bytes for this time.
TRICKLE_SECONDS = 0.1

Slice = FileSlice | ConvertedSlice
GiveWay = Callable[[], object]
Chunk = bytes | bytearray | memoryview | Slice


class PeerGoneError(Exception):
    """The client has closed its connection."""


class ThrottledResponse(list[Chunk]):
    """A response that is sent at `bytes_per_second`, until `hurry` is set: then the rest is sent at once."""

    def __init__(self, chunks: Iterable[Chunk], bytes_per_second: int, hurry: trio.Event) -> None:
        super().__init__(chunks)
        self.bytes_per_second = bytes_per_second
        self.hurry = hurry


def send_now(sock: socket.socket, chunks: Sequence[Chunk]) -> list[Chunk]:
    """Send without waiting, up to a piece of the first slice; return the rest. Raises as `send_chunks`.

    A response with records is most often a header and one slice, which this sends without waking a task. `chunks` has
    a slice.
    """
    first = next(index for index, chunk in enumerate(chunks) if isinstance(chunk, Slice))
    head, chunk, rest = b"".join(chunks[:first]), chunks[first], chunks[first + 1 :]  # type: ignore[arg-type]
    if not isinstance(chunk, FileSlice):
        return list(chunks)  # the task converts while it sends
    try:
        sent = sock.send(head, MORE)
        if sent < len(head):
            return [memoryview(head)[sent:], chunk, *rest]
        head = b""
        sent = sockets.send_file(sock, chunk.fd, chunk.position, min(chunk.size_bytes, SENDFILE_PIECE_BYTES))
    except BlockingIOError:
        return [head, *chunks[first:]] if head else list(chunks[first:])
    except (BrokenPipeError, ConnectionError) as error:
        raise PeerGoneError(str(error)) from error
    if sent < chunk.size_bytes:
        return [FileSlice(chunk.file, chunk.position + sent, chunk.size_bytes - sent), *rest]
    return list(rest)


async def send_chunks(sock: socket.socket, chunks: Sequence[Chunk], give_way: GiveWay = lambda: None) -> None:
    """Send all chunks in order; `give_way` is called between the pieces of a slice.

    Raises PeerGoneError when the client closed, OSError when a file cannot be read.
    """
    pending: list[bytes | bytearray | memoryview] = []
    for chunk in chunks:
        if not isinstance(chunk, Slice):
            pending.append(chunk)
        elif chunk.size_bytes <= READ_INSTEAD_BYTES:
            pending.append(chunk.read())
        else:
            if pending:
                await send_bytes(sock, b"".join(pending), MORE)
                pending.clear()
            await send_slice(sock, chunk, give_way)
    if pending:
        await send_bytes(sock, pending[0] if len(pending) == 1 else b"".join(pending))


async def send_slowly(send: Callable[[memoryview], Awaitable[None]], response: ThrottledResponse) -> None:
    """Send a response piece by piece, and wait for the time of each piece. Raises as `send`."""
    rate = response.bytes_per_second
    rest = memoryview(b"".join(chunk.read() if isinstance(chunk, Slice) else chunk for chunk in response))
    piece_bytes = max(1, int(rate * TRICKLE_SECONDS))
    while rest and not response.hurry.is_set():
        await send(rest[:piece_bytes])
        with trio.move_on_after(len(rest[:piece_bytes]) / rate):
            await response.hurry.wait()
        rest = rest[piece_bytes:]
    await send(rest)


async def send_bytes(sock: socket.socket, data: bytes | bytearray | memoryview, flags: int = 0) -> None:
    """Send all of `data`; wait only when the socket is full."""
    try:
        sent = sock.send(data, flags)
    except BlockingIOError:
        sent = 0
    except OSError as error:
        raise PeerGoneError(str(error)) from error
    if sent == len(data):
        return
    rest = memoryview(data)[sent:]
    while rest:
        await sockets.wait_writable(sock)
        try:
            sent = sock.send(rest, flags)
        except BlockingIOError:
            continue
        except OSError as error:
            raise PeerGoneError(str(error)) from error
        rest = rest[sent:]


async def send_slice(sock: socket.socket, chunk: Slice, give_way: GiveWay) -> None:
    if isinstance(chunk, FileSlice):
        await send_file(sock, chunk, give_way)
    else:
        await send_converted(sock, chunk)


async def send_converted(sock: socket.socket, chunk: ConvertedSlice) -> None:
    """Send records in an older format; convert each piece after the one before was sent."""
    for piece in chunk.pieces():
        await send_bytes(sock, piece)
        await trio.lowlevel.checkpoint()


async def send_file(sock: socket.socket, chunk: FileSlice, give_way: GiveWay) -> None:
    """Send a slice of a log file straight from the page cache."""
    in_fd = chunk.fd
    position, end = chunk.position, chunk.position + chunk.size_bytes
    pieces = 0
    while position < end:
        piece_bytes = min(end - position, SENDFILE_PIECE_BYTES)
        try:
            sent = sockets.send_file(sock, in_fd, position, piece_bytes)
            if sent == 0:
                raise OSError(f"the log file ends at {position}, {end - position} bytes before the end of the slice")
        except BlockingIOError:
            sent = 0
        except (BrokenPipeError, ConnectionError) as error:
            raise PeerGoneError(str(error)) from error
        position += sent
        pieces += 1
        if position == end:
            return
        if sent < piece_bytes:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # push the corked tail, see above
            await sockets.wait_writable(sock)
        elif pieces % PIECES_PER_TURN:
            give_way()
        else:
            await trio.lowlevel.checkpoint()
