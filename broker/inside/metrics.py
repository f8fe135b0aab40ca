"""The metrics of a broker, by the names that Kafka gives them: `inside.metrics` of the control socket.

A family is what one MBean type has under its names, a row for each of its keys:

    {"type": "kafka.log:type=Log", "keys": ["topic", "partition"], "names": ["Size", "LogEndOffset"],
     "rows": [["orders", 0, 1420, 44], ...]}

so the MBean of a value is `kafka.log:type=Log,name=Size,topic=orders,partition=0`, as in kafka 2.0.1. Types that begin
with `minibroker:` are our own. A histogram is an object with the attributes of Kafka's.

Nearly all is read from state that exists anyway. `Counters` has the rest; they count for `lease_ms` after a call, or
from the start of a broker with `--metrics`. A scan of all metrics comes in pieces, each of a millisecond at most, so
that thousands of partitions stop no client.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from minibroker.broker.group.group import GroupState
from minibroker.broker.inside.counters import SAMPLES, Counters, RequestCount, Timing, TopicCount, Watcher, api_of
from minibroker.broker.inside.process_figures import process_figures
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.socket_bytes import NOTHING, Transferred
from minibroker.broker.parts import BrokerParts
from minibroker.broker.quota.client_quotas import ClientQuotas
from minibroker.broker.replica.fetch_session import INITIAL_EPOCH, FetchSession, next_epoch
from minibroker.broker.replica.leading import Leading
from minibroker.broker.time.clock import Clock
from minibroker.broker.transaction.transaction import TransactionState
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.broker.way.probes import Probe
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.delayed_operation import DelayedOperation, Ending
from minibroker.purgatory.purgatory import Purgatory
from minibroker.purgatory.timing_wheel import Timer, TimerTask
from minibroker.storage.log.log import Log

if TYPE_CHECKING:
    from minibroker.broker.network.server import Server

PIECE_SECONDS = 0.000_5  # and the rest of a millisecond to encode it
SCANS_MAX = 4
SCAN_SECONDS = 10.0  # until one that is not continued is forgotten
DEFAULT_LEASE_MS = 300_000
LEASE_MS_MAX = 86_400_000
RUNS = 1 << 40
FOLLOWER, CONSUMER = "FetchFollower", "FetchConsumer"
RUNNING_AS_BROKER = 3  # of kafka 2.0.1 BrokerStates
MS_PER_SECOND = 1000.0

REPLICA_COUNTS = (
    *("LeaderCount", "PartitionCount", "OfflineReplicaCount"),
    *("IsrExpandsPerSec", "IsrShrinksPerSec", "FailedIsrUpdatesPerSec"),
)
SESSION_COUNTS = (
    *("NumIncrementalFetchSessions", "NumIncrementalFetchPartitionsCached"),
    "IncrementalFetchSessionEvictionsPerSec",
)
SOCKET_METRICS = (
    *("connection-count", "connection-creation-total", "connection-close-total"),
    *("incoming-byte-total", "incoming-byte-rate", "outgoing-byte-total", "outgoing-byte-rate"),
)
RATE_SECONDS = 60.0
LOOKS_MAX = 600
STEP = 100  # of what is summed up between two looks at the time
PERCENTILES = (("50th", 0.5), ("75th", 0.75), ("95th", 0.95), ("98th", 0.98), ("99th", 0.99), ("999th", 0.999))

TOPIC_METRICS = {  # Kafka's name: the attribute of TopicCount
    "MessagesInPerSec": "messages_in",
    "BytesInPerSec": "bytes_in",
    "BytesOutPerSec": "bytes_out",
    "BytesRejectedPerSec": "bytes_rejected",
    "TotalProduceRequestsPerSec": "produces",
    "TotalFetchRequestsPerSec": "fetches",
    "FailedProduceRequestsPerSec": "failed_produces",
    "FailedFetchRequestsPerSec": "failed_fetches",
    "ProduceMessageConversionsPerSec": "produce_conversions",
    "FetchMessageConversionsPerSec": "fetch_conversions",
}
# Stages that minibroker does not have: one loop reads, handles and answers a request, and nothing is queued in between.
EMPTY_STAGES = ("RequestQueueTimeMs", "ResponseQueueTimeMs")
STAGES: dict[str, Callable[[Timing], float]] = {
    "TotalTimeMs": lambda timing: timing.total_ms,
    "LocalTimeMs": lambda timing: timing.local_ms,
    "RemoteTimeMs": lambda timing: timing.remote_ms,
    "ResponseSendTimeMs": lambda timing: timing.send_ms,
    "RequestBytes": lambda timing: float(timing.request_bytes),
}

Value = float | int | str | Mapping[str, float]
Row = Sequence[Value]


class Head(NamedTuple):
    """What the rows of a family have in common."""

    type: str
    names: Sequence[str]
    keys: Sequence[str] = ()


Found = tuple[Head, Row] | None  # None: a moment at which the scan may pause


@dataclass(frozen=True, slots=True)
class Observed:
    """What metrics are read from, besides the parts of the broker."""

    parts: BrokerParts
    server: Server
    connections: Collection[Connection]
    compaction: Compaction
    clock: Clock
    address: str


class Scan:
    """The rest of one look at all metrics, which several calls bring."""

    def __init__(self, found: Iterator[Found], began: float) -> None:
        self._found = found
        self.continued_at = began

    def piece(self, now: Callable[[], float]) -> tuple[list[dict[str, Any]], bool]:
        """Return families for `PIECE_SECONDS`, and whether there are more."""
        self.continued_at = began = now()
        families: list[dict[str, Any]] = []
        head: Head | None = None
        rows: list[Row] = []
        for found in self._found:
            if found is not None:
                if found[0] is not head:
                    head, rows = found[0], []
                    families.append({"type": head.type, "keys": head.keys, "names": head.names, "rows": rows})
                rows.append(found[1])
            if now() - began > PIECE_SECONDS:
                return families, True
        return families, False


class Metrics:
    """Answers `inside.metrics`."""

    def __init__(
        self,
        observed: Observed,
        *,
        encrypted: Container[str] = (),
        watcher: Watcher | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`encrypted` are the listeners with TLS, by which nothing leaves by sendfile. While it counts it tells
        `watcher` of each answer that has an error code."""
        parts = observed.parts
        self._observed = observed
        self._counters = Counters(
            parts.probes,
            parts.metadata_cache.topics,
            encrypted=encrypted,
            watcher=watcher,
        )
        self._now = now
        self._run = Random().randrange(1, RUNS)
        self._scans: OrderedDict[int, Scan] = OrderedDict()
        self._numbers = count(1)
        self._lease = Lease(self._stop)
        self._is_leased = True  # else it counts until the broker ends
        self._counted_from_ms = 0
        self._topics = TopicSums(parts, self._counters)
        self._waits = Waits(observed.parts, observed.clock)
        self._network = NetworkRates(observed, now)

    def count(self) -> None:
        """Count until the broker ends."""
        self._is_leased = False
        self._start()

    def metrics(self, scan: int | None = None, lease_ms: int = DEFAULT_LEASE_MS) -> dict[str, Any]:
        """Return the first piece of a new scan, or the next one of `scan`. Raises ValueError."""
        if not isinstance(lease_ms, int) or not 0 <= lease_ms <= LEASE_MS_MAX:
            raise ValueError(f"lease_ms is a number of milliseconds up to {LEASE_MS_MAX}, not {lease_ms!r}")
        self._renew(lease_ms)
        number, going = self._scan(scan)
        families, is_more = going.piece(self._now)
        if not is_more:
            del self._scans[number]
        return {
            "run": self._run,
            "scan": number if is_more else None,
            "is_counting": self._counters.is_counting,
            "counted_from_ms": self._counted_from_ms,
            "families": families,
        }

    def _scan(self, number: int | None) -> tuple[int, Scan]:
        if number is not None:
            going = self._scans.get(number)
            if going is None or self._now() - going.continued_at > SCAN_SECONDS:
                raise ValueError(f"scan {number!r} is no longer kept; begin a new one, without `scan`")
            return number, going
        number = next(self._numbers)
        going = self._scans[number] = Scan(self._found(), self._now())
        while len(self._scans) > SCANS_MAX:
            self._scans.popitem(last=False)
        return number, going

    # -- counting -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._counters.is_counting:
            self._counted_from_ms = self._observed.clock.wall_ms()
            self._counters.start()
            self._waits.start()

    def _renew(self, lease_ms: int) -> None:
        """Count for `lease_ms` from now on, 0 for not at all."""
        if not self._is_leased:
            return
        timer, now_ms = self._observed.parts.timers.timer, self._observed.clock.monotonic_ms()
        timer.cancel(self._lease)
        if lease_ms > 0:
            self._start()
            timer.add(self._lease, now_ms + lease_ms)
        else:
            self._stop()

    def _stop(self) -> None:
        self._counters.stop()
        self._waits.stop()

    # -- what there is --------------------------------------------------------------------------------------------

    def _found(self) -> Iterator[Found]:
        observed, parts = self._observed, self._observed.parts
        self._counters.count_noted()
        yield from broker_metrics(observed)
        yield from self._topics.metrics()
        yield from request_metrics(self._counters)
        yield from purgatory_metrics(parts, self._waits)
        yield from self._network.metrics()
        yield from quota_metrics(parts.client_quotas, observed.clock.monotonic_ms())
        yield from log_metrics(observed)
        yield from coordinator_metrics(parts)
        yield from own_metrics(observed, self._counters)
        yield from partition_metrics(parts)
        yield from group_metrics(parts)


class Lease(TimerTask):
    """Calls `on_end` when no call has renewed it."""

    __slots__ = ("_on_end",)

    def __init__(self, on_end: Callable[[], None]) -> None:
        super().__init__()
        self._on_end = on_end

    def on_timeout(self) -> None:
        self._on_end()


class Waits(Probe):
    """How long operations waited in the purgatories, and what ended the waits of fetches."""

    def __init__(self, parts: BrokerParts, clock: Clock) -> None:
        self._probes = parts.probes
        self._now_ms = clock.monotonic_ms
        self.purgatories = parts.purgatories
        self.waited_ms: Counter[str] = Counter()
        self.wakeups: Counter[str] = Counter()  # of fetches, by the letter of the case

    def start(self) -> None:
        self._probes.add(self)

    def stop(self) -> None:
        self._probes.remove(self)

    def woken(self, purgatory: Purgatory, operation: DelayedOperation, ending: Ending) -> None:
        self.waited_ms[purgatory.name] += self._now_ms() - operation.deadline_ms + operation.delay_ms
        case = getattr(operation, "case", "")
        if case:
            self.wakeups[case] += 1


# -- kafka.server, kafka.controller ---------------------------------------------------------------------------------


def broker_metrics(observed: Observed) -> Iterator[Found]:
    parts = observed.parts
    replicas, topics = parts.replica_manager, parts.metadata_cache.topics
    partitions, is_offline = len(replicas.partitions.items()), replicas.log_manager.is_offline
    yield Head("kafka.server:type=KafkaServer", ("BrokerState",)), (RUNNING_AS_BROKER,)
    yield (
        Head("kafka.server:type=ReplicaManager", REPLICA_COUNTS),
        (
            0 if is_offline else partitions,
            partitions,
            partitions if is_offline else 0,
            replicas.followers.isr_expansions,
            replicas.followers.isr_shrinks,
            replicas.followers.failed_isr_updates,
        ),
    )
    known = (
        ("ActiveControllerCount", 1),
        ("OfflinePartitionsCount", partitions if is_offline else 0),
        ("PreferredReplicaImbalanceCount", 0),
        ("GlobalTopicCount", len(topics)),
        ("GlobalPartitionCount", partitions),
    )
    yield Head("kafka.controller:type=KafkaController", [name for name, _ in known]), [value for _, value in known]
    yield Head("kafka.controller:type=ControllerStats", ("UncleanLeaderElectionsPerSec",)), (0,)
    sessions = parts.fetch_sessions.statistics()
    yield (
        Head("kafka.server:type=FetchSessionCache", SESSION_COUNTS),
        (
            sessions.sessions,
            sessions.partitions,
            sessions.evictions,
        ),
    )


class TopicSums:
    """The counts of topics: those of `Counters`, what their logs know, and the fetches of sessions.

    A session's epoch counts its fetches, each of which has read the partitions that the session has at the scan. What a
    log or a session did between the last scan and its end is lost.
    """

    def __init__(self, parts: BrokerParts, counters: Counters) -> None:
        self._parts = parts
        self._counters = counters
        self._logs: dict[TopicPartition, Log] = {}  # of the last scan
        self._sessions: dict[int, SessionReads] = {}

    def metrics(self) -> Iterator[Found]:
        yield from self._count_sessions()
        sums: dict[str, TopicCount] = {}
        logs = self._parts.replica_manager.log_manager.logs
        for key, log in self._logs.items():
            if logs.get(key) is not log:
                add_log(self._counters.retired, log)
        self._logs = dict(logs)
        for number, (key, log) in enumerate(list(self._logs.items())):
            add_log(sums.setdefault(key.topic, TopicCount()), log)
            if number % STEP == 0:
                yield None
        self._counters.retire()
        for name, counted in self._counters.topics.items():
            sums.setdefault(name, TopicCount()).add(counted)
        total = TopicCount()
        total.add(self._counters.retired)
        head = Head("kafka.server:type=BrokerTopicMetrics", tuple(TOPIC_METRICS), ("topic",))
        for name, topic in sums.items():
            total.add(topic)
            yield head, (name, *(getattr(topic, attribute) for attribute in TOPIC_METRICS.values()))
        yield (
            Head("kafka.server:type=BrokerTopicMetrics", (*TOPIC_METRICS, "ReplicationBytesOutPerSec")),
            (*(getattr(total, attribute) for attribute in TOPIC_METRICS.values()), total.replication_bytes_out),
        )

    def _count_sessions(self) -> Iterator[Found]:
        sessions = self._parts.fetch_sessions.sessions
        for session_id in self._sessions.keys() - sessions.keys():
            self._sessions.pop(session_id).count(self._counters)
        for session_id, session in list(sessions.items()):
            known = self._sessions.get(session_id)
            if known is None or known.session is not session:
                known = self._sessions[session_id] = SessionReads(session)
            yield from known.look()
            known.count(self._counters)
            yield None


class SessionReads:
    """How often a session has read which topics."""

    def __init__(self, session: FetchSession) -> None:
        self.session = session
        self._epoch = next_epoch(INITIAL_EPOCH)  # of its first request
        self._size = -1
        self._by_topic: Counter[str] = Counter()

    def look(self) -> Iterator[Found]:
        """Note its partitions, if there are more or fewer than at the last look."""
        if len(self.session.partitions) != self._size:
            self._size = len(self.session.partitions)
            self._by_topic.clear()
            for number, each in enumerate(list(self.session.partitions)):
                self._by_topic[each.topic] += 1
                if number % STEP == 0:
                    yield None

    def count(self, counters: Counters) -> None:
        reads, self._epoch = max(0, self.session.epoch - self._epoch), self.session.epoch
        for name, partitions in self._by_topic.items():
            counters.topic(name).fetches += partitions * reads


def add_log(topic: TopicCount, log: Log) -> None:
    """Add what was appended to a log since it was opened; duplicates are not appended."""
    topic.messages_in += max(0, log.log_end_offset - log.opened_at_offset)
    topic.bytes_in += log.appended_bytes
    topic.produces += log.appends
    topic.produce_conversions += log.converted_records


# -- kafka.network --------------------------------------------------------------------------------------------------


def request_metrics(counters: Counters) -> Iterator[Found]:
    by_api: dict[tuple[int, bool], list[RequestCount]] = {(ApiKey.PRODUCE, False): []}
    by_api |= {(ApiKey.FETCH, False): [], (ApiKey.FETCH, True): [], (ApiKey.METADATA, False): []}
    rates = Head("kafka.network:type=RequestMetrics", ("RequestsPerSec",), ("request", "version"))
    for key, counted in sorted(counters.requests.items()):
        api_key, version, is_from_follower = api_of(key)
        by_api.setdefault((api_key, is_from_follower), []).append(counted)
        for name in names_of(api_key, is_from_follower):
            yield rates, (name, version, counted.requests)
    for (api_key, is_from_follower), counts in by_api.items():
        yield from error_metrics(API_TABLE[api_key].name, counts)
        yield from stage_metrics(counters, names_of(api_key, is_from_follower)[-1], api_key, is_from_follower, counts)


def names_of(api_key: int, is_from_follower: bool) -> tuple[str, ...]:
    """The names of an API in metrics; a Fetch has two, as in Kafka."""
    name = API_TABLE[api_key].name
    return (name, FOLLOWER if is_from_follower else CONSUMER) if api_key == ApiKey.FETCH else (name,)


def error_metrics(name: str, counts: Sequence[RequestCount]) -> Iterator[Found]:
    head = Head("kafka.network:type=RequestMetrics", ("ErrorsPerSec",), ("request", "error"))
    codes = sum(each.all_codes for each in counts)
    if not codes:
        return
    errors = counts[0].of_api.errors
    yield head, (name, "NONE", codes - sum(errors.values()))
    for code, number in sorted(errors.items()):
        yield head, (name, error_name(code), number)


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"UNKNOWN_{code}"


def stage_metrics(
    counters: Counters, name: str, api_key: int, is_from_follower: bool, counts: Sequence[RequestCount]
) -> Iterator[Found]:
    requests = sum(each.requests for each in counts)
    of_api = counters.of_api(api_key, is_from_follower)
    samples = tuple(of_api.samples)
    for stage, value_of in STAGES.items():
        head = Head("kafka.network:type=RequestMetrics", (stage,), ("request",))
        yield head, (name, histogram(map(value_of, samples), requests))
    throttled = list(of_api.throttled_ms)
    throttles = [0.0] * (min(SAMPLES, requests) - len(throttled)) + throttled
    yield (
        Head("kafka.network:type=RequestMetrics", ("ThrottleTimeMs",), ("request",)),
        (
            name,
            histogram(throttles, requests),
        ),
    )
    nothing = histogram((), requests)
    yield Head("kafka.network:type=RequestMetrics", EMPTY_STAGES, ("request",)), (name, nothing, nothing)


def histogram(values: Iterable[float], number: int) -> dict[str, float]:
    """The attributes of Kafka's histogram over these samples of `number` values."""
    ordered = sorted(values)
    found: dict[str, float] = {
        "Count": number,
        "Min": ordered[0] if ordered else 0.0,
        "Max": ordered[-1] if ordered else 0.0,
        "Mean": sum(ordered) / len(ordered) if ordered else 0.0,
    }
    for name, part in PERCENTILES:
        found[f"{name}Percentile"] = ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
    return {name: round(value, 6) for name, value in found.items()}


class NetworkRates:
    """The connections of each listener, and the bytes that their sockets have received and sent.

    A rate is that since the oldest look of the last `RATE_SECONDS`, else since the last one; Kafka's has two samples of
    30 seconds.
    """

    def __init__(self, observed: Observed, now: Callable[[], float]) -> None:
        self._observed = observed
        self._now = now
        self._looks: deque[tuple[float, dict[str, Transferred]]] = deque([(now(), {})])

    def metrics(self) -> Iterator[Found]:
        observed = self._observed
        yield Head("kafka.network:type=RequestChannel", ("RequestQueueSize", "ResponseQueueSize")), (0, 0)
        open_now: Counter[str] = Counter()
        totals = dict(observed.server.socket_bytes.closed)
        for number, connection in enumerate(tuple(observed.connections)):
            listener = connection.client.listener
            open_now[listener] += 1
            totals[listener] = totals.get(listener, NOTHING).plus(connection.transferred)
            if number % STEP == 0:
                yield None
        seconds, before = self._look(totals)
        head = Head("kafka.server:type=socket-server-metrics", SOCKET_METRICS, ("listener", "networkProcessor"))
        for endpoint in observed.parts.config.endpoints:
            listener = endpoint.name
            accepted, total = observed.server.accepted[listener], totals.get(listener, NOTHING)
            was = before.get(listener, NOTHING)
            yield (
                head,
                (
                    *(listener, 0, open_now[listener], accepted, accepted - open_now[listener]),
                    *(total.received, rate(total.received - was.received, seconds)),
                    *(total.sent, rate(total.sent - was.sent, seconds)),
                ),
            )

    def _look(self, totals: dict[str, Transferred]) -> tuple[float, dict[str, Transferred]]:
        """Keep these; return the oldest ones that count, and how long ago they were."""
        now, looks = self._now(), self._looks
        while len(looks) > 1 and (now - looks[0][0] > RATE_SECONDS or len(looks) >= LOOKS_MAX):
            looks.popleft()
        then, before = looks[0]
        for listener, last in looks[-1][1].items():  # what closes during a scan may be in neither sum, till the next
            total = totals.get(listener, NOTHING)
            totals[listener] = Transferred(max(last.received, total.received), max(last.sent, total.sent))
        looks.append((now, totals))
        return now - then, before


def rate(number: int, seconds: float) -> float:
    return round(max(0, number) / seconds, 3) if seconds > 0 else 0.0


# -- quotas -----------------------------------------------------------------------------------------------------------


def quota_metrics(quotas: ClientQuotas, now_ms: int) -> Iterator[Found]:
    """A row for each window of clients, which there are once a quota was set."""
    kinds = (
        ("Produce", "byte-rate", quotas.produced),
        ("Fetch", "byte-rate", quotas.fetched),
        ("Request", "request-time", quotas.requests),
    )
    for kind, name, quota in kinds:
        head = Head(f"kafka.server:type={kind}", (name, "throttle-time"), ("user", "client-id"))
        for used in quota.used(now_ms):
            yield head, (used.user, used.client_id or "", round(used.per_second, 6), round(used.throttle_ms, 3))


# -- waiting --------------------------------------------------------------------------------------------------------


def purgatory_metrics(parts: BrokerParts, waits: Waits) -> Iterator[Found]:
    sizes = Head(
        "kafka.server:type=DelayedOperationPurgatory", ("PurgatorySize", "NumDelayedOperations"), ("delayedOperation",)
    )
    endings = Head("minibroker:type=Purgatory", ("Endings",), ("delayedOperation", "ending"))
    waited = Head("minibroker:type=Purgatory", ("WaitedSeconds",), ("delayedOperation",))
    for purgatory in waits.purgatories:
        name, statistics = purgatory.name, purgatory.statistics()
        yield sizes, (name, statistics.watched, statistics.delayed)
        for ending in ("completed", "expired", "cancelled"):
            yield endings, (name, ending, getattr(statistics, ending))
        yield waited, (name, waits.waited_ms[name] / MS_PER_SECOND)
    wakeups = Head("minibroker:type=Purgatory", ("FetchWakeups",), ("case",))
    for case in "ABCDE":
        yield wakeups, (case, waits.wakeups[case])


# -- kafka.log ------------------------------------------------------------------------------------------------------


def log_metrics(observed: Observed) -> Iterator[Found]:
    logs, compaction = observed.parts.replica_manager.log_manager, observed.compaction
    yield Head("kafka.log:type=LogManager", ("OfflineLogDirectoryCount",)), (int(logs.is_offline),)
    yield (
        Head("kafka.log:type=LogManager", ("LogDirectoryOffline",), ("logDirectory",)),
        (str(logs.log_dir), int(logs.is_offline)),
    )
    flushes = logs.flush_times
    times_ms = [seconds * MS_PER_SECOND for seconds in tuple(flushes.newest_seconds)]
    yield Head("kafka.log:type=LogFlushStats", ("LogFlushRateAndTimeMs",)), (histogram(times_ms, flushes.count),)
    yield Head("minibroker:type=Log", ("FlushSeconds",)), (flushes.total_seconds,)
    newest, cleaner = compaction.newest, compaction.manager
    recopied = 0 if newest is None or not newest.bytes_read else 100 * newest.bytes_written // newest.bytes_read
    yield (
        Head("kafka.log:type=LogCleaner", ("cleaner-recopy-percent", "max-clean-time-secs")),
        (recopied, 0 if newest is None else round(newest.seconds, 3)),
    )
    looked_at_ms = cleaner.looked_at_ms
    yield (
        Head("kafka.log:type=LogCleanerManager", ("max-dirty-percent", "time-since-last-run-ms")),
        (int(100 * cleaner.max_dirty_ratio), 0 if looked_at_ms is None else observed.clock.wall_ms() - looked_at_ms),
    )
    yield (
        Head("minibroker:type=Compaction", ("Compactions", "BytesRead", "BytesWritten", "UncleanablePartitions")),
        (compaction.count, compaction.bytes_read, compaction.bytes_written, len(cleaner.uncleanable)),
    )


def partition_metrics(parts: BrokerParts) -> Iterator[Found]:
    """A row of each partition, for each of the three types that have one."""
    in_cluster = Head(
        "kafka.cluster:type=Partition",
        ("ReplicasCount", "InSyncReplicasCount", "UnderReplicated", "UnderMinIsr", "AtMinIsr", "LastStableOffsetLag"),
        ("topic", "partition"),
    )
    of_log = Head(
        "kafka.log:type=Log", ("Size", "NumLogSegments", "LogStartOffset", "LogEndOffset"), ("topic", "partition")
    )
    own = Head("minibroker:type=Partition", ("HighWatermark", "Leader", "PreferredLeader"), ("topic", "partition"))
    partitions = [(each.topic_partition, each) for each in parts.replica_manager.partitions.leaders()]
    under_replicated = under_min_isr = 0
    for (topic, number), each in partitions:
        under_replicated += is_under_replicated(each)
        under_min_isr += is_under_min_isr(each)
        minimum, in_sync = each.log.config.min_insync_replicas, len(each.in_sync_replicas)
        high_watermark = each.log.high_watermark
        yield (
            in_cluster,
            (
                topic,
                number,
                1 + len(each.remote_replicas),
                in_sync,
                int(is_under_replicated(each)),
                int(is_under_min_isr(each)),
                int(in_sync == minimum),
                high_watermark - each.log.last_stable_offset,
            ),
        )
    yield (
        Head("kafka.server:type=ReplicaManager", ("UnderReplicatedPartitions", "UnderMinIsrPartitionCount")),
        (under_replicated, under_min_isr),
    )
    for (topic, number), each in partitions:
        log = each.log
        yield of_log, (topic, number, log.size_bytes, len(log.segments), log.log_start_offset, log.log_end_offset)
    topics = parts.metadata_cache.topics
    for (topic, number), each in partitions:
        known = topics.get(topic)
        state = None if known is None else known.partitions.get(number)
        if state is not None:
            preferred = state.replicas[0] if state.replicas else -1
            yield own, (topic, number, each.log.high_watermark, state.leader, preferred)


def is_under_replicated(partition: Leading) -> bool:
    return len(partition.in_sync_replicas) < 1 + len(partition.remote_replicas)


def is_under_min_isr(partition: Leading) -> bool:
    return len(partition.in_sync_replicas) < partition.log.config.min_insync_replicas


# -- coordinators ---------------------------------------------------------------------------------------------------


def coordinator_metrics(parts: BrokerParts) -> Iterator[Found]:
    transactions = Counter[TransactionState]()
    for number, each in enumerate(list(parts.transactions.transactions.values())):
        transactions[each.state] += 1
        if number % STEP == 0:
            yield None
    head = Head("minibroker:type=Transactions", ("Count",), ("state",))
    for state in TransactionState:
        yield head, (state.title, transactions[state])


def group_metrics(parts: BrokerParts) -> Iterator[Found]:
    """The members and the committed offsets of groups, from which lag is computed; and how many groups there are."""
    members = Head("minibroker:type=Group", ("Members",), ("group",))
    committed = Head("minibroker:type=Group", ("CommittedOffset",), ("group", "topic", "partition"))
    groups = list(parts.groups.all())
    states, offsets = Counter[GroupState](), 0
    for group in groups:
        states[group.state] += 1
        offsets += len(group.offsets.committed)
        yield members, (group.group_id, len(group.members))
    yield (
        Head(
            "kafka.coordinator.group:type=GroupMetadataManager",
            ("NumGroups", "NumOffsets", *(f"NumGroups{state.value}" for state in GroupState)),
        ),
        (len(groups), offsets, *(states[state] for state in GroupState)),
    )
    for group in groups:
        for (topic, number), record in list(group.offsets.committed.items()):
            yield committed, (group.group_id, topic, number, record.offset)


# -- our own --------------------------------------------------------------------------------------------------------


def own_metrics(observed: Observed, counters: Counters) -> Iterator[Found]:
    parts = observed.parts
    yield Head("minibroker:type=Broker", ("Up",), ("id", "address")), (parts.config.broker_id, observed.address, 1)
    yield (
        Head("minibroker:type=Sent", ("SendfileBytes", "CopiedBytes")),
        sent_bytes(counters),
    )
    timer: Timer = parts.timers.timer
    turned_seconds = getattr(observed.clock, "turned_seconds", 0.0)
    yield Head("minibroker:type=Clock", ("Timers", "TurnedSeconds")), (len(timer), turned_seconds)
    figures = process_figures(len(observed.connections))
    yield Head("minibroker:type=Process", tuple(figures)), tuple(figures.values())


def sent_bytes(counters: Counters) -> tuple[int, int]:
    """The bytes of records that left by sendfile, and those that were read and sent."""
    counts = (counters.retired, *counters.topics.values())
    total = sum(each.bytes_out + each.replication_bytes_out for each in counts)
    return counters.sendfile_bytes, total - counters.sendfile_bytes
