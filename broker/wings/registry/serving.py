"""Serves the registry by HTTP/1.1 in the broker's own loop: h11 has the protocol, in a tenth of hypercorn's memory."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import h11
import trio

from minibroker.broker.parts import BrokerParts
from minibroker.broker.wings.registry.access import Access, Request, is_loopback
from minibroker.broker.wings.registry.refusals import Refusal
from minibroker.broker.wings.registry.registry import Registry
from minibroker.broker.wings.registry.rest import RestApi
from minibroker.broker.wings.registry.schema_log import SchemaLog

KEEP_ALIVE_SECONDS = 75.0
READ_SECONDS = 30.0  # for a request that has begun
STOP_SECONDS = 0.5  # for requests in hand
HEAD_BYTES_MAX = 64 << 10
BODY_BYTES_MAX = 8 << 20
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
        self._api = RestApi(Registry(log), access, relay)
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
                    request = await wire.request()
                self._waiting.discard(waiting)
                if waiting.cancelled_caught or request is None:
                    return
                await wire.send(*await self._api.answer(request), is_head=request.method == "HEAD")
                if not wire.is_free() or self._ended.is_set():
                    return
        except LOST as error:
            with suppress(trio.BrokenResourceError):
                await wire.refuse(error)
        finally:
            self._waiting.discard(waiting)
            await trio.aclose_forcefully(stream)


class Wire:
    """A connection. Raises what is in LOST."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def _event(self) -> Any:
        while (event := self._connection.next_event()) is h11.NEED_DATA:
            if self._connection.they_are_waiting_for_100_continue:
                going_on = h11.InformationalResponse(status_code=100, headers=[])
                await self._stream.send_all(self._connection.send(going_on))
            self._connection.receive_data(await self._stream.receive_some())
        return event

    async def request(self) -> Request | None:
        """The next request; None once the client has closed the connection."""
        event = await self._event()
        if not isinstance(event, h11.Request):
            return None
        path, _, query = event.target.decode("latin-1").partition("?")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        client = getattr(self._stream, "transport_stream", self._stream).socket.getpeername()[0]
        return Request(event.method.decode(), path, query, headers, client, self._body)

    async def _body(self) -> bytes:
        """Raises Refusal."""
        found = bytearray()
        try:
            with trio.fail_after(READ_SECONDS):
                while isinstance(event := await self._event(), h11.Data):
                    found += event.data
                    if len(found) > BODY_BYTES_MAX:
                        raise Refusal(413, f"a request may have {BODY_BYTES_MAX:,} bytes; send less")
        except LOST:
            raise Refusal(408, "the request does not come to its end") from None
        return bytes(found)

    async def send(self, status: int, headers: Mapping[str, str], body: bytes, *, is_head: bool = False) -> None:
        fields = [*headers.items(), ("content-length", str(len(body)))]
        events = [h11.Response(status_code=status, headers=fields), h11.Data(data=b"" if is_head else body)]
        await self._stream.send_all(
            b"".join([self._connection.send(each) or b"" for each in [*events, h11.EndOfMessage()]])
        )

    def is_free(self) -> bool:
        """Whether another request may come: the last one was read to its end."""
        if self._connection.our_state is not h11.DONE or self._connection.their_state is not h11.DONE:
            return False
        self._connection.start_next_cycle()
        return True

    async def refuse(self, error: Exception) -> None:
        """Answer what is no HTTP, if nothing was answered yet."""
        if isinstance(error, h11.RemoteProtocolError) and self._connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self.send(error.error_status_hint, {"connection": "close"}, b"")
