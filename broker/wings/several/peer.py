"""A connection to another broker: sends a request, and waits for its answer.

    peer = Peer("127.0.0.1", 9092, client_id="broker-2-fetcher-0")
    answer = await peer.ask(ApiKey.FETCH, 8, API_TABLE[ApiKey.FETCH].request(...))

Brokers do not ask each other for their versions: those follow from inter.broker.protocol.version (as kafka 2.0.1
ControllerChannelManager, ReplicaFetcherBlockingSend). The connection is made for the first request, and again after it
was lost; who asks decides whether, and when, to ask again.
"""

from __future__ import annotations

import ssl
import struct
from typing import Any

import trio

from minibroker.broker.network import sockets
from minibroker.broker.wings.several.peer_login import IN_PLAIN_TEXT, PeerLogin
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.framing import LENGTH, LENGTH_BYTES
from minibroker.protocol.sasl_client import LoginError

DEFAULT_TIMEOUT_MS = 30_000  # as controller.socket.timeout.ms and replica.socket.timeout.ms
MAX_CORRELATION_ID = 2**31 - 1
MAX_ANSWER_BYTES = 2**30  # more is no answer of a broker, and is not allocated


SASL_HANDSHAKE, SASL_AUTHENTICATE = API_TABLE[ApiKey.SASL_HANDSHAKE], API_TABLE[ApiKey.SASL_AUTHENTICATE]

Address = tuple[str, int]


class Network:
    """The network that connections of peers cross: all addresses are reached."""

    def reaches(self, address: Address) -> bool:
        """Return whether this broker reaches an address."""
        return True

    def opened(self, peer: Peer) -> None:
        """A peer has a connection from now on."""

    def closed(self, peer: Peer) -> None:
        """A peer has no connection any more."""


WHOLE_NETWORK = Network()


class PeerError(ConnectionError):
    """A broker cannot be reached, or did not answer; the connection to it is closed."""


class Peer:
    """A connection to the broker at an address; one request is in flight, and others wait for their turn.

    `login` is what it takes to get in. Connecting, with that, may take `timeout_ms`, and so may each answer. Tests cut
    the `network` that it crosses.
    """

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_login",
        "_network",
        "_stream",
        "_timeout_ms",
        "_tls",
        "_turn",
        "address",
    )

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        network: Network = WHOLE_NETWORK,
        login: PeerLogin = IN_PLAIN_TEXT,
    ) -> None:
        self.address: Address = (host, port)
        self._network = network
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._turn = trio.Lock()
        self._login = login
        self._stream: trio.SocketStream | None = None
        self._tls: trio.SSLStream[trio.SocketStream] | None = None  # over it
        self._correlation_id = 0

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        """Send a request, return the body of its answer. Raises PeerError.

        Records in the answer are views of the buffer that received them, which nothing else uses.
        """
        async with self._turn:
            try:
                await self._connect()
                with trio.fail_after(self._timeout_ms / 1000):
                    return await self._answer(api_key, version, request)
            except PeerError:
                raise
            except trio.TooSlowError:
                raise self._failed(f"did not answer within {self._timeout_ms} ms") from None
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise self._failed(f"cannot be reached: {reason_of(cause_of(error))}") from error
            except trio.Cancelled:
                self.close()  # the answer of this request must answer no other
                raise

    def close(self) -> None:
        """Close the connection; a request in flight fails, and the next one connects again."""
        stream, self._stream, self._tls = self._stream, None, None
        if stream is not None:
            self._network.closed(self)
            stream.socket.close()

    # -- one exchange -----------------------------------------------------------------------------------------

    async def _answer(self, api_key: int, version: int, request: Any) -> Any:
        """Send a request over the connection, and return the body of its answer. Raises OSError and trio's errors."""
        self._correlation_id = self._correlation_id % MAX_CORRELATION_ID + 1
        frame = encode_request(api_key, version, self._correlation_id, self._client_id, request)
        stream = self._tls or self._stream
        if stream is None:
            raise self._failed("is cut off from this one")
        await stream.send_all(frame)
        (size,) = LENGTH.unpack(await self._received(LENGTH_BYTES))
        if not 0 < size <= MAX_ANSWER_BYTES:
            raise self._failed(f"sent an answer of {size} bytes")
        try:
            correlation_id, body = decode_response(api_key, version, await self._received(size))
        except (KafkaProtocolError, struct.error) as error:
            raise self._failed(f"sent an answer that is malformed: {error}") from error
        if correlation_id != self._correlation_id:
            raise self._failed(f"answered request {correlation_id}, and was asked {self._correlation_id}")
        return body

    async def _received(self, size: int) -> bytearray:
        buffer = bytearray(size)
        rest = memoryview(buffer)
        while rest:
            if self._tls is not None:
                data = await self._tls.receive_some(len(rest))
                received = len(data)
                rest[:received] = data
            elif self._stream is not None:
                received = await self._stream.socket.recv_into(rest)
            else:
                raise trio.ClosedResourceError
            if not received:
                raise self._failed("closed the connection")
            rest = rest[received:]
        return buffer

    # -- connecting -------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Connect if there is no connection, or if the broker has closed it since the last answer."""
        if not self._network.reaches(self.address):
            raise self._failed("is cut off from this one")
        if self._stream is not None and self._stream.socket.is_readable():
            self.close()
        if self._stream is not None:
            return
        with trio.move_on_after(self._timeout_ms / 1000):
            self._stream = await sockets.open_stream(*self.address)
            self._network.opened(self)
            if self._login.make_context is not None:
                await self._encrypt(self._stream, self._login.make_context())
            if self._login.mechanism:
                await self._log_in(self._login)
            return
        raise self._failed(f"did not accept a connection within {self._timeout_ms} ms")

    async def _encrypt(self, stream: trio.SocketStream, context: ssl.SSLContext) -> None:
        """Begin TLS. Raises trio's errors, with those of TLS as their cause."""
        tls = trio.SSLStream(stream, context, server_hostname=self.address[0], https_compatible=True)
        await tls.do_handshake()
        self._tls = tls

    async def _log_in(self, login: PeerLogin) -> None:
        """SaslHandshake, then tokens until the mechanism is done."""
        answer = await self._answer(SASL_HANDSHAKE.key, 1, SASL_HANDSHAKE.request(mechanism=login.mechanism))
        if answer.error_code != ErrorCode.NONE:
            raise self._failed(f"has no mechanism {login.mechanism}, only {', '.join(sorted(answer.mechanisms))}")
        steps = login.conversation()
        token = next(steps)
        while True:
            answer = await self._answer(SASL_AUTHENTICATE.key, 0, SASL_AUTHENTICATE.request(auth_bytes=token))
            if answer.error_code != ErrorCode.NONE:
                raise self._failed(f"refuses the login of this one: {answer.error_message}")
            try:
                token = steps.send(bytes(answer.auth_bytes))
            except StopIteration:
                return
            except LoginError as error:
                raise self._failed(f"is none to log in to: {error}") from None

    def _failed(self, what: str) -> PeerError:
        self.close()
        host, port = self.address
        return PeerError(f"the broker at {host}:{port} {what}")


def cause_of(error: BaseException) -> BaseException:
    """The first cause of an error: the system's, under those of trio, which tries each address of a host."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif error.__cause__ is not None:
            error = error.__cause__
        else:
            return error


def reason_of(error: BaseException) -> str:
    """The reason of TLS against a certificate, in its words; else the words of the error."""
    return (
        f"its certificate is refused: {error.verify_message}"
        if isinstance(error, ssl.SSLCertVerificationError)
        else str(error)
    )
