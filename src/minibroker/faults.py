"""Faults from Python: what a broker that is started with `Broker(control=True)` shall do wrong, to whom, how often.

    broker.faults.error("NOT_LEADER_FOR_PARTITION", api="produce", topic="orders", partition=0, times=3)
    with broker.faults.delay(0.5, api="fetch", client_id="slow") as fault:
        ...
    assert fault.count > 0

A fault strikes from the call that makes it until it has struck `times` times, is lifted, or its `with` ends; what it
holds back then goes on at once. Several at a time are fine. They go with the broker's process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, NamedTuple, TypedDict, Unpack

from minibroker.control import Control
from minibroker.process import BrokerError

STRIKE_TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.005

When = Literal["before", "after"]


class Whose(TypedDict, total=False):
    """Which requests are struck: those that all of this fits. What is left out fits every request."""

    client_id: str
    connection: int | str  # its number in `connections()`, or the client's host:port
    topic: str
    partition: int  # of `topic`


class HowOften(TypedDict, total=False):
    """Of the requests that fit, the first `skip` pass and the next `times` are struck; without `times`, all."""

    times: int
    skip: int


class OptionsOfFetch(Whose, HowOften):
    """What every fault takes, as keywords; one that only Fetch can have takes no more."""


class Options(OptionsOfFetch, total=False):
    """The same for a fault that any request can have."""

    api: str | Sequence[str]  # Kafka's name in any spelling: "produce", "LIST_OFFSETS", "ListOffsets"; or several


class ClientConnection(NamedTuple):
    """An open connection. They are numbered from 1 by their first request."""

    number: int
    address: str  # the client's host:port
    client_id: str | None  # of its latest request


class Fault:
    """One fault; `with` lifts it at the end of the block."""

    def __init__(self, control: Control, fault_id: int) -> None:
        self._control = control
        self._id = fault_id

    @property
    def count(self) -> int:
        """How many requests it has struck; can be asked after it was lifted, too. Raises BrokerError."""
        count: int = self._described()["count"]
        return count

    @property
    def is_active(self) -> bool:
        """Whether it can still strike: neither lifted nor used up. Raises BrokerError."""
        return bool(self._described()["is_active"])

    def lift(self) -> None:
        """End it; what it holds back goes on at once. One that has ended is left alone. Raises BrokerError."""
        self._control.call("faults.lift", fault_id=self._id)

    def wait(self, count: int = 1, *, timeout_seconds: float = STRIKE_TIMEOUT_SECONDS) -> None:
        """Wait until it has struck `count` requests. Raises BrokerError, also if it has not in that time."""
        deadline = time.monotonic() + timeout_seconds
        while self.count < count:
            if time.monotonic() > deadline:
                raise BrokerError(f"waited {timeout_seconds:g} s for {count} to be struck by {self}")
            time.sleep(POLL_SECONDS)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokerError):  # a broker that has ended meanwhile has no faults; whoever asks is told
            self.lift()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fault) and other._id == self._id

    def __hash__(self) -> int:
        return self._id

    def __str__(self) -> str:
        """What it does to whom, and how often it has, in words."""
        return str(self._described()["text"])

    def __repr__(self) -> str:
        """The same, so that a list of faults can be read; a broker that has ended cannot be asked."""
        try:
            return f"<Fault: {self}>"
        except BrokerError:
            return f"<Fault {self._id}>"

    def _described(self) -> dict[str, int]:
        described: dict[str, int] = self._control.call("faults.describe", fault_id=self._id)
        return described


class Faults:
    """Makes faults. Each method raises BrokerError, with the choices, for what cannot be.

    The keywords all of them take are those of `Options`: `api`, `client_id`, `connection`, `topic`, `partition`;
    `times` and `skip`. `when` is "before" or "after" the broker has done what was asked.
    """

    def __init__(self, control: Control) -> None:
        self._control = control

    def error(self, error: str, *, when: When = "before", **options: Unpack[Options]) -> Fault:
        """Answer with an error code of Kafka's, such as "NOT_LEADER_FOR_PARTITION"; `api` must be given.

        With `topic` (and `partition`) it is told for that one alone, and the rest of the request is served; without,
        for all the request asks. "before": what is struck is not done, no record is appended. "after": it is, but the
        client is told the error; an idempotent producer that tries again is recognised.
        """
        return self._add("error", error=error, when=when, **options)

    def delay(self, seconds: float, *, when: When = "before", **options: Unpack[Options]) -> Fault:
        """Hold requests back before they are served, or their answers. Other connections are not held up.

        A connection's answers keep their order, so requests behind the one that is held wait with it. It is the
        broker's clock that runs: `broker.clock.advance` shortens the wait.
        """
        return self._add("delay", seconds=seconds, when=when, **options)

    def disconnect(self, *, when: When = "before", **options: Unpack[Options]) -> Fault:
        """Close the connection instead of answering; "after": with the request served, the records appended."""
        return self._add("disconnect", when=when, **options)

    def torn_frame(self, **options: Unpack[Options]) -> Fault:
        """Send the first half of the answer, then close the connection."""
        return self._add("torn_frame", **options)

    def wrong_crc(self, **options: Unpack[OptionsOfFetch]) -> Fault:
        """Give the record batches that a Fetch answers wrong CRCs. The log is not touched: read again, it is right."""
        return self._add("wrong_crc", **options)

    def slow(self, bytes_per_second: int, **options: Unpack[Options]) -> Fault:
        """Send the answer at this rate. Lifted, what is left of it goes at once."""
        return self._add("slow", bytes_per_second=bytes_per_second, **options)

    def active(self) -> list[Fault]:
        """Those that can strike, in the order in which they were made: of several errors the first wins."""
        return [Fault(self._control, each) for each in self._control.call("faults.active")]

    def lift_all(self) -> None:
        """End all there are."""
        self._control.call("faults.lift_all")

    def connections(self) -> list[ClientConnection]:
        """The open connections, in the order of their first requests."""
        return [ClientConnection(*each) for each in self._control.call("faults.connections")]

    def _add(self, kind: str, **arguments: object) -> Fault:
        return Fault(self._control, self._control.call("faults.add", kind=kind, **arguments))
