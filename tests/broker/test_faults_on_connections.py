"""Answers that do not arrive whole, or in time: what the bytes on a connection are then."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network.connection import Dispatch
from minibroker.broker.network.response import ThrottledResponse
from minibroker.broker.pending import Pending
from tests.broker.peers import Peer, PeerOf, echo, framed, peer_of

pytestmark = pytest.mark.time_jumps

__all__ = ["peer_of"]

ANSWER = framed(bytes(range(96)))


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
async def test_a_slow_answer_leaves_at_its_rate(peer_of: PeerOf, nursery: trio.Nursery, bytes_per_second: int) -> None:
    peer = peer_of(trickling(bytes_per_second, trio.Event()))
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"slow") + framed(b"next"))
    began = trio.current_time()

    received = await peer.receive(len(ANSWER) + 8)

    assert received == ANSWER + framed(b"next")
    assert trio.current_time() - began == pytest.approx(len(ANSWER) / bytes_per_second)


async def test_a_slow_answer_is_nowhere_early(peer_of: PeerOf, nursery: trio.Nursery) -> None:
    peer = peer_of(trickling(10, trio.Event()))
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"slow"))

    await trio.sleep(5.05)

    assert len(peer.sock.recv(1000)) == math.ceil(50.5)


async def test_a_slow_answer_that_may_hurry_goes_at_once(peer_of: PeerOf, nursery: trio.Nursery) -> None:
    hurry = trio.Event()
    peer = peer_of(trickling(1, hurry))
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"slow"))
    await peer.receive(2)
    began = trio.current_time()

    hurry.set()
    rest = await peer.receive(len(ANSWER) - 2)

    assert rest == ANSWER[2:]
    assert trio.current_time() == began


async def test_other_connections_do_not_wait_for_a_slow_one(peer_of: PeerOf, nursery: trio.Nursery) -> None:
    slow, other = peer_of(trickling(1, trio.Event())), peer_of(echo)
    for peer in (slow, other):
        nursery.start_soon(peer.run)
    slow.sock.send(framed(b"slow"))
    await slow.receive(1)
    began = trio.current_time()

    other.sock.send(framed(b"quick"))

    assert await other.receive(9) == framed(b"quick")
    assert trio.current_time() == began


async def test_a_torn_answer_ends_the_connection_behind_its_last_bytes(peer_of: PeerOf) -> None:
    def dispatch(frame: bytearray, client: Client) -> Any:
        if frame == b"tear":
            raise CloseConnectionError("torn", b"half")
        return echo(frame, client)

    peer: Peer = peer_of(dispatch)
    peer.sock.send(framed(b"before") + framed(b"tear") + framed(b"behind"))

    with trio.fail_after(5):
        await peer.run()

    assert await peer.receive(1000) == framed(b"before") + b"half"
