"""One client's connection over a real socket pair: order, joining, waiting, idling, stopping."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.pending import Pending
from minibroker.storage.files.records_file import FileSlice, RecordsFile
from tests.broker.peers import MAX_REQUEST_BYTES, PeerOf, echo, framed
from tests.broker.peers import peer_of as peer_of


async def test_pipelined_requests_are_answered_in_order_in_one_send(peer_of: PeerOf, nursery: trio.Nursery) -> None:
    peer = peer_of(echo)
    requests = b"".join(framed(b"%03d" % number) for number in range(50))
    peer.sock.send(requests)

    nursery.start_soon(peer.run)
    await trio.lowlevel.wait_readable(peer.sock)
    received = peer.sock.recv(65536)

    assert received == requests


async def test_what_a_request_has_begun_is_finished_though_its_client_is_gone(peer_of: PeerOf) -> None:
    """Appended records, for one, which count only when they are on the disk."""
    on_disk: Pending[None] = Pending()
    finished: list[str] = []

    def dispatch(frame: bytearray, client: Client) -> Any:
        return on_disk.then(lambda _: finished.append("counted")) if frame == b"waits" else [framed(bytes(frame))]

    peer = peer_of(dispatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run)
        peer.sock.send(framed(b"waits"))
        await trio.testing.wait_all_tasks_blocked()
        peer.connection.cancel_scope.cancel()

    on_disk.resolve(None)

    assert finished == ["counted"]


async def test_a_request_without_a_response_sends_nothing(peer_of: PeerOf, nursery: trio.Nursery) -> None:
    peer = peer_of(lambda frame, client: None if frame == b"acks=0" else echo(frame, client))
    nursery.start_soon(peer.run)

    peer.sock.send(framed(b"acks=0") + framed(b"next"))

    assert await peer.receive(8) == framed(b"next")


@pytest.mark.parametrize(
    "prefix",
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", MAX_REQUEST_BYTES + 1),
    ],
)
async def test_a_length_nobody_may_send_closes_the_connection(
    peer_of: PeerOf, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, prefix: bytes
) -> None:
    peer = peer_of(echo)
    nursery.start_soon(peer.run)

    peer.sock.send(prefix)

    assert await peer.receive(1) == b""
    assert "closing the connection of peer" in caplog.text


async def test_a_handler_may_answer_by_closing(peer_of: PeerOf, nursery: trio.Nursery) -> None:
    def dispatch(frame: bytearray, client: Client) -> Any:
        raise CloseConnectionError("acks=0 produce failed")

    peer = peer_of(dispatch)
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"x"))

    assert await peer.receive(1) == b""


async def test_a_log_file_that_somebody_has_cut_off_ends_the_connection_only(
    peer_of: PeerOf, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    log = tmp_path / "00.log"
    log.write_bytes(b"short")
    records = RecordsFile(log)
    peer = peer_of(lambda frame, client: [FileSlice(records, 0, 100)])
    nursery.start_soon(peer.run)

    peer.sock.send(framed(b"fetch"))

    assert await peer.receive(1) == b""
    assert "5 of 100 bytes" in caplog.text


async def test_requests_before_one_of_nonsense_are_answered(peer_of: PeerOf, nursery: trio.Nursery) -> None:
    peer = peer_of(echo)
    nursery.start_soon(peer.run)

    peer.sock.send(framed(b"good") + b"\x7f\xff\xff\xff")

    assert await peer.receive(9) == framed(b"good")


async def test_requests_of_a_client_that_has_closed_its_side_are_answered(
    peer_of: PeerOf, nursery: trio.Nursery
) -> None:
    peer = peer_of(echo)
    peer.sock.send(framed(b"last"))
    peer.sock.shutdown(socket.SHUT_WR)

    nursery.start_soon(peer.run)

    assert await peer.receive(9) == framed(b"last")


async def test_more_than_one_turn_of_requests_is_answered_to_the_last(peer_of: PeerOf, nursery: trio.Nursery) -> None:
    peer = peer_of(echo)
    nursery.start_soon(peer.run)
    requests = framed(b"x" * 1000) * 500  # more than the reads of one turn, and than the socket holds

    async def send() -> None:
        rest = memoryview(requests)
        while rest:
            await trio.lowlevel.wait_writable(peer.sock)
            rest = rest[peer.sock.send(rest) :]

    nursery.start_soon(send)

    assert await peer.receive(len(requests)) == requests


async def test_a_frame_that_arrives_byte_by_byte_is_answered_once_whole(peer_of: PeerOf, nursery: trio.Nursery) -> None:
    peer = peer_of(echo)
    nursery.start_soon(peer.run)

    for byte in framed(b"slowly"):
        peer.sock.send(bytes([byte]))
        await trio.testing.wait_all_tasks_blocked()

    assert await peer.receive(10) == framed(b"slowly")


async def test_an_idle_connection_is_closed_and_a_used_one_is_not(
    peer_of: PeerOf, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peer = peer_of(echo, max_idle_ms=10_000)
    nursery.start_soon(peer.timers.run)
    nursery.start_soon(peer.run)

    for _ in range(3):
        await trio.sleep(8)
        peer.sock.send(framed(b"ping"))
        assert await peer.receive(8) == framed(b"ping")
    used_until = trio.current_time()

    assert await peer.receive(1) == b""
    assert 10 <= trio.current_time() - used_until <= 10.1
    nursery.cancel_scope.cancel()


async def test_stopping_ends_an_idle_connection_at_once(peer_of: PeerOf) -> None:
    peer = peer_of(echo)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run)
        await trio.testing.wait_all_tasks_blocked()

        peer.connection.stop()

    assert peer.sock.recv(1) == b""
