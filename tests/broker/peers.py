"""The client's end of a connection, over a real socket pair, with a handler of the test's."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.broker.apis.client import Client
from minibroker.broker.network.connection import Connection, Dispatch, Serving
from minibroker.broker.network.memory_pool import MemoryPool
from minibroker.broker.network.poller import Poller
from minibroker.broker.network.response import Chunk, send_chunks
from minibroker.broker.network.socket_bytes import SocketBytes
from minibroker.broker.time.clock import Clock
from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.way.probes import Probes
from tests.requests import framed

MAX_REQUEST_BYTES = 1024
RECEIVE_BUFFER_BYTES = 4096


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server = listener.accept()[0]
    for sock in (server, client):
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server, client


async def received(sock: socket.socket, size: int | None = None) -> bytes:
    """So many bytes, fewer if the other end closes; without a size all until then."""
    data = bytearray()
    while size is None or len(data) < size:
        await trio.lowlevel.wait_readable(sock)
        piece = sock.recv(65536 if size is None else size - len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


async def received_frame(sock: socket.socket) -> bytes:
    """The next answer without its size; nothing if the broker closes."""
    return await received(sock, int.from_bytes(await received(sock, 4), "big"))


async def through(pair: tuple[socket.socket, socket.socket], chunks: Sequence[Chunk]) -> bytes:
    """Send chunks to the client to the end; what it received."""
    server, client = pair

    async def send() -> None:
        await send_chunks(server, chunks)
        server.shutdown(socket.SHUT_WR)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        return await received(client)


class Peer:
    """The client's end of a connection whose handler is `dispatch`."""

    def __init__(
        self,
        dispatch: Callable[[bytearray, Client], Any],
        *,
        client: Client | None = None,
        timers: TimerLoop | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_idle_ms: int = 0,
        poller: Poller | None = None,
        make: Callable[..., Any] = Connection,
        probes: Probes | None = None,
        over_tcp: bool = False,
        memory: MemoryPool | None = None,
    ) -> None:
        ours, self.sock = tcp_pair() if over_tcp else socket.socketpair()
        self.socket_bytes = SocketBytes()
        self.has_ended = trio.Event()
        ours.setblocking(False)
        self.sock.setblocking(False)
        self.timers = timers or TimerLoop(Clock())
        self.poller = poller or Poller(now_ms=self.timers.clock.monotonic_ms)
        self.connection = make(
            ours,
            client or Client("peer", "127.0.0.1", 9092),
            Serving(
                dispatch=dispatch,
                poller=self.poller,
                receive_buffer=memoryview(bytearray(RECEIVE_BUFFER_BYTES)),
                max_request_bytes=max_request_bytes,
                max_idle_ms=max_idle_ms,
                timer=self.timers.timer,
                probes=Probes() if probes is None else probes,
                socket_bytes=self.socket_bytes,
                memory=memory,
            ),
        )

    async def run(self) -> None:
        """The connection, and the poller as long as it lasts."""
        try:
            async with trio.open_nursery() as polling:
                polling.start_soon(self.poller.run)
                await self.connection.run()
                polling.cancel_scope.cancel()
        finally:
            self.has_ended.set()

    async def send(self, *payloads: bytes) -> None:
        """Send requests, and wait until nothing happens any more."""
        self.sock.send(b"".join(map(framed, payloads)))
        await trio.testing.wait_all_tasks_blocked()

    async def receive(self, size: int) -> bytes:
        return await received(self.sock, size)

    async def answer(self) -> bytes:
        return await received_frame(self.sock)


Connect = Callable[..., Peer]


def echo(frame: bytearray, client: Client) -> list[bytes]:
    return [framed(bytes(frame))]


@pytest.fixture
def connect(nursery: trio.Nursery) -> Iterator[Connect]:
    """Connect peers to handlers; each connection runs unless `runs=False`."""
    peers: list[Peer] = []

    def make(dispatch: Dispatch, *, runs: bool = True, **options: Any) -> Peer:
        peers.append(Peer(dispatch, **options))
        if runs:
            nursery.start_soon(peers[-1].run)
        return peers[-1]

    yield make
    for peer in peers:
        peer.sock.close()
