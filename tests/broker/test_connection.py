"""One client's connection over a real socket pair: order, joining, waiting, slow and torn answers, stopping.

Time is jumped.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network.connection import Dispatch
from minibroker.broker.network.poller import Poller
from minibroker.broker.network.response import ThrottledResponse
from minibroker.broker.pending import Pending
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.storage.files.records_file import FileSlice, RecordsFile
from tests.broker.asking import seconds
from tests.broker.peers import Connect, Peer, echo, framed
from tests.broker.peers import connect as connect

pytestmark = pytest.mark.time_jumps

CLOSED = b""
ANSWER = framed(bytes(range(96)))


async def test_pipelined_requests_are_answered_in_order_in_one_send(connect: Connect, nursery: trio.Nursery) -> None:
    peer = connect(echo, runs=False)
    requests = b"".join(framed(b"%03d" % number) for number in range(50))
    peer.sock.send(requests)

    nursery.start_soon(peer.run)
    await trio.lowlevel.wait_readable(peer.sock)

    assert peer.sock.recv(65536) == requests


async def test_what_a_request_has_begun_is_finished_though_its_client_is_gone(connect: Connect) -> None:
    """Appended records, for one, which count only when they are on the disk."""
    on_disk: Pending[None] = Pending()
    finished: list[str] = []
    peer = connect(lambda frame, client: on_disk.then(lambda _: finished.append("counted")))
    await peer.send(b"waits")
    peer.connection.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()

    on_disk.resolve(None)

    assert finished == ["counted"]


async def test_a_log_file_that_somebody_has_cut_off_ends_the_connection_only(
    connect: Connect, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    log = tmp_path / "00.log"
    log.write_bytes(b"short")
    records = RecordsFile(log)
    peer = connect(lambda frame, client: [FileSlice(records, 0, 100)])

    peer.sock.send(framed(b"fetch"))

    assert await peer.receive(1) == CLOSED
    assert "5 of 100 bytes" in caplog.text


async def test_requests_before_a_client_closed_its_side_are_answered(connect: Connect, nursery: trio.Nursery) -> None:
    peer = connect(echo, runs=False)
    peer.sock.send(framed(b"last"))
    peer.sock.shutdown(socket.SHUT_WR)

    nursery.start_soon(peer.run)

    assert await peer.receive(9) == framed(b"last")


class Pair:
    """Two peers of one poller, whose requests arrive in the same pass."""

    def __init__(self, connect: Connect, nursery: trio.Nursery, dispatch: Callable[[bytearray, Client], Any]) -> None:
        poller = Poller()
        nursery.start_soon(poller.run)
        self.peers = [connect(dispatch, poller=poller, runs=False) for _ in range(2)]
        for peer in self.peers:
            nursery.start_soon(peer.connection.run)

    async def ask(self, payload: bytes) -> None:
        await trio.testing.wait_all_tasks_blocked()
        for peer in self.peers:
            peer.sock.send(framed(payload))
        await trio.testing.wait_all_tasks_blocked()


async def test_answers_of_two_connections_are_sent_after_both_were_made(
    connect: Connect, nursery: trio.Nursery
) -> None:
    seen: list[int] = []

    def dispatch(frame: bytearray, client: Client) -> list[bytes]:
        seen.append(sum(readable_bytes(peer.sock) for peer in pair.peers))
        return echo(frame, client)

    pair = Pair(connect, nursery, dispatch)
    await pair.ask(b"both")

    assert seen == [0, 0]
    assert [await peer.receive(8) for peer in pair.peers] == [framed(b"both")] * 2


async def test_the_rest_of_an_answer_that_was_sent_with_others_follows(connect: Connect, nursery: trio.Nursery) -> None:
    large = framed(bytes(1 << 20))  # more than the socket holds
    pair = Pair(connect, nursery, lambda frame, client: [large])
    await pair.ask(b"large")

    assert [await peer.receive(len(large)) == large for peer in pair.peers] == [True, True]


async def test_a_client_that_has_gone_takes_no_other_with_it(connect: Connect, nursery: trio.Nursery) -> None:
    def dispatch(frame: bytearray, client: Client) -> list[bytes]:
        pair.peers[0].sock.close()
        return echo(frame, client)

    pair = Pair(connect, nursery, dispatch)
    await pair.ask(b"both")

    assert await pair.peers[1].receive(8) == framed(b"both")


async def test_what_was_read_of_a_connection_that_has_ended_is_not_answered(
    connect: Connect, nursery: trio.Nursery
) -> None:
    asked: list[Client] = []

    def dispatch(frame: bytearray, client: Client) -> list[bytes]:
        asked.append(client)
        for peer in pair.peers:
            if peer.connection.client is not client:
                peer.connection.cancel_scope.cancel()
        return echo(frame, client)

    pair = Pair(connect, nursery, dispatch)
    await pair.ask(b"both")

    assert len(asked) == 1


def readable_bytes(sock: socket.socket) -> int:
    try:
        return len(sock.recv(1 << 16, socket.MSG_PEEK))
    except BlockingIOError:
        return 0


async def test_more_than_one_turn_of_requests_is_answered_to_the_last(connect: Connect, nursery: trio.Nursery) -> None:
    peer = connect(echo)
    requests = framed(b"x" * 1000) * 500  # more than the reads of one turn, and than the socket holds

    async def send() -> None:
        rest = memoryview(requests)
        while rest:
            await trio.lowlevel.wait_writable(peer.sock)
            rest = rest[peer.sock.send(rest) :]

    nursery.start_soon(send)

    assert await peer.receive(len(requests)) == requests


async def test_a_frame_that_arrives_byte_by_byte_is_answered_once_whole(connect: Connect) -> None:
    peer = connect(echo)

    for byte in framed(b"slowly"):
        peer.sock.send(bytes([byte]))
        await trio.testing.wait_all_tasks_blocked()

    assert await peer.receive(10) == framed(b"slowly")


async def test_stopping_ends_an_idle_connection_at_once(connect: Connect) -> None:
    peer = connect(echo)
    await trio.testing.wait_all_tasks_blocked()

    peer.connection.stop()

    assert await peer.receive(1) == CLOSED


class Waiting(DelayedOperation):
    """An operation that a test completes."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.pending: Pending[None] = Pending(self)

    def on_complete(self) -> None:
        self.pending.resolve(None)


class Parking:
    """A handler that parks requests called `wait` and echoes the others."""

    def __init__(self) -> None:
        self.operations: list[Waiting] = []
        self.finish: Callable[[], list[bytes]] = lambda: [framed(b"late")]

    def __call__(self, frame: bytearray, client: Client) -> Any:
        if frame != b"wait":
            return echo(frame, client)
        self.operations.append(Waiting())
        return self.operations[-1].pending.then(lambda _: self.finish())


@pytest.fixture
def parking() -> Parking:
    return Parking()


@pytest.fixture
async def peer(connect: Connect, parking: Parking) -> Peer:
    return connect(parking)


async def test_the_answer_is_on_the_socket_when_the_completing_call_returns(peer: Peer, parking: Parking) -> None:
    await peer.send(b"wait")

    parking.operations[0].force_complete()

    assert peer.sock.recv(64) == framed(b"late")


async def test_answers_before_a_wait_are_sent_at_once_and_others_after_it(peer: Peer, parking: Parking) -> None:
    await peer.send(b"early", b"wait", b"after", b"wait")

    assert await peer.receive(9) == framed(b"early")
    with pytest.raises(BlockingIOError):
        peer.sock.recv(1)
    await peer.send(b"later")
    parking.operations[0].force_complete()
    assert await peer.receive(17) == framed(b"late") + framed(b"after")
    await trio.testing.wait_all_tasks_blocked()
    parking.operations[1].force_complete()
    assert await peer.receive(17) == framed(b"late") + framed(b"later")


async def test_an_answer_ready_before_earlier_ones_are_sent_keeps_its_place(peer: Peer, parking: Parking) -> None:
    big = framed(b"x" * 1000) * 900  # more than the socket holds
    peer.connection._out.append(big)
    peer.connection._out_bytes = len(big)
    await peer.send(b"wait")

    parking.operations[0].force_complete()

    assert await peer.receive(len(big) + 8) == big + framed(b"late")


async def test_a_connection_that_ends_leaves_the_purgatory(peer: Peer, parking: Parking) -> None:
    await peer.send(b"wait")

    peer.connection.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()

    assert parking.operations[0].is_completed
    assert not parking.operations[0].force_complete()


async def test_stopping_waits_for_the_parked_answer_and_then_ends(peer: Peer, parking: Parking) -> None:
    await peer.send(b"wait")
    peer.connection.stop()
    await trio.testing.wait_all_tasks_blocked()

    parking.operations[0].force_complete()

    assert await peer.receive(9) == framed(b"late") + CLOSED


async def test_an_answer_that_fails_ends_its_connection(
    peer: Peer, parking: Parking, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> list[bytes]:
        raise KafkaProtocolError("no such thing")

    parking.finish = fail
    await peer.send(b"wait")

    assert parking.operations[0].force_complete()  # who completes it hears nothing of the failure

    assert await peer.receive(1) == CLOSED
    assert "no such thing" in caplog.text


async def test_a_client_that_waits_is_not_idle(connect: Connect, parking: Parking, nursery: trio.Nursery) -> None:
    peer = connect(parking, max_idle_ms=10_000)
    nursery.start_soon(peer.timers.run)
    await trio.sleep(8)
    peer.sock.send(framed(b"wait"))
    await trio.sleep(8)
    parking.operations[0].force_complete()
    assert await peer.receive(8) == framed(b"late")

    await trio.sleep(8)
    peer.sock.send(framed(b"ping"))

    assert await peer.receive(8) == framed(b"ping")


def trickling(bytes_per_second: int, hurry: trio.Event) -> Dispatch:
    """Answers `slow` with 100 bytes at that rate, and anything else with itself."""

    def dispatch(frame: bytearray, client: Client) -> Any:
        if frame != b"slow":
            return echo(frame, client)
        pending: Pending[ThrottledResponse] = Pending()
        pending.resolve(ThrottledResponse([ANSWER[:50], ANSWER[50:]], bytes_per_second, hurry))
        return pending

    return dispatch


@pytest.mark.parametrize("bytes_per_second", [1, 7, 40, 1000])
async def test_a_slow_answer_leaves_at_its_rate(connect: Connect, bytes_per_second: int) -> None:
    peer = connect(trickling(bytes_per_second, trio.Event()))
    peer.sock.send(framed(b"slow") + framed(b"next"))

    took_seconds, received = await seconds(peer.receive(len(ANSWER) + 8))

    assert received == ANSWER + framed(b"next")
    assert took_seconds == pytest.approx(len(ANSWER) / bytes_per_second)


async def test_a_slow_answer_is_nowhere_early_and_at_once_when_it_may_hurry(connect: Connect) -> None:
    hurry = trio.Event()
    peer, other = connect(trickling(10, hurry)), connect(echo)
    peer.sock.send(framed(b"slow"))
    await trio.sleep(5.05)
    sent = peer.sock.recv(1000)
    began = trio.current_time()

    other.sock.send(framed(b"quick"))  # which does not wait for the slow one
    quick = await other.receive(9)
    hurry.set()
    rest = await peer.receive(len(ANSWER) - len(sent))

    assert len(sent) == math.ceil(50.5)
    assert (quick, sent + rest, trio.current_time()) == (framed(b"quick"), ANSWER, began)


async def test_a_torn_answer_ends_the_connection_behind_its_last_bytes(connect: Connect) -> None:
    def dispatch(frame: bytearray, client: Client) -> Any:
        if frame == b"tear":
            raise CloseConnectionError("torn", b"half")
        return echo(frame, client)

    peer = connect(dispatch)

    peer.sock.send(framed(b"before") + framed(b"tear") + framed(b"behind"))

    assert await peer.receive(1000) == framed(b"before") + b"half"
