"""Faults from Python: errors, delays and closed connections that a `Broker(control=True)` makes for chosen requests.

    broker.faults.error("NOT_LEADER_FOR_PARTITION", api="produce", topic="orders", partition=0, times=3)
    with broker.faults.delay(0.5, api="fetch", client_id="slow") as fault:
        ...
    assert fault.count > 0

A fault strikes requests from the call that makes it until it has struck `times` requests, is lifted, or its `with`
ends; the requests it holds back then go on at once. There may be several. They end with the broker's process.
`Cluster.faults` makes each fault in all its brokers.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from minibroker.control import Control
from minibroker.errors import BrokerError

STRIKE_TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.005
HELD_SECONDS = 86_400.0  # a request, until an action of the test has returned; by the broker's clock, which may turn

When = Literal["before", "after"]


class RequestFilter(TypedDict, total=False):
    """Chooses the requests to strike. They match every given key."""

    client_id: str
    connection: int | str  # its number in `connections()`, or the client's host:port
    topic: str
    partition: int  # of `topic`


class HowOften(TypedDict, total=False):
    """Of the matching requests the first `skip` pass, and the next `times` are struck; without `times`, all others.

    With `for_seconds` those that come that long, by the broker's clock, after the first that was struck.
    """

    times: int
    skip: int
    for_seconds: float


class OptionsOfFetch(RequestFilter, HowOften):
    """The keywords of every fault; a fault that only Fetch can have takes no others."""


class Options(OptionsOfFetch, total=False):
    """The keywords of a fault that any request can have."""

    api: str | Sequence[str]  # Kafka's name in any spelling: "produce", "LIST_OFFSETS", "ListOffsets"; or several


class OptionsOfCall(RequestFilter, total=False):
    """The keywords of an action, which one request causes."""

    api: str | Sequence[str]
    skip: int


class ClientConnection(NamedTuple):
    """An open connection, numbered from 1 as the broker accepted it; the log and transcripts have the same number."""

    number: int
    address: str  # the client's host:port
    client_id: str | None  # of its latest request


class Fault:
    """One fault; in a `with`, the end of the block lifts it."""

    def __init__(self, control: Control, fault_id: int) -> None:
        self._control = control
        self._id = fault_id

    @property
    def count(self) -> int:
        """How many requests it has struck, also after it was lifted. Raises BrokerError."""
        count: int = self._described()["count"]
        return count

    @property
    def is_active(self) -> bool:
        """Whether it can still strike: neither lifted nor used up. Raises BrokerError."""
        return bool(self._described()["is_active"])

    def lift(self) -> None:
        """End the fault, if it has not ended; the requests it holds back go on at once. Raises BrokerError."""
        self._control.call("faults.lift", fault_id=self._id)

    def wait(self, count: int = 1, *, timeout_seconds: float = STRIKE_TIMEOUT_SECONDS) -> None:
        """Wait until it has struck `count` requests. Raises BrokerError, also when the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while self.count < count:
            if time.monotonic() > deadline:
                raise BrokerError(f"{self}; waited {timeout_seconds:g} s until it has struck {count}")
            time.sleep(POLL_SECONDS)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokerError):  # a broker that has ended has no faults; other calls raise
            self.lift()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fault) and other._id == self._id

    def __hash__(self) -> int:
        return self._id

    def __str__(self) -> str:
        """A description of the fault, the requests it matches, and its count."""
        return str(self._described()["text"])

    def __repr__(self) -> str:
        """The same, for lists of faults; only the number once the broker has ended."""
        try:
            return f"<Fault: {self}>"
        except BrokerError:
            return f"<Fault {self._id}>"

    def _described(self) -> dict[str, Any]:
        described: dict[str, Any] = self._control.call("faults.describe", fault_id=self._id)
        return described


class FaultOfCluster(Fault):
    """One fault in each broker of a cluster that ran when it was made."""

    def __init__(self, faults: Mapping[int, Fault]) -> None:
        self._id = next(iter(faults.values()))._id
        self.by_broker = faults

    def lift(self) -> None:
        for each in self.by_broker.values():
            with contextlib.suppress(BrokerError):  # a broker that has ended has no faults
                each.lift()

    def _described(self) -> dict[str, Any]:
        found = []
        for broker_id, each in self.by_broker.items():
            with contextlib.suppress(BrokerError):
                found.append((broker_id, each._described()))
        if not found:
            raise BrokerError("all brokers that had this fault have ended")
        return {
            "count": sum(each["count"] for _, each in found),
            "is_active": any(each["is_active"] for _, each in found),
            "text": "\n".join(f"broker {broker_id}: {each['text']}" for broker_id, each in found),
        }


class Call:
    """Waits in a thread for a request to be held back, calls an action, and lets the request go on."""

    def __init__(self, action: Callable[..., object], held: Mapping[tuple[int, ...], Fault]) -> None:
        self._action = action
        self._held = held  # by the arguments of the action
        self._is_lifted = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="minibroker-fault", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """How many requests it has held back: 1 once the action was called, or is. Raises BrokerError."""
        return max(fault.count for fault in self._held.values())

    def lift(self) -> None:
        """Call the action no more, and wait for one that has begun; the request goes on."""
        self._is_lifted.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            while not self._is_lifted.wait(POLL_SECONDS):
                for arguments, fault in self._held.items():
                    if holds(fault):
                        self._action(*arguments)
                        return
        finally:
            for fault in self._held.values():
                with contextlib.suppress(BrokerError):
                    fault.lift()


def holds(fault: Fault) -> bool:
    """Whether it holds a request back; a broker that has ended holds none."""
    try:
        return fault.count > 0
    except BrokerError:
        return False


class Faults:
    """Makes faults. Each method raises BrokerError for a fault that is not possible, with the choices.

    All take the keywords of `Options`: `api`, `client_id`, `connection`, `topic`, `partition`; `times` and `skip`.
    `when` is "before" or "after" the broker has served the request.
    """

    def __init__(self, control: Control) -> None:
        self._control = control

    def error(self, error: str, *, when: When = "before", **options: Unpack[Options]) -> Fault:
        """Answer with an error code of Kafka's, such as "NOT_LEADER_FOR_PARTITION"; `api` must be given.

        With `topic` (and `partition`) only that one gets the error, and the rest of the request is served; without,
        the whole request gets it. "before": what is struck is not done, no record is appended. "after": it is done,
        but the client gets the error; the broker recognises an idempotent producer that tries again.
        """
        return self._add("error", error=error, when=when, **options)

    def delay(self, seconds: float, *, when: When = "before", **options: Unpack[Options]) -> Fault:
        """Hold requests back before they are served, or their answers. Other connections do not wait.

        A connection's answers keep their order, so later requests wait with the one that is held. The delay follows the
        broker's clock: `broker.clock.advance` shortens it.
        """
        return self._add("delay", seconds=seconds, when=when, **options)

    def disconnect(self, *, when: When = "before", **options: Unpack[Options]) -> Fault:
        """Close the connection instead of answering; "after": when it is served and its records appended."""
        return self._add("disconnect", when=when, **options)

    def torn_frame(self, **options: Unpack[Options]) -> Fault:
        """Send the first half of the answer, then close the connection."""
        return self._add("torn_frame", **options)

    def wrong_crc(self, **options: Unpack[OptionsOfFetch]) -> Fault:
        """Return record batches with wrong CRCs from Fetch. The log itself keeps the right ones."""
        return self._add("wrong_crc", **options)

    def slow(self, bytes_per_second: int, **options: Unpack[Options]) -> Fault:
        """Send the answer at this rate. Lifting the fault sends the rest at once."""
        return self._add("slow", bytes_per_second=bytes_per_second, **options)

    def call(self, action: Callable[[], object], *, when: When = "before", **options: Unpack[OptionsOfCall]) -> Call:
        """Hold the first matching request back, call `action` in a thread of this process, let the request go on.

        broker.faults.call(lambda: broker.clock.advance(60), api="offset_commit", skip=2)
        """
        return Call(action, {(): self._add("delay", seconds=HELD_SECONDS, when=when, times=1, **options)})

    def active(self) -> list[Fault]:
        """The faults that can still strike, in the order in which they were made: of several errors the first wins."""
        return [Fault(self._control, each) for each in self._control.call("faults.active")]

    def lift_all(self) -> None:
        """End all faults."""
        self._control.call("faults.lift_all")

    def connections(self) -> list[ClientConnection]:
        """The open connections, in the order in which the broker accepted them."""
        return [ClientConnection(*each) for each in self._control.call("faults.connections")]

    def _add(self, kind: str, **arguments: object) -> Fault:
        return Fault(self._control, self._control.call("faults.add", kind=kind, **arguments))


class FaultsOfCluster(Faults):
    """Makes each fault in all brokers of a cluster that run; `times` and `skip` count in each of them."""

    def __init__(self, controls: Callable[[], Mapping[int, Control]]) -> None:
        self._controls = controls

    def call(  # type: ignore[override]
        self, action: Callable[[int], object], *, when: When = "before", **options: Unpack[OptionsOfCall]
    ) -> Call:
        """As in one broker, once; `action` gets the id of the broker that holds the request back.

        cluster.faults.call(cluster.kill, api="produce", skip=2)
        """
        held = self._add("delay", seconds=HELD_SECONDS, when=when, times=1, **options)
        return Call(action, {(broker_id,): fault for broker_id, fault in held.by_broker.items()})

    def active(self) -> list[Fault]:
        """The faults that can still strike, broker by broker."""
        return [fault for each in self._each() for fault in each.active()]

    def lift_all(self) -> None:
        """End all faults."""
        for each in self._each():
            each.lift_all()

    def connections(self) -> list[ClientConnection]:
        """The open connections, broker by broker."""
        return [connection for each in self._each() for connection in each.connections()]

    def _each(self) -> list[Faults]:
        return [Faults(control) for control in self._controls().values()]

    def _add(self, kind: str, **arguments: object) -> FaultOfCluster:
        controls = self._controls()
        if not controls:
            raise BrokerError("no broker of the cluster runs; start one")
        return FaultOfCluster(
            {broker_id: Faults(control)._add(kind, **arguments) for broker_id, control in controls.items()}
        )
