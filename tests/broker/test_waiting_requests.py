"""A request that waits: answered in the call that completes it, in its place, not at all once its client has left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from minibroker.broker.apis.client import Client
from minibroker.broker.pending import Pending
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.purgatory.delayed_operation import DelayedOperation
from tests.broker.test_connection import Peer, echo, framed


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
async def peer(parking: Parking) -> AsyncIterator[Peer]:
    peer = Peer(parking)
    yield peer
    peer.sock.close()


async def test_the_answer_is_on_the_socket_when_the_completing_call_returns(
    peer: Peer, parking: Parking, nursery: trio.Nursery
) -> None:
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"wait"))
    await trio.testing.wait_all_tasks_blocked()

    parking.operations[0].force_complete()

    assert peer.sock.recv(64) == framed(b"late")


async def test_what_was_answered_before_is_sent_at_once_and_what_follows_comes_after(
    peer: Peer, parking: Parking, nursery: trio.Nursery
) -> None:
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"early") + framed(b"wait") + framed(b"after"))

    assert await peer.receive(9) == framed(b"early")
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(BlockingIOError):
        peer.sock.recv(1)
    parking.operations[0].force_complete()
    assert await peer.receive(17) == framed(b"late") + framed(b"after")


async def test_a_request_that_arrives_behind_a_parked_one_is_answered_after_it(
    peer: Peer, parking: Parking, nursery: trio.Nursery
) -> None:
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"wait"))
    await trio.testing.wait_all_tasks_blocked()
    peer.sock.send(framed(b"after"))
    await trio.testing.wait_all_tasks_blocked()

    parking.operations[0].force_complete()

    assert await peer.receive(17) == framed(b"late") + framed(b"after")


async def test_one_parked_request_after_another_is_answered(
    peer: Peer, parking: Parking, nursery: trio.Nursery
) -> None:
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"wait") + framed(b"wait"))

    for number in range(2):
        await trio.testing.wait_all_tasks_blocked()
        parking.operations[number].force_complete()
        assert await peer.receive(8) == framed(b"late")
    peer.sock.send(framed(b"next"))
    assert await peer.receive(8) == framed(b"next")


async def test_an_answer_that_is_ready_while_earlier_ones_are_being_sent_keeps_its_place(
    peer: Peer, parking: Parking, nursery: trio.Nursery
) -> None:
    big = framed(b"x" * 1000) * 900  # more than the socket holds
    peer.connection._out.append(big)
    peer.connection._out_bytes = len(big)
    nursery.start_soon(peer.run)
    peer.sock.send(framed(b"wait"))
    await trio.testing.wait_all_tasks_blocked()

    parking.operations[0].force_complete()

    assert await peer.receive(len(big) + 8) == big + framed(b"late")


async def test_a_client_that_leaves_while_it_is_parked_is_noticed_when_its_answer_is_due(
    peer: Peer, parking: Parking
) -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.run)
            peer.sock.send(framed(b"wait"))
            await trio.testing.wait_all_tasks_blocked()
            peer.sock.close()
            await trio.testing.wait_all_tasks_blocked()

            parking.operations[0].force_complete()


async def test_a_connection_that_ends_leaves_the_purgatory(peer: Peer, parking: Parking) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run)
        peer.sock.send(framed(b"wait"))
        await trio.testing.wait_all_tasks_blocked()
        peer.connection.cancel_scope.cancel()

    assert parking.operations[0].is_completed
    assert not parking.operations[0].force_complete()


async def test_stopping_waits_for_the_parked_answer_and_then_ends(peer: Peer, parking: Parking) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run)
        peer.sock.send(framed(b"wait"))
        await trio.testing.wait_all_tasks_blocked()
        peer.connection.stop()
        await trio.testing.wait_all_tasks_blocked()
        parking.operations[0].force_complete()
        assert await peer.receive(8) == framed(b"late")

    assert peer.sock.recv(1) == b""


async def test_an_answer_that_cannot_be_made_ends_its_own_connection_only(
    peer: Peer, parking: Parking, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> list[bytes]:
        raise KafkaProtocolError("no such thing")

    parking.finish = fail
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run)
        peer.sock.send(framed(b"wait"))
        await trio.testing.wait_all_tasks_blocked()

        assert parking.operations[0].force_complete()  # who completes it hears nothing of the failure

    assert peer.sock.recv(1) == b""
    assert "no such thing" in caplog.text


async def test_an_idle_client_is_not_the_one_that_is_parked(
    parking: Parking, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = Peer(parking, max_idle_ms=10_000)
    nursery.start_soon(peer.timers.run)
    nursery.start_soon(peer.run)
    await trio.sleep(8)
    peer.sock.send(framed(b"wait"))
    await trio.sleep(8)
    parking.operations[0].force_complete()
    assert await peer.receive(8) == framed(b"late")

    await trio.sleep(8)
    peer.sock.send(framed(b"ping"))

    assert await peer.receive(8) == framed(b"ping")
    peer.sock.close()
    nursery.cancel_scope.cancel()
