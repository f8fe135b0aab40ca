"""The client of a broker's control socket: sends a line of JSON, receives a line of JSON.

Each call has its own connection, so that no fork, thread or restart of the broker can find a broken one; those of
`KeptControl`, which asks many times a second, share one, and those of a `Channel` one that the broker has opened. The
calls themselves are in `broker_clock.py` and `faults.py`.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minibroker import patience
from minibroker.errors import BrokerError, CallRefused
from minibroker.protocol.text import reason_of
from minibroker.storage.files.socket_path import socket_address

ANSWER_SECONDS = 120.0  # of a caller without a deadline
SIGN_SECONDS = 4.4  # for a sign of life, before such a call is made: a process that stands still answers nothing
LIFE_SECONDS = 1.0  # for any answer at all, of a broker that others can stand in for
CHANNEL_SECONDS = 10.0
READ_BYTES = 1 << 16


class NoSignOfLife(TimeoutError):
    """A process accepts connections and answers nothing; the call was not made."""


class Place:
    """The place of a control socket: of several brokers, the first that gives a sign of life, until it ends."""

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        self._paths = [Path(each) for each in paths]
        self._at = 0

    @property
    def path(self) -> Path:
        return self._paths[self._at]

    def connected(self, seconds: float) -> socket.socket:
        """Connect for a call that may take `seconds`. Raises OSError and EOFError when no broker gives a connection.

        A process that stands still accepts connections. A broker must therefore answer the call `alive` first, if
        another can stand in for it, or if the caller's own call may take long: that one may change something, and is
        sent once.
        """
        for _ in self._paths[1:]:
            try:
                return living(self.path, LIFE_SECONDS)
            except (OSError, EOFError):
                self._at = (self._at + 1) % len(self._paths)
        if self._paths[1:]:
            return living(self.path, LIFE_SECONDS)
        return living(self.path, SIGN_SECONDS) if seconds > SIGN_SECONDS else connected(self.path)


class Control:
    """Calls a broker's control socket. `obituary` returns how the broker ended, or None while it runs."""

    def __init__(self, place: str | os.PathLike[str] | Place, obituary: Callable[[], str | None] | None = None) -> None:
        self._place = place if isinstance(place, Place) else Place(place)
        self._obituary = obituary

    def call(self, name: str, **arguments: object) -> Any:
        """Return the result. Raises BrokerError: with the reason of a refusal, or with how the broker ended."""
        seconds = min(ANSWER_SECONDS, patience.left_seconds(at_least=LIFE_SECONDS))
        try:
            answer = self._exchange(call_line(name, arguments), seconds)
        except (OSError, EOFError) as error:
            raise BrokerError(self._why_not(error, seconds)) from error
        return result_of(name, answer)

    def _exchange(self, line: bytes, seconds: float) -> bytes:
        """Raises OSError, and EOFError when the broker closes the connection without an answer."""
        with self._place.connected(seconds) as sock:
            return ask(sock, line, seconds)

    def _why_not(self, error: Exception, seconds: float) -> str:
        if isinstance(error, NoSignOfLife):
            return f"the broker does not answer at its control socket {self._place.path}: {error}"
        if isinstance(error, TimeoutError):
            return f"no answer within {seconds:.0f} s at the broker's control socket {self._place.path}"
        reason = f"no answer at the broker's control socket {self._place.path} ({reason_of(error)})"
        return reason if self._obituary is None else self._obituary() or reason


class KeptControl(Control):
    """As Control, over a connection that stays open: a call costs a busy broker much less than one that connects.

    Threads take turns. A call that finds the connection broken is made again over a new one, so that a broker may
    restart between two calls: it must be one that can be made twice.
    """

    def __init__(self, place: str | os.PathLike[str] | Place, obituary: Callable[[], str | None] | None = None) -> None:
        super().__init__(place, obituary)
        self._turn = threading.Lock()
        self._kept: socket.socket | None = None

    def close(self) -> None:
        """Close the connection; a later call opens another."""
        with self._turn:
            self._drop()

    def _exchange(self, line: bytes, seconds: float) -> bytes:
        with self._turn:
            if self._kept is not None:
                try:
                    if seconds > SIGN_SECONDS:
                        self._ask(self._kept, ALIVE, SIGN_SECONDS)
                    return self._ask(self._kept, line, seconds)
                except (ConnectionError, EOFError):
                    pass  # the broker has closed it since
            self._kept = self._place.connected(seconds)
            return self._ask(self._kept, line, seconds)

    def _ask(self, kept: socket.socket, line: bytes, seconds: float) -> bytes:
        try:
            return ask(kept, line, seconds)
        except BaseException:  # the rest of an answer would be taken for the next one
            self._drop()
            raise

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


class Channel:
    """Calls one at a time, over a socket that the broker has given to this process: it ends with the broker."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def call(self, name: str, **arguments: object) -> Any:
        """Return the result. Raises OSError and EOFError without an answer, BrokerError with a refusal's reason."""
        return result_of(name, ask(self._sock, call_line(name, arguments), CHANNEL_SECONDS))


def connected(path: Path) -> socket.socket:
    """Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(min(ANSWER_SECONDS, patience.left_seconds(at_least=LIFE_SECONDS)))
        with socket_address(path) as address:
            sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


def living(path: Path, seconds: float) -> socket.socket:
    """Connect to a broker that answers within `seconds`. Raises OSError (NoSignOfLife), and EOFError."""
    sock = connected(path)
    try:
        ask(sock, ALIVE, seconds)
    except (OSError, EOFError):
        sock.close()
        raise
    return sock


def call_line(name: str, arguments: Mapping[str, object]) -> bytes:
    return json.dumps({"call": name, "arguments": arguments}).encode() + b"\n"


ALIVE = call_line("alive", {})


def result_of(name: str, answer: bytes) -> Any:
    """The result in a line of the broker's. Raises CallRefused."""
    fields = json.loads(answer)
    if "error" in fields:
        raise CallRefused(name, fields["error"], fields.get("code"))
    return fields["result"]


def ask(sock: socket.socket, line: bytes, seconds: float) -> bytes:
    """Send a line, and receive one. Raises OSError, and EOFError when the broker closes the connection before."""
    sock.settimeout(seconds)
    received = bytearray()
    try:
        sock.sendall(line)
        while not received.endswith(b"\n"):
            chunk = sock.recv(READ_BYTES)
            if not chunk:
                raise EOFError("connection closed")
            received += chunk
    except TimeoutError:
        if line is ALIVE:
            raise NoSignOfLife(f"no sign of life within {seconds:.0f} s") from None
        raise
    return bytes(received)
