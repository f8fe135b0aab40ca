"""A client of OpenSSL on a connection with TLS, over a real socket pair, with a handler of the test's."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

from minibroker.broker.apis.client import Client
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.wings.security.tls import TlsListener
from minibroker.broker.wings.security.tls_connection import TlsConnection
from tests.broker.peers import Connect, Peer, echo
from tests.broker.peers import connect as connect
from tests.certificates import Certificates
from tests.requests import framed

SSL = {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class TlsClient:
    """The client's end of TLS, on a peer's socket."""

    def __init__(self, peer: Peer, context: ssl.SSLContext) -> None:
        self.sock = peer.sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    async def shake_hands(self) -> None:
        """Raises SSLError, or EOFError if the broker closes."""
        await self._until(self.tls.do_handshake)

    async def send(self, *payloads: bytes) -> None:
        self.tls.write(b"".join(map(framed, payloads)))
        await self.pass_on()

    async def pass_on(self, piece_bytes: int = 1 << 20) -> None:
        """Put what OpenSSL has made on the socket, piece by piece."""
        data = memoryview(self.outgoing.read())
        for position in range(0, len(data), piece_bytes):
            rest = data[position : position + piece_bytes]
            while rest:
                await trio.lowlevel.wait_writable(self.sock)
                rest = rest[self.sock.send(rest) :]
            if len(data) > piece_bytes:
                await trio.testing.wait_all_tasks_blocked()

    async def receive(self, size: int) -> bytes:
        """So many bytes, fewer if the broker ends the stream in order. Raises EOFError if it only closes."""
        received = b""
        while len(received) < size:
            try:
                piece = await self._until(partial(self.tls.read, size - len(received)))
            except ssl.SSLZeroReturnError:  # both sides have ended
                break
            if not piece:
                break
            received += piece
        return received

    async def _until(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self.pass_on()
                await trio.lowlevel.wait_readable(self.sock)
                data = self.sock.recv(65536)
                if not data:
                    raise EOFError("the broker has closed the connection") from None
                self.incoming.write(data)
            else:
                await self.pass_on()
                return result


class Side(NamedTuple):
    """The broker's end of a test's connections, and the context of its clients."""

    connect: Connect
    listener: TlsListener
    context: ssl.SSLContext

    def peer(self, dispatch: Callable[[bytearray, Client], Any] = echo, **options: Any) -> Peer:
        return self.connect(dispatch, make=partial(TlsConnection, tls=self.listener), **options)

    async def client(self, dispatch: Callable[[bytearray, Client], Any] = echo, **options: Any) -> TlsClient:
        """A client after the handshake."""
        client = TlsClient(self.peer(dispatch, **options), self.context)
        await client.shake_hands()
        return client


MakeSide = Callable[..., Side]


@pytest.fixture
def make_side(connect: Connect, certificates: Certificates) -> MakeSide:
    """A side with settings of the broker's; `trusts_clients` gives it the authority."""

    def make(*, trusts_clients: bool = False, **settings: str) -> Side:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        config = KafkaConfig(SSL | certificates.settings(trusts_clients=trusts_clients) | given)
        return Side(connect, TlsListener(config, "SSL"), ssl.create_default_context(cafile=str(certificates.authority)))

    return make


@pytest.fixture
def side(make_side: MakeSide) -> Side:
    return make_side()


def closings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why connections were closed, by the log."""
    return [text for record in caplog.records if (text := record.getMessage()).startswith("closing")]
