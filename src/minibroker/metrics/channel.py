"""Calls over a stream of lines that stays open: the control socket's form, for the process beside a broker."""

from __future__ import annotations

import json
import socket
from typing import Any

ANSWER_SECONDS = 10.0
READ_BYTES = 1 << 16


class Channel:
    """Calls one at a time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(ANSWER_SECONDS)
        self._sock = sock
        self._received = bytearray()

    def call(self, name: str, **arguments: object) -> Any:
        """Return the result. Raises OSError and EOFError when the broker does not answer, ValueError if it refuses."""
        self._sock.sendall(json.dumps({"call": name, "arguments": arguments}).encode() + b"\n")
        while (end := self._received.find(b"\n")) < 0:
            chunk = self._sock.recv(READ_BYTES)
            if not chunk:
                raise EOFError("the broker has ended")
            self._received += chunk
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(f"the broker refused {name}: {answer['error']}")
        return answer["result"]
