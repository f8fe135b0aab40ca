"""A client that sends exactly the bytes of a test, and requests by their fields."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from typing import Any

from minibroker.protocol.api import ApiKey, decode_response
from tests.requests import fetch_body, frame, produce_body

ANSWER_SECONDS = 60.0
CLIENT_ID = "wire-test"
Closed = None  # what `exchange` returns when the broker hung up instead of answering


class RawConnection:
    """One TCP connection. Use it in a `with` block."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        source: str | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        own_address = None if source is None else (source, 0)
        self._socket = socket.create_connection((host, port), timeout=answer_seconds, source_address=own_address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._correlation_id = 0
        self.address = "{}:{}".format(*self._socket.getsockname()[:2])

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes; a broker that hung up already is not an error."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive_frame(self) -> bytes | None:
        """Return a response frame without its size, or Closed. Raises TimeoutError when nothing comes."""
        size = self._receive(4)
        return Closed if size is None else self._receive(struct.unpack(">i", size)[0])

    def has_answer(self, *, within_seconds: float = 0) -> bool:
        """Whether there is something to receive, now or soon."""
        return bool(select.select([self._socket], [], [], within_seconds)[0])

    def reset(self) -> None:
        """Close with RST, as a process that dies with data unread does."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def ask_for_versions(self) -> Any:
        """The answer to the request that every client may make."""
        return self.call(ApiKey.API_VERSIONS, 0)

    def exchange(self, frame: bytes) -> bytes | None:
        """Send a whole request, its size in front, and return the response frame or Closed."""
        self.send(frame)
        return self.receive_frame()

    def ask(self, key: ApiKey, version: int, /, **body: Any) -> Any:
        """Send a request and return the response's body, or Closed."""
        self._correlation_id += 1
        answered = self.exchange(frame(key, version, self._correlation_id, CLIENT_ID, **body))
        if answered is None:
            return Closed
        correlation_id, answer = decode_response(key, version, answered)
        assert correlation_id == self._correlation_id
        return answer

    def call(self, key: ApiKey, version: int, /, **body: Any) -> Any:
        """As `ask`, of a broker that must answer."""
        answer = self.ask(key, version, **body)
        assert answer is not Closed, f"closed instead of an answer to {key.name} v{version}"
        return answer

    def _receive(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                more = self._socket.recv(size - len(data))
            except ConnectionResetError:
                return Closed
            if not more:
                return Closed
            data += more
        return bytes(data)


def connection_to(bootstrap: str) -> RawConnection:
    host, _, port = bootstrap.rpartition(":")
    return RawConnection(host, int(port))


def write(connection: RawConnection, topic: str, records: bytes, *, version: int = 5, partition: int = 0) -> Any:
    """Produce with acks of all; the partition's row of the answer."""
    return the_partition(connection.call(ApiKey.PRODUCE, version, **produce_body(topic, records, partition=partition)))


def read(
    connection: RawConnection, topic: str, *, version: int = 4, partition: int = 0, offset: int = 0, **options: int
) -> Any:
    """Fetch what is there; the partition's row of the answer."""
    return the_partition(connection.call(ApiKey.FETCH, version, **fetch_body((topic, partition, offset), **options)))


def the_partition(answer: Any) -> Any:
    """The only partition of a Produce, Fetch or ListOffsets response."""
    ((row,),) = (topic.partitions for topic in answer.topics)
    return row
