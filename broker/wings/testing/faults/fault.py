"""One fault: its effect, the requests it strikes, and how often it has struck.

    kind         effect on a request                                      has
    error        it is answered with an error code                        code, when
    delay        it is held back                                          seconds, when
    disconnect   its connection is closed instead of the answer           when
    torn_frame   half of its answer is sent, then the connection closed
    wrong_crc    the record batches of a Fetch answer have a wrong CRC
    slow         its answer is sent at this rate                          bytes_per_second

`when` is before or after the broker has served the request. The first `skip` matching requests pass; after `times`
strikes, or `for_seconds` after the first one, a fault is used up.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

import trio

from minibroker.broker.wings.testing.faults.rows import EVERY_PARTITION, ROWS, Place
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode


class Kind(StrEnum):
    ERROR = "error"
    DELAY = "delay"
    DISCONNECT = "disconnect"
    TORN_FRAME = "torn_frame"
    WRONG_CRC = "wrong_crc"
    SLOW = "slow"


class When(StrEnum):
    BEFORE = "before"
    AFTER = "after"


class RequestFacts(NamedTuple):
    """The facts of a request that faults match. `places` is None if it asks for all topics."""

    api_key: int
    connection: int
    address: str
    client_id: str | None
    places: list[Place] | None


class Match(NamedTuple):
    """The requests that a fault strikes: they match every field; None, and empty `apis`, match all."""

    apis: frozenset[ApiKey] = frozenset()
    connection: int | str | None = None  # its number, or the client's host:port
    client_id: str | None = None
    topic: str | None = None
    partition: int | None = None

    def fits(self, asked: RequestFacts) -> bool:
        return (
            (not self.apis or asked.api_key in self.apis)
            and self.connection in (None, asked.connection, asked.address)
            and self.client_id in (None, asked.client_id)
            and (self.topic is None or self._fits_places(asked))
        )

    def covers(self, place: Place) -> bool:
        topic, partition = place
        return self.topic in (None, topic) and (
            self.partition is None or partition in (self.partition, EVERY_PARTITION)
        )

    def _fits_places(self, asked: RequestFacts) -> bool:
        if asked.api_key not in ROWS:
            return False
        return asked.places is None or any(map(self.covers, asked.places))

    def __str__(self) -> str:
        parts = ["of " + ", ".join(API_TABLE[key].name for key in sorted(self.apis))] if self.apis else []
        if self.topic is not None:
            parts.append(f"for {self.topic}" if self.partition is None else f"for {self.topic}-{self.partition}")
        if self.client_id is not None:
            parts.append(f"from client {self.client_id!r}")
        if self.connection is not None:
            parts.append(f"on connection {self.connection}")
        return " ".join(["requests", *parts]) if parts else "every request"


class Fault:
    """Strikes requests until it is used up or lifted. Only the fields of its kind are set."""

    def __init__(
        self,
        fault_id: int,
        kind: Kind,
        match: Match,
        *,
        times: int | None = None,
        skip: int = 0,
        for_seconds: float = math.inf,
        when: When = When.BEFORE,
        code: ErrorCode = ErrorCode.NONE,
        seconds: float = 0.0,
        bytes_per_second: int = 0,
    ) -> None:
        self.id = fault_id
        self.kind = kind
        self.match = match
        self.when = when
        self.code = code
        self.seconds = seconds
        self.bytes_per_second = bytes_per_second
        self.count = 0  # the requests it has struck
        self.lifted = trio.Event()
        self._times = times
        self._passes_left = skip
        self._for_seconds = for_seconds
        self._ends_at = math.inf  # by trio's clock, once it has struck

    @property
    def is_active(self) -> bool:
        is_left = self._times is None or self.count < self._times
        is_in_time = self._ends_at == math.inf or trio.current_time() < self._ends_at
        return is_left and is_in_time and not self.lifted.is_set()

    def strikes(self) -> bool:
        """Count a matching request; return whether it is struck."""
        if not self.is_active:
            return False
        if self._passes_left:
            self._passes_left -= 1
            return False
        if not self.count and self._for_seconds < math.inf:
            self._ends_at = trio.current_time() + self._for_seconds
        self.count += 1
        return True

    async def hold(self) -> None:
        """Wait for the delay's time, or until the fault is lifted."""
        with trio.move_on_after(self.seconds):
            await self.lifted.wait()

    def __str__(self) -> str:
        does = {
            Kind.ERROR: f"{self.code.name} ({self.when} serving)",
            Kind.DELAY: f"delay of {self.seconds:g} s ({self.when} serving)",
            Kind.DISCONNECT: f"disconnect ({self.when} serving)",
            Kind.SLOW: f"slow ({self.bytes_per_second} bytes/s)",
        }
        left = "" if self._times is None else f" of {self._times}"
        return f"{does.get(self.kind, self.kind)} for {self.match}: struck {self.count}{left}"
