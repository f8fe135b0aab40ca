"""The control calls `inside.*`: what a console and tests pull from the broker.

Each returns a value for JSON. All but `inside.pull`, `inside.explain` and `inside.release` change nothing. Requests are
arrays in the order of `EXCHANGE_FIELDS`, as thousands a second may go by; one request in full is an object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

from minibroker.broker.inside.explanation import Explainer
from minibroker.broker.inside.snapshots import Snapshots
from minibroker.broker.inside.trace import NEVER, Trace
from minibroker.broker.inside.tracer import Filter, Tracer
from minibroker.broker.network.connection import Connection
from minibroker.broker.parts import BrokerParts
from minibroker.broker.time.clock import Clock
from minibroker.protocol.api import API_TABLE

if TYPE_CHECKING:
    from minibroker.transcript.recorder import Recorder

LEASE_MS = 2_000
LEASES_MS = (100, 3_600_000)
BUDGETS = (1, 1000)
WAITING_MAX = 200
LONG_IN_HAND_NS = 50_000_000
TURNS_MAX = 64
RUN_BITS = 48
WOKE_MAX = 8  # of the requests that one woke
OFFSET_MAX = 1 << 62
PARTITION_MAX = (1 << 31) - 1
LOGS_MAX = 200

Json = dict[str, Any]

EXCHANGE_FIELDS = (
    "seq", "connection", "client", "api", "version", "correlation", "arrived", "handled", "woken", "answered", "sent",
    "bytes_in", "bytes_out", "outcome", "case", "woken_by", "error", "max_wait", "woke", "topics", "records",
)  # fmt: skip


class NotKeptError(ValueError):
    """A request has left the ring, or was never in it; `code` goes to the caller."""

    code = "not-kept"


class Table:
    """Numbers values in the order in which they first come."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def values(self) -> list[Any]:
        return list(self._numbers)


class InsideCalls:
    """`by_name` has the calls. `turned_ms`: by how much the broker's clock was turned."""

    def __init__(
        self,
        tracer: Tracer,
        parts: BrokerParts,
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
        self._snapshots = Snapshots(tracer, parts, connections)
        self._run = Random().getrandbits(RUN_BITS)
        self._turns: deque[tuple[int, int]] = deque(maxlen=TURNS_MAX)
        self.by_name: dict[str, Callable[..., object]] = {
            "inside.pull": self.pull,
            "inside.exchange": self.exchange,
            "inside.explain": self.explain,
            "inside.release": self.release,
            "inside.apis": self.apis,
            "inside.log": self.log,
            "inside.logs": self.logs,
            "inside.purgatory": self.purgatory,
            "inside.connections": self.connections,
            "inside.sessions": self.sessions,
            "inside.groups": self.groups,
            "inside.transcript": self.transcript,
        }

    def noting_turns(self, advance: Callable[[float], Awaitable[None]]) -> Callable[[float], Awaitable[None]]:
        """The call that advances the clock, with a note of each turn."""

        async def advanced(seconds: float) -> None:
            at_us = self._tracer.now_ns() // 1000
            before_ms = self._turned_ms()
            try:
                await advance(seconds)
            finally:
                if self._turned_ms() != before_ms:
                    self._turns.append((at_us, self._turned_ms() - before_ms))

        return advanced

    def _head(self) -> Json:
        return {"run": self._run, "now_us": self._tracer.now_ns() // 1000, "broker_ms": self._clock.wall_ms()}

    # -- calls ------------------------------------------------------------------------------------------------

    def pull(self, since: int = 0, budget: int = 100, lease_ms: int = LEASE_MS) -> Json:
        """Return the exchanges that have ended since, and those in hand. Raises ValueError."""
        check_number("since", since, 0, OFFSET_MAX)
        check_number("budget", budget, *BUDGETS)
        check_number("lease_ms", lease_ms, *LEASES_MS)
        tracer = self._tracer
        tracer.watch(lease_ms)
        tally = tracer.tally(budget)
        ended = list(tracer.kept_since(since))
        shown = ended[-budget:]
        now_ns = self._tracer.now_ns()
        waiting = [each for each in tracer.not_ended() if now_ns - each.arrived_ns > LONG_IN_HAND_NS]
        waiting.sort(key=lambda each: each.seq)
        del waiting[WAITING_MAX:]
        clients, topics = Table(), Table()
        replicas = self._parts.replica_manager
        purgatories = (replicas.fetch_purgatory, replicas.produce_purgatory, replicas.delete_records_purgatory)
        return self._head() | {
            "turned_ms": self._turned_ms(),
            "next": tracer.last_number,
            "left_out": max(0, tracer.last_number - since - len(shown)),
            "requests": tally.requests,
            "kept_every": tracer.kept_every,
            "cost_us": tally.cost_us,
            "interval_us": tally.interval_us,
            "parked": sum(each.delayed for each in purgatories),
            "open": len(self._connections),
            "connections": {str(each.client.number): each.client.address for each in (*shown, *waiting)},
            "turns": list(self._turns),
            "skipped": tally.skipped,
            "exchanges": [self._row(each, clients, topics) for each in shown],
            "waiting": [self._row(each, clients, topics) for each in waiting],
            "clients": clients.values(),
            "topics": topics.values(),
        }

    def exchange(self, seq: int) -> Json:
        """Explain one request, its cause, and those that it woke. Raises NotKeptError."""
        found = self._tracer.find(seq) if isinstance(seq, int) else None
        if found is None:
            raise NotKeptError(f"request {seq!r} is no longer kept, or was not recorded")
        return self._head() | self._explained(found)

    def explain(
        self,
        since: int | str = 0,
        budget: int = 50,
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
        """Return the exchanges that have ended since and that match, each explained. Raises ValueError."""
        check_number("budget", budget, *BUDGETS)
        check_number("lease_ms", lease_ms, *LEASES_MS)
        check_name("client_id", client_id)
        check_name("topic", topic)
        if connection is not None:
            check_number("connection", connection, 1, OFFSET_MAX)
        if slower_than_ms is not None and not (isinstance(slower_than_ms, int | float) and slower_than_ms >= 0):
            raise ValueError(f"slower_than_ms is a number of milliseconds, not {slower_than_ms!r}")
        flags = bool(parked), bool(empty), bool(failed)
        wanted = Filter(client_id, connection, api_keys_of(api), topic, slower_than_ms, *flags)
        tracer = self._tracer
        tracer.watch(lease_ms, wanted)
        if since == "now":
            return self._head() | {"next": tracer.last_number, "left_out": 0, "explained": []}
        if isinstance(since, str):
            raise ValueError(f"since is a number or 'now', not {since!r}")
        check_number("since", since, 0, OFFSET_MAX)
        there = list(tracer.kept_since(since))
        left_out = tracer.last_number - since - len(there)
        found = (each for each in there if wanted in each.matched or fits_what_is_kept(wanted, each))
        matching = list(islice(found, budget))
        # With more than the budget the next call goes on after the last one.
        following = matching[-1].number if len(matching) == budget else tracer.last_number
        explained = [self._explainer.explain(each) for each in matching]
        return self._head() | {"next": following, "left_out": max(0, left_out), "explained": explained}

    def release(self) -> None:
        """End the lease at once."""
        self._tracer.release()

    def apis(self) -> Json:
        return {"run": self._run, "apis": {str(int(key)): api.name for key, api in API_TABLE.items()}}

    def log(self, topic: str, partition: int, offset: int | None = None, after: int | None = None) -> Json:
        """Return a partition's segments, and what lies around an offset. Raises ValueError."""
        check_name("topic", topic)
        check_number("partition", partition, 0, PARTITION_MAX)
        for name, value in (("offset", offset), ("after", after)):
            if value is not None:
                check_number(name, value, 0, OFFSET_MAX)
        return self._head() | self._snapshots.log(topic, partition, offset, after)

    def logs(self, topic: str, partitions: list[int]) -> Json:
        """Return the end and the number of segments of these logs; those that do not exist are left out."""
        check_name("topic", topic)
        if not isinstance(partitions, list) or len(partitions) > LOGS_MAX:
            raise ValueError(f"partitions is a list of {LOGS_MAX} numbers at most")
        for each in partitions:
            check_number("partition", each, 0, PARTITION_MAX)
        return self._head() | {"rows": self._snapshots.logs(topic, partitions)}

    def purgatory(self, budget: int = 200) -> Json:
        """Return the operations that wait, on their wheel. Raises ValueError."""
        check_number("budget", budget, *BUDGETS)
        return self._head() | self._snapshots.purgatory(budget)

    def connections(self, after: int = 0, budget: int = 500) -> Json:
        """Return the open connections. Raises ValueError."""
        check_number("after", after, 0, OFFSET_MAX)
        check_number("budget", budget, *BUDGETS)
        return self._head() | self._snapshots.connections(after, budget)

    def sessions(self, after: int = 0, budget: int = 200) -> Json:
        """Return the fetch sessions. Raises ValueError."""
        check_number("after", after, 0, OFFSET_MAX)
        check_number("budget", budget, *BUDGETS)
        return self._head() | self._snapshots.sessions(after, budget)

    def groups(self, group_id: str | None = None) -> Json:
        """Return why groups rebalanced last. Raises ValueError."""
        check_name("group_id", group_id)
        return self._head() | self._snapshots.groups(group_id)

    def transcript(self) -> Json:
        """Return the file in which requests and responses are recorded; its path is None on a broker without one."""
        recorder = self._recorder
        path = None if recorder is None else str(recorder.path)
        return self._head() | {"path": path, "is_recording": recorder is not None and recorder.is_recording}

    # -- rows -------------------------------------------------------------------------------------------------

    def _row(self, exchange: Trace, clients: Table, topics: Table) -> list[Any]:
        facts = exchange.facts
        since = exchange.since_arrival_us
        client_id = exchange.client_id if facts is not None else exchange.client.client_id
        operation = exchange.operation
        waits_ms = NEVER if operation is None else operation.delay_ms
        max_wait_ms = waits_ms if facts is None else facts.max_wait_ms
        return [
            exchange.seq,
            exchange.client.number,
            clients.number(client_id),
            exchange.api_key,
            exchange.api_version,
            exchange.correlation_id,
            exchange.arrived_ns // 1000,
            since(exchange.handled_ns),
            since(exchange.woken_ns),
            since(exchange.answered_ns),
            since(exchange.sent_ns),
            exchange.bytes_in,
            exchange.bytes_out,
            self._tracer.outcome_of(exchange),
            "" if facts is None or facts.fetch is None else facts.fetch.case,
            exchange.woken_by,
            exchange.error,
            max_wait_ms if max_wait_ms < 0 else max_wait_ms * 1000,
            exchange.woke or [],
            [topics.number(name) for name in self._tracer.facts.topics_of(exchange)],
            0 if facts is None else facts.records,
        ]

    def _explained(self, exchange: Trace) -> Json:
        explained = self._explainer.explain(exchange)
        others = [exchange.woken_by, *(exchange.woke or ())][: 1 + WOKE_MAX]
        found = [other for seq in others if (other := self._tracer.find(seq)) is not None]
        return explained | {"others": [self._explainer.explain(each, with_walks=False) for each in found]}


def fits_what_is_kept(wanted: Filter, exchange: Trace) -> bool:
    """Whether a filter chooses an exchange that is kept, by its facts."""
    facts = exchange.facts
    if facts is None:
        return False
    if wanted.api_keys is not None and exchange.api_key not in wanted.api_keys:
        return False
    if wanted.connection not in (None, exchange.client.number) or wanted.client_id not in (None, exchange.client_id):
        return False
    if wanted.slower_than_ms is not None and exchange.end_ns - exchange.arrived_ns < wanted.slower_than_ms * 1e6:
        return False
    if (wanted.parked and not exchange.is_parked) or (wanted.failed and not exchange.error):
        return False
    if wanted.empty and (facts.fetch is None or facts.fetch.bytes > 0 or exchange.error):
        return False
    return wanted.topic is None or wanted.topic in facts.topics


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
            raise ValueError(f"{name!r} is not a known API; write a name such as Fetch or ListOffsets")
        keys.add(by_name[plain(name)])
    return frozenset(keys)


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def check_name(name: str, value: object) -> None:
    """Raises ValueError unless it is text, or None."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is a name, not {value!r}")


def check_number(name: str, value: object, least: int, most: int) -> None:
    """Raises ValueError unless it is a whole number within these bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is a whole number from {least} to {most}, not {value!r}")
