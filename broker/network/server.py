"""Listens, accepts, and gives each client a task of its own.

One receive buffer serves all connections: nothing waits between a read into it and copying out of it.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count

import trio

from minibroker.broker.apis.client import Client
from minibroker.broker.cluster.open_files import descriptors_of_connections
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.settings.endpoints import Endpoint
from minibroker.broker.config.settings.types import LONG_MAX
from minibroker.broker.network import sockets
from minibroker.broker.network.congestion import keep_default_outside
from minibroker.broker.network.connection import Connection, Dispatch, Serving
from minibroker.broker.network.memory_pool import MemoryPool
from minibroker.broker.network.poller import Poller
from minibroker.broker.network.socket_bytes import SocketBytes
from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.upkeep.afterwards import Afterwards
from minibroker.broker.way.probes import Probes

logger = logging.getLogger(__name__)

RECEIVE_BUFFER_BYTES = 64 * 1024
# Keep little unsent data in the kernel, so that a slow reader costs little memory. With the 16 KiB of trio's
# SocketStream, sending megabytes woke the task so often that a reader got a sixth less (benchmarks/, fetches).
NOTSENT_LOWAT_BYTES = 128 * 1024
# Errors of accept when this process or the machine is out of descriptors or buffers: wait and try again.
ACCEPT_PAUSE_ERRNOS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
ACCEPT_PAUSE_SECONDS = 0.1


class Server:
    """Accepts on `listeners` until stopped; owns all connections, and keeps the open ones in `connections`.

    `listeners` are the sockets of `config.endpoints`, in their order; `kinds` has the class of the connections of those
    by name that are no plain ones. `greet` are called with each new client first. `probes` see connections, and
    their sends.
    Numbers them as it accepts them, from `first_number` on.
    """

    def __init__(
        self,
        listeners: list[socket.socket],
        *,
        config: KafkaConfig,
        dispatch: Dispatch,
        timers: TimerLoop,
        afterwards: Afterwards,
        connections: set[Connection],
        kinds: Mapping[str, Callable[..., Connection]] | None = None,
        probes: Probes | None = None,
        greet: Sequence[Callable[[Client], object]] = (),
        first_number: int = 1,
        busy_poll_ms: int = 0,
    ) -> None:
        self._listeners = listeners
        self._config = config
        self._greet = greet
        self._numbers = count(first_number)
        self.accepted: Counter[str] = Counter()  # by listener
        self.socket_bytes = SocketBytes()  # of the sockets that are closed
        self._poller = Poller(busy_poll_ms / 1000, timers.clock.monotonic_ms, afterwards)
        queued_bytes = config.queued_max_request_bytes
        self.memory = MemoryPool(queued_bytes if queued_bytes > 0 else LONG_MAX, self._poller.now_ms)
        self._serving = Serving(
            dispatch=dispatch,
            poller=self._poller,
            receive_buffer=memoryview(bytearray(RECEIVE_BUFFER_BYTES)),
            max_request_bytes=config.socket_request_max_bytes,
            max_idle_ms=config.connections_max_idle_ms,
            timer=timers.timer,
            probes=Probes() if probes is None else probes,
            socket_bytes=self.socket_bytes,
            memory=self.memory if queued_bytes > 0 else None,
        )
        self._per_host: Counter[str] = Counter()
        self._accepting = trio.CancelScope()
        self._connections = connections
        self._kinds = kinds or {}

    async def run(self) -> None:
        """Serve until `stop_accepting` was called and the last connection has ended."""
        async with trio.open_nursery() as polling:
            polling.start_soon(self._poller.run)
            async with trio.open_nursery() as connections:
                with self._accepting:
                    async with trio.open_nursery() as acceptors:
                        for listener, endpoint in zip(self._listeners, self._config.endpoints, strict=True):
                            acceptors.start_soon(self._accept_forever, listener, endpoint, connections)
            polling.cancel_scope.cancel()

    def stop_accepting(self) -> None:
        """Close the listeners; let requests in hand finish and end every connection after them."""
        self._accepting.cancel()
        for connection in list(self._connections):
            connection.stop()

    def cancel_connections(self) -> None:
        """End all connections, also in the middle of a request."""
        for connection in list(self._connections):
            connection.cancel_scope.cancel()

    async def _accept_forever(self, listener: socket.socket, endpoint: Endpoint, nursery: trio.Nursery) -> None:
        with listener:
            await self._accept(listener, endpoint, nursery)

    async def _accept(self, listener: socket.socket, endpoint: Endpoint, nursery: trio.Nursery) -> None:
        while True:
            await sockets.wait_readable(listener)
            try:
                sock, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if error.errno not in ACCEPT_PAUSE_ERRNOS:
                    raise
                logger.error("cannot accept a connection: %s; trying again", error)
                await trio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            self._admit(sock, address, endpoint, nursery)

    def _admit(self, sock: socket.socket, address: tuple[str, int], endpoint: Endpoint, nursery: trio.Nursery) -> None:
        host = address[0]
        if sock.fileno() >= descriptors_of_connections():
            logger.warning("refusing a connection from %s: too many files and connections are open (ulimit -n)", host)
            sock.close()
            return
        if self._per_host[host] >= self._config.max_connections_for(host):
            logger.warning("refusing a connection from %s: it has reached max.connections.per.ip", host)
            sock.close()
            return
        set_options(sock, self._config)
        local = sock.getsockname()
        keep_default_outside(sock, host, local[0])
        client = Client(f"{host}:{address[1]}", local[0], local[1], next(self._numbers), listener=endpoint.name)
        connection = self._kinds.get(endpoint.name, Connection)(sock, client, self._serving)
        for greet in self._greet:
            greet(client)
        self._per_host[host] += 1
        self.accepted[endpoint.name] += 1
        self._connections.add(connection)
        nursery.start_soon(self._serve, connection, host)

    async def _serve(self, connection: Connection, host: str) -> None:
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]


def set_options(sock: socket.socket, config: KafkaConfig) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_NOTSENT_LOWAT", 25), NOTSENT_LOWAT_BYTES)
    # Only if set: the kernel sizes buffers better than Kafka's default of 100 KiB.
    for name, option in (
        ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
    ):
        size_bytes = int(config.given.get(name, -1))
        if size_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, option, size_bytes)
