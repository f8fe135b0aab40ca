"""Traces requests while a console or a test looks; a broker without `--control` has no tracer.

It wraps the `dispatch` of the fault injector, and `registry.answer` for the requests that it traces:

    connections -> recorder -> tracer -> faults -> registry

Before its client has authenticated, a connection's requests go through `around` instead:

    connections -> recorder -> tracer -> authentication

Without a lease a request costs the test of an attribute. A lease lasts for seconds, and each look renews it. Nothing is
pushed: exchanges that have ended are kept in a ring, in the order of their ends, and each look pulls the new ones.

Of a busy broker a sample is traced: one in `kept_every` requests, at irregular distances. The rest run the plain code,
between a countdown and a note of the request in hand. Such a request becomes an exchange only if it is parked, wakes
one of the sample, closes its connection, or has an error in its answer while the broker counts; it counts by the
sample. A filter traces every request.

What completes a parked Fetch answers it in its own call. So the request in hand is the cause of each wait that ends.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from random import Random
from typing import Any, Literal, NamedTuple

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.apis.registry import Encode
from minibroker.broker.inside.errors import first_error
from minibroker.broker.inside.exchange import (
    AT_ONCE,
    CLOSED,
    EXPIRED,
    GONE,
    NEVER,
    SENDING,
    SILENT,
    WAITS,
    WOKEN,
    Exchange,
)
from minibroker.broker.inside.facts import NO_FACTS, FactsTaker
from minibroker.broker.network.connection import Connection, Dispatch, Encoded
from minibroker.broker.parts import BrokerParts
from minibroker.broker.pending import Pending
from minibroker.protocol.api import HEADER, ApiKey, Request
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.purgatory.delayed_operation import DelayedOperation, Ending

logger = logging.getLogger(__name__)

RING_SIZE = 4096
SLOW_NS = 10_000_000  # an exchange that takes longer is kept whatever the sampling
SHARE = 0.007  # of the time between two pulls, for the sample
ENOUGH_TO_JUDGE = 10  # requests traced between two pulls, by which their cost is known
SAMPLES_OVER = 2  # times the budget of a pull, before it the sample becomes thinner
FIRST_PULL_NS = 10_000_000  # a look that begins knows nothing of the load: it keeps the sample of the one before
WOKE_MAX = 32
WANTS_MAX = 16  # filters at a time
LENGTH_BYTES = 4
PULLS_A_SECOND = 10
NO_HEADER = (-1, -1, -1)
TOKEN = (int(ApiKey.SASL_AUTHENTICATE), -1, -1)  # a token without a header stands for a SaslAuthenticate
DEFAULT_BUDGET = 100
RANDOM = Random()

Body = Any
Login = Literal["", "request", "token"]
Light = tuple[bytearray, Client]  # a request that is not in the sample: its frame, its client


class Filter(NamedTuple):
    """Chooses exchanges: those that match every given field."""

    client_id: str | None = None
    connection: int | None = None
    api_keys: frozenset[int] | None = None
    topic: str | None = None
    slower_than_ms: float | None = None
    parked: bool = False
    empty: bool = False  # a Fetch that was answered without records
    failed: bool = False

    def fits(self, exchange: Exchange, facts: FactsTaker) -> bool:
        """Whether it chooses an exchange that has ended, and whose request is still there."""
        if self.api_keys is not None and exchange.api_key not in self.api_keys:
            return False
        if self.connection is not None and exchange.client.number != self.connection:
            return False
        if self.client_id is not None and exchange.client_id != self.client_id:
            return False
        if self.parked and not exchange.is_parked:
            return False
        if self.failed and not exchange.error:
            return False
        if self.slower_than_ms is not None and exchange.end_ns - exchange.arrived_ns < self.slower_than_ms * 1e6:
            return False
        if self.empty and not is_empty_fetch(exchange):
            return False
        return self.topic is None or facts.names_topic(exchange, self.topic)


def is_empty_fetch(exchange: Exchange) -> bool:
    """Whether a Fetch was answered without an error and without records."""
    if exchange.api_key != ApiKey.FETCH or exchange.body is None or exchange.error:
        return False
    return not any(row[7] for _, rows in exchange.body.topics for row in rows)


class Seen:
    """What a connection has asked since the watch began: by API its version, requests, bytes in and out; its errors."""

    __slots__ = ("errors", "last_error", "requests")

    def __init__(self) -> None:
        self.requests: dict[int, list[int]] = {}
        self.errors = 0
        self.last_error: str | None = None

    def add(self, api_key: int, version: int, requests: int, bytes_in: int, bytes_out: int) -> None:
        counts = self.requests.get(api_key)
        if counts is None:
            counts = self.requests[api_key] = [0, 0, 0, 0]
        counts[0] = version
        counts[1] += requests
        counts[2] += bytes_in
        counts[3] += bytes_out

    def note(self, exchange: Exchange) -> None:
        """Count it, and those for which it stands."""
        weight, bytes_out = exchange.weight, max(0, exchange.bytes_out)
        self.add(exchange.api_key, exchange.api_version, weight, exchange.bytes_in * weight, bytes_out * weight)
        if exchange.error:
            self.errors += 1
            self.last_error = exchange.error


class Tally(NamedTuple):
    """What has happened since the last tally."""

    requests: int
    cost_us: int
    interval_us: int
    skipped: list[tuple[int, int, int]]  # connection, API key, how many were not kept


class Tracer:
    """`dispatch` stands before the `inner` one. `connections` are the open ones, of which it watches the sends.

    `now_ns` is the machine's monotonic clock, which no turn of the broker's clock moves. `draw` returns the distance
    from one request of the sample to the next, for its mean.
    """

    def __init__(
        self,
        inner: Dispatch,
        parts: BrokerParts,
        connections: Collection[Connection] = (),
        now_ns: Callable[[], int] = time.perf_counter_ns,
        draw: Callable[[int], int] | None = None,
    ) -> None:
        self.is_watching = False
        self.now_ns = now_ns
        self.facts = FactsTaker(parts)
        self.kept_every = 1  # of the plain exchanges each n-th is kept
        self.dispatch = self._watched(inner)
        self._registry = parts.registry
        self._timer = parts.timers.timer
        self._connections = connections
        self._purgatories = parts.purgatories
        self._inner_answer: Callable[[Request, Client], Body | Pending[Body]] = parts.registry.answer
        self._pulled_until_ns = 0  # the lease of those who pull a sample
        self._wants: dict[Filter, int] = {}  # the leases of those who want all that a filter chooses
        self._until_ns = 0  # the last of all leases
        self._seq = 0
        self._draw = distance if draw is None else draw  # from one request of the sample to the next
        self._distance = self._countdown = 1
        self._traced = 0  # since the last tally
        self._budget = DEFAULT_BUDGET
        self._thins_at = SAMPLES_OVER * DEFAULT_BUDGET
        self._specials_left = (
            DEFAULT_BUDGET  # requests outside of the sample that may still be kept, up to the next tally
        )
        self._current: Exchange | Light | None = None
        self._login: Login = ""  # whether the request in hand is one, or a token without a header
        self._inner_encoded: Encode = parts.registry.encoded
        self._in_hand: dict[int, Exchange] = {}  # by connection, up to the response
        self._unsent: dict[int, list[Exchange]] = {}  # by connection, from the response to its last byte
        self._witnessed: dict[int, Connection] = {}
        self._seen: dict[int, Seen] = {}
        self._ring: deque[Exchange] = deque()
        self._by_seq: dict[int, Exchange] = {}
        self._kept = 0
        self._plain = 0
        self._passed = 0  # before the last tally, and not traced since
        self._requests = 0
        self._cost_ns = 0
        self._dearest_ns = 0  # the largest part of it: other processes may have had the core meanwhile
        self._cost_each_ns = 0.0  # of a traced request, when it was last known
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
        if self._wants:
            self._countdown = 1
        if not self.is_watching:
            self.is_watching = True
            for purgatory in self._purgatories:
                purgatory.on_park = self._parked
            self._tallied_ns = now_ns
            self._requests = self._cost_ns = self._dearest_ns = self._plain = self._passed = self._traced = 0
            self._skipped.clear()

    def release(self) -> None:
        """End all leases; keep the ring."""
        self.is_watching = False
        for purgatory in self._purgatories:
            purgatory.on_park = None
        for number in self._unsent:
            self._witnessed[number].witness = None
        self._witnessed.clear()
        self._in_hand.clear()
        self._unsent.clear()
        self._wants.clear()
        self._seen.clear()
        self._pulled_until_ns = self._until_ns = 0

    # -- requests ---------------------------------------------------------------------------------------------

    def around(self, dispatch: Dispatch, expects_token: Callable[[], bool]) -> Dispatch:
        """Trace also what `dispatch` answers instead of the inner one, while a client authenticates."""
        watched = self._watched(dispatch)

        def traced(frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
            self._login = "token" if expects_token() else "request"
            try:
                return watched(frame, client)
            finally:
                self._login = ""

        return traced

    def _watched(self, inner: Dispatch) -> Dispatch:
        """A dispatch that traces the requests of the sample. It raises as `inner`."""

        def dispatch(frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
            if not self.is_watching:
                return inner(frame, client)
            countdown = self._countdown = self._countdown - 1
            if countdown <= 0:
                return self._trace(inner, frame, client)
            self._current = frame, client
            try:
                answer = inner(frame, client)
            except (KafkaProtocolError, CloseConnectionError) as error:
                self._closed(self._promoted(), error)
                self._forget_current()
                raise
            if type(self._current) is tuple:
                self._current = None
                return answer
            return self._handled_light(answer)

        return dispatch

    def _handled_light(self, answer: Encoded | Pending[Encoded]) -> Encoded | Pending[Encoded]:
        """Note that the handler of a request outside of the sample has returned, if the request was promoted."""
        exchange = self._forget_current()
        if exchange is None:
            return answer
        handled_ns = self.now_ns()
        answer = self._handled(exchange, answer, handled_ns)
        self._spent(self.now_ns() - handled_ns)
        return answer

    def _trace(self, inner: Dispatch, frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
        now_ns = self.now_ns
        arrived_ns = now_ns()
        if arrived_ns > self._until_ns:
            self.release()
            return inner(frame, client)
        exchange = self._begin(frame, client, arrived_ns)
        self._draw_next(exchange)
        registry = self._registry
        self._inner_answer, registry.answer = registry.answer, self.answer
        self._current = exchange
        began_ns = now_ns()
        try:
            answer = inner(frame, client)
        except (KafkaProtocolError, CloseConnectionError) as error:
            self._closed(exchange, error)
            raise
        finally:
            self._current = None
            if registry.answer == self.answer:  # else the first quota came
                registry.answer = self._inner_answer
        handled_ns = now_ns()
        answer = self._handled(exchange, answer, handled_ns)
        self._spent(now_ns() - handled_ns + began_ns - arrived_ns)
        return answer

    def _spent(self, ns: int) -> None:
        self._cost_ns += ns
        if ns > self._dearest_ns:
            self._dearest_ns = ns

    def _draw_next(self, exchange: Exchange) -> None:
        """Choose the next request that is traced; note for how many this one stands."""
        if self._wants:  # every one, of which the sample counts on
            self._countdown = 1
            self._distance -= 1
            exchange.is_sampled = self._distance <= 0
            if exchange.is_sampled:
                self._distance = self._draw(self.kept_every)
            return
        exchange.weight = max(1, self._distance)
        self._distance = self._countdown = self._draw(self.kept_every)
        self._traced += 1
        if self._traced >= self._thins_at:  # far more than in the interval before
            self._thins_at += self._budget
            self.kept_every *= 2

    def _begin(self, frame: bytearray, client: Client, arrived_ns: int) -> Exchange:
        self._seq += 1
        header = NO_HEADER
        if self._login == "token":
            header = TOKEN
        elif len(frame) >= HEADER.size:
            header = HEADER.unpack_from(frame)[:3]
        exchange = Exchange(self._seq, client, header, len(frame) + LENGTH_BYTES, arrived_ns)
        if client.number not in self._witnessed:
            self._attach()
        self._in_hand[client.number] = exchange
        return exchange

    def _promoted(self) -> Exchange:
        """The exchange of the request in hand: made now if it is not in the sample."""
        current = self._current
        assert current is not None
        if isinstance(current, Exchange):
            return current
        exchange = self._current = self._begin(*current, self.now_ns())
        exchange.is_sampled, exchange.weight = False, 0
        self._inner_encoded = self._registry.encoded
        self._registry.encoded = partial(self._note_encoded, exchange, self._inner_encoded)
        return exchange

    def _note_encoded(self, exchange: Exchange, inner: Encode, request: Request, client: Client, body: Body) -> Encoded:
        """Stands before `registry.encoded` for a request that was promoted while its handler ran."""
        if client is exchange.client:
            exchange.request, exchange.body = request, body
            if exchange.is_parked:
                exchange.reads_ns = self.now_ns()
        return inner(request, client, body)

    def _forget_current(self) -> Exchange | None:
        """End the request in hand; return its exchange if it was promoted."""
        current, self._current = self._current, None
        if not isinstance(current, Exchange):
            return None
        self._registry.encoded = self._inner_encoded
        return current

    def _parked(self, operation: DelayedOperation) -> None:
        """Keep a request that is parked, although it is not in the sample."""
        if type(self._current) is tuple and self._takes_special():
            self._promoted()

    def _takes_special(self) -> bool:
        """Whether one more request outside of the sample may be kept."""
        if self._specials_left <= 0:
            return False
        self._specials_left -= 1
        return True

    def _handled(
        self, exchange: Exchange, answer: Encoded | Pending[Encoded], handled_ns: int
    ) -> Encoded | Pending[Encoded]:
        """Note that the handler has returned."""
        exchange.handled_ns = handled_ns
        exchange.client_id = exchange.client.client_id
        if type(answer) is Pending:
            self._park(exchange, answer)
            return answer.then(partial(self._answered_later, exchange), partial(self._failed_later, exchange))
        exchange.answered_ns = handled_ns
        self._answered(exchange, answer)  # type: ignore[arg-type]
        return answer

    def answer(self, request: Request, client: Client) -> Body | Pending[Body]:
        """Stands before `registry.answer`: notes the request and its answer before they are encoded."""
        exchange = self._in_hand.get(client.number)
        if exchange is None:
            return self._inner_answer(request, client)
        exchange.request = request
        if request.api_key == ApiKey.PRODUCE:
            exchange.before = self.facts.before(request)
        body = self._inner_answer(request, client)
        if type(body) is Pending:
            return body.then(partial(self._keep_body, exchange))
        exchange.body = body
        return body

    def _keep_body(self, exchange: Exchange, body: Body) -> Body:
        """Note the answer of a request that waited."""
        exchange.reads_ns = self.now_ns()
        exchange.body = body
        return body

    def struck(self, request: Request, client: Client, body: Body) -> None:
        """Note the answer of a request that a fault has struck: the registry may not have seen it."""
        exchange = self._in_hand.get(client.number)
        if exchange is not None:
            exchange.request, exchange.body = request, body

    def login_answered(self, request: Request, client: Client, body: Body) -> None:
        """Note the answer of a request of a client that authenticates; keep one with an error."""
        self.struck(request, client, body)
        if first_error(request.api_key, body):
            self.failed(request, client, body)

    def failed(self, request: Request, client: Client, body: Body) -> None:
        """Keep a request whose answer has an error code, although it is not in the sample."""
        current = self._current
        if type(current) is tuple and current[1] is client and self._takes_special():
            exchange = self._promoted()
            exchange.request, exchange.body = request, body

    def _park(self, exchange: Exchange, answer: Pending[Encoded]) -> None:
        exchange.outcome = WAITS
        if self._login:
            exchange.ended_by = "delay"  # of the answer to one that failed
        elif exchange.request is None:
            exchange.ended_by = "fault"  # which holds it back
        operation = answer.source
        if isinstance(operation, DelayedOperation):
            exchange.operation = operation
            exchange.wheel_ms = self._timer.now_ms
            exchange.first_bytes = getattr(operation, "seen_bytes", NEVER)
            operation.witness = partial(self._woken, exchange)

    def _woken(self, exchange: Exchange, ending: Ending) -> None:
        """Note the end of a wait, before what waited reads again."""
        exchange.woken_ns = self.now_ns()
        exchange.outcome = EXPIRED if ending == "expired" else WOKEN
        if ending == "expired":
            exchange.ended_by = "time"
        self._note_cause(exchange)

    def _note_cause(self, exchange: Exchange) -> None:
        cause = self._current
        if cause is None or cause is exchange:
            exchange.ended_by = exchange.ended_by or self._guessed_cause(exchange)
            return
        cause = self._promoted()
        exchange.ended_by, exchange.woken_by = "request", cause.seq
        if cause.woke is None:
            cause.woke = []
        if len(cause.woke) < WOKE_MAX:
            cause.woke.append(exchange.seq)

    def _guessed_cause(self, exchange: Exchange) -> str:
        """What ends a wait that is neither in a purgatory nor ended by a request."""
        if exchange.api_key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP):
            return "time"
        operation = exchange.operation
        if operation is None:
            return "flush" if exchange.api_key == ApiKey.PRODUCE else "other"
        return "flush" if getattr(operation, "case", "") == "D" and self.facts.waits_for_disk(operation) else "other"

    def _answered_later(self, exchange: Exchange, encoded: Encoded) -> Encoded:
        if self._in_hand.get(exchange.client.number) is exchange:  # else the lease has ended
            exchange.answered_ns = self.now_ns()
            self._note_end_of_wait(exchange, exchange.answered_ns)
            self._answered(exchange, encoded)
            self._spent(self.now_ns() - exchange.answered_ns)
        return encoded

    def _failed_later(self, exchange: Exchange, error: Exception) -> Encoded:
        if self._in_hand.get(exchange.client.number) is exchange:
            self._note_end_of_wait(exchange, self.now_ns())
            self._closed(exchange, error)
        raise error

    def _note_end_of_wait(self, exchange: Exchange, now_ns: int) -> None:
        """Note the end of a wait that no purgatory kept."""
        if exchange.woken_ns == NEVER:
            exchange.woken_ns = now_ns if exchange.reads_ns == NEVER else exchange.reads_ns
            self._note_cause(exchange)
            exchange.outcome = EXPIRED if exchange.ended_by == "time" else WOKEN

    def _answered(self, exchange: Exchange, encoded: Encoded) -> None:
        number = exchange.client.number
        self._in_hand.pop(number, None)
        exchange.error = first_error(exchange.api_key, exchange.body)
        if not encoded:
            if not exchange.is_parked:
                exchange.outcome = SILENT
            self._finish(exchange)
            return
        exchange.encoded = encoded
        exchange.bytes_out = int.from_bytes(encoded[0][:LENGTH_BYTES], "big") + LENGTH_BYTES  # type: ignore[index]
        connection = self._witnessed.get(number)
        if connection is None:
            self._finish(exchange)
            return
        unsent = self._unsent.get(number)
        if unsent is None:
            self._unsent[number] = [exchange]
            connection.witness = partial(self._sent, connection, connection.witness)
        else:
            unsent.append(exchange)

    def _closed(self, exchange: Exchange, error: Exception) -> None:
        self._in_hand.pop(exchange.client.number, None)
        exchange.client_id = exchange.client.client_id
        exchange.outcome, exchange.error = CLOSED, str(error)
        self._finish(exchange)

    # -- sends ------------------------------------------------------------------------------------------------

    def _attach(self) -> None:
        """Know the connections that have opened since: their sends are watched."""
        for connection in self._connections:
            self._witnessed.setdefault(connection.client.number, connection)

    def _sent(self, connection: Connection, witness: Callable[[bool], object] | None, is_in_the_call: bool) -> None:
        """Note that a connection's socket has taken all responses so far; watch it no more."""
        connection.witness = witness
        sent_ns = self.now_ns()
        for exchange in self._unsent.pop(connection.client.number, ()):
            exchange.sent_ns, exchange.is_sent_in_the_call = sent_ns, is_in_the_call
            self._finish(exchange)
        self._spent(self.now_ns() - sent_ns)
        if witness is not None:
            witness(is_in_the_call)

    # -- what is kept -----------------------------------------------------------------------------------------

    def _finish(self, exchange: Exchange) -> None:
        """Keep an exchange that has ended, or count it."""
        weight = exchange.weight
        self._requests += weight
        number = exchange.client.number
        seen = self._seen.get(number)
        if seen is None:
            seen = self._seen[number] = Seen()
        seen.note(exchange)
        if self._wants:
            exchange.matched = [each for each in self._wants if each.fits(exchange, self.facts)]
        if exchange.matched or self._is_special(exchange):
            is_kept = True
            self._plain += max(0, weight - 1)
        else:
            is_kept = exchange.is_sampled and self._pulled_until_ns > exchange.arrived_ns
            self._plain += weight
        if is_kept:
            self._keep(exchange)
        if weight > is_kept:
            self._skipped[number, exchange.api_key] += weight - is_kept

    def _is_special(self, exchange: Exchange) -> bool:
        is_usual = exchange.outcome in (AT_ONCE, SILENT) and not exchange.error and exchange.woke is None
        return not is_usual or exchange.end_ns - exchange.arrived_ns >= SLOW_NS

    def _keep(self, exchange: Exchange) -> None:
        try:
            exchange.facts = self.facts.take(exchange)
        except Exception:  # fails the explanation, not the request
            logger.exception("request %d cannot be explained: a defect of minibroker", exchange.seq)
            exchange.facts = NO_FACTS
        exchange.request = exchange.body = exchange.operation = exchange.before = None
        connection = self._witnessed.get(exchange.client.number)
        exchange.note_sent(is_encrypted=connection is not None and connection.tls_version is not None)
        exchange.encoded = None
        self._kept += 1
        exchange.number = self._kept
        self._by_seq[exchange.seq] = exchange
        self._ring.append(exchange)
        if len(self._ring) > RING_SIZE:
            del self._by_seq[self._ring.popleft().seq]

    # -- for those who look -----------------------------------------------------------------------------------

    @property
    def last_number(self) -> int:
        """The number of the last exchange that was kept."""
        return self._kept

    def kept_since(self, number: int) -> Iterator[Exchange]:
        """The exchanges that were kept after this number and are still there, in the order of their ends."""
        first = self._kept - len(self._ring)
        return islice(self._ring, max(0, number - first), None)

    def find(self, seq: int) -> Exchange | None:
        """An exchange that is kept, or that has not ended."""
        return self._by_seq.get(seq) or next((each for each in self.not_ended() if each.seq == seq), None)

    def not_ended(self) -> Iterator[Exchange]:
        """The exchanges that wait, and those that are being sent."""
        yield from self._in_hand.values()
        for exchanges in self._unsent.values():
            yield from exchanges

    def in_hand(self, number: int) -> Exchange | None:
        """The exchange of a connection that has not been answered."""
        return self._in_hand.get(number)

    def seen_of(self, number: int) -> Seen:
        """What a connection has asked since the watch began."""
        return self._seen.get(number) or Seen()

    def outcome_of(self, exchange: Exchange) -> str:
        """How it ended, or its state."""
        is_unsent = exchange.number == NEVER and exchange.answered_ns != NEVER
        return SENDING if is_unsent else exchange.outcome

    def end_those_gone(self) -> None:
        """End the exchanges of connections that have closed."""
        if not self._witnessed:
            return
        is_open = {connection.client.number for connection in self._connections}
        for number in [each for each in self._witnessed if each not in is_open]:
            del self._witnessed[number]
            waiting = self._in_hand.pop(number, None)
            for exchange in ([] if waiting is None else [waiting]) + self._unsent.pop(number, []):
                exchange.outcome = GONE
                self._finish(exchange)
            self._seen.pop(number, None)

    def tally(self, budget: int) -> Tally:
        """Return what has happened since the last tally, and choose how many plain exchanges are kept from now on.

        The sample is at most `budget` for each of ten tallies a second.
        """
        now_ns = self.now_ns()
        interval_ns = max(1, now_ns - self._tallied_ns)
        tally = Tally(
            self._requests,
            self._cost_ns // 1000,
            interval_ns // 1000,
            [(*key, count) for key, count in self._skipped.items()],
        )
        # Those that were passed over since the last traced one count, too: none of a thin sample may have come.
        passed = 0 if self._wants else max(0, self._distance - self._countdown)
        gone_by = max(0, self._plain + passed - self._passed)
        self._passed = passed
        plain_a_pull = gone_by * 1e9 / PULLS_A_SECOND / interval_ns
        self._sample(plain_a_pull, budget, is_new=not self._traced and interval_ns < FIRST_PULL_NS)
        self._requests = self._cost_ns = self._dearest_ns = self._plain = 0
        self._skipped.clear()
        self._tallied_ns = now_ns
        return tally

    def _sample(self, plain_a_pull: float, budget: int, *, is_new: bool) -> None:
        """Choose how many plain exchanges are kept: `budget` in a pull, fewer if they take more than their share."""
        affordable = budget
        if self._traced >= ENOUGH_TO_JUDGE and self._cost_ns:
            self._cost_each_ns = (self._cost_ns - self._dearest_ns) / self._traced
        if self._cost_each_ns:
            affordable = max(1, min(budget, int(SHARE * 1e9 / PULLS_A_SECOND / self._cost_each_ns)))
        if not is_new:
            self.kept_every = max(1, -int(-plain_a_pull // affordable))
        self._traced = 0
        self._budget = self._specials_left = budget
        self._thins_at = SAMPLES_OVER * budget
        if not self._wants:
            passed = max(0, self._distance - self._countdown)
            self._countdown = self._draw(self.kept_every)
            self._distance = passed + self._countdown
        else:
            self._distance = self._draw(self.kept_every)


def distance(mean: int) -> int:
    """A random distance of this mean: a regular one might choose the same of several connections each time."""
    return 1 if mean == 1 else RANDOM.randrange(1, 2 * mean)
