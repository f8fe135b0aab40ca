"""The families of a broker's metrics: which there are, and what each row is read from.

Where a family has many rows, a `Table` has the function of each name. Elsewhere names and values stand side by side.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from minibroker.broker.group.group import GroupState
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.socket_bytes import NOTHING, Transferred
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.fetch_positions import Position, fetched_offset
from minibroker.broker.replica.fetch_session import INITIAL_EPOCH, FetchSession, next_epoch
from minibroker.broker.replica.leading import Leading
from minibroker.broker.transaction.transaction import TransactionState
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.broker.wing import Found, Head, Value
from minibroker.broker.wings.looking.answers import error_of
from minibroker.broker.wings.looking.counters import SAMPLES, Counters, OfApi, RequestCount, Timing, TopicCount, api_of
from minibroker.broker.wings.looking.process_figures import process_figures
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.client_ids import OF_TOOLS
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log.log import Log

if TYPE_CHECKING:
    from minibroker.broker.network.server import Server

FOLLOWER, CONSUMER = "FetchFollower", "FetchConsumer"
ALWAYS = ((ApiKey.PRODUCE, False), (ApiKey.FETCH, False), (ApiKey.FETCH, True), (ApiKey.METADATA, False))
RUNNING_AS_BROKER = 3  # of kafka 2.0.1 BrokerStates
MS_PER_SECOND = 1000.0
RATE_SECONDS = 60.0
LOOKS_MAX = 600
STEP = 100  # of what is summed up between two looks at the time
PERCENTILES = (("50th", 0.5), ("75th", 0.75), ("95th", 0.95), ("98th", 0.98), ("99th", 0.99), ("999th", 0.999))


@dataclass(frozen=True, slots=True)
class Observed:
    """The sources of metrics: the parts of the broker, and those around them."""

    parts: BrokerParts
    server: Server
    connections: Collection[Connection]
    compaction: Compaction
    address: str


class Table:
    """A family with a row for each of many things; `columns` have the value of each name."""

    def __init__(self, type: str, keys: Sequence[str], columns: Mapping[str, Callable[[Any], Value]]) -> None:
        self._head = Head(type, tuple(columns), keys)
        self._columns = tuple(columns.values())

    def row(self, keys: Sequence[Value], thing: Any) -> Found:
        return self._head, (*keys, *[column(thing) for column in self._columns])


def figures(type: str, values: Mapping[str, Value], **keys: Value) -> Found:
    """A row that stands alone: its values and its keys by name."""
    return Head(type, tuple(values), tuple(keys)), (*keys.values(), *values.values())


class Families:
    """Finds all families; keeps the sums between two scans."""

    def __init__(self, observed: Observed, counters: Counters, now: Callable[[], float]) -> None:
        self._observed = observed
        self._counters = counters
        self._topics = TopicSums(observed.parts, counters)
        self._network = NetworkRates(observed, now)

    def found(self) -> Iterator[Found]:
        observed, parts, counters = self._observed, self._observed.parts, self._counters
        yield from broker_metrics(parts)
        yield from controller_metrics(parts)
        yield from self._topics.metrics()
        yield from request_metrics(counters)
        yield from purgatory_metrics(parts, counters)
        yield from self._network.metrics()
        for wing in parts.wings:
            yield from wing.metrics()
        yield from log_metrics(observed)
        yield from coordinator_metrics(parts)
        yield from own_metrics(observed, counters)
        yield from partition_metrics(parts)
        yield from group_metrics(parts)
        yield from fetching_metrics(parts)


# -- kafka.server, kafka.controller ---------------------------------------------------------------------------------


def broker_metrics(parts: BrokerParts) -> Iterator[Found]:
    replicas = parts.replica_manager
    partitions, is_offline = len(replicas.partitions.items()), replicas.log_manager.is_offline
    sessions = parts.fetch_sessions.statistics()
    yield figures("kafka.server:type=KafkaServer", {"BrokerState": RUNNING_AS_BROKER})
    yield figures(
        "kafka.server:type=ReplicaManager",
        {
            "LeaderCount": 0 if is_offline else len(replicas.partitions.leaders()),
            "PartitionCount": partitions,
            "OfflineReplicaCount": partitions if is_offline else 0,
            "IsrExpandsPerSec": replicas.followers.isr_expansions,
            "IsrShrinksPerSec": replicas.followers.isr_shrinks,
            "FailedIsrUpdatesPerSec": replicas.followers.failed_isr_updates,
        },
    )
    yield figures(
        "kafka.server:type=FetchSessionCache",
        {
            "NumIncrementalFetchSessions": sessions.sessions,
            "NumIncrementalFetchPartitionsCached": sessions.partitions,
            "IncrementalFetchSessionEvictionsPerSec": sessions.evictions,
        },
    )


def metric_of(attribute: str) -> str:
    """Kafka's name of a count: MessagesInPerSec for `messages_in`."""
    return "".join(word.capitalize() for word in attribute.split("_")) + "PerSec"


COUNTED = [each.name for each in fields(TopicCount)]
OF_REPLICATION = "replication_bytes_out"  # which only the sums have
OF_TOPICS, OF_ALL_TOPICS = (
    Table("kafka.server:type=BrokerTopicMetrics", keys, {metric_of(name): attrgetter(name) for name in names})
    for keys, names in ((("topic",), [name for name in COUNTED if name != OF_REPLICATION]), ((), COUNTED))
)


def controller_metrics(parts: BrokerParts) -> Iterator[Found]:
    """Count all partitions, as the controller knows them; 0 elsewhere. As kafka 2.0.1 KafkaController.updateMetrics."""
    loop = parts.controller_loop
    is_active = loop.is_active
    image = loop.image()
    live = () if parts.replica_manager.log_manager.is_offline and not image.is_shared else image.brokers
    partitions = offline = imbalanced = 0
    for number, (name, topic) in enumerate(list(image.topics.items()) if is_active else ()):
        is_kept = name not in image.being_deleted
        for state in topic.partitions.values():
            partitions += state.had_leader
            offline += is_kept and state.had_leader and state.leader not in live
            imbalanced += is_kept and state.had_leader and state.leader != state.replicas[0]
        if number % STEP == 0:
            yield None
    yield figures(
        "kafka.controller:type=KafkaController",
        {
            "ActiveControllerCount": int(is_active),
            "OfflinePartitionsCount": offline,
            "PreferredReplicaImbalanceCount": imbalanced,
            "GlobalTopicCount": len(image.topics) if is_active else 0,
            "GlobalPartitionCount": partitions,
        },
    )
    yield figures("kafka.controller:type=ControllerStats", {"UncleanLeaderElectionsPerSec": loop.unclean_elections})


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
        for name, topic in sums.items():
            total.add(topic)
            yield OF_TOPICS.row((name,), topic)
        yield OF_ALL_TOPICS.row((), total)

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
    """Counts how often a session has read which topics."""

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
            counters.topic(name).add(TopicCount(total_fetch_requests=partitions * reads))


def add_log(topic: TopicCount, log: Log) -> None:
    """Add what was appended to a log since it was opened; duplicates are not appended."""
    appended = TopicCount(
        messages_in=max(0, log.log_end_offset - log.opened_at_offset),
        bytes_in=log.appended_bytes,
        total_produce_requests=log.appends,
        produce_message_conversions=log.converted_records,
    )
    topic.add(appended)


# -- kafka.network --------------------------------------------------------------------------------------------------

REQUESTS = "kafka.network:type=RequestMetrics"
RATES, ERRORS = (
    Head(REQUESTS, ("RequestsPerSec",), ("request", "version")),
    Head(REQUESTS, ("ErrorsPerSec",), ("request", "error")),
)
STAGES: dict[str, Callable[[Timing], float]] = {
    "TotalTimeMs": lambda timing: timing.total_ms,
    "LocalTimeMs": lambda timing: timing.local_ms,
    "RemoteTimeMs": lambda timing: timing.remote_ms,
    "ResponseSendTimeMs": lambda timing: timing.send_ms,
    "RequestBytes": lambda timing: float(timing.request_bytes),
}


def request_metrics(counters: Counters) -> Iterator[Found]:
    by_api: dict[tuple[int, bool], list[RequestCount]] = {each: [] for each in ALWAYS}
    for key, counted in sorted(counters.requests.items()):
        api_key, version, is_from_follower = api_of(key)
        by_api.setdefault((api_key, is_from_follower), []).append(counted)
        for name in names_of(api_key, is_from_follower):
            yield RATES, (name, version, counted.requests)
    for (api_key, is_from_follower), counts in by_api.items():
        yield from error_metrics(API_TABLE[api_key].name, counts)
        yield from stage_metrics(
            names_of(api_key, is_from_follower)[-1],
            counters.of_api[api_key, is_from_follower],
            sum(each.requests for each in counts),
        )


def names_of(api_key: int, is_from_follower: bool) -> tuple[str, ...]:
    """The names of an API in metrics; a Fetch has two, as in Kafka."""
    name = API_TABLE[api_key].name
    return (name, FOLLOWER if is_from_follower else CONSUMER) if api_key == ApiKey.FETCH else (name,)


def error_metrics(name: str, counts: Sequence[RequestCount]) -> Iterator[Found]:
    codes = sum(each.all_codes for each in counts)
    if not codes:
        return
    errors = counts[0].of_api.errors
    yield ERRORS, (name, "NONE", codes - sum(errors.values()))
    for code, number in sorted(errors.items()):
        yield ERRORS, (name, error_of(code), number)


def stage_metrics(name: str, of_api: OfApi, requests: int) -> Iterator[Found]:
    samples = tuple(of_api.samples)
    for stage, value_of in STAGES.items():  # one at a time: each sorts a thousand samples
        yield figures(REQUESTS, {stage: histogram(map(value_of, samples), requests)}, request=name)
    throttled = list(of_api.throttled_ms)
    throttles = [0.0] * (min(SAMPLES, requests) - len(throttled)) + throttled
    yield figures(REQUESTS, {"ThrottleTimeMs": histogram(throttles, requests)}, request=name)
    nothing = histogram((), requests)  # one loop reads, handles and answers a request: nothing is queued in between
    yield figures(REQUESTS, {"RequestQueueTimeMs": nothing, "ResponseQueueTimeMs": nothing}, request=name)


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
        yield figures("kafka.network:type=RequestChannel", {"RequestQueueSize": 0, "ResponseQueueSize": 0})
        open_now: Counter[str] = Counter()
        totals = dict(observed.server.socket_bytes.closed)
        for number, connection in enumerate(tuple(observed.connections)):
            listener = connection.client.listener
            open_now[listener] += 1
            totals[listener] = totals.get(listener, NOTHING).plus(connection.transferred)
            if number % STEP == 0:
                yield None
        seconds, before = self._look(totals)
        for endpoint in observed.parts.config.endpoints:
            listener = endpoint.name
            accepted, total = observed.server.accepted[listener], totals.get(listener, NOTHING)
            was = before.get(listener, NOTHING)
            yield figures(
                "kafka.server:type=socket-server-metrics",
                {
                    "connection-count": open_now[listener],
                    "connection-creation-total": accepted,
                    "connection-close-total": accepted - open_now[listener],
                    "incoming-byte-total": total.received,
                    "incoming-byte-rate": rate(total.received - was.received, seconds),
                    "outgoing-byte-total": total.sent,
                    "outgoing-byte-rate": rate(total.sent - was.sent, seconds),
                },
                listener=listener,
                networkProcessor=0,
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


# -- waiting --------------------------------------------------------------------------------------------------------

OPERATION = "delayedOperation"
SIZES = Head("kafka.server:type=DelayedOperationPurgatory", ("PurgatorySize", "NumDelayedOperations"), (OPERATION,))
ENDINGS = Head("minibroker:type=Purgatory", ("Endings",), (OPERATION, "ending"))
WAITED = Head("minibroker:type=Purgatory", ("WaitedSeconds",), (OPERATION,))
WAKEUPS = Head("minibroker:type=Purgatory", ("FetchWakeups",), ("case",))


def purgatory_metrics(parts: BrokerParts, counters: Counters) -> Iterator[Found]:
    for purgatory in parts.purgatories:
        name, statistics = purgatory.name, purgatory.statistics()
        yield SIZES, (name, statistics.watched, statistics.delayed)
        for ending in ("completed", "expired", "cancelled"):
            yield ENDINGS, (name, ending, getattr(statistics, ending))
        yield WAITED, (name, counters.waited_ms[name] / MS_PER_SECOND)
    for case in "ABCDE":
        yield WAKEUPS, (case, counters.wakeups[case])


# -- kafka.log, kafka.cluster -----------------------------------------------------------------------------------------

PARTITION = ("topic", "partition")
IN_CLUSTER = Table(
    "kafka.cluster:type=Partition",
    PARTITION,
    {
        "ReplicasCount": lambda led: 1 + len(led.remote_replicas),
        "InSyncReplicasCount": lambda led: len(led.in_sync_replicas),
        "UnderReplicated": lambda led: int(is_under_replicated(led)),
        "UnderMinIsr": lambda led: int(is_under_min_isr(led)),
        "AtMinIsr": lambda led: int(len(led.in_sync_replicas) == led.log.config.min_insync_replicas),
        "LastStableOffsetLag": lambda led: led.log.high_watermark - led.log.last_stable_offset,
    },
)
OF_LOG = Table(
    "kafka.log:type=Log",
    PARTITION,
    {
        "Size": lambda log: log.size_bytes,
        "NumLogSegments": lambda log: len(log.segments),
        "LogStartOffset": lambda log: log.log_start_offset,
        "LogEndOffset": lambda log: log.log_end_offset,
    },
)
OWN = Head("minibroker:type=Partition", ("HighWatermark", "Leader", "PreferredLeader"), PARTITION)


def log_metrics(observed: Observed) -> Iterator[Found]:
    logs, compaction, clock = (
        observed.parts.replica_manager.log_manager,
        observed.compaction,
        observed.parts.timers.clock,
    )
    offline = int(logs.is_offline)
    yield figures("kafka.log:type=LogManager", {"OfflineLogDirectoryCount": offline})
    yield figures("kafka.log:type=LogManager", {"LogDirectoryOffline": offline}, logDirectory=str(logs.log_dir))
    flushes = logs.flush_times
    times_ms = [seconds * MS_PER_SECOND for seconds in tuple(flushes.newest_seconds)]
    yield figures("kafka.log:type=LogFlushStats", {"LogFlushRateAndTimeMs": histogram(times_ms, flushes.count)})
    yield figures("minibroker:type=Log", {"FlushSeconds": flushes.total_seconds})
    newest, cleaner = compaction.newest, compaction.manager
    recopied = 0 if newest is None or not newest.bytes_read else 100 * newest.bytes_written // newest.bytes_read
    seconds = 0 if newest is None else round(newest.seconds, 3)
    yield figures("kafka.log:type=LogCleaner", {"cleaner-recopy-percent": recopied, "max-clean-time-secs": seconds})
    since_ms = 0 if cleaner.looked_at_ms is None else clock.wall_ms() - cleaner.looked_at_ms
    yield figures(
        "kafka.log:type=LogCleanerManager",
        {"max-dirty-percent": int(100 * cleaner.max_dirty_ratio), "time-since-last-run-ms": since_ms},
    )
    yield figures(
        "minibroker:type=Compaction",
        {
            "Compactions": compaction.count,
            "BytesRead": compaction.bytes_read,
            "BytesWritten": compaction.bytes_written,
            "UncleanablePartitions": len(cleaner.uncleanable),
        },
    )


def partition_metrics(parts: BrokerParts) -> Iterator[Found]:
    """A row of each partition, for each of the three types that have one."""
    partitions = [(each.topic_partition, each) for each in parts.replica_manager.partitions.leaders()]
    under_replicated = under_min_isr = 0
    for key, led in partitions:
        under_replicated += is_under_replicated(led)
        under_min_isr += is_under_min_isr(led)
        yield IN_CLUSTER.row(key, led)
    yield figures(
        "kafka.server:type=ReplicaManager",
        {"UnderReplicatedPartitions": under_replicated, "UnderMinIsrPartitionCount": under_min_isr},
    )
    for key, role in parts.replica_manager.partitions.items():
        yield OF_LOG.row(key, role.log)
    topics = parts.metadata_cache.topics
    for key, led in partitions:
        known = topics.get(key.topic)
        state = None if known is None else known.partitions.get(key.partition)
        if state is not None:
            preferred = state.replicas[0] if state.replicas else -1
            yield OWN, (*key, led.log.high_watermark, state.leader, preferred)


def is_under_replicated(partition: Leading) -> bool:
    return len(partition.in_sync_replicas) < 1 + len(partition.remote_replicas)


def is_under_min_isr(partition: Leading) -> bool:
    return len(partition.in_sync_replicas) < partition.log.config.min_insync_replicas


# -- coordinators ---------------------------------------------------------------------------------------------------

TRANSACTIONS = Head("minibroker:type=Transactions", ("Count",), ("state",))
MEMBERS = Head("minibroker:type=Group", ("Members",), ("group",))
FETCHED = Head("minibroker:type=FetchingGroup", ("FetchedOffset", "Lag"), ("consumergroup", *PARTITION))
COMMITTED = Head("minibroker:type=Group", ("CommittedOffset",), ("group", *PARTITION))


def coordinator_metrics(parts: BrokerParts) -> Iterator[Found]:
    transactions = Counter[TransactionState]()
    for number, each in enumerate(list(parts.transactions.transactions.values())):
        transactions[each.state] += 1
        if number % STEP == 0:
            yield None
    for state in TransactionState:
        yield TRANSACTIONS, (state.title, transactions[state])


def group_metrics(parts: BrokerParts) -> Iterator[Found]:
    """The members and the committed offsets of groups, from which lag is computed; and how many groups there are."""
    groups = list(parts.groups.all())
    states, offsets = Counter[str](), 0
    for group in groups:
        states[group.state.value] += 1
        offsets += len(group.offsets.committed)
        yield MEMBERS, (group.group_id, len(group.members))
    by_state = {f"NumGroups{state.value}": states[state.value] for state in GroupState}
    yield figures(
        "kafka.coordinator.group:type=GroupMetadataManager",
        {"NumGroups": len(groups), "NumOffsets": offsets, **by_state},
    )
    for group in groups:
        for key, record in list(group.offsets.committed.items()):
            yield COMMITTED, (group.group_id, *key, record.offset)


def fetching_metrics(parts: BrokerParts) -> Iterator[Found]:
    """The last fetches of groups, in the partitions for which they have committed no offset."""
    newest: dict[tuple[str, TopicPartition], tuple[int, Position]] = {}
    for reader in parts.fetch_positions.all():
        if reader.client_id in OF_TOOLS:
            continue
        names = reader.names()
        groups = [group for name in names if (group := parts.groups.get(name)) is not None]
        for key, position in reader.positions.items():
            at_ms, where = reader.at_ms(position), (names[-1], key)
            is_newest = where not in newest or newest[where][0] <= at_ms
            if is_newest and not any(key in group.offsets.committed for group in groups):
                newest[where] = at_ms, position
        yield None
    for (name, key), (_, position) in newest.items():
        role = parts.replica_manager.partitions.any(key)
        if role is not None:
            offset = fetched_offset(position, role.log)
            yield FETCHED, (name, *key, offset, max(0, role.log.high_watermark - offset))


# -- our own --------------------------------------------------------------------------------------------------------


def own_metrics(observed: Observed, counters: Counters) -> Iterator[Found]:
    parts, timers = observed.parts, observed.parts.timers
    yield figures("minibroker:type=Broker", {"Up": 1}, id=parts.config.broker_id, address=observed.address)
    counts = (counters.retired, *counters.topics.values())
    copied_bytes = sum(each.bytes_out + each.replication_bytes_out for each in counts) - counters.sendfile_bytes
    yield figures("minibroker:type=Sent", {"SendfileBytes": counters.sendfile_bytes, "CopiedBytes": copied_bytes})
    turned_seconds = getattr(timers.clock, "turned_seconds", 0.0)
    yield figures("minibroker:type=Clock", {"Timers": len(timers.timer), "TurnedSeconds": turned_seconds})
    yield figures("minibroker:type=Process", process_figures(len(observed.connections)))
