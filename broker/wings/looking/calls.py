"""The control calls `inside.*`: what a console and tests pull from the broker.

Each returns an object for JSON, with the broker's run and time. All but `inside.pull`, `inside.explain` and
`inside.release` change nothing. An argument is checked by its annotation, a number also by its name in `BOUNDS`.

In a pull each request is an array in the order of `fields`, as thousands a second may go by; one request in full is an
object.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import wraps
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

from minibroker.broker.network.connection import Connection
from minibroker.broker.parts import BrokerParts
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.looking.exchange_facts import Facts
from minibroker.broker.wings.looking.explanation import Explainer
from minibroker.broker.wings.looking.facts import wait_of
from minibroker.broker.wings.looking.fetch_positions import FetchPositions
from minibroker.broker.wings.looking.snapshots import Snapshots
from minibroker.broker.wings.looking.trace import Trace
from minibroker.broker.wings.looking.tracer import Filter, Tracer
from minibroker.protocol.api import API_TABLE
from minibroker.protocol.guesses import next_step

if TYPE_CHECKING:
    from minibroker.transcript.recorder import Recorder

LEASE_MS = 2_000
OFFSET_MAX = 1 << 62
BOUNDS = {
    "since": (0, OFFSET_MAX),
    "after": (0, OFFSET_MAX),
    "skip": (0, OFFSET_MAX),
    "offset": (0, OFFSET_MAX),
    "connection": (1, OFFSET_MAX),
    "partition": (0, (1 << 31) - 1),
    "budget": (1, 1000),
    "lease_ms": (100, 3_600_000),
}
WAITING_MAX = 200
LONG_IN_HAND_NS = 50_000_000
TURNS_MAX = 64
RUN_BITS = 48
EXPLAINED_MAX = 25  # in a call: each takes up to 0.2 ms of the loop
WOKE_MAX = 8  # of the requests that one woke

Json = dict[str, Any]
Numbers = dict[Any, int]  # values in the order in which they first came


class NotKeptError(ValueError):
    """A request has left the ring, or was never in it; `code` goes to the caller."""

    code = "not-kept"


class InsideCalls:
    """`by_name` has the calls. `turned_ms`: by how much the broker's clock was turned."""

    def __init__(
        self,
        tracer: Tracer,
        parts: BrokerParts,
        positions: FetchPositions,
        clock: Clock,
        connections: Collection[Connection] = (),
        turned_ms: Callable[[], int] = lambda: 0,
        recorder: Recorder | None = None,
    ) -> None:
        self._tracer = tracer
        self._parts = parts
        self._clock = clock
        self._connections = connections
        self._turned_ms = turned_ms
        self._recorder = recorder
        self._explainer = Explainer(tracer, parts)
        self._run = Random().getrandbits(RUN_BITS)
        self._turns: deque[tuple[int, int]] = deque(maxlen=TURNS_MAX)
        snapshots = Snapshots(tracer, parts, positions, connections)
        calls: tuple[Callable[..., Json], ...] = (
            *(self.pull, self.exchange, self.explain, self.release, self.apis, self.transcript),
            *(snapshots.log, snapshots.logs, snapshots.purgatory),
            *(snapshots.connections, snapshots.sessions, snapshots.fetches, snapshots.groups),
        )
        self.by_name = {f"inside.{call.__name__}": self._call(call) for call in calls}

    def _call(self, call: Callable[..., Json]) -> Callable[..., Json]:
        """Return the call with checks of its arguments, which raise ValueError, and the head of its answer."""
        signature = inspect.signature(call)

        @wraps(call)
        def answer(*args: Any, **options: Any) -> Json:
            for name, value in signature.bind(*args, **options).arguments.items():
                check(name, value, str(signature.parameters[name].annotation))
            now_us, broker_ms = self._tracer.now_ns() // 1000, self._clock.wall_ms()
            return {"run": self._run, "now_us": now_us, "broker_ms": broker_ms} | call(*args, **options)

        return answer

    def noting_turns(self, advance: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        """Return the call that advances the clock, with a note of each turn."""

        @wraps(advance)
        async def advanced(seconds: float, at_once: bool = False) -> None:
            at_us = self._tracer.now_ns() // 1000
            before_ms = self._turned_ms()
            try:
                await advance(seconds, at_once)
            finally:
                if self._turned_ms() != before_ms:
                    self._turns.append((at_us, self._turned_ms() - before_ms))

        return advanced

    # -- calls ------------------------------------------------------------------------------------------------

    def pull(self, since: int = 0, budget: int = 100, lease_ms: int = LEASE_MS) -> Json:
        """Return the exchanges that have ended since, and those in hand."""
        tracer = self._tracer
        tracer.watch(lease_ms)
        tally = tracer.tally(budget)
        shown = list(tracer.kept_since(since))[-budget:]
        now_ns = tracer.now_ns()
        in_hand = [each for each in tracer.not_ended() if now_ns - each.arrived_ns > LONG_IN_HAND_NS]
        waiting = sorted(in_hand, key=lambda each: each.seq)[:WAITING_MAX]
        clients: Numbers = {}
        topics: Numbers = {}
        rows = [self._row(each, clients, topics) for each in (*shown, *waiting)]
        values = [list(row.values()) for row in rows]
        return {
            "turned_ms": self._turned_ms(),
            "next": tracer.last_number,
            "left_out": max(0, tracer.last_number - since - len(shown)),
            "requests": tally.requests,
            "kept_every": tracer.kept_every,
            "cost_us": tally.cost_us,
            "interval_us": tally.interval_us,
            "parked": sum(each.delayed for each in self._parts.replica_manager.purgatories),
            "open": len(self._connections),
            "connections": {str(each.client.number): each.client.address for each in (*shown, *waiting)},
            "turns": list(self._turns),
            "skipped": tally.skipped,
            "fields": list(rows[0]) if rows else [],
            "exchanges": values[: len(shown)],
            "waiting": values[len(shown) :],
            "clients": list(clients),
            "topics": list(topics),
        }

    def exchange(self, seq: int | str) -> Json:
        """Explain one request, its cause, and the requests that it woke. Raises NotKeptError."""
        found = self._tracer.find(seq) if isinstance(seq, int) else None
        if found is None:
            raise NotKeptError(f"request {seq!r} is no longer kept, or was not recorded")
        numbers = [found.woken_by, *(found.woke or ())][: 1 + WOKE_MAX]
        others = [other for each in numbers if (other := self._tracer.find(each)) is not None]
        explained = [self._explainer.explain(each, with_walks=False) for each in others]
        return self._explainer.explain(found) | {"others": explained}

    def explain(
        self,
        since: int | str = 0,
        budget: int = EXPLAINED_MAX,
        lease_ms: int = LEASE_MS,
        client_id: str | None = None,
        connection: int | None = None,
        api: str | list[str] | None = None,
        topic: str | None = None,
        slower_than_ms: float | None = None,
        parked: bool = False,
        empty: bool = False,
        failed: bool = False,
    ) -> Json:
        """Return the exchanges that have ended since and that match, each explained: 25 at most. Raises ValueError."""
        if slower_than_ms is not None and not (isinstance(slower_than_ms, int | float) and slower_than_ms >= 0):
            raise ValueError(f"slower_than_ms is a number of milliseconds, not {slower_than_ms!r}")
        flags = bool(parked), bool(empty), bool(failed)
        wanted = Filter(client_id, connection, api_keys_of(api), topic, slower_than_ms, *flags)
        tracer = self._tracer
        tracer.watch(lease_ms, wanted)
        if since == "now":
            return {"next": tracer.last_number, "left_out": 0, "explained": []}
        if isinstance(since, str):
            raise ValueError(f"since is a number or 'now', not {since!r}")
        check("since", since, "int")
        there = list(tracer.kept_since(since))
        found = (each for each in there if wanted in each.matched or wanted.fits(each, tracer.facts))
        budget = min(budget, EXPLAINED_MAX)
        matching = list(islice(found, budget))
        return {
            # With more than the budget the next call goes on after the last one.
            "next": matching[-1].number if len(matching) == budget else tracer.last_number,
            "left_out": max(0, tracer.last_number - since - len(there)),
            "explained": [self._explainer.explain(each) for each in matching],
        }

    def release(self) -> Json:
        """End the lease at once."""
        self._tracer.release()
        return {}

    def apis(self) -> Json:
        """Return the names of the APIs by their keys."""
        return {"apis": {str(int(key)): api.name for key, api in API_TABLE.items()}}

    def transcript(self) -> Json:
        """Return the file in which requests and responses are recorded; its path is None on a broker without one."""
        recorder = self._recorder
        path = None if recorder is None else str(recorder.path)
        return {"path": path, "is_recording": recorder is not None and recorder.is_recording}

    # -- rows -------------------------------------------------------------------------------------------------

    def _row(self, exchange: Trace, clients: Numbers, topics: Numbers) -> Json:
        facts = exchange.facts or Facts(wait=wait_of(exchange.operation))
        since, max_wait_ms = exchange.since_arrival_us, facts.wait.max_wait_ms
        return {
            "seq": exchange.seq,
            "connection": exchange.client.number,
            "client": clients.setdefault(exchange.client_id, len(clients)),
            "api": exchange.api_key,
            "version": exchange.api_version,
            "correlation": exchange.correlation_id,
            "arrived": exchange.arrived_ns // 1000,
            "handled": since(exchange.handled_ns),
            "woken": since(exchange.woken_ns),
            "answered": since(exchange.answered_ns),
            "sent": since(exchange.sent_ns),
            "bytes_in": exchange.bytes_in,
            "bytes_out": exchange.bytes_out,
            "outcome": self._tracer.outcome_of(exchange),
            "case": facts.wait.case,
            "woken_by": exchange.woken_by,
            "error": exchange.error,
            "max_wait": max_wait_ms if max_wait_ms < 0 else max_wait_ms * 1000,
            "woke": exchange.woke or [],
            "topics": [topics.setdefault(name, len(topics)) for name in self._tracer.facts.topics_of(exchange)],
            "records": facts.records,
        }


def api_keys_of(names: str | list[str] | None) -> frozenset[int] | None:
    """The keys of APIs by Kafka's names in any spelling. Raises ValueError."""
    if names is None:
        return None
    by_name = {plain(api.name): int(key) for key, api in API_TABLE.items()}
    keys = set()
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str):
            raise ValueError(f"{name!r} is not the name of an API")
        if plain(name) not in by_name:
            step = next_step(
                name, (api.name for api in API_TABLE.values()), "write a name such as Fetch or ListOffsets"
            )
            raise ValueError(f"{name!r} is not a known API; {step}")
        keys.add(by_name[plain(name)])
    return frozenset(keys)


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def check(name: str, value: object, annotation: str) -> None:
    """Check a value that is a number or text by its annotation. Raises ValueError."""
    if value is None and annotation.endswith(" | None"):
        return
    kind = annotation.removesuffix(" | None")
    if kind == "int":
        least, most = BOUNDS[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{name} is a whole number from {least} to {most}, not {value!r}")
    elif kind == "str" and not isinstance(value, str):
        raise ValueError(f"{name} is a name, not {value!r}")
