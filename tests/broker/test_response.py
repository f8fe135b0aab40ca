"""Responses on the socket: bytes and file slices in order, whole, however slowly the client reads."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from minibroker.broker.network.response import (
    PIECES_PER_TURN,
    SENDFILE_PIECE_BYTES,
    PeerGoneError,
    send_chunks,
    send_now,
)
from minibroker.protocol.conversion import down_convert
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.files import converted_slice
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice, RecordsFile
from tests.broker.peers import tcp_pair, through

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    server, client = tcp_pair()
    with server, client:
        yield server, client


@pytest.fixture
def records_file(tmp_path: Path) -> RecordsFile:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(os.urandom(3 * SENDFILE_PIECE_BYTES + 12345))
    return RecordsFile(path)


async def test_bytes_and_slices_arrive_in_order(pair: Pair, records_file: RecordsFile) -> None:
    size = records_file.size_bytes
    content = records_file.read(0, size)
    whole, part = FileSlice(records_file, 0, size), FileSlice(records_file, 100, 50)

    received = await through(pair, [b"head", whole, b"middle", part, b"tail"])

    assert received == b"head" + content + b"middle" + content[100:150] + b"tail"


async def test_others_have_their_turn_between_the_pieces_of_a_slice(pair: Pair, tmp_path: Path) -> None:
    server, client = pair
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(32 * SENDFILE_PIECE_BYTES))
    file = RecordsFile(path)
    turns = given_way = 0

    def drain() -> None:
        # Read in the sender's own call, so that the socket is never full and no wait for it gives anybody a turn.
        with contextlib.suppress(BlockingIOError):
            while client.recv(1 << 20):
                pass

    def give_way() -> None:
        nonlocal given_way
        given_way += 1
        drain()

    async def have_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1
            drain()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(have_turns)
        await send_chunks(server, [FileSlice(file, 0, file.size_bytes)], give_way)
        nursery.cancel_scope.cancel()

    assert given_way >= 32 - 32 // PIECES_PER_TURN
    assert turns >= 32 // PIECES_PER_TURN // 2  # trio shuffles the tasks of a pass


async def test_a_socket_that_took_a_part_of_a_piece_is_waited_for(
    pair: Pair, records_file: RecordsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    taken: list[bool] = []  # whether a call found the socket full, of those after a part of a piece
    was_part = False
    sendfile = os.sendfile

    def watched(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        nonlocal was_part
        try:
            sent = sendfile(out_fd, in_fd, offset, count)
        except BlockingIOError:
            sent = -1
        if was_part:
            taken.append(sent < 0)
        was_part = 0 <= sent < count
        if sent < 0:
            raise BlockingIOError
        return sent

    monkeypatch.setattr(os, "sendfile", watched)

    received = await through(pair, [FileSlice(records_file, 0, records_file.size_bytes)])

    assert received == records_file.read(0, records_file.size_bytes)
    assert taken.count(False) > taken.count(True)


async def test_a_client_that_left_is_reported_as_gone(pair: Pair, records_file: RecordsFile) -> None:
    server, client = pair
    client.close()

    with pytest.raises(PeerGoneError):
        for _ in range(10):
            await send_chunks(server, [b"x", FileSlice(records_file, 0, records_file.size_bytes)])


async def test_a_file_shorter_than_its_slice_is_an_error_not_a_silence(pair: Pair, records_file: RecordsFile) -> None:
    server, _ = pair
    chunk = FileSlice(records_file, records_file.size_bytes - 10_000, 20_000)

    with pytest.raises(OSError, match="the log file ends at"):
        await send_chunks(server, [b"head", chunk])


@pytest.fixture
def converted(tmp_path: Path) -> ConvertedSlice:
    """Four megabytes of records for a client that knows magic 1."""
    path = tmp_path / "00000000000000000000.log"
    rows = [Record(i, 1_500_000_000_000, None, bytes(1000)) for i in range(4000)]
    path.write_bytes(b"".join(build_batch(rows[i : i + 10], base_offset=i) for i in range(0, len(rows), 10)))
    file = RecordsFile(path)
    return ConvertedSlice(FileSlice(file, 0, file.size_bytes), 1, 0)


async def test_records_for_an_old_client_arrive_between_their_neighbours(pair: Pair, converted: ConvertedSlice) -> None:
    expected = ConvertedSlice(converted.records, 1, 0).read()

    received = await through(pair, [b"head", converted, b"tail"])

    assert received == b"head" + expected + b"tail"


async def test_records_for_an_old_client_are_converted_as_it_takes_them(
    pair: Pair, converted: ConvertedSlice, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = pair
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    converted_bytes, turns = 0, 0

    def counting(buffer: bytes, start: int, end: int, **options: int) -> bytearray:
        nonlocal converted_bytes
        converted_bytes += end - start
        return down_convert(buffer, start, end, **options)

    async def others() -> None:
        nonlocal turns
        while converted_bytes < converted.size_bytes * 0.9:
            turns += 1
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(converted_slice, "down_convert", counting)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_chunks, server, [converted])
        await trio.testing.wait_all_tasks_blocked()
        assert converted_bytes < converted.size_bytes / 2
        nursery.start_soon(others)
        received = 0
        while received < converted.size_bytes:
            await trio.lowlevel.wait_readable(client)
            received += len(client.recv(1 << 20))

    assert turns > 30


async def test_a_head_and_a_piece_of_the_first_slice_go_without_waiting(pair: Pair, records_file: RecordsFile) -> None:
    server, client = pair
    size = records_file.size_bytes

    left = send_now(server, [b"head", FileSlice(records_file, 0, size), b"tail"])

    assert [type(chunk) for chunk in left] == [FileSlice, bytes]
    rest = left[0]
    assert isinstance(rest, FileSlice)
    sent = rest.position
    assert 0 < sent <= SENDFILE_PIECE_BYTES
    assert rest.size_bytes == size - sent
    await trio.lowlevel.wait_readable(client)
    assert client.recv(4 + 100) == b"head" + records_file.read(0, 100)


async def test_a_full_socket_loses_nothing_that_was_not_sent_at_once(pair: Pair, records_file: RecordsFile) -> None:
    server, _ = pair
    filler = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filler += server.send(bytes(65536))

    left = send_now(server, [b"head", FileSlice(records_file, 10, 100_000)])

    received = await through(pair, left)
    assert received[filler:] == b"head" + records_file.read(10, 100_000)


async def test_a_head_that_the_socket_takes_in_part_arrives_whole(pair: Pair, records_file: RecordsFile) -> None:
    server, _ = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    head = os.urandom(4 * 1024 * 1024)

    left = send_now(server, [head, FileSlice(records_file, 10, 100_000)])

    assert len(left) == 2
    assert await through(pair, left) == head + records_file.read(10, 100_000)


async def test_records_to_convert_are_left_for_the_task(pair: Pair, converted: ConvertedSlice) -> None:
    server, client = pair

    assert send_now(server, [b"head", converted]) == [b"head", converted]
    with pytest.raises(BlockingIOError):
        client.recv(1)
