"""The caller's side of a broker's control socket: a line of JSON there, a line of JSON back.

A connection for each call: nothing is kept open that a fork, a thread or a broker started again could find broken.
What the calls are is not known here: see `src/minibroker/broker_clock.py` and `minibroker/faults.py`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minibroker.process import BrokerError

ANSWER_SECONDS = 120.0
READ_BYTES = 1 << 16


class Control:
    """Calls what a broker offers at its control socket; `obituary` says how the broker ended, if it has."""

    def __init__(self, path: str | os.PathLike[str], obituary: Callable[[], str | None] | None = None) -> None:
        self._path = Path(path)
        self._obituary = obituary

    def call(self, name: str, **arguments: object) -> Any:
        """The result. Raises BrokerError: with the broker's reason for a refusal, or with how it ended."""
        line = json.dumps({"call": name, "arguments": arguments}).encode() + b"\n"
        try:
            answer = json.loads(self._exchange(line))
        except (OSError, EOFError) as error:
            raise BrokerError(self._why_not(error)) from error
        if "error" in answer:
            raise BrokerError(f"the broker refuses {name}: {answer['error']}")
        return answer["result"]

    def _exchange(self, line: bytes) -> bytes:
        """Raises OSError, and EOFError when the broker went away without an answer."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(ANSWER_SECONDS)
            sock.connect(os.fspath(self._path))
            sock.sendall(line)
            received = bytearray()
            while not received.endswith(b"\n"):
                chunk = sock.recv(READ_BYTES)
                if not chunk:
                    raise EOFError("it hung up")
                received += chunk
            return bytes(received)

    def _why_not(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"the broker has not answered for {ANSWER_SECONDS:.0f} s at its control socket {self._path}"
        reason = f"no answer at the broker's control socket {self._path} ({error})"
        return reason if self._obituary is None else self._obituary() or reason
