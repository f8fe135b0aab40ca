"""The requests and responses of connections, from the transcript that a minibroker records.

The file only grows, and may have gigabytes: the places of its entries are read once, a part at each look, and an
exchange is decoded when a page shows it. The newest exchanges of the connections that were active last are remembered.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.transcript.exchanges import Exchange
from minibroker.transcript.fields import errors_of, groups_of, request_body, response_body, topics_of
from minibroker.transcript.file import (
    HEAD,
    MAGIC,
    MAX_ENTRY_BYTES,
    SIZE_BYTES,
    Entry,
    Kind,
    TranscriptError,
    decode_entry,
)
from minibroker.transcript.text import FULL, SHORT, endings, exchange_lines, few

READ_SECONDS = 0.5  # of one look
BLOCK_BYTES = 1 << 18
CONNECTIONS_MAX = 1_000
OF_CONNECTION_MAX = 100
SHOWN = 50
LINES_MAX = 2_000
TEXT_MAX = 4_000  # characters of a line
FINAL = frozenset({Kind.RESPONSE, Kind.NO_RESPONSE, Kind.REFUSED, Kind.CLOSED})

Json = dict[str, Any]


class Place(NamedTuple):
    """The positions of an exchange's entries: its request, and what ended it."""

    request: int
    end: int


class TranscriptIndex:
    """The places of exchanges, by connection. One thread at a time."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and TranscriptError for another file."""
        self.path = path
        self._file = path.open("rb", buffering=0)
        if not MAGIC.startswith(os.pread(self._fd, len(MAGIC), 0)):
            self._file.close()
            raise TranscriptError(f"{path} is not a transcript of this version of minibroker")
        self.position = len(MAGIC)
        self.begin_ns: int | None = None
        self._pending: dict[int, int] = {}
        self._places: OrderedDict[int, deque[Place]] = OrderedDict()

    @property
    def _fd(self) -> int:
        return self._file.fileno()

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        self._file.close()

    def read_on(self, seconds: float = READ_SECONDS) -> bool:
        """Read the places that follow, for so long at most; whether that was all. Raises TranscriptError."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            before = self.position
            for position, kind, time_ns, connection in self._heads():
                self._note(position, kind, time_ns, connection)
            if self.position == before:
                return True
        return False

    def _heads(self) -> Iterator[tuple[int, int, int, int]]:
        """The heads of the entries that begin in the next block, and are whole."""
        begin = self.position
        block = os.pread(self._fd, BLOCK_BYTES, begin)
        size_bytes = begin + len(block) if len(block) < BLOCK_BYTES else self.size_bytes
        while self.position + HEAD.size <= begin + len(block):
            size, kind, time_ns, connection = HEAD.unpack_from(block, self.position - begin)
            if not HEAD.size - SIZE_BYTES <= size <= MAX_ENTRY_BYTES:
                raise TranscriptError(f"{self.path} is damaged at byte {self.position}")
            if self.position + SIZE_BYTES + size > size_bytes:
                return  # it is being written
            position, self.position = self.position, self.position + SIZE_BYTES + size
            yield position, kind, time_ns, connection

    def _note(self, position: int, kind: int, time_ns: int, connection: int) -> None:
        if self.begin_ns is None:
            self.begin_ns = time_ns
        if kind == Kind.STARTED:
            self._pending.clear()
        elif kind == Kind.REQUEST:
            self._pending[connection] = position
        elif kind in FINAL and connection in self._pending:
            places = self._places.setdefault(connection, deque(maxlen=OF_CONNECTION_MAX))
            self._places.move_to_end(connection)
            places.append(Place(self._pending.pop(connection), position))
            if len(self._places) > CONNECTIONS_MAX:
                self._places.popitem(last=False)

    def of(self, connection: int) -> list[Place]:
        """The exchanges of a connection that have ended, oldest first."""
        return list(self._places.get(connection, ()))

    def exchange(self, place: Place) -> Exchange:
        """Raises TranscriptError."""
        return Exchange(self._entry(place.request), "").end(self._entry(place.end))

    def _entry(self, position: int) -> Entry:
        size = int.from_bytes(os.pread(self._fd, SIZE_BYTES, position), "big")
        if size > MAX_ENTRY_BYTES:
            raise TranscriptError(f"{self.path} is damaged at byte {position}")
        return decode_entry(os.pread(self._fd, SIZE_BYTES + size, position))


def summary_of(place: Place, exchange: Exchange) -> Json:
    """A row of the list: `at` names the exchange."""
    asked, answered = request_body(exchange), response_body(exchange)
    problems = [body.problem for body in (asked, answered) if body.problem]
    return {
        "at": place.request,
        "time_ms": exchange.time_ns // 1_000_000,
        "api": exchange.api,
        "version": exchange.version,
        "correlation": exchange.correlation_id,
        "client_id": exchange.client_id,
        "bytes_in": exchange.request_bytes,
        "bytes_out": exchange.response_bytes,
        "latency_ms": exchange.latency_ms,
        "outcome": exchange.outcome,
        "about": few([*topics_of(asked, answered), *groups_of(asked)]),
        "errors": few([*errors_of(answered.fields), *endings(exchange), *problems]),
    }


def lines_of(exchange: Exchange, begin_ns: int, *, is_full: bool) -> Json:
    """The lines that `minibroker transcript` prints: parts of text, each with the style that a terminal shows."""
    lines: list[list[tuple[str, str]]] = []
    for line in exchange_lines(exchange, begin_ns, FULL if is_full else SHORT):
        if len(lines) == LINES_MAX:
            return {"lines": lines, "is_cut": True}
        lines.append([(text[:TEXT_MAX], style) for text, style in line])
    return {"lines": lines[:-1], "is_cut": False}  # the last one is the empty line between two exchanges
