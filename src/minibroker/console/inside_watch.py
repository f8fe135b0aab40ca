"""Pulls from a minibroker how it serves requests, once for all pages, and keeps that for a while.

The page that is first to want more pulls, and all that look at that moment share what came: no task runs while no page
looks, and the broker stops recording two seconds later, or when the lease of a page that looks less often ends. A slow
page is skipped ahead, never buffered for.
"""

from __future__ import annotations

import math
import time
from collections import deque, namedtuple
from collections.abc import AsyncGenerator, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import trio

from minibroker.console.console import Console
from minibroker.console.event_stream import StreamEvent
from minibroker.errors import BrokerError

PULL_SECONDS = 0.1
LEASE_MS = 2_000  # the broker records so long after a pull
RETRY_SECONDS = 0.5
SNAPSHOT_SECONDS = 0.4
KEPT_MAX = 20_000  # exchanges, 8 MB
EVENT_MAX = 300  # exchanges in one event
NEW_PAGE_MAX = 1_000  # exchanges in its first event
RANGE_MAX = 5_000  # exchanges that are read again at once
NO_HEAD = {
    "run": 0, "now_us": 0, "broker_ms": 0, "turned_ms": 0, "left_out": 0, "requests": 0, "kept_every": 1,
    "cost_us": 0, "interval_us": 0, "parked": 0, "open": 0, "turns": [], "skipped": [],
}  # fmt: skip

Json = dict[str, Any]
Row = Any  # an exchange: a NamedTuple with the fields that the broker names


class Pulled(NamedTuple):
    """One pull: its figures, and what was in hand."""

    head: Json
    waiting: list[Row]


class Ended(NamedTuple):
    """Exchanges that have ended, the figures of the latest pull, and the number of the next exchange."""

    head: Json
    rows: list[Row]
    next: int


class InsideWatch:
    """One for each console. Numbers of exchanges go on from one console to the next, for pages that connect again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = trio.Lock()
        self._snapshot_lock = trio.Lock()
        self._snapshot: tuple[float, Json] = (-math.inf, {})
        self._apis: dict[int, str] = {}
        self._rows: deque[Row] = deque(maxlen=KEPT_MAX)
        self._addresses: dict[str, str] = {}
        self._first = time.time_ns() // 1_000  # the number of this console's first exchange
        self._end = self._first  # the number of the next one
        self._since = 0
        self._pulls = 0
        self._due = -math.inf
        self._latest = Pulled(NO_HEAD, [])
        self._trouble: str | None = None

    async def events(self, last_number: int | None) -> AsyncGenerator[StreamEvent, None]:
        """Yield what is new about ten times a second. Raises Refused without a control socket."""
        seen_pulls = -1
        place = last_number if last_number is not None and self._first <= last_number <= self._end else None
        while True:
            await self._pull_after(seen_pulls)
            seen_pulls = self._pulls
            if self._trouble is not None:
                yield StreamEvent({"error": self._trouble}, id=self._end)
                continue
            if place is None:
                rows, left_out = self._rows_from(self._first, NEW_PAGE_MAX), 0
            else:
                rows = self._rows_from(place, EVENT_MAX)
                left_out = self._end - place - len(rows)
            place = self._end
            yield StreamEvent(self._shown(rows, left_out=left_out), id=place)

    async def look(self, lease_ms: int = LEASE_MS) -> None:
        """Have the broker record for so long. Raises Refused without a control socket."""
        is_due = lease_ms > LEASE_MS or trio.current_time() >= self._due
        await self._pull_after(self._pulls if is_due else self._pulls - 1, lease_ms)

    def ended_since(self, number: int | None) -> Ended:
        """The exchanges that are kept from this number on, none without a number."""
        first = self._end if number is None else number
        return Ended(self._latest.head, self._rows_from(first, KEPT_MAX), self._end)

    async def between(self, from_us: int, to_us: int) -> Json:
        """The exchanges that were in hand between two moments of the broker's machine."""
        if not self._pulls:
            await self._pull_after(0)
        rows = [row for row in self._rows if row.arrived <= to_us and end_of(row) >= from_us]
        return self._shown(rows[-RANGE_MAX:], left_out=max(0, len(rows) - RANGE_MAX))

    async def purgatory(self) -> Json:
        """The requests that wait, asked for once for all pages that ask at the same time."""
        async with self._snapshot_lock:
            taken_at, snapshot = self._snapshot
            if trio.current_time() - taken_at > SNAPSHOT_SECONDS:
                snapshot = await self._console.call_often("inside.purgatory")
                self._snapshot = trio.current_time(), snapshot
            return snapshot

    # One pull for all

    async def _pull_after(self, seen: int, lease_ms: int = LEASE_MS) -> None:
        """Return when there is a pull after the one with number `seen`."""
        async with self._lock:
            if self._pulls > seen >= 0:
                return
            await trio.sleep_until(self._due)
            await self._pull(lease_ms)

    async def _pull(self, lease_ms: int) -> None:
        self._due = trio.current_time() + PULL_SECONDS
        try:
            if not self._apis:
                apis = await self._console.call_often("inside.apis")
                self._apis = {int(key): name for key, name in apis["apis"].items()}
            answer = await self._console.call_often("inside.pull", since=self._since, lease_ms=lease_ms)
            if self._pulls and answer["run"] != self._latest.head["run"]:
                self._forget()
                answer = await self._console.call_often("inside.pull", since=0, lease_ms=lease_ms)
        except BrokerError as error:
            self._trouble = f"{error}; the page goes on when the broker answers again"
            self._due = trio.current_time() + RETRY_SECONDS
        else:
            self._trouble = None
            self._take(answer)
        self._pulls += 1

    def _forget(self) -> None:
        """The broker is another process: what is known is of the one before."""
        self._rows.clear()
        self._addresses.clear()
        self._snapshot = (-math.inf, {})

    def _take(self, answer: Json) -> None:
        self._since = answer["next"]
        rows = [self._named(row, answer) for row in answer["exchanges"]]
        waiting = [self._named(row, answer) for row in answer["waiting"]]
        self._rows.extend(rows)
        self._end += len(rows)
        self._addresses |= answer["connections"]
        self._latest = Pulled({key: answer[key] for key in NO_HEAD}, waiting)

    def _named(self, values: Sequence[Any], answer: Json) -> Row:
        """A row with names where the pull has numbers of its tables."""
        row = row_type(tuple(answer["fields"]))._make(values)
        return row._replace(
            client=answer["clients"][row.client],
            api=self._apis.get(row.api, f"API {row.api}"),
            topics=[answer["topics"][number] for number in row.topics],
        )

    # What pages get

    def _rows_from(self, number: int, most: int) -> list[Row]:
        """The newest exchanges from this number on, at most so many."""
        wanted = min(self._end - number, most)
        return list(islice(self._rows, max(0, len(self._rows) - wanted), None))

    def _shown(self, rows: list[Row], *, left_out: int) -> Json:
        head, waiting = self._latest
        every = (*rows, *waiting)
        numbers = {str(row.connection) for row in every}
        return head | {
            "connections": {number: self._addresses[number] for number in numbers if number in self._addresses},
            "fields": every[0]._fields if every else (),
            "exchanges": rows,
            "waiting": waiting,
            "left_out": head["left_out"] + left_out,
        }


@cache
def row_type(fields: tuple[str, ...]) -> Any:
    return namedtuple("Row", fields)


def end_of(row: Row) -> int:
    """When an exchange ended, in the microseconds of its arrival."""
    return int(row.arrived + max(row.handled, row.woken, row.answered, row.sent, 0))
