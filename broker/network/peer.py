"""A connection to another broker: sends a request, and waits for its answer.

    peer = Peer("127.0.0.1", 9092, client_id="broker-2-fetcher-0")
    answer = await peer.ask(ApiKey.FETCH, 8, API_TABLE[ApiKey.FETCH].request(...))

Brokers do not ask each other for their versions: those follow from inter.broker.protocol.version (as kafka 2.0.1
ControllerChannelManager, ReplicaFetcherBlockingSend). The connection is made for the first request, and again after it
was lost; who asks decides whether, and when, to ask again.
"""

from __future__ import annotations

import struct
from typing import Any

import trio

from minibroker.protocol.api import decode_response, encode_request
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.framing import LENGTH, LENGTH_BYTES

DEFAULT_TIMEOUT_MS = 30_000  # as controller.socket.timeout.ms and replica.socket.timeout.ms
MAX_CORRELATION_ID = 2**31 - 1
MAX_ANSWER_BYTES = 2**30  # more is no answer of a broker, and is not allocated


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

    Connecting may take `timeout_ms`, and so may each answer. Tests cut the `network` that it crosses.
    """

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_network",
        "_stream",
        "_timeout_ms",
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
    ) -> None:
        self.address: Address = (host, port)
        self._network = network
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._turn = trio.Lock()
        self._stream: trio.SocketStream | None = None
        self._correlation_id = 0

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        """Send a request, return the body of its answer. Raises PeerError.

        Records in the answer are views of the buffer that received them, which nothing else uses.
        """
        async with self._turn:
            self._correlation_id = self._correlation_id % MAX_CORRELATION_ID + 1
            frame = encode_request(api_key, version, self._correlation_id, self._client_id, request)
            answer = await self._exchange(frame)
            try:
                correlation_id, body = decode_response(api_key, version, answer)
            except (KafkaProtocolError, struct.error) as error:
                raise self._failed(f"sent an answer that is malformed: {error}") from error
            if correlation_id != self._correlation_id:
                raise self._failed(f"answered request {correlation_id}, and was asked {self._correlation_id}")
            return body

    def close(self) -> None:
        """Close the connection; a request in flight fails, and the next one connects again."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._network.closed(self)
            stream.socket.close()

    # -- one exchange -----------------------------------------------------------------------------------------

    async def _exchange(self, frame: bytes) -> bytearray:
        """Send a whole frame, and return the one that answers it, without its size."""
        try:
            stream = await self._connected()
            with trio.fail_after(self._timeout_ms / 1000):
                await stream.send_all(frame)
                (size,) = LENGTH.unpack(await self._received(stream, LENGTH_BYTES))
                if not 0 < size <= MAX_ANSWER_BYTES:
                    raise self._failed(f"sent an answer of {size} bytes")
                return await self._received(stream, size)
        except PeerError:
            raise
        except trio.TooSlowError:
            raise self._failed(f"did not answer within {self._timeout_ms} ms") from None
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._failed(f"cannot be reached: {cause_of(error)}") from error
        except trio.Cancelled:
            self.close()  # the answer of this request must answer no other
            raise

    async def _connected(self) -> trio.SocketStream:
        """The connection; a new one if there is none, or if the broker has closed it since the last answer."""
        if not self._network.reaches(self.address):
            raise self._failed("is cut off from this one")
        if self._stream is not None and self._stream.socket.is_readable():
            self.close()
        if self._stream is None:
            with trio.move_on_after(self._timeout_ms / 1000):
                self._stream = await trio.open_tcp_stream(*self.address)
        if self._stream is not None:
            self._network.opened(self)
        else:
            raise self._failed(f"did not accept a connection within {self._timeout_ms} ms")
        return self._stream

    async def _received(self, stream: trio.SocketStream, size: int) -> bytearray:
        buffer = bytearray(size)
        rest = memoryview(buffer)
        while rest:
            received = await stream.socket.recv_into(rest)
            if not received:
                raise self._failed("closed the connection")
            rest = rest[received:]
        return buffer

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
