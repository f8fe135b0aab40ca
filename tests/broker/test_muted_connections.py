"""Connections of throttled clients: the answer leaves at once, later requests wait until the time is over (KIP-219).

Time is jumped.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.broker.apis.client import Client
from minibroker.broker.network.response import ThrottledResponse
from minibroker.broker.pending import Pending
from minibroker.broker.time.clock import Clock
from tests.broker.asking import seconds
from tests.broker.peers import Connect, Peer, echo, framed
from tests.broker.peers import connect as connect

pytestmark = pytest.mark.time_jumps

CLOSED = b""


def near(expected: Any) -> Any:
    """Seconds of the mock clock, which comes a little after a deadline."""
    return pytest.approx(expected, abs=0.2)


class Throttling:
    """A handler that echoes, and mutes after `mute` for 5 s; `silent` has no answer, `wait` is parked."""

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.parked: Pending[Any] = Pending()

    def __call__(self, frame: bytearray, client: Client) -> Any:
        name = bytes(frame)
        self.served.append(name)
        if name == b"wait":
            return self.parked.then(lambda _: self.answered(name, client))
        return self.answered(name, client)

    def answered(self, name: bytes, client: Client) -> Any:
        if name != b"free":
            client.muted_until_ms = Clock().monotonic_ms() + 5000
        return None if name == b"silent" else [framed(name)]


@pytest.fixture
def handler() -> Throttling:
    return Throttling()


@pytest.fixture
async def peer(connect: Connect, handler: Throttling, nursery: trio.Nursery) -> Peer:
    peer = connect(handler, max_idle_ms=60_000)
    nursery.start_soon(peer.timers.run)
    return peer


async def test_a_throttled_client_is_answered_at_once(peer: Peer) -> None:
    await peer.send(b"mute")

    assert await seconds(peer.receive(8)) == (0, framed(b"mute"))


async def test_requests_of_one_write_are_answered_one_by_one_in_order(peer: Peer, handler: Throttling) -> None:
    await peer.send(b"mute", b"mute", b"free", b"free", b"mute", b"free")
    took = [await seconds(peer.receive(8)) for _ in range(6)]

    assert [answer for _, answer in took] == [framed(name) for name in handler.served]
    assert [waited for waited, _ in took] == near([0, 5, 5, 0, 0, 5])


async def test_requests_that_arrive_while_a_client_is_muted_wait_in_its_socket(peer: Peer, handler: Throttling) -> None:
    await peer.send(b"mute")
    await peer.receive(8)
    await trio.sleep(2)
    await peer.send(b"free", b"free")
    assert handler.served == [b"mute"]

    took = await seconds(peer.receive(16))

    assert took == (near(3), framed(b"free") * 2)


async def test_a_request_without_an_answer_mutes_too(peer: Peer) -> None:
    await peer.send(b"silent", b"free")

    assert await seconds(peer.receive(8)) == (near(5), framed(b"free"))


@pytest.mark.parametrize("later", ["in the same write", "after it"])
async def test_a_parked_request_mutes_once_it_is_answered(peer: Peer, handler: Throttling, later: str) -> None:
    await peer.send(*((b"wait", b"free") if later == "in the same write" else (b"wait",)))
    await trio.sleep(7)
    handler.parked.resolve(None)
    assert await seconds(peer.receive(8)) == (0, framed(b"wait"))

    if later == "after it":
        await peer.send(b"free")

    assert await seconds(peer.receive(8)) == (near(5), framed(b"free"))


async def test_a_request_that_is_cut_by_the_mute_is_served_whole(peer: Peer) -> None:
    long = b"free".ljust(1000, b".")
    peer.sock.send(framed(b"mute") + framed(long)[:500])
    assert await peer.receive(8) == framed(b"mute")
    await trio.sleep(1)
    peer.sock.send(framed(long)[500:])

    assert await seconds(peer.receive(1004)) == (near(4), framed(long))


async def test_a_slow_answer_is_whole_before_the_mute_ends(connect: Connect, nursery: trio.Nursery) -> None:
    """A fault of a test sends it slowly; the time of the throttle runs meanwhile."""

    def dispatch(frame: bytearray, client: Client) -> Any:
        if frame == b"free":
            return echo(frame, client)
        client.muted_until_ms = Clock().monotonic_ms() + 5000
        pending: Pending[Any] = Pending()
        pending.resolve(ThrottledResponse([framed(b"x" * 16)], 10, trio.Event()))
        return pending

    peer = connect(dispatch)
    nursery.start_soon(peer.timers.run)
    await peer.send(b"slow", b"free")

    assert await seconds(peer.receive(20)) == (near(2), framed(b"x" * 16))
    assert await seconds(peer.receive(8)) == (near(3), framed(b"free"))


async def test_other_connections_are_not_muted(connect: Connect, peer: Peer) -> None:
    other = connect(echo)
    await peer.send(b"mute")
    other.sock.send(framed(b"free"))

    assert await seconds(other.receive(8)) == (0, framed(b"free"))


async def test_the_end_of_a_muted_client_is_noticed_at_once(connect: Connect, nursery: trio.Nursery) -> None:
    peer, ended = connect(Throttling(), runs=False), trio.Event()
    nursery.start_soon(peer.timers.run)

    async def run() -> None:
        await peer.run()
        ended.set()

    nursery.start_soon(run)
    await peer.send(b"mute")
    peer.sock.close()

    assert (await seconds(ended.wait()))[0] == 0


async def test_requests_that_a_muted_client_left_when_it_closed_are_served(peer: Peer, handler: Throttling) -> None:
    await peer.send(b"mute")
    await peer.send(b"free")
    peer.sock.shutdown(socket.SHUT_WR)
    assert await peer.receive(8) == framed(b"mute")

    assert await seconds(peer.receive(8)) == (near(5), framed(b"free"))
    assert await peer.receive(1) == CLOSED


async def test_a_stopping_broker_does_not_wait_for_a_muted_client(peer: Peer, handler: Throttling) -> None:
    await peer.send(b"mute", b"free")
    await peer.receive(8)

    peer.connection.stop()

    assert await seconds(peer.receive(1)) == (0, CLOSED)
    assert handler.served == [b"mute"]


async def test_a_stopping_broker_answers_a_parked_request_and_does_not_wait_for_its_mute(
    peer: Peer, handler: Throttling
) -> None:
    await peer.send(b"wait")
    peer.connection.stop()

    handler.parked.resolve(None)

    assert await seconds(peer.receive(9)) == (0, framed(b"wait") + CLOSED)


async def test_a_mute_longer_than_the_idle_time_ends_as_idle(connect: Connect, nursery: trio.Nursery) -> None:
    peer = connect(Throttling(), max_idle_ms=2000)
    nursery.start_soon(peer.timers.run)
    await peer.send(b"mute")
    await peer.receive(8)

    assert await seconds(peer.receive(1)) == (near(2), CLOSED)


async def test_a_mute_that_ends_with_its_connection_leaves_no_timer(peer: Peer) -> None:
    await peer.send(b"mute")
    assert len(peer.timers.timer) == 2  # the mute, and the idle time

    peer.connection.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()

    assert len(peer.timers.timer) == 0
