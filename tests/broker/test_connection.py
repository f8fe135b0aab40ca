"""One client's connection over a real socket pair: order, joining, waiting, idling, stopping."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.poller import Poller
from minibroker.broker.time.clock import Clock
from minibroker.broker.time.timers import TimerLoop
from minibroker.storage.files.records_file import FileSlice, RecordsFile

MAX_REQUEST_BYTES = 1024


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Peer:
    """The client's end of a connection whose handler is `dispatch`."""

    def __init__(
        self,
        dispatch,
        *,
        client: Client | None = None,
        timers: TimerLoop | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_idle_ms: int = 0,
    ) -> None:
        ours, self.sock = socket.socketpair()
        ours.setblocking(False)
        self.sock.setblocking(False)
        self.timers = timers or TimerLoop(Clock())
        self.poller = Poller()
        self.connection = Connection(
            ours,
            client or Client("peer", "127.0.0.1", 9092),
            dispatch=dispatch,
            poller=self.poller,
            receive_buffer=memoryview(bytearray(4096)),
            max_request_bytes=max_request_bytes,
            max_idle_ms=max_idle_ms,
            now_ms=self.timers.clock.monotonic_ms,
            timer=self.timers.timer,
        )

    async def run(self) -> None:
        """The connection, and the poller as long as it lasts."""
        async with trio.open_nursery() as polling:
            polling.start_soon(self.poller.run)
            await self.connection.run()
            polling.cancel_scope.cancel()

    async def receive(self, size: int) -> bytes:
        """So many bytes, fewer if the broker closes."""
        received = b""
        while len(received) < size:
            await trio.lowlevel.wait_readable(self.sock)
            piece = self.sock.recv(size - len(received))
            if not piece:
                break
            received += piece
        return received


def echo(frame: bytearray, client: Client) -> list[bytes]:
    return [framed(bytes(frame))]


@pytest.fixture
def peer_of() -> Iterator:
    peers: list[Peer] = []

    def make(dispatch, **options) -> Peer:
        peers.append(Peer(dispatch, **options))
        return peers[-1]

    yield make
    for peer in peers:
        peer.sock.close()


async def test_pipelined_requests_are_answered_in_order_in_one_send(peer_of, nursery) -> None:
    peer = peer_of(echo)
    requests = b"".join(framed(b"%03d" % number) for number in range(50))
    peer.sock.send(requests)

    nursery.start_soon(peer.run)
    await trio.lowlevel.wait_readable(peer.sock)
    received = peer.sock.recv(65536)

    assert received == requests


async def test_answers_before_a_waiting_request_do_not_wait_with_it(peer_of, nursery) -> None:
    released = trio.Event()

    def dispatch(frame: bytearray, client: Client):
        async def later() -> list[bytes]:
            await released.wait()
            return [framed(b"late")]

        return later() if frame == b"wait" else [framed(bytes(frame))]

    peer = peer_of(dispatch)
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"early") + framed(b"wait") + framed(b"after"))

    assert await peer.receive(9) == framed(b"early")
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(BlockingIOError):
        peer.sock.recv(1)
    released.set()
    assert await peer.receive(17) == framed(b"late") + framed(b"after")


async def test_what_a_request_has_begun_is_finished_though_its_client_is_gone(peer_of, nursery) -> None:
    """Appended records, for one, which count only when they are on the disk."""
    is_finished = trio.Event()

    async def finish() -> list[bytes]:
        await trio.lowlevel.checkpoint()
        is_finished.set()
        return []

    def dispatch(frame: bytearray, client: Client):
        return finish() if frame == b"waits" else [framed(bytes(frame))]

    peer = peer_of(dispatch)
    peer.sock.send(framed(b"one") + framed(b"waits"))
    peer.sock.close()

    nursery.start_soon(peer.run)

    with trio.fail_after(1):
        await is_finished.wait()


async def test_a_request_without_a_response_sends_nothing(peer_of, nursery) -> None:
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
async def test_a_length_nobody_may_send_closes_the_connection(peer_of, nursery, caplog, prefix: bytes) -> None:
    peer = peer_of(echo)
    nursery.start_soon(peer.run)

    peer.sock.send(prefix)

    assert await peer.receive(1) == b""
    assert "closing the connection of peer" in caplog.text


async def test_a_handler_may_answer_by_closing(peer_of, nursery) -> None:
    def dispatch(frame: bytearray, client: Client):
        raise CloseConnectionError("acks=0 produce failed")

    peer = peer_of(dispatch)
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"x"))

    assert await peer.receive(1) == b""


async def test_a_log_file_that_somebody_has_cut_off_ends_the_connection_only(
    peer_of, nursery, caplog, tmp_path: Path
) -> None:
    log = tmp_path / "00.log"
    log.write_bytes(b"short")
    records = RecordsFile(log)
    peer = peer_of(lambda frame, client: [FileSlice(records, 0, 100)])
    nursery.start_soon(peer.run)

    peer.sock.send(framed(b"fetch"))

    assert await peer.receive(1) == b""
    assert "5 of 100 bytes" in caplog.text


async def test_requests_before_one_of_nonsense_are_answered(peer_of, nursery) -> None:
    peer = peer_of(echo)
    nursery.start_soon(peer.run)

    peer.sock.send(framed(b"good") + b"\x7f\xff\xff\xff")

    assert await peer.receive(9) == framed(b"good")


async def test_requests_of_a_client_that_has_closed_its_side_are_answered(peer_of, nursery) -> None:
    peer = peer_of(echo)
    peer.sock.send(framed(b"last"))
    peer.sock.shutdown(socket.SHUT_WR)

    nursery.start_soon(peer.run)

    assert await peer.receive(9) == framed(b"last")


async def test_more_than_one_turn_of_requests_is_answered_to_the_last(peer_of, nursery) -> None:
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


async def test_a_frame_that_arrives_byte_by_byte_is_answered_once_whole(peer_of, nursery) -> None:
    peer = peer_of(echo)
    nursery.start_soon(peer.run)

    for byte in framed(b"slowly"):
        peer.sock.send(bytes([byte]))
        await trio.testing.wait_all_tasks_blocked()

    assert await peer.receive(10) == framed(b"slowly")


async def test_an_idle_connection_is_closed_and_a_used_one_is_not(peer_of, nursery, autojump_clock) -> None:
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


async def test_stopping_ends_an_idle_connection_at_once(peer_of) -> None:
    peer = peer_of(echo)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run)
        await trio.testing.wait_all_tasks_blocked()

        peer.connection.stop()

    assert peer.sock.recv(1) == b""


async def test_stopping_lets_the_request_in_hand_finish(peer_of) -> None:
    released = trio.Event()

    def dispatch(frame: bytearray, client: Client):
        async def later() -> list[bytes]:
            await released.wait()
            return [framed(b"done")]

        return later()

    peer = peer_of(dispatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run)
        peer.sock.send(framed(b"x"))
        await trio.testing.wait_all_tasks_blocked()
        peer.connection.stop()
        await trio.testing.wait_all_tasks_blocked()
        released.set()
        assert await peer.receive(8) == framed(b"done")

    assert peer.sock.recv(1) == b""
