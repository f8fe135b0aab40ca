"""queued.max.request.bytes, over real socket pairs: what is read in all is bounded, and who finds no memory waits.

Apache Kafka 2.0.1 was asked the same (tests/integration/test_many_connections.py asks both).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from minibroker.broker.network.memory_pool import MemoryPool
from minibroker.broker.time.clock import Clock
from tests.broker.peers import Connect, Peer, echo
from tests.broker.peers import connect as connect
from tests.broker.tls_peers import Side
from tests.broker.tls_peers import certificates as certificates
from tests.broker.tls_peers import make_side as make_side
from tests.broker.tls_peers import side as side
from tests.requests import framed

pytestmark = pytest.mark.time_jumps

SIZE_BYTES = 1000
SMALL = framed(b"small")


def begun(size_bytes: int, sent_bytes: int = 1) -> bytes:
    """The length of a request, and its first bytes."""
    return struct.pack(">i", size_bytes) + b"x" * sent_bytes


class Clients:
    """Clients of one broker, whose requests are echoed."""

    def __init__(self, connect: Connect, memory: MemoryPool) -> None:
        self._connect = connect
        self.memory = memory
        self.peers: list[Peer] = []

    async def send(self, *sent: bytes) -> list[Peer]:
        """Connect a client for each, and have it send."""
        made = []
        for each in sent:
            made.append(self._connect(echo, memory=self.memory, max_request_bytes=SIZE_BYTES, max_idle_ms=60_000))
            await wait_all_tasks_blocked()
            await pass_on(made[-1], each)
        return made


async def pass_on(peer: Peer, data: bytes) -> None:
    peer.sock.send(data)
    await wait_all_tasks_blocked()


def waits(peer: Peer) -> bool:
    """Whether the client has got nothing; False if it is answered, or closed."""
    try:
        peer.sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    return False


@pytest.fixture
def clients(connect: Connect) -> Iterator[Clients]:
    memory = MemoryPool(SIZE_BYTES, Clock().monotonic_ms)
    yield Clients(connect, memory)


async def test_a_request_is_read_while_a_byte_is_left_and_then_all_wait(clients: Clients) -> None:
    _, early = await clients.send(begun(600), SMALL)
    assert await early.receive(len(SMALL)) == SMALL
    await clients.send(begun(600))  # overdraws
    assert (clients.memory.available_bytes, clients.memory.used_bytes) == (-200, 1200)

    late, too_long = await clients.send(SMALL, begun(SIZE_BYTES + 1))
    await pass_on(early, SMALL + SMALL)

    assert waits(late)
    assert waits(early)
    assert await too_long.receive(1) == b""  # is refused without memory


@pytest.mark.parametrize("ends", ["whole", "left", "idle"])
async def test_those_who_wait_are_served_once_memory_comes_back(
    clients: Clients, nursery: trio.Nursery, ends: str
) -> None:
    (first,) = await clients.send(begun(SIZE_BYTES))
    nursery.start_soon(first.timers.run)
    if ends == "idle":
        await trio.sleep(30)
    waiting = await clients.send(SMALL, begun(300, 299), SMALL + SMALL)
    await pass_on(waiting[0], SMALL)
    assert all(map(waits, waiting))

    if ends == "whole":
        await pass_on(first, b"x" * (SIZE_BYTES - 1))
    elif ends == "left":
        first.sock.close()
        await wait_all_tasks_blocked()
    else:
        await trio.sleep(31)

    assert await waiting[0].receive(2 * len(SMALL)) == SMALL + SMALL
    assert await waiting[2].receive(2 * len(SMALL)) == SMALL + SMALL
    assert clients.memory.used_bytes == 300
    await pass_on(waiting[1], b"x")
    assert await waiting[1].receive(304) == framed(b"x" * 300)
    assert clients.memory.used_bytes == 0


async def test_memory_is_given_in_the_order_of_those_who_wait_and_not_to_those_who_have_ended(clients: Clients) -> None:
    (first,) = await clients.send(begun(SIZE_BYTES))
    waiting = await clients.send(*[begun(SIZE_BYTES)] * 4)
    waiting[0].connection.cancel_scope.cancel()
    waiting[2].connection.stop()
    await wait_all_tasks_blocked()

    for peer in (first, waiting[1], waiting[3]):
        assert clients.memory.used_bytes == SIZE_BYTES
        await pass_on(peer, b"x" * (SIZE_BYTES - 1))
        assert await peer.receive(SIZE_BYTES + 4) == framed(b"x" * SIZE_BYTES)
    assert clients.memory.used_bytes == 0


async def test_the_time_without_memory_is_counted(clients: Clients) -> None:
    (first,) = await clients.send(begun(SIZE_BYTES))
    await trio.sleep(3)  # nobody waits
    await clients.send(begun(SIZE_BYTES, 999))
    await trio.sleep(5)
    assert clients.memory.depleted_ms == 0

    await pass_on(first, b"x" * (SIZE_BYTES - 1))

    assert clients.memory.depleted_ms == 5000


async def test_a_client_with_tls_waits_as_well(side: Side, clients: Clients) -> None:
    (first,) = await clients.send(begun(SIZE_BYTES))
    client = await side.client(memory=clients.memory)
    client.tls.write(SMALL + SMALL)
    await client.pass_on()
    await wait_all_tasks_blocked()
    with pytest.raises(BlockingIOError):
        while client.incoming.write(client.sock.recv(65536)):
            pass  # tickets of TLS 1.3

    await pass_on(first, b"x" * (SIZE_BYTES - 1))

    assert await client.receive(2 * len(SMALL)) == SMALL + SMALL
