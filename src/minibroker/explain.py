"""Explains requests from Python: why each was answered as it was, and what it waited for.

    with broker.explain(api="fetch", topic="orders") as explained:
        consumer.poll(5)
    assert [each.wait.cause.client_id for each in explained if each.wait] == ["orders-api"]
    print(explained[0])

The broker records from the call on to the end of the `with`, or to `close`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypedDict, overload

from minibroker.control import Control
from minibroker.errors import BrokerError
from minibroker.story import story

LEASE_MS = 3_600_000
SHORTEST_LEASE_MS = 100
EXPLAINED_AT_A_TIME = 25  # as many as a broker explains in a call
WAIT_SECONDS = 5.0
POLL_SECONDS = 0.02

Facts = dict[str, Any]


class Chosen(TypedDict, total=False):
    """Chooses the requests to explain. They match every given key."""

    api: str | Sequence[str]  # Kafka's name in any spelling: "fetch", "LIST_OFFSETS", "ListOffsets"; or several
    client_id: str
    connection: int  # its number in `faults.connections()`, transcripts and the log
    topic: str
    slower_than_ms: float
    parked: bool  # only those that waited
    empty: bool  # only fetches that were answered without records
    failed: bool  # only those with an error


class Cause(NamedTuple):
    """The request in whose call a wait ended."""

    api: str
    version: int
    correlation_id: int
    connection: int
    client_id: str | None


class Wait(NamedTuple):
    """A wait in the broker. `case` is "A" to "E" for a fetch that an event ended, as in Kafka's DelayedFetch."""

    max_wait_ms: int  # -1 if it is not bounded by the request
    waited_ms: float
    watched: int  # partitions
    ended_by: str  # "request", "time", "flush", "delay" (of a failed login), "fault" or "other"; empty while it waits
    case: str
    partition: str | None  # that decided it, such as "orders-0"
    cause: Cause | None


class FetchedPartition(NamedTuple):
    """A partition of a fetch; offsets are those of that moment."""

    topic: str
    partition: int
    asked_offset: int
    bytes: int
    error: str
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    segment: int | None  # the base offset of the segment that was read
    position: int | None  # in that segment's file


class ProducedPartition(NamedTuple):
    """A partition that a produce appended to."""

    topic: str
    partition: int
    base_offset: int
    records: int
    bytes: int
    error: str
    is_duplicate: bool
    rolled: bool  # whether the append began a new segment
    validation: str


class Explained:
    """One request, explained; `print` shows its story. `json` has all that the broker returned."""

    def __init__(self, json: Facts) -> None:
        self.json = json

    @property
    def api(self) -> str:
        """Kafka's name of the API, such as "Fetch"."""
        return str(self.json["api"])

    @property
    def version(self) -> int:
        """The version of the API."""
        return int(self.json["version"])

    @property
    def client_id(self) -> str | None:
        """The client id of the request."""
        client_id: str | None = self.json["client_id"]
        return client_id

    @property
    def connection(self) -> int:
        """The number of the connection."""
        return int(self.json["connection"])

    @property
    def outcome(self) -> str:
        """One of "at once", "woken", "expired", "silent" (no response), "closed" and "gone"."""
        return str(self.json["outcome"])

    @property
    def error(self) -> str:
        """Kafka's name of the first error in the response, or why the connection was closed; empty for none."""
        return str(self.json["error"])

    @property
    def took_ms(self) -> float:
        """The time from the arrival of the request to the last stage of it: most often, its last byte sent."""
        return float(max(self.json["us"].values())) / 1000

    @property
    def wait(self) -> Wait | None:
        """The wait of the request; None if it was answered at once."""
        found = self.json["wait"]
        if found is None:
            return None
        cause, us = found["cause"], self.json["us"]
        return Wait(
            found["max_wait_ms"],
            max(0, us["woken"] - us["handled"]) / 1000,
            found["watched"],
            found["ended_by"],
            found["case"],
            found["partition"],
            None if cause is None else Cause(*(cause[name] for name in Cause._fields)),
        )

    @property
    def partitions(self) -> list[FetchedPartition | ProducedPartition]:
        """The partitions of a Fetch or a Produce, 32 at most; those with records or errors come first."""
        for kind, row in (("fetch", FetchedPartition), ("produce", ProducedPartition)):
            if self.json[kind] is not None:
                return [row(*(each[name] for name in row._fields)) for each in self.json[kind]["partitions"]]
        return []

    @property
    def session(self) -> str | None:
        """The decision about the fetch session: "new", "incremental", "unknown id", ...; None unless a Fetch."""
        fetch = self.json["fetch"]
        return None if fetch is None else str(fetch["session"]["decision"])

    def __str__(self) -> str:
        """The story: a line for each step, with milliseconds since the request arrived."""
        return story(self.json)

    def __repr__(self) -> str:
        """The same, for the message of a failed assert."""
        return f"<{self}>"


class Explanation(Sequence[Explained]):
    """The requests that a broker explains, in the order in which they ended. The end of a `with` ends the recording."""

    def __init__(self, control: Control, chosen: Chosen) -> None:
        self._control = control
        self._chosen = {name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()}
        self._found: list[Explained] = []
        self._is_closed = False
        self.left_out = 0  # requests that the broker has forgotten before they were read: it keeps 4,096
        self._since = self._ask(since="now")["next"]

    def close(self) -> None:
        """End the recording; keep what there is."""
        if not self._is_closed:
            self._read()
            self._is_closed = True
            self._ask(since="now", lease_ms=SHORTEST_LEASE_MS)

    def wait(self, count: int = 1, *, timeout_seconds: float = WAIT_SECONDS) -> Explanation:
        """Wait until `count` requests have ended; return this. Raises BrokerError when the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while len(self) < count:
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{len(self._found)} of {count} requests came in {timeout_seconds:g} s that match {self._chosen}"
                )
            time.sleep(POLL_SECONDS)
        return self

    def __enter__(self) -> Explanation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BrokerError:
            if kind is None:  # else the block's own error counts, and the broker may have ended with it
                raise

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[Explained]:
        return iter(list(self._read()))

    @overload
    def __getitem__(self, index: int) -> Explained: ...
    @overload
    def __getitem__(self, index: slice) -> list[Explained]: ...
    def __getitem__(self, index: int | slice) -> Explained | list[Explained]:
        return self._read()[index]

    def __str__(self) -> str:
        """The stories of all."""
        return "\n\n".join(map(str, self))

    def __repr__(self) -> str:
        """The same, for the message of a failed assert."""
        return f"<{len(self)} explained:\n{self}>"

    def _read(self) -> list[Explained]:
        """Read what has ended since, unless the recording has ended."""
        while not self._is_closed:
            answer = self._ask(since=self._since, budget=EXPLAINED_AT_A_TIME)
            self._since = answer["next"]
            self.left_out += answer["left_out"]
            self._found += map(Explained, answer["explained"])
            if len(answer["explained"]) < EXPLAINED_AT_A_TIME:
                break
        return self._found

    def _ask(self, *, lease_ms: int = LEASE_MS, **arguments: object) -> Facts:
        answer: Facts = self._control.call("inside.explain", lease_ms=lease_ms, **arguments, **self._chosen)
        return answer
