"""Counts requests, their errors and their times, and the bytes that leave: what no state of the broker has afterwards.

    counters = Counters(parts)
    counters.start()        it looks at nothing before, or after `stop`

It counts each request when its answer is known, also one of a fault. It does nothing per record. It does not count what
is appended: each `Log` knows.

Times are samples: of each API up to `TIMED_PER_WINDOW` requests in `WINDOW_NS`. As in Kafka, percentiles are those of
the last 1,028 samples.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Container, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from minibroker.broker.apis.client import Client
from minibroker.broker.network.response import READ_INSTEAD_BYTES
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.append import EXPECTED_REFUSALS
from minibroker.broker.replica.fetch import DelayedFetch
from minibroker.broker.way.exchange import Exchange
from minibroker.broker.way.probes import Probe
from minibroker.broker.wings.looking.answers import ERROR_CODE, RECORDS
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_rows import Column, rows
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse, replica_id_of
from minibroker.protocol.primitives import Meaning, TopicPartition
from minibroker.purgatory.delayed_operation import DelayedOperation, Ending
from minibroker.purgatory.purgatory import Purgatory
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice

if TYPE_CHECKING:
    from minibroker.broker.wings.looking.tracer import Tracer

SAMPLES = 1028  # as the reservoir of Kafka's histograms
WINDOW_NS = 100_000_000
TIMED_PER_WINDOW = 5  # of each API: the samples of a busy one are of the last 20 seconds
NS_PER_MS = 1_000_000

FETCH = ApiKey.FETCH
NO_EPOCH = 0  # a Fetch that names its partitions: of no session, or the first of one
# Fields are read by their places: half the time of reading them by name.
REPLICA_ID, SESSION_EPOCH = map(FetchRequest()._fields.index, ("replica_id", "session_epoch"))
FETCH_ERROR, FETCH_TOPICS = map(FetchResponse()._fields.index, ("error_code", "topics"))
# As kafka 2.0.1 ReplicaManager.readFromLocalLog: not a failed fetch, but one that has to look elsewhere.
EXPECTED_MISSES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)

Body = Any


class Timing(NamedTuple):
    """The stages of one request, in milliseconds as Kafka has them; the bytes of its frame."""

    local_ms: float
    remote_ms: float
    send_ms: float
    request_bytes: int

    @property
    def total_ms(self) -> float:
        return self.local_ms + self.remote_ms + self.send_ms

    @property
    def queued_ms(self) -> float:
        """0: one loop reads, handles and answers a request, and nothing is queued in between."""
        return 0.0


class OfApi:
    """Counts that all versions of an API share."""

    __slots__ = ("errors", "samples", "throttled_ms")

    def __init__(self) -> None:
        self.throttled_ms: deque[float] = deque(maxlen=SAMPLES)  # of the requests that were throttled
        self.errors: Counter[int] = Counter()
        self.samples: deque[Timing] = deque(maxlen=SAMPLES)


class Timed:
    """A request that is being timed; it ends when the socket has taken its response."""

    __slots__ = ("_began_ns", "_encoded_ns", "_handled_ns", "_of_api", "_size_bytes")

    def __init__(self, size_bytes: int, of_api: OfApi, began_ns: int) -> None:
        self._size_bytes = size_bytes
        self._of_api = of_api
        self._began_ns = self._encoded_ns = began_ns
        self._handled_ns = 0

    def handled(self) -> None:
        """It waits from now on."""
        self._handled_ns = time.perf_counter_ns()

    def encoded(self) -> int:
        self._encoded_ns = time.perf_counter_ns()
        self._handled_ns = self._handled_ns or self._encoded_ns
        return self._encoded_ns

    def end(self, sent_ns: int) -> None:
        stages = (self._handled_ns - self._began_ns, self._encoded_ns - self._handled_ns, sent_ns - self._encoded_ns)
        local_ms, remote_ms, send_ms = (each / NS_PER_MS for each in stages)
        self._of_api.samples.append(Timing(local_ms, remote_ms, send_ms, self._size_bytes))


class RequestCount:
    """The requests of one API in one version; those of followers apart, as Kafka has them."""

    __slots__ = ("codes", "of_api", "of_partitions", "of_rows", "place", "requests")

    def __init__(self, api_key: int, version: int, of_api: OfApi) -> None:
        self.requests = 0
        self.codes = 0  # error codes in rows of its answers, NONE among them
        self.of_api = of_api
        found = [each for each in rows(API_TABLE[api_key].response, version) if each.meaning is Meaning.ERROR_CODE]
        # Where the answer has its own error code, -1 for none, and where its rows have theirs. That of a Fetch is one
        # of its session, and counts only if it is an error, as in Kafka.
        self.place: Any = next((each.place for each in found if not each.path and api_key != FETCH), -1)
        self.of_rows = [each for each in found if each.path]
        self.of_partitions = places_of_partitions(self.of_rows)

    def count_errors(self, body: Body) -> bool:
        """Count the error codes of an answer; return whether there are any."""
        errors = self.of_api.errors
        has_failed = False
        if self.place >= 0 and body[self.place]:
            errors[body[self.place]] += 1
            has_failed = True
        if self.of_partitions is None:
            for column in self.of_rows:
                codes = column.values(body)
                failed = [code for code in codes if code]
                self.codes += len(codes)
                errors.update(failed)
                has_failed = has_failed or bool(failed)
            return has_failed
        outer, inner, place = self.of_partitions
        for topic in body[outer]:
            rows = topic[inner]
            self.codes += len(rows)
            for row in rows:
                if row[place]:
                    errors[row[place]] += 1
                    has_failed = True
        return has_failed

    @property
    def all_codes(self) -> int:
        return self.codes + (self.requests if self.place >= 0 else 0)


class RequestCounts(dict[int, RequestCount]):
    """By `key_of`; one that is missing is made."""

    def __init__(self) -> None:
        self.of_api: defaultdict[tuple[int, bool], OfApi] = defaultdict(OfApi)  # by API, those of followers apart

    def __missing__(self, key: int) -> RequestCount:
        api_key, version, is_from_follower = api_of(key)
        count = self[key] = RequestCount(api_key, version, self.of_api[api_key, is_from_follower])
        return count


@dataclass(slots=True)
class TopicCount:
    """Counts of the requests of clients and coordinators on a topic: kafka's BrokerTopicMetrics, by its names."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_rejected: int = 0
    total_produce_requests: int = 0  # partitions that were written to
    total_fetch_requests: int = 0  # partitions that were read
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0
    produce_message_conversions: int = 0  # records
    fetch_message_conversions: int = 0  # partitions
    replication_bytes_out: int = 0

    def add(self, other: TopicCount) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Counters(Probe):
    """Counts between `start` and `stop`; what was counted stays."""

    def __init__(self, parts: BrokerParts, *, encrypted: Container[str] = (), tracer: Tracer | None = None) -> None:
        """`encrypted` are the listeners from which nothing leaves by sendfile. `tracer` gets each exchange whose answer
        has an error code, while it watches: before the answer is encoded."""
        self.topics: dict[str, TopicCount] = {}
        self.retired = TopicCount()  # of topics that do not exist
        self.requests = RequestCounts()
        self.of_api = self.requests.of_api
        self.waited_ms: Counter[str] = Counter()  # by purgatory
        self.wakeups: Counter[str] = Counter()  # of fetches, by the letter of the case
        self.sendfile_bytes = 0
        self.is_counting = False
        self._probes = parts.probes
        self._now_ms = parts.timers.clock.monotonic_ms
        self._existing: Container[str] = parts.metadata_cache.topics
        self._encrypted = encrypted
        self._tracer = tracer
        self._windows: dict[int, Window] = {key: Window() for key in API_TABLE}
        self._timed: dict[int, Timed] = {}  # by connection, up to the response
        self._unsent: dict[int, list[Timed]] = {}  # by connection, from the response to its last byte

    def start(self) -> None:
        if not self.is_counting:
            self.is_counting = True
            self._probes.add(self)

    def stop(self) -> None:
        if self.is_counting:
            self.is_counting = False
            self._probes.remove(self)
            self._timed.clear()
            self._unsent.clear()

    # -- requests ---------------------------------------------------------------------------------------------

    def answered(self, exchange: Exchange) -> None:
        request, body = exchange.request, exchange.body
        assert request is not None
        key = request.api_key
        is_fetch = key == FETCH
        number = key << 8 | request.api_version
        if is_fetch and request.body[REPLICA_ID] >= 0:
            number = key_of(FETCH, request.api_version, True)
        count = self.requests.get(number) or self.requests[number]  # most often it is there
        count.requests += 1
        if body is None:
            return
        asked = request.body
        has_failed = False
        if not is_fetch:
            has_failed = count.count_errors(body)
        elif body[FETCH_TOPICS] or asked[SESSION_EPOCH] <= 0 or body[FETCH_ERROR]:
            has_failed = self._count_fetch(asked, body, exchange.client, count)
        if exchange.client.muted_until_ms:
            count.of_api.throttled_ms.append(float(getattr(body, "throttle_time_ms", 0)))
        if has_failed and self._tracer is not None:
            self._tracer.failed(exchange)

    def _count_fetch(self, asked: Body, body: Body, client: Client, count: RequestCount) -> bool:
        """Return whether the answer has an error code."""
        errors = count.of_api.errors
        has_failed = bool(body.error_code)
        if has_failed:
            errors[body.error_code] += 1
            count.codes += 1
        is_from_follower = replica_id_of(asked) >= 0
        for name, partitions in body.topics:
            count.codes += len(partitions)
            bytes_out = 0
            for row in partitions:
                code, records = row[ERROR_CODE], row[RECORDS]
                if code:
                    errors[code] += 1
                    has_failed = True
                    if code not in EXPECTED_MISSES:
                        self.topic(name).failed_fetch_requests += 1
                if records:
                    bytes_out += self._count_records(name, records, client)
            if bytes_out:
                topic = self.topic(name)
                if is_from_follower:
                    topic.replication_bytes_out += bytes_out
                else:
                    topic.bytes_out += bytes_out
        if asked.session_epoch <= NO_EPOCH:  # one in a session is known by its epoch: see `metrics.py`
            for name, partitions in asked.topics:
                self.topic(name).total_fetch_requests += len(partitions)
        return has_failed

    def _count_records(self, name: str, records: Any, client: Client) -> int:
        """Return the size of an answered partition's records."""
        kind = type(records)
        if kind is FileSlice:
            size_bytes: int = records.size_bytes
            if size_bytes > READ_INSTEAD_BYTES and client.listener not in self._encrypted:
                self.sendfile_bytes += size_bytes
            return size_bytes
        if kind is ConvertedSlice:
            self.topic(name).fetch_message_conversions += 1
            return int(records.size_bytes)
        return len(records)

    def refused_append(self, topic_partition: TopicPartition, error: ErrorCode, size_bytes: int) -> None:
        topic = self.topic(topic_partition.topic)
        topic.total_produce_requests += 1
        if error is ErrorCode.MESSAGE_TOO_LARGE:
            topic.bytes_rejected += size_bytes
        if error not in EXPECTED_REFUSALS:
            topic.failed_produce_requests += 1

    def topic(self, name: str) -> TopicCount:
        """The count of a topic; of all that do not exist, whatever clients name, there is one."""
        count = self.topics.get(name)
        if count is None:
            if name not in self._existing:
                return self.retired
            count = self.topics[name] = TopicCount()
        return count

    def retire(self) -> None:
        """Forget topics that were deleted, as Kafka does, but not in the sums."""
        for name in [name for name in self.topics if name not in self._existing]:
            self.retired.add(self.topics.pop(name))

    def woken(self, purgatory: Purgatory, operation: DelayedOperation, ending: Ending) -> None:
        self.waited_ms[purgatory.name] += self._now_ms() - operation.deadline_ms + operation.delay_ms
        if isinstance(operation, DelayedFetch) and operation.case:
            self.wakeups[operation.case] += 1

    # -- times ------------------------------------------------------------------------------------------------

    def asked(self, exchange: Exchange) -> None:
        """Time a request, if its API has a place left."""
        request, began_ns = exchange.request, time.perf_counter_ns()
        assert request is not None
        key = request.api_key
        if self._windows[key].has_place(began_ns):
            is_from_follower = key == FETCH and replica_id_of(request.body) >= 0
            timed = Timed(request.size_bytes, self.of_api[key, is_from_follower], began_ns)
            self._timed[exchange.client.number] = timed

    def waits(self, exchange: Exchange, source: object) -> None:
        timed = self._timed.get(exchange.client.number)
        if timed is not None:
            timed.handled()

    def handed(self, exchange: Exchange, chunks: list[Any] | None) -> None:
        timed = self._timed.pop(exchange.client.number, None)
        if timed is None:
            return
        encoded_ns = timed.encoded()
        if chunks is None or exchange.client.frames is None:  # None: no connection
            timed.end(encoded_ns)
        else:
            self._unsent.setdefault(exchange.client.number, []).append(timed)

    def refused(self, exchange: Exchange, error: Exception) -> None:
        self._timed.pop(exchange.client.number, None)

    def sent(self, client: Client, is_in_the_call: bool) -> None:
        for timed in self._unsent.pop(client.number, ()):
            timed.end(time.perf_counter_ns())

    def closed(self, client: Client, reason: str) -> None:
        self._timed.pop(client.number, None)
        self._unsent.pop(client.number, None)


class Window:
    """Bounds how many requests of an API are timed in `WINDOW_NS`."""

    __slots__ = ("_ends_ns", "_places")

    def __init__(self) -> None:
        self._places = 0
        self._ends_ns = 0

    def has_place(self, now_ns: int) -> bool:
        """Take a place, if there is one."""
        if now_ns > self._ends_ns:
            self._ends_ns = now_ns + WINDOW_NS
            self._places = TIMED_PER_WINDOW
        self._places -= 1
        return self._places >= 0


def key_of(api_key: int, api_version: int, is_from_follower: bool = False) -> int:
    return is_from_follower << 24 | api_key << 8 | api_version


def api_of(key: int) -> tuple[int, int, bool]:
    """The API key, the version, and whether it is of followers: the inverse of `key_of`."""
    return key >> 8 & 0xFFFF, key & 0xFF, bool(key >> 24)


def places_of_partitions(found: Sequence[Column]) -> tuple[int, int, int] | None:
    """The places of the topics, of their partitions and of these' error codes, if an answer has only those: the usual
    form, which is counted without a call for each row."""
    match found:
        case [((topics, partitions), int(code), _)]:
            return topics, partitions, code
        case _:
            return None
