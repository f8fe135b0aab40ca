"""Serves the registry by HTTP/1.1 in the broker's own loop: h11 has the protocol, in a tenth of hypercorn's memory."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import h11
import trio

from minibroker.broker.parts import BrokerParts
from minibroker.broker.wings.registry.access import Access, is_loopback
from minibroker.broker.wings.registry.registry import Registry
from minibroker.broker.wings.registry.rest import RestApi
from minibroker.broker.wings.registry.schema_log import SchemaLog

KEEP_ALIVE_SECONDS = 75.0
READ_SECONDS = 30.0  # for a request that has begun
STOP_SECONDS = 0.5  # for requests in hand
HEAD_BYTES_MAX = 64 << 10
LOST = (h11.RemoteProtocolError, trio.TooSlowError, trio.BrokenResourceError, OSError)


class Serving:
    """The registry of a broker, on a socket that listens, until `ended`. Raises KeyStoreError."""

    def __init__(self, parts: BrokerParts, listener: socket.socket, ended: trio.Event) -> None:
        self._ended = ended
        self._listener = listener
        address = listener.getsockname()[:2]
        access = Access(parts, is_local=is_loopback(address[0]))
        self._tls = access.tls()
        log, directory = SchemaLog(parts), parts.options.cluster_dir
        self._publish: Callable[[], None] = lambda: None
        relay = None
        if directory is not None:
            from minibroker.broker.wings.registry.relay import Relay

            relay = Relay(parts, log, directory)
            self._publish = partial(relay.publish, *address)
        self._answer: Callable[..., Awaitable[None]] = RestApi(Registry(log), access, relay)
        self._waiting: set[trio.CancelScope] = set()  # connections between two requests

    async def run(self) -> None:
        self._publish()
        sockets = trio.SocketListener(
            trio.socket.fromfd(self._listener.fileno(), self._listener.family, self._listener.type)
        )
        listener: Any = sockets if self._tls is None else trio.SSLListener(sockets, self._tls, https_compatible=True)
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                accepting.start_soon(
                    partial(trio.serve_listeners, self._serve, [listener], handler_nursery=connections)
                )
                await self._ended.wait()
                accepting.cancel_scope.cancel()
            for each in self._waiting:
                each.cancel()
            connections.cancel_scope.deadline = trio.current_time() + STOP_SECONDS

    async def _serve(self, stream: Any) -> None:
        """Answer the requests of a connection, one after the other."""
        wire = Wire(stream)
        try:
            while True:
                with trio.move_on_after(KEEP_ALIVE_SECONDS) as waiting:
                    self._waiting.add(waiting)
                    request = await wire.event()
                self._waiting.discard(waiting)
                if waiting.cancelled_caught or not isinstance(request, h11.Request):
                    return
                await self._answer(wire.scope(request), wire.receive, wire.send)
                if not await wire.is_free() or self._ended.is_set():
                    return
        except LOST as error:
            with suppress(trio.BrokenResourceError):
                await wire.refuse(error)
        finally:
            self._waiting.discard(waiting)
            await trio.aclose_forcefully(stream)


class Wire:
    """A connection, with the side of ASGI that a server has. Raises what is in LOST."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._unsent: Any = b""  # of an answer
        self._is_lost = False

    async def event(self) -> Any:
        while (event := self._connection.next_event()) is h11.NEED_DATA:
            if self._connection.they_are_waiting_for_100_continue:
                going_on = h11.InformationalResponse(status_code=100, headers=[])
                await self._stream.send_all(self._connection.send(going_on))
            self._connection.receive_data(await self._stream.receive_some())
        return event

    def scope(self, request: h11.Request) -> dict[str, Any]:
        path, _, query = request.target.partition(b"?")
        transport = getattr(self._stream, "transport_stream", self._stream)
        return {
            "type": "http",
            "method": request.method.decode(),
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "headers": list(request.headers),
            "client": transport.socket.getpeername()[:2],
        }

    async def receive(self) -> dict[str, Any]:
        try:
            with trio.fail_after(READ_SECONDS):
                event = await self.event()
        except LOST:
            self._is_lost = True
            return {"type": "http.disconnect"}
        is_data = isinstance(event, h11.Data)
        return {"type": "http.request", "body": bytes(event.data) if is_data else b"", "more_body": is_data}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._unsent = self._connection.send(
                h11.Response(status_code=message["status"], headers=message["headers"])
            )
        else:
            for event in (h11.Data(data=message["body"]), h11.EndOfMessage()):
                self._unsent += self._connection.send(event)
            await self._stream.send_all(self._unsent)

    async def is_free(self) -> bool:
        """Whether another request may come, once what the last one had left to read is read."""
        while self._connection.their_state is h11.SEND_BODY and not self._is_lost:
            await self.receive()
        if self._connection.our_state is h11.DONE and self._connection.their_state is h11.DONE:
            self._connection.start_next_cycle()
            return True
        return False

    async def refuse(self, error: Exception) -> None:
        """Answer what is no HTTP, if nothing was answered yet."""
        if isinstance(error, h11.RemoteProtocolError) and self._connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("connection", "close"), ("content-length", "0")]
            refusal = h11.Response(status_code=error.error_status_hint, headers=headers)
            await self._stream.send_all(self._connection.send(refusal))
