"""Traces requests while a console or a test looks; a broker without `--control` has no tracer.

Without a lease it looks at nothing. A lease lasts for seconds, and each look renews it. Nothing is pushed: traces that
have ended are kept in a ring, in the order of their ends, and each look pulls the new ones.

Of a busy broker a sample is traced: one in `kept_every` requests, at irregular distances, so that each pull gets
`SAMPLE` of them; tracing a request takes about as long as serving it. Of the rest only the request in hand is known.
Such a request gets a trace only if it is parked, wakes one of the sample, closes its connection, or has an error in its
answer while the broker counts; it counts by the sample. A filter traces every request.

What completes a parked Fetch answers it in its own call. So the request in hand is the cause of each wait that ends.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterator
from itertools import islice
from random import Random
from typing import Any, NamedTuple

from minibroker.broker.apis.client import Client
from minibroker.broker.parts import BrokerParts
from minibroker.broker.way.exchange import Exchange
from minibroker.broker.way.probes import Probe
from minibroker.broker.wings.looking.answers import first_error
from minibroker.broker.wings.looking.exchange_facts import NEVER, Facts
from minibroker.broker.wings.looking.facts import FactsTaker
from minibroker.broker.wings.looking.trace import (
    AT_ONCE,
    CLOSED,
    EXPIRED,
    GONE,
    LENGTH_BYTES,
    SENDING,
    SILENT,
    WAITS,
    WOKEN,
    Trace,
)
from minibroker.protocol.api import ApiKey
from minibroker.purgatory.delayed_operation import DelayedOperation, Ending
from minibroker.purgatory.purgatory import Purgatory

logger = logging.getLogger(__name__)

RING_SIZE = 4096
SLOW_NS = 10_000_000  # an exchange that takes longer is kept whatever the sampling
SAMPLE = 20  # requests a pull
SHORTEST_NS = 10_000_000  # between two pulls, for the rate of requests to be known
WOKE_MAX = 32
WANTS_MAX = 16  # filters at a time
PULL_NS = 100_000_000  # from one pull to the next
DEFAULT_BUDGET = 100
RANDOM = Random()


class Filter(NamedTuple):
    """Chooses the exchanges that match every given field."""

    client_id: str | None = None
    connection: int | None = None
    api_keys: frozenset[int] | None = None
    topic: str | None = None
    slower_than_ms: float | None = None
    parked: bool = False
    empty: bool = False  # a Fetch that was answered without records
    failed: bool = False

    def fits(self, exchange: Trace, facts: FactsTaker) -> bool:
        """Return whether it chooses an exchange that has ended."""
        took_ms = (exchange.end_ns - exchange.arrived_ns) / 1e6
        return (
            (self.api_keys is None or exchange.api_key in self.api_keys)
            and self.connection in (None, exchange.client.number)
            and self.client_id in (None, exchange.client_id)
            and (exchange.is_parked or not self.parked)
            and (bool(exchange.error) or not self.failed)
            and (self.slower_than_ms is None or took_ms >= self.slower_than_ms)
            and (not self.empty or facts.is_empty(exchange))
            and (self.topic is None or facts.names_topic(exchange, self.topic))
        )


class Seen:
    """Counts of a connection since the watch began: by API its version, requests, bytes in and out; its errors."""

    __slots__ = ("errors", "last_error", "requests")

    def __init__(self) -> None:
        self.requests: dict[int, list[int]] = {}
        self.errors = 0
        self.last_error: str | None = None

    def note(self, exchange: Trace) -> None:
        """Count it, and those for which it stands."""
        counts, weight = self.requests.setdefault(exchange.api_key, [0, 0, 0, 0]), exchange.weight
        counts[0] = exchange.api_version
        counts[1] += weight
        counts[2] += exchange.bytes_in * weight
        counts[3] += max(0, exchange.bytes_out) * weight
        if exchange.error:
            self.errors += 1
            self.last_error = exchange.error


class Tally(NamedTuple):
    """Sums since the last tally."""

    requests: int
    cost_us: int
    interval_us: int
    skipped: list[tuple[int, int, int]]  # connection, API key, how many were not kept


class Tracer(Probe):
    """Looks at the requests of a broker with these `parts`. `encrypted` are its listeners with TLS.

    `now_ns` is the machine's monotonic clock, which no turn of the broker's clock moves. `draw` returns the distance
    from one request of the sample to the next, for its mean.
    """

    def __init__(
        self,
        parts: BrokerParts,
        encrypted: Container[str] = (),
        now_ns: Callable[[], int] = time.perf_counter_ns,
        draw: Callable[[int], int] | None = None,
    ) -> None:
        self.is_watching = False
        self.now_ns = now_ns
        self.facts = FactsTaker(parts)
        self.kept_every = 1  # of the requests each n-th is in the sample
        self._probes = parts.probes
        self._timer = parts.timers.timer
        self._encrypted = encrypted
        self._pulled_until_ns = 0  # the lease of those who pull a sample
        self._wants: dict[Filter, int] = {}  # the leases of those who want all that a filter chooses
        self._until_ns = 0  # the last of all leases
        self._seq = 0
        self._draw = distance if draw is None else draw  # from one request of the sample to the next
        self._count = 0  # of all requests
        self._counted = 0  # of them up to the last one that was traced
        self._tallied = 0  # of them at the last tally
        self._next = 1  # of them that is in the sample
        self._left = SAMPLE  # of the sample, until it becomes thinner
        self._specials_left = DEFAULT_BUDGET  # traces outside of the sample, up to the next tally
        self._current: Exchange | None = None  # the request in hand
        self._in_hand: dict[int, Trace] = {}  # by connection, up to the response
        self._parked: dict[DelayedOperation, Trace] = {}
        self._unsent: dict[int, list[Trace]] = {}  # by connection, from the response to its last byte
        self._seen: defaultdict[int, Seen] = defaultdict(Seen)
        self._ring: deque[Trace] = deque()
        self._by_seq: dict[int, Trace] = {}
        self._kept = 0
        self._cost_ns = 0
        self._skipped: Counter[tuple[int, int]] = Counter()
        self._tallied_ns = now_ns()

    # -- leases -----------------------------------------------------------------------------------------------

    def watch(self, lease_ms: int, wanted: Filter | None = None) -> None:
        """Trace for at least this time; all that `wanted` chooses, else a sample. Raises ValueError."""
        now_ns = self.now_ns()
        until_ns = now_ns + lease_ms * 1_000_000
        self._wants = {each: until for each, until in self._wants.items() if until > now_ns}
        if wanted is None:
            self._pulled_until_ns = max(self._pulled_until_ns, until_ns)
        else:
            if len(self._wants) >= WANTS_MAX and wanted not in self._wants:
                raise ValueError(f"{WANTS_MAX} filters are followed already; let one end")
            self._wants[wanted] = until_ns
        self._until_ns = max(self._pulled_until_ns, *self._wants.values(), 0)
        if not self.is_watching:
            self.is_watching = True
            self._probes.add(self)
            self._counted = self._count
            self._tally_anew(now_ns)

    def release(self) -> None:
        """End all leases; keep the ring."""
        self.is_watching = False
        self._probes.remove(self)
        self._current = None
        self._in_hand.clear()
        self._parked.clear()
        self._unsent.clear()
        self._wants.clear()
        self._seen.clear()
        self._pulled_until_ns = self._until_ns = 0

    # -- steps of a request -----------------------------------------------------------------------------------

    def began(self, exchange: Exchange) -> None:
        self._current = exchange
        self._count += 1
        if self._count < self._next and not self._wants:
            return
        arrived_ns = self.now_ns()
        if arrived_ns > self._until_ns:
            self.release()
            return
        trace = self._begin(exchange, arrived_ns)
        trace.weight, self._counted = self._count - self._counted, self._count
        trace.is_sampled = self._count >= self._next
        if trace.is_sampled:
            self._left -= 1
            if not self._left:  # far more have come than in the interval before
                self._left = SAMPLE
                self.kept_every *= 2
            self._next = self._count + self._draw(self.kept_every)
        self._spent(self.now_ns() - arrived_ns)

    def asked(self, exchange: Exchange) -> None:
        request, trace = exchange.request, self._trace_of(exchange)
        if trace is not None and request is not None and request.api_key == ApiKey.PRODUCE:
            trace.before = self.facts.before(request)

    def parked(self, operation: DelayedOperation) -> None:
        """Trace a request that is parked, although it is not in the sample."""
        self._trace_special(self._current)

    def waits(self, exchange: Exchange, source: object) -> None:
        if exchange.last_words:  # it did not authenticate
            self._trace_special(exchange)
        trace = self._leave_call(exchange)
        if trace is None:
            return
        trace.handled_ns = self.now_ns()
        trace.outcome = WAITS
        if exchange.is_login:
            trace.ended_by = "delay"  # of the answer to one that failed
        elif exchange.strike is not None:
            trace.ended_by = "fault"  # which holds it back
        if isinstance(source, DelayedOperation):
            self._parked[source] = trace
            trace.operation = source
            trace.wheel_ms = self._timer.now_ms
            trace.first_bytes = getattr(source, "seen_bytes", NEVER)
        self._spent(self.now_ns() - trace.handled_ns)

    def woken(self, purgatory: Purgatory, operation: DelayedOperation, ending: Ending) -> None:
        """Note the end of a wait, before what waited reads again."""
        trace = self._parked.pop(operation, None)
        if trace is None:
            return
        trace.woken_ns = self.now_ns()
        trace.outcome = EXPIRED if ending == "expired" else WOKEN
        if ending == "expired":
            trace.ended_by = "time"
        self._note_cause(trace)

    def answered(self, exchange: Exchange) -> None:
        trace = self._trace_of(exchange)
        if trace is not None and trace.is_parked:
            trace.reads_ns = self.now_ns()

    def failed(self, exchange: Exchange) -> None:
        """Trace a request whose answer has an error code, although it is not in the sample."""
        self._trace_special(exchange)

    def handed(self, exchange: Exchange, chunks: list[Any] | None) -> None:
        trace = self._leave_call(exchange)
        if trace is None:
            return
        now_ns = trace.answered_ns = self.now_ns()
        if trace.is_parked:
            self._note_end_of_wait(trace, now_ns)
        else:
            trace.handled_ns = now_ns
        self._answer(trace, chunks)
        self._spent(self.now_ns() - now_ns)

    def refused(self, exchange: Exchange, error: Exception) -> None:
        if exchange is self._current:
            self._trace_current()
        trace = self._leave_call(exchange)
        if trace is None:
            return
        if trace.is_parked:
            self._note_end_of_wait(trace, self.now_ns())
        self._in_hand.pop(trace.client.number, None)
        trace.outcome, trace.error = CLOSED, str(error)
        self._finish(trace)

    def sent(self, client: Client, is_in_the_call: bool) -> None:
        traces = self._unsent.pop(client.number, None)
        if traces is None:
            return
        sent_ns = self.now_ns()
        for trace in traces:
            trace.sent_ns, trace.is_sent_in_the_call = sent_ns, is_in_the_call
            self._finish(trace)
        self._spent(self.now_ns() - sent_ns)

    def closed(self, client: Client, reason: str) -> None:
        """End what its client did not wait for."""
        waiting = self._in_hand.pop(client.number, None)
        for trace in ([] if waiting is None else [waiting]) + self._unsent.pop(client.number, []):
            trace.outcome = GONE
            self._finish(trace)
        self._seen.pop(client.number, None)

    # -- the request in hand ----------------------------------------------------------------------------------

    def _begin(self, exchange: Exchange, arrived_ns: int) -> Trace:
        self._seq += 1
        trace = self._in_hand[exchange.client.number] = Trace(self._seq, exchange, arrived_ns)
        return trace

    def _trace_of(self, exchange: Exchange) -> Trace | None:
        trace = self._in_hand.get(exchange.client.number)
        return trace if trace is not None and trace.exchange is exchange else None

    def _trace_current(self) -> Trace:
        """The trace of the request in hand: begun now if it is not in the sample."""
        assert self._current is not None
        trace = self._trace_of(self._current)
        if trace is None:
            trace = self._begin(self._current, self.now_ns())
            trace.is_sampled, trace.weight = False, 0
        return trace

    def _trace_special(self, exchange: Exchange | None) -> None:
        """Trace the request in hand, if it is this one, and if one more outside of the sample may be traced."""
        if exchange is None or exchange is not self._current or self._trace_of(exchange) is not None:
            return
        if self._specials_left > 0:
            self._specials_left -= 1
            self._trace_current()

    def _leave_call(self, exchange: Exchange) -> Trace | None:
        """The call of a request ends, if it is the one in hand; return its trace."""
        if exchange is self._current:
            self._current = None
        trace = self._trace_of(exchange)
        if trace is not None:
            trace.client_id = exchange.client.client_id
        return trace

    def _spent(self, ns: int) -> None:
        self._cost_ns += ns

    def _note_end_of_wait(self, trace: Trace, now_ns: int) -> None:
        """Note the end of a wait that no purgatory kept."""
        if trace.woken_ns == NEVER:
            trace.woken_ns = now_ns if trace.reads_ns == NEVER else trace.reads_ns
            self._note_cause(trace)
            trace.outcome = EXPIRED if trace.ended_by == "time" else WOKEN

    def _note_cause(self, trace: Trace) -> None:
        if self._current is None or self._current is trace.exchange:
            trace.ended_by = trace.ended_by or self._guessed_cause(trace)
            return
        cause = self._trace_current()
        trace.ended_by, trace.woken_by = "request", cause.seq
        cause.note_woken(trace.seq, WOKE_MAX)

    def _guessed_cause(self, trace: Trace) -> str:
        """Guess the end of a wait that is neither in a purgatory nor ended by a request."""
        if trace.api_key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP):
            return "time"
        operation = trace.operation
        if operation is None:
            return "flush" if trace.api_key == ApiKey.PRODUCE else "other"
        return "flush" if getattr(operation, "case", "") == "D" and self.facts.waits_for_disk(operation) else "other"

    def _answer(self, trace: Trace, chunks: list[Any] | None) -> None:
        number = trace.client.number
        self._in_hand.pop(number, None)
        trace.error = first_error(trace.api_key, trace.body)
        if not chunks:
            if not trace.is_parked:
                trace.outcome = SILENT
            self._finish(trace)
            return
        trace.encoded = chunks
        trace.bytes_out = int.from_bytes(chunks[0][:LENGTH_BYTES], "big") + LENGTH_BYTES
        if trace.client.frames is None:  # it has no connection
            self._finish(trace)
        else:
            self._unsent.setdefault(number, []).append(trace)

    # -- what is kept -----------------------------------------------------------------------------------------

    def _finish(self, trace: Trace) -> None:
        """Keep an exchange that has ended, or count it."""
        weight, number = trace.weight, trace.client.number
        self._seen[number].note(trace)
        if self._wants:
            trace.matched = [each for each in self._wants if each.fits(trace, self.facts)]
        is_pulled = trace.is_sampled and self._pulled_until_ns > trace.arrived_ns
        is_kept = is_pulled or bool(trace.matched) or self._is_special(trace)
        if is_kept:
            self._keep(trace)
        if weight > is_kept:
            self._skipped[number, trace.api_key] += weight - is_kept

    def _is_special(self, trace: Trace) -> bool:
        is_usual = trace.outcome in (AT_ONCE, SILENT) and not trace.error and trace.woke is None
        return not is_usual or trace.end_ns - trace.arrived_ns >= SLOW_NS

    def _keep(self, trace: Trace) -> None:
        try:
            trace.facts = self.facts.take(trace)
        except Exception:  # fails the explanation, not the request
            logger.exception("request %d cannot be explained: a defect of minibroker", trace.seq)
            trace.facts = Facts()
        trace.note_sent(is_encrypted=trace.client.listener in self._encrypted)
        trace.exchange = trace.operation = trace.before = trace.encoded = None
        self._kept += 1
        trace.number = self._kept
        self._by_seq[trace.seq] = trace
        self._ring.append(trace)
        if len(self._ring) > RING_SIZE:
            del self._by_seq[self._ring.popleft().seq]

    # -- for those who look -----------------------------------------------------------------------------------

    @property
    def last_number(self) -> int:
        """The number of the last exchange that was kept."""
        return self._kept

    def kept_since(self, number: int) -> Iterator[Trace]:
        """Return the exchanges kept after this number that are still there, in the order of their ends."""
        first = self._kept - len(self._ring)
        return islice(self._ring, max(0, number - first), None)

    def find(self, seq: int) -> Trace | None:
        """An exchange that is kept, or that has not ended."""
        return self._by_seq.get(seq) or next((each for each in self.not_ended() if each.seq == seq), None)

    def not_ended(self) -> Iterator[Trace]:
        """Yield the exchanges that wait, and the ones that are being sent."""
        yield from self._in_hand.values()
        for traces in self._unsent.values():
            yield from traces

    def in_hand(self, number: int) -> Trace | None:
        """The exchange of a connection that has not been answered."""
        return self._in_hand.get(number)

    def seen_of(self, number: int) -> Seen:
        """Return what a connection has asked since the watch began."""
        return self._seen.get(number) or Seen()

    def outcome_of(self, trace: Trace) -> str:
        """Return how it ended, or its state."""
        is_unsent = trace.number == NEVER and trace.answered_ns != NEVER
        return SENDING if is_unsent else trace.outcome

    def tally(self, budget: int) -> Tally:
        """Return what has happened since the last tally, and choose the sample for the time until the next one.

        It has at most `budget` requests a pull.
        """
        now_ns = self.now_ns()
        interval_ns, requests = max(1, now_ns - self._tallied_ns), self._count - self._tallied
        skipped = [(*key, count) for key, count in self._skipped.items()]
        tally = Tally(requests, self._cost_ns // 1000, interval_ns // 1000, skipped)
        self._specials_left, self._left = budget, 2 * min(budget, SAMPLE)
        self.kept_every = max(1, -(-requests * PULL_NS // max(interval_ns, SHORTEST_NS) // min(budget, SAMPLE)))
        self._next = self._count + self._draw(self.kept_every)
        self._tally_anew(now_ns)
        return tally

    def _tally_anew(self, now_ns: int) -> None:
        self._tallied, self._tallied_ns, self._cost_ns = self._count, now_ns, 0
        self._skipped.clear()


def distance(mean: int) -> int:
    """A random distance of this mean: a regular one might choose the same of several connections each time."""
    return 1 if mean == 1 else RANDOM.randrange(1, 2 * mean)
