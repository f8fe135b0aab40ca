"""The client's end of a connection, over a real socket pair, with a handler of the test's."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.broker.apis.client import Client
from minibroker.broker.network.connection import Connection, Dispatch, Serving
from minibroker.broker.network.poller import Poller
from minibroker.broker.network.socket_bytes import SocketBytes
from minibroker.broker.time.clock import Clock
from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.way.probes import Probes

MAX_REQUEST_BYTES = 1024


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return listener.accept()[0], client


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
                receive_buffer=memoryview(bytearray(4096)),
                max_request_bytes=max_request_bytes,
                max_idle_ms=max_idle_ms,
                timer=self.timers.timer,
                probes=Probes() if probes is None else probes,
                socket_bytes=self.socket_bytes,
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
        """So many bytes, fewer if the broker closes."""
        received = b""
        while len(received) < size:
            await trio.lowlevel.wait_readable(self.sock)
            piece = self.sock.recv(size - len(received))
            if not piece:
                break
            received += piece
        return received


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
