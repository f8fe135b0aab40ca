"""Counts requests, their errors and their times, and the bytes that leave: what no state of the broker has afterwards.

    counters = Counters(registry, replica_manager, existing_topics)
    counters.start()        nothing of it runs before, or after `stop`

While it counts it stands before `registry.encoded`, which has every request and its final answer, also one of a fault.
Nothing is done per record, and of a partition only if its answer has records. What is appended is not counted here:
each `Log` knows.

Times are samples: of every request up to `TIMED_PER_WINDOW` in `WINDOW_NS`, then of one in `SPARSE` or so. To time a
request, `registry.handlers` are replaced for that one. As in Kafka, percentiles are those of the last 1,028 samples.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.known_errors import Places, places_of_answer
from minibroker.broker.apis.registry import ApiRegistry
from minibroker.broker.apis.routes import Handler
from minibroker.broker.network.response import READ_INSTEAD_BYTES
from minibroker.broker.pending import Pending
from minibroker.broker.replica.append import EXPECTED_REFUSALS
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice

SAMPLES = 1028  # as the reservoir of Kafka's histograms
WINDOW_NS = 100_000_000
TIMED_PER_WINDOW = 50
SPARSE = 16  # a power of 2
NS_PER_MS = 1_000_000

FETCH = ApiKey.FETCH
NO_EPOCH = 0  # a Fetch that names its partitions: of no session, or the first of one
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
    request_bytes: int


class OfApi:
    """What all versions of an API share."""

    __slots__ = ("errors", "samples", "throttled_ms")

    def __init__(self) -> None:
        self.throttled_ms: deque[float] = deque(maxlen=SAMPLES)  # of the requests that were throttled
        self.errors: Counter[int] = Counter()
        self.samples: deque[Timing] = deque(maxlen=SAMPLES)


class RequestCount:
    """The requests of one API in one version; those of followers apart, as Kafka has them."""

    __slots__ = ("codes", "inner_places", "of_api", "of_partitions", "place", "requests")

    def __init__(self, api_key: int, of_api: OfApi) -> None:
        self.requests = 0
        self.codes = 0  # error codes in rows of its answers, NONE among them
        self.of_api = of_api
        places = places_of_answer(api_key)
        # Where the answer has its own error code, -1 for none, and where its rows have theirs. That of a Fetch is one
        # of its session, and counts only if it is an error, as in Kafka.
        self.place = next((place for place, inner in places if inner is None and api_key != FETCH), -1)
        self.inner_places: Places = [(place, inner) for place, inner in places if inner is not None]
        self.of_partitions = places_of_partitions(self.inner_places)

    @property
    def all_codes(self) -> int:
        return self.codes + (self.requests if self.place >= 0 else 0)


@dataclass(slots=True)
class TopicCount:
    """What clients, and this broker's coordinators, did with a topic: kafka's BrokerTopicMetrics."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_out: int = 0
    bytes_rejected: int = 0
    produces: int = 0  # partitions that were written to
    fetches: int = 0  # partitions that were read
    failed_produces: int = 0
    failed_fetches: int = 0
    produce_conversions: int = 0  # records
    fetch_conversions: int = 0  # partitions

    def add(self, other: TopicCount) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Counters:
    """Counts between `start` and `stop`; what was counted stays."""

    def __init__(
        self,
        registry: ApiRegistry,
        replica_manager: ReplicaManager,
        existing: Container[str],
        *,
        encrypted: Iterable[str] = (),
    ) -> None:
        """`existing` are the topics, `encrypted` the listeners from which nothing leaves by sendfile."""
        self.topics: dict[str, TopicCount] = {}
        self.retired = TopicCount()  # of topics that do not exist
        self.requests: dict[int, RequestCount] = {}  # see `key_of`
        self.sendfile_bytes = 0
        self.is_counting = False
        self._of_apis: dict[tuple[int, bool], OfApi] = {}
        self._registry = registry
        self._replica_manager = replica_manager
        self._existing = existing
        self._encrypted = frozenset(encrypted)
        self._inner_encoded = registry.encoded
        self._handlers = registry.handlers
        self._timed_handlers: dict[int, Handler] = {
            key: partial(self._timed, each) for key, each in registry.handlers.items()
        }
        self._sparse_mask = SPARSE - 1
        self._timed_left = 0
        self._window_ends_ns = 0

    def start(self) -> None:
        if not self.is_counting:
            self.is_counting = True
            self._inner_encoded = self._registry.encoded
            self._registry.encoded = self.encoded
            self._registry.handlers = self._timed_handlers
            self._replica_manager.on_refused = self.refused

    def stop(self) -> None:
        if self.is_counting:
            self.is_counting = False
            self._registry.encoded = self._inner_encoded
            self._registry.handlers = self._handlers
            self._replica_manager.on_refused = None

    # -- requests ---------------------------------------------------------------------------------------------

    def encoded(self, request: Request, client: Client, body: Body) -> Any:
        """Count a request and its answer; encode the answer. Raises as `registry.encoded`."""
        key = request.api_key
        count = self.requests.get(key << 8 | request.api_version)
        if count is None:
            count = self._new_count(key, request.api_version)
        if key == 1:  # Fetch
            if request.body.replica_id >= 0:
                count = self._of_followers(count, request.api_version)
            if body.topics or request.body.session_epoch <= 0 or body.error_code:
                self._count_fetch(request.body, body, client, count)
        elif body is not None:
            if count.place >= 0 and body[count.place]:
                count.of_api.errors[body[count.place]] += 1
            if count.of_partitions is not None:
                outer, inner, place = count.of_partitions
                codes = 0
                for topic in body[outer]:
                    rows = topic[inner]
                    codes += len(rows)
                    for row in rows:
                        if row[place]:
                            count.of_api.errors[row[place]] += 1
                count.codes += codes
            elif count.inner_places:
                count.codes += count_codes(body, count.inner_places, count.of_api.errors)
        requests = count.requests = count.requests + 1
        if not requests & self._sparse_mask:
            self._registry.handlers = self._timed_handlers
        if client.muted_until_ms and body is not None:
            count.of_api.throttled_ms.append(float(getattr(body, "throttle_time_ms", 0)))
        return self._inner_encoded(request, client, body)

    def _new_count(self, api_key: int, api_version: int, is_from_follower: bool = False) -> RequestCount:
        count = RequestCount(api_key, self.of_api(api_key, is_from_follower))
        self.requests[key_of(api_key, api_version, is_from_follower)] = count
        return count

    def _of_followers(self, count: RequestCount, api_version: int) -> RequestCount:
        known = self.requests.get(key_of(FETCH, api_version, True))
        return self._new_count(FETCH, api_version, True) if known is None else known

    def of_api(self, api_key: int, is_from_follower: bool) -> OfApi:
        known = self._of_apis.get((api_key, is_from_follower))
        if known is None:
            known = self._of_apis[api_key, is_from_follower] = OfApi()
        return known

    def _count_fetch(self, asked: Body, body: Body, client: Client, count: RequestCount) -> None:
        errors = count.of_api.errors
        if body.error_code:
            errors[body.error_code] += 1
            count.codes += 1
        is_from_follower = asked.replica_id >= 0
        for name, rows in body.topics:
            count.codes += len(rows)
            bytes_out = 0
            for row in rows:
                code, records = row[1], row[7]
                if code:
                    errors[code] += 1
                    if code not in EXPECTED_MISSES:
                        self.topic(name).failed_fetches += 1
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
                self.topic(name).fetches += len(partitions)

    def _count_records(self, name: str, records: Any, client: Client) -> int:
        """Return the size of an answered partition's records."""
        kind = type(records)
        if kind is FileSlice:
            size_bytes: int = records.size_bytes
            if size_bytes > READ_INSTEAD_BYTES and client.listener not in self._encrypted:
                self.sendfile_bytes += size_bytes
            return size_bytes
        if kind is ConvertedSlice:
            self.topic(name).fetch_conversions += 1
            return int(records.size_bytes)
        return len(records)

    def refused(self, topic_partition: TopicPartition, error: ErrorCode, size_bytes: int) -> None:
        """Count a refused append."""
        topic = self.topic(topic_partition.topic)
        topic.produces += 1
        if error is ErrorCode.MESSAGE_TOO_LARGE:
            topic.bytes_rejected += size_bytes
        if error not in EXPECTED_REFUSALS:
            topic.failed_produces += 1

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

    # -- times ------------------------------------------------------------------------------------------------

    def _timed(self, handler: Handler, request: Request, client: Client) -> Body | Pending[Body]:
        """Answer as the handler, and take the time. Raises as the handler."""
        began_ns = time.perf_counter_ns()
        self._plan_next(began_ns)
        try:
            body = handler(request, client)
        except Exception:
            self._keep(request, time.perf_counter_ns() - began_ns, 0)
            raise
        handled_ns = time.perf_counter_ns()
        if type(body) is not Pending:
            self._keep(request, handled_ns - began_ns, 0)
            return body

        def on_answer(answer: Body) -> Body:
            self._keep(request, handled_ns - began_ns, time.perf_counter_ns() - handled_ns)
            return answer

        return body.then(on_answer)

    def _plan_next(self, now_ns: int) -> None:
        """Time all requests of a quiet broker; of a busy one those that `encoded` selects."""
        if now_ns > self._window_ends_ns:
            self._window_ends_ns = now_ns + WINDOW_NS
            self._timed_left = TIMED_PER_WINDOW
        self._timed_left -= 1
        if self._timed_left <= 0:
            self._registry.handlers = self._handlers

    def _keep(self, request: Request, local_ns: int, remote_ns: int) -> None:
        is_from_follower = request.api_key == FETCH and request.body.replica_id >= 0
        timing = Timing(local_ns / NS_PER_MS, remote_ns / NS_PER_MS, request.size_bytes)
        self.of_api(request.api_key, is_from_follower).samples.append(timing)


def key_of(api_key: int, api_version: int, is_from_follower: bool = False) -> int:
    return is_from_follower << 24 | api_key << 8 | api_version


def api_of(key: int) -> tuple[int, int, bool]:
    """The API key, the version, and whether it is of followers: the inverse of `key_of`."""
    return key >> 8 & 0xFFFF, key & 0xFF, bool(key >> 24)


def places_of_partitions(places: Places) -> tuple[int, int, int] | None:
    """The places of the topics, of their partitions and of these' error codes, if an answer has only those: the usual
    form, which is counted without a call for each row."""
    match places:
        case [(int(topics), [(int(partitions), [(int(code), None)])])]:
            return topics, partitions, code
        case _:
            return None


def count_codes(values: Sequence[Any], places: Places, errors: Counter[int]) -> int:
    """Count the error codes of an answer that are not NONE; return how many codes it has, NONE among them."""
    codes = 0
    for place, inner in places:
        value = values[place]
        if inner is None:
            codes += 1
            if value:
                errors[value] += 1
        elif value:
            for row in value:
                codes += count_codes(row, inner, errors)
    return codes
