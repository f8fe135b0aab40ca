"""A connection that sends exactly the bytes it is given, and requests by their fields."""

from __future__ import annotations

import ssl
import time
from collections import deque
from typing import Any

from minibroker.client.address import Address
from minibroker.client.connection import Connection, wait
from minibroker.client.login import Login
from minibroker.conformance.requests import frame
from minibroker.protocol.api import ApiKey, decode_response

ANSWER_SECONDS = 60.0
CLIENT_ID = "wire-test"
Closed = None  # what `exchange` returns when the broker hung up instead of answering


class RawConnection(Connection):
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
        self._answer_seconds = answer_seconds
        self._answers: deque[bytearray] = deque()
        self._number = 0
        super().__init__(Address(host, port), Login(tls=context), source=source)
        self._until(lambda: self.is_open)
        if self.error is not None and not self.is_open:
            raise self.error

    def _take(self, frame: bytearray) -> None:
        self._answers.append(frame)

    def _until(self, condition: Any) -> None:
        """Raises TimeoutError."""
        until = time.monotonic() + self._answer_seconds
        while self.error is None and not condition():
            if time.monotonic() > until:
                raise TimeoutError(f"nothing came from {self.address}")
            wait([self], until)

    def send(self, data: bytes) -> None:  # type: ignore[override]
        """Send bytes; a broker that hung up already is not an error."""
        self.send_bytes(data)
        self._until(lambda: not self._out)

    def receive_frame(self) -> bytes | None:
        """Return a response frame without its size, or Closed. Raises TimeoutError when nothing comes."""
        self._until(lambda: self._answers)
        return bytes(self._answers.popleft()) if self._answers else Closed

    def has_answer(self, *, within_seconds: float = 0) -> bool:
        """Whether there is something to receive, now or soon."""
        until = time.monotonic() + within_seconds
        while True:
            wait([self], until)
            if self._answers or self.error is not None or time.monotonic() >= until:
                return bool(self._answers) or self.error is not None

    def ask_for_versions(self) -> Any:
        """The answer to the request that every client may make."""
        return self.call(ApiKey.API_VERSIONS, 0)

    def exchange(self, frame: bytes) -> bytes | None:
        """Send a whole request, its size in front, and return the response frame or Closed."""
        self.send(frame)
        return self.receive_frame()

    def ask(self, key: ApiKey, version: int, /, **body: Any) -> Any:  # type: ignore[override]
        """Send a request and return the response's body, or Closed."""
        self._number += 1
        answered = self.exchange(frame(key, version, self._number, CLIENT_ID, **body))
        if answered is None:
            return Closed
        correlation_id, answer = decode_response(key, version, answered)
        assert correlation_id == self._number
        return answer

    def call(self, key: ApiKey, version: int, /, **body: Any) -> Any:
        """As `ask`, of a broker that must answer."""
        answer = self.ask(key, version, **body)
        assert answer is not Closed, f"closed instead of an answer to {key.name} v{version}"
        return answer
