"""What goes on the socket: bytes and file slices in order, whole, however slowly the client reads."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from minibroker.broker.network.response import SENDFILE_PIECE_BYTES, PeerGoneError, send_chunks
from minibroker.storage.files import FileSlice, RecordsFile


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    for sock in (server, client):
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    yield server, client
    server.close()
    client.close()


async def read_all(sock: socket.socket) -> bytes:
    pieces = []
    while True:
        await trio.lowlevel.wait_readable(sock)
        piece = sock.recv(65536)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


@pytest.fixture
def records_file(tmp_path: Path) -> RecordsFile:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(os.urandom(3 * SENDFILE_PIECE_BYTES + 12345))
    return RecordsFile(path)


async def test_bytes_and_slices_arrive_in_order(pair, records_file) -> None:
    server, client = pair
    content = records_file.read(0, records_file.size_bytes)
    size = records_file.size_bytes
    chunks = [b"head", FileSlice(records_file, 0, size), b"middle", FileSlice(records_file, 100, 50), b"tail"]

    async def send() -> None:
        await send_chunks(server, chunks)
        server.shutdown(socket.SHUT_WR)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        received = await read_all(client)

    assert received == b"head" + content + b"middle" + content[100:150] + b"tail"


async def test_a_client_that_left_is_reported_as_gone(pair, records_file) -> None:
    server, client = pair
    client.close()

    with pytest.raises(PeerGoneError):
        for _ in range(10):
            await send_chunks(server, [b"x", FileSlice(records_file, 0, records_file.size_bytes)])


async def test_a_file_shorter_than_its_slice_is_an_error_not_a_silence(pair, records_file) -> None:
    server, _ = pair
    chunk = FileSlice(records_file, records_file.size_bytes - 10_000, 20_000)

    with pytest.raises(OSError, match="log file ended"):
        await send_chunks(server, [b"head", chunk])
