"""The registry on a socket: what HTTP/1.1 asks of a server."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator

import pytest
import trio

from minibroker.broker.wings.registry import serving
from minibroker.broker.wings.registry.serving import Serving
from tests.broker.conftest import InMemoryBroker

pytest.importorskip("avro", reason="schemas need the extra: pip install -e '.[schemas]'")

HOST = b"Host: localhost\r\n"
STATUS = re.compile(rb"HTTP/1.1 (\d+) ")


class Served:
    """A registry on a socket of this machine."""

    def __init__(self, broker: InMemoryBroker, listener: socket.socket) -> None:
        self._address = listener.getsockname()
        self.ended = trio.Event()
        self.run = Serving(broker.parts, listener, self.ended).run

    async def connection(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(*self._address)

    async def said(self, *sent: bytes) -> bytes:
        """All that comes back to these bytes, until the registry closes the connection."""
        async with await self.connection() as stream:
            for each in sent:
                await stream.send_all(each)
            return b"".join([each async for each in stream])


@pytest.fixture
async def served(broker: InMemoryBroker, nursery: trio.Nursery) -> AsyncIterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        registry = Served(broker, listener)
        nursery.start_soon(registry.run)
        yield registry
        registry.ended.set()


async def test_requests_of_a_connection_are_answered_in_their_order(served: Served) -> None:
    answers = await served.said(
        b"GET /subjects HTTP/1.1\r\n%b\r\nPOST /nothing HTTP/1.1\r\n%bContent-Length: 5\r\n\r\nhello" % (HOST, HOST),
        b"HEAD /config HTTP/1.1\r\n%bConnection: close\r\n\r\n" % HOST,
    )

    assert STATUS.findall(answers) == [b"200", b"404", b"200"]
    assert answers.endswith(b"\r\n\r\n"), "a body after HEAD"


async def test_a_body_comes_in_chunks_and_after_the_client_was_told_to_go_on(served: Served) -> None:
    head = b"PUT /config HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    async with await served.connection() as stream:
        await stream.send_all(head % HOST)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(b'10\r\n{"compatibility"\r\n8\r\n:"NONE"}\r\n0\r\n\r\n')
        assert b"".join([each async for each in stream]).endswith(b'{"compatibility":"NONE"}')


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00 \r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"x" * 70_000]
)
async def test_what_is_no_http_is_refused(sent: bytes, served: Served) -> None:
    assert STATUS.findall(await served.said(sent))[0].startswith(b"4")


async def test_a_body_that_does_not_come_is_not_awaited_for_ever(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "READ_SECONDS", 0.1)

    assert STATUS.findall(await served.said(b"PUT /config HTTP/1.1\r\n%bContent-Length: 9\r\n\r\n{" % HOST)) == [b"408"]


async def test_an_idle_connection_does_not_hold_up_the_end(served: Served) -> None:
    async with await served.connection() as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\n%b\r\n" % HOST)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
        before = trio.current_time()
        served.ended.set()
        assert await stream.receive_some() == b""
        assert trio.current_time() - before < serving.STOP_SECONDS
