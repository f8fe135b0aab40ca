"""One client's connection over a real socket pair: order, joining, waiting, slow and torn answers, stopping.

Time is jumped.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network import connection
from minibroker.broker.network.connection import Dispatch
from minibroker.broker.network.poller import Poller
from minibroker.broker.network.response import ThrottledResponse
from minibroker.broker.pending import Pending
from minibroker.broker.time.clock import Clock
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.storage.files.records_file import FileSlice, RecordsFile
from tests.broker.asking import seconds
from tests.broker.peers import RECEIVE_BUFFER_BYTES, Connect, Peer, echo
from tests.broker.peers import connect as connect
from tests.requests import framed

pytestmark = pytest.mark.time_jumps

CLOSED = b""
PASSES = 20
BIG = framed(b"x" * 50_000)  # joined with others, and more than the socket of these tests takes


class Scripted:
    """A handler: of the words of a request, `wait` parks it, `mute` throttles its client for 5 s, `big` has BIG."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.parked: Pending[None] = Pending(self)
        self.is_abandoned = False

    def abandon(self) -> None:
        self.is_abandoned = True

    def __call__(self, frame: bytearray, client: Client) -> Any:
        self.served.append(frame.decode())
        if b"wait" in frame:
            return self.parked.then(lambda _: self.answered(frame, client))
        return self.answered(frame, client)

    def answered(self, frame: bytearray, client: Client) -> Any:
        if b"mute" in frame:
            client.mute(Clock().monotonic_ms() + 5000)
        return None if b"silent" in frame else [BIG if b"big" in frame else framed(bytes(frame))]


STATES = ("READING", "ANSWERING", "WAITING", "MUTED", "SENDING", "SENDING_WAITS", "SENDING_MUTED", "ENDED")
# How a connection gets into its state: the requests of one write.
INTO = {
    "READING": "",
    "ANSWERING": "",
    "WAITING": "wait",
    "MUTED": "mute",
    "SENDING": "big",
    "SENDING_WAITS": "big, wait",
    "SENDING_MUTED": "big mute",
    "ENDED": "",
}
# state, events, next state, responses from then on (BIG first, where it was begun)
HAPPENS = """
    READING        ask                     READING        ask
    READING        ask, end                ENDED          ask
    READING        end                     ENDED
    READING        stop                    ENDED
    READING        cancel                  ENDED
    READING        wait, ask, later        WAITING
    READING        mute, ask, time         READING        mute ask
    READING        big, drain              READING        big
    ANSWERING      answer                  READING
    ANSWERING      answer, send            READING        read
    ANSWERING      stop                    ENDED
    ANSWERING      stop, answer            ENDED
    ANSWERING      stop, send              ENDED
    WAITING        ask                     WAITING
    WAITING        end                     WAITING
    WAITING        known                   READING        wait
    WAITING        ask, known              READING        wait ask
    WAITING        end, known              ENDED          wait
    WAITING        ask, end, known         ENDED          wait ask
    WAITING        stop                    WAITING
    WAITING        ask, stop, known        ENDED          wait
    WAITING        cancel                  ENDED
    READING        wait-mute, ask, known   MUTED          wait-mute
    READING        wait-mute, ask, known, time   READING  wait-mute ask
    READING        wait-mute, stop, known  ENDED          wait-mute
    READING        silent-mute, ask        MUTED
    READING        silent-mute, ask, time  READING        ask
    MUTED          ask                     MUTED          mute
    MUTED          time                    READING        mute
    MUTED          ask, time               READING        mute ask
    MUTED          end                     ENDED          mute
    MUTED          ask, end                MUTED          mute
    MUTED          ask, end, time          ENDED          mute ask
    MUTED          ask, stop               ENDED          mute
    MUTED          cancel                  ENDED          mute
    SENDING        ask                     SENDING
    SENDING        ask, drain              READING        big ask
    SENDING        ask, end, drain         ENDED          big ask
    SENDING        stop                    SENDING
    SENDING        ask, stop, drain        ENDED          big
    SENDING        cancel                  ENDED
    SENDING_WAITS  known                   SENDING_WAITS
    SENDING_WAITS  drain                   WAITING        big
    SENDING_WAITS  drain, known            READING        big wait
    SENDING_WAITS  ask, known, drain       READING        big wait ask
    SENDING_WAITS  end, drain              WAITING        big
    SENDING_WAITS  stop                    SENDING_WAITS
    SENDING_WAITS  known, stop, drain      ENDED          big
    SENDING_MUTED  drain                   MUTED          big
    SENDING_MUTED  time                    SENDING_MUTED
    SENDING_MUTED  ask, time, drain        READING        big ask
    SENDING_MUTED  ask, drain, time        READING        big ask
    SENDING_MUTED  end, drain              MUTED          big
    SENDING_MUTED  stop, drain             ENDED          big
    ENDED          answer, send            ENDED
    ENDED          stop                    ENDED
"""


def rows_of(table: str) -> list[list[str]]:
    return [re.split(r"  +", line.strip()) for line in table.strip().splitlines()]


class StateTest:
    """A connection in a state, and what happens to it."""

    def __init__(self, connect: Connect, nursery: trio.Nursery) -> None:
        self.handler = Scripted()
        self.peer = connect(self.handler)
        self.peer.connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        nursery.start_soon(self.peer.timers.run)
        self.received = b""

    @property
    def state(self) -> str:
        return STATES[self.peer.connection._state]

    async def get_into(self, state: str) -> None:
        await trio.testing.wait_all_tasks_blocked()
        if state == "ANSWERING":
            self.peer.sock.send(framed(b"read"))
            assert self.peer.connection.read(False)
        elif state == "ENDED":
            self.peer.connection.cancel_scope.cancel()
        elif INTO[state]:
            await self.peer.send(*INTO[state].encode().split(b", "))
        assert self.state == state

    async def happens(self, event: str) -> None:
        connection = self.peer.connection
        calls: dict[str, Callable[[], object]] = {
            "answer": connection.answer,
            "send": connection.send,
            "stop": connection.stop,
            "cancel": connection.cancel_scope.cancel,
            "known": lambda: self.handler.parked.resolve(None),
            "end": lambda: self.peer.sock.shutdown(socket.SHUT_WR),
        }
        if event == "drain":
            self.received += await self.peer.receive(len(BIG))
        elif event == "time":
            await trio.sleep(6)
        elif event in calls:
            calls[event]()
        else:
            self.peer.sock.send(framed(event.encode()))
        if self.state != "ANSWERING":  # else a pass of the poller goes on
            await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize(("state", "events", "after", "responses"), [(*row, "")[:4] for row in rows_of(HAPPENS)])
async def test_a_connection_moves_by_its_table(
    connect: Connect, nursery: trio.Nursery, state: str, events: str, after: str, responses: str
) -> None:
    test = StateTest(connect, nursery)
    await test.get_into(state)

    for event in events.split(", "):
        await test.happens(event)

    expected = b"".join(BIG if name == "big" else framed(name.encode()) for name in responses.split())
    is_cut = state.startswith("SENDING") and not expected  # a part of BIG
    rest = b"" if is_cut else await available(test.peer.sock)
    assert (test.state, test.received + rest) == (after, expected)
    test.peer.connection.cancel_scope.cancel()


@pytest.mark.pure  # a compiled module has no docstring
def test_the_documented_table_has_each_state_and_event() -> None:
    assert connection.__doc__ is not None
    head, *documented = rows_of(connection.__doc__.split("\n\n")[3])

    assert tuple(row[0] for row in documented) == STATES == tuple(sorted(STATES, key=vars(connection).__getitem__))
    assert {len(row) for row in documented} == {len(head)}


async def available(sock: socket.socket) -> bytes:
    """Return the bytes that have arrived."""
    try:
        return sock.recv(1 << 20)
    except (BlockingIOError, ConnectionError):
        return b""


ANSWER = framed(bytes(range(96)))


async def test_pipelined_requests_are_answered_in_order_in_one_send(connect: Connect, nursery: trio.Nursery) -> None:
    peer = connect(echo, runs=False)
    requests = b"".join(framed(b"%03d" % number) for number in range(50))
    peer.sock.send(requests)

    nursery.start_soon(peer.run)
    await trio.lowlevel.wait_readable(peer.sock)

    assert peer.sock.recv(65536) == requests


async def test_a_begun_request_is_finished_though_its_client_is_gone(connect: Connect) -> None:
    """Appended records, for one, which count only when they are on the disk."""
    on_disk: Pending[None] = Pending()
    finished: list[str] = []
    peer = connect(lambda frame, client: on_disk.then(lambda _: finished.append("counted")))
    await peer.send(b"waits")
    peer.connection.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()

    on_disk.resolve(None)

    assert finished == ["counted"]


async def test_a_log_file_that_was_cut_off_ends_the_connection_only(
    connect: Connect, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    log = tmp_path / "00.log"
    log.write_bytes(b"short")
    records = RecordsFile(log)
    peer = connect(lambda frame, client: [FileSlice(records, 0, 100)])

    peer.sock.send(framed(b"fetch"))

    assert await peer.receive(1) == CLOSED
    assert "5 of 100 bytes" in caplog.text


@pytest.mark.parametrize("requests", [["ask"], ["big"] * 9, ["big", "big", "wait", "ask"]])
async def test_requests_before_a_client_closed_its_side_are_answered(
    connect: Connect, nursery: trio.Nursery, requests: list[str]
) -> None:
    handler = Scripted()
    peer = connect(handler, runs=False)
    peer.sock.send(b"".join(framed(name.encode()) for name in requests))
    peer.sock.shutdown(socket.SHUT_WR)

    nursery.start_soon(peer.run)
    received = peer.receive(1 << 20)
    nursery.start_soon(resolve_later, handler.parked)

    assert await received == b"".join(BIG if name == "big" else framed(name.encode()) for name in requests)


async def resolve_later(pending: Pending[None]) -> None:
    await trio.sleep(1)
    pending.resolve(None)


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
    for _ in range(PASSES):  # on a busy machine a pass may take longer than an answer waits for others
        seen.clear()
        await pair.ask(b"both")
        assert [await peer.receive(8) for peer in pair.peers] == [framed(b"both")] * 2
        if seen == [0, 0]:
            break

    assert seen == [0, 0]


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


async def test_requests_of_a_connection_that_has_ended_are_not_served(connect: Connect, nursery: trio.Nursery) -> None:
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


async def test_a_client_that_sends_ahead_of_waits_fills_its_socket_and_not_memory(connect: Connect) -> None:
    waits: list[Pending[Any]] = []

    def wait(frame: bytearray, client: Client) -> Pending[Any]:
        waits.append(Pending(None))
        return waits[-1]

    def send_ahead() -> int:
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += peer.sock.send(framed(b"x" * 996))
        return sent

    peer = connect(wait)
    unanswered = at_first = send_ahead()
    for _ in range(50):
        await trio.testing.wait_all_tasks_blocked()
        waits[-1].resolve([framed(b"y" * 996)])
        unanswered += send_ahead() - len(await peer.receive(1000))

    assert len(waits) >= 50
    assert unanswered <= at_first + 2 * RECEIVE_BUFFER_BYTES


async def test_a_frame_that_arrives_byte_by_byte_is_answered_once_whole(connect: Connect) -> None:
    peer = connect(echo)

    for byte in framed(b"slowly"):
        peer.sock.send(bytes([byte]))
        await trio.testing.wait_all_tasks_blocked()

    assert await peer.receive(10) == framed(b"slowly")


@pytest.fixture
def handler() -> Scripted:
    return Scripted()


async def test_the_answer_is_on_the_socket_when_the_completing_call_returns(
    connect: Connect, handler: Scripted
) -> None:
    peer = connect(handler)
    await peer.send(b"wait")

    handler.parked.resolve(None)

    assert peer.sock.recv(64) == framed(b"wait")


async def test_a_connection_that_ends_abandons_its_waiting_request(connect: Connect, handler: Scripted) -> None:
    peer = connect(handler)
    await peer.send(b"wait")

    peer.connection.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()

    assert handler.is_abandoned


async def test_an_answer_that_fails_ends_its_connection(
    connect: Connect, handler: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    peer = connect(handler)
    await peer.send(b"wait")

    handler.parked.fail(KafkaProtocolError("no such thing"))

    assert await peer.receive(1) == CLOSED
    assert "no such thing" in caplog.text


async def test_a_client_that_waits_is_not_idle(connect: Connect, handler: Scripted, nursery: trio.Nursery) -> None:
    peer = connect(handler, max_idle_ms=10_000)
    nursery.start_soon(peer.timers.run)
    await trio.sleep(8)
    peer.sock.send(framed(b"wait"))
    await trio.sleep(8)
    handler.parked.resolve(None)
    assert await peer.receive(8) == framed(b"wait")

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


# -- Throttled clients: the response leaves at once, later requests wait until the time is over (KIP-219)


@pytest.fixture
async def throttled(connect: Connect, nursery: trio.Nursery) -> Peer:
    peer = connect(Scripted(), max_idle_ms=60_000)
    nursery.start_soon(peer.timers.run)
    return peer


def near(expected: Any) -> Any:
    """Seconds of the mock clock, which comes a little after a deadline."""
    return pytest.approx(expected, abs=0.2)


async def test_requests_of_one_write_are_throttled_one_by_one_in_order(throttled: Peer) -> None:
    names = [b"mute", b"mute", b"free", b"free", b"mute", b"free"]
    await throttled.send(*names)
    took = [await seconds(throttled.receive(8)) for _ in range(6)]

    assert [answer for _, answer in took] == list(map(framed, names))
    assert [waited for waited, _ in took] == near([0, 5, 5, 0, 0, 5])


async def test_a_request_that_is_cut_by_the_mute_is_served_whole(throttled: Peer) -> None:
    long = framed(b"free".ljust(1000, b"."))
    throttled.sock.send(framed(b"mute") + long[:500])
    assert await throttled.receive(8) == framed(b"mute")
    await trio.sleep(1)
    throttled.sock.send(long[500:])

    assert await seconds(throttled.receive(1004)) == (near(4), long)


async def test_a_slow_answer_is_whole_before_the_mute_ends(connect: Connect, nursery: trio.Nursery) -> None:
    """A fault of a test sends it slowly; the time of the throttle runs meanwhile."""

    def dispatch(frame: bytearray, client: Client) -> Any:
        if frame == b"free":
            return echo(frame, client)
        client.mute(Clock().monotonic_ms() + 5000)
        pending: Pending[Any] = Pending()
        pending.resolve(ThrottledResponse([framed(b"x" * 16)], 10, trio.Event()))
        return pending

    peer = connect(dispatch)
    nursery.start_soon(peer.timers.run)
    await peer.send(b"slow", b"free")

    assert await seconds(peer.receive(20)) == (near(2), framed(b"x" * 16))
    assert await seconds(peer.receive(8)) == (near(3), framed(b"free"))


async def test_a_mute_longer_than_the_idle_time_ends_as_idle(connect: Connect, nursery: trio.Nursery) -> None:
    peer = connect(Scripted(), max_idle_ms=2000)
    nursery.start_soon(peer.timers.run)
    await peer.send(b"mute")
    await peer.receive(8)

    assert await seconds(peer.receive(1)) == (near(2), CLOSED)


async def test_a_mute_that_ends_with_its_connection_leaves_no_timer(throttled: Peer) -> None:
    await throttled.send(b"mute")
    assert len(throttled.timers.timer) == 2  # the mute, and the idle time

    throttled.connection.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()

    assert len(throttled.timers.timer) == 0
