"""Finds the metrics of a broker, family by family: each in the catalogue `metrics.txt`, with what it is read from."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from minibroker.broker.group.group import GroupState
from minibroker.broker.metric import Family, Found, families
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.socket_bytes import NOTHING, Transferred
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.fetch_session import INITIAL_EPOCH, FetchSession, next_epoch
from minibroker.broker.replica.followers import Followers
from minibroker.broker.replica.leading import Leading
from minibroker.broker.transaction.transaction import TransactionState
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.broker.wings.looking.answers import error_of
from minibroker.broker.wings.looking.counters import SAMPLES, Counters, OfApi, RequestCount, TopicCount, api_of
from minibroker.broker.wings.looking.explanation import CASES
from minibroker.broker.wings.looking.fetch_positions import FetchPositions, Position, fetched_offset
from minibroker.broker.wings.looking.process_figures import process_figures
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.client_ids import OF_TOOLS
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log.log import Log

if TYPE_CHECKING:
    from minibroker.broker.network.server import Server

FAMILIES = families(files("minibroker.broker.wings.looking").joinpath("metrics.txt").read_text("utf-8"))
OF_ALL_TOPICS = Family(FAMILIES["replication"].type, (), FAMILIES["topic"].metrics + FAMILIES["replication"].metrics)
FOLLOWER, CONSUMER = "FetchFollower", "FetchConsumer"
ALWAYS = ((ApiKey.PRODUCE, False), (ApiKey.FETCH, False), (ApiKey.FETCH, True), (ApiKey.METADATA, False))
MS_PER_SECOND = 1000.0
RATE_SECONDS = 60.0
LOOKS_MAX = 600
STEP = 100  # of what is summed up between two looks at the time
PERCENTILES = (("50th", 0.5), ("75th", 0.75), ("95th", 0.95), ("98th", 0.98), ("99th", 0.99), ("999th", 0.999))


@dataclass(frozen=True, slots=True)
class Observed:
    """The sources of metrics: the parts of the broker, and those around them."""

    parts: BrokerParts
    positions: FetchPositions
    server: Server
    connections: Collection[Connection]
    compaction: Compaction
    address: str


def row(family: str, thing: object, *keys: str | int) -> Found:
    """A row of a family, made of a thing."""
    return FAMILIES[family].row(keys, thing)


class Families:
    """Finds all families; keeps the sums between two scans."""

    def __init__(self, observed: Observed, counters: Counters, now: Callable[[], float]) -> None:
        self._observed = observed
        self._counters = counters
        self._topics = TopicSums(observed.parts, counters)
        self._network = NetworkRates(observed, now)

    def found(self) -> Iterator[Found]:
        observed, parts, counters = self._observed, self._observed.parts, self._counters
        yield row("server", None)
        yield row("sessions", parts.fetch_sessions)
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
        yield from fetching_metrics(parts, observed.positions)


# -- kafka.server, kafka.controller ---------------------------------------------------------------------------------


class Controlled(NamedTuple):
    """The counts of the controller; 0 elsewhere."""

    active: int
    topics: int = 0
    partitions: int = 0
    offline: int = 0
    imbalanced: int = 0


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
    topics = len(image.topics) if is_active else 0
    yield row("controller", Controlled(int(is_active), topics, partitions, offline, imbalanced))
    yield row("elections", loop)


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
            yield row("topic", topic, name)
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


def request_metrics(counters: Counters) -> Iterator[Found]:
    by_api: dict[tuple[int, bool], list[RequestCount]] = {each: [] for each in ALWAYS}
    for key, counted in sorted(counters.requests.items()):
        api_key, version, is_from_follower = api_of(key)
        by_api.setdefault((api_key, is_from_follower), []).append(counted)
        for name in names_of(api_key, is_from_follower):
            yield row("requests", counted, name, version)
    for (api_key, _), counts in by_api.items():
        for error, number in errors_of(counts):
            yield row("errors", number, API_TABLE[api_key].name, error)
    for family in FAMILIES["stages"].alone():
        for each, counts in by_api.items():
            samples = stage_samples(family, counters.of_api[each], requests := sum(each.requests for each in counts))
            yield family, (names_of(*each)[-1], histogram(samples, requests))


def names_of(api_key: int, is_from_follower: bool) -> tuple[str, ...]:
    """The names of an API in metrics; a Fetch has two, as in Kafka."""
    name = API_TABLE[api_key].name
    return (name, FOLLOWER if is_from_follower else CONSUMER) if api_key == ApiKey.FETCH else (name,)


def errors_of(counts: Sequence[RequestCount]) -> Iterator[tuple[str, int]]:
    codes = sum(each.all_codes for each in counts)
    if codes:
        errors = counts[0].of_api.errors
        yield "NONE", codes - sum(errors.values())
        yield from ((error_of(code), number) for code, number in sorted(errors.items()))


def stage_samples(family: Family, of_api: OfApi, requests: int) -> list[float]:
    """The samples of one stage: a scan may pause after it, since each takes sorting a thousand."""
    (metric,), (read,) = family.metrics, family.readers
    if metric.name != "ThrottleTimeMs":
        return [read(sample) for sample in tuple(of_api.samples)]
    throttled = list(of_api.throttled_ms)
    return [0.0] * (min(SAMPLES, requests) - len(throttled)) + throttled


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


class ListenerCounts(NamedTuple):
    """Connections of a listener, and bytes of their sockets."""

    open: int
    accepted: int
    closed: int
    received: int
    sent: int
    received_per_second: float
    sent_per_second: float


class NetworkRates:
    """The connections of each listener, and the bytes that their sockets have received and sent.

    A rate is that since the oldest look of the last `RATE_SECONDS`, else since the last one; Kafka's has two samples of
    30 seconds.
    """

    def __init__(self, observed: Observed, now: Callable[[], float]) -> None:
        self._observed = observed
        self._now = now
        self._looks: deque[tuple[float, dict[str, Transferred], int]] = deque([(now(), {}, 0)])

    def metrics(self) -> Iterator[Found]:
        observed = self._observed
        yield row("channel", None)
        open_now: Counter[str] = Counter()
        totals = dict(observed.server.socket_bytes.closed)
        for number, connection in enumerate(tuple(observed.connections)):
            listener = connection.client.listener
            open_now[listener] += 1
            totals[listener] = totals.get(listener, NOTHING).plus(connection.transferred)
            if number % STEP == 0:
                yield None
        depleted_ms = observed.server.memory.depleted_ms
        seconds, before, depleted_before_ms = self._look(totals, depleted_ms)
        yield row("memory", observed.server.memory)
        part = min(1.0, rate(depleted_ms - depleted_before_ms, seconds * MS_PER_SECOND))
        yield row("depleted", SimpleNamespace(total_ms=depleted_ms, part=part))
        for endpoint in observed.parts.config.endpoints:
            listener = endpoint.name
            accepted, total = observed.server.accepted[listener], totals.get(listener, NOTHING)
            was = before.get(listener, NOTHING)
            open_here = open_now[listener]
            received_rate, sent_rate = (
                rate(total.received - was.received, seconds),
                rate(total.sent - was.sent, seconds),
            )
            here = ListenerCounts(open_here, accepted, accepted - open_here, *total, received_rate, sent_rate)
            yield row("listener", here, listener, 0)

    def _look(self, totals: dict[str, Transferred], depleted_ms: int) -> tuple[float, dict[str, Transferred], int]:
        """Keep these; return the oldest ones that count, and how long ago they were."""
        now, looks = self._now(), self._looks
        while len(looks) > 1 and (now - looks[0][0] > RATE_SECONDS or len(looks) >= LOOKS_MAX):
            looks.popleft()
        then, before, depleted_before_ms = looks[0]
        for listener, last in looks[-1][1].items():  # what closes during a scan may be in neither sum, till the next
            total = totals.get(listener, NOTHING)
            totals[listener] = Transferred(max(last.received, total.received), max(last.sent, total.sent))
        looks.append((now, totals, depleted_ms))
        return now - then, before, depleted_before_ms


def rate(number: int, seconds: float) -> float:
    return round(max(0, number) / seconds, 3) if seconds > 0 else 0.0


# -- waiting --------------------------------------------------------------------------------------------------------


def purgatory_metrics(parts: BrokerParts, counters: Counters) -> Iterator[Found]:
    for purgatory in parts.purgatories:
        yield row("purgatory", purgatory, purgatory.name)
        for ending, number in purgatory.endings.items():
            yield row("endings", number, purgatory.name, ending)
        yield row("waited", counters.waited_ms[purgatory.name] / MS_PER_SECOND, purgatory.name)
    for case in CASES:
        yield row("wakeups", counters.wakeups[case], case)


# -- kafka.log, kafka.cluster -----------------------------------------------------------------------------------------


class Cleaned(NamedTuple):
    """The last run of the cleaner of logs."""

    recopied_percent: int
    seconds: float
    dirty_percent: int
    since_ms: int


def log_metrics(observed: Observed) -> Iterator[Found]:
    logs, compaction = observed.parts.replica_manager.log_manager, observed.compaction
    offline = int(logs.is_offline)
    yield row("offline", offline)
    yield row("directory", offline, str(logs.log_dir))
    flushes = logs.flush_times
    times_ms = [seconds * MS_PER_SECOND for seconds in tuple(flushes.newest_seconds)]
    yield row("flushes", histogram(times_ms, flushes.count))
    yield row("fsyncs", flushes)
    newest, cleaner = compaction.newest, compaction.manager
    recopied = 0 if newest is None or not newest.bytes_read else 100 * newest.bytes_written // newest.bytes_read
    seconds = 0 if newest is None else round(newest.seconds, 3)
    since_ms = 0 if cleaner.looked_at_ms is None else observed.parts.timers.clock.wall_ms() - cleaner.looked_at_ms
    cleaned = Cleaned(recopied, seconds, int(100 * cleaner.max_dirty_ratio), since_ms)
    yield row("cleaner", cleaned)
    yield row("cleaner_manager", cleaned)
    yield row("compaction", compaction)


class ReplicaCounts(NamedTuple):
    """Counts of the partitions on this broker."""

    leaders: int
    partitions: int
    offline: int
    under_replicated: int
    under_min_isr: int
    followers: Followers


class LedPartition:
    """A partition that this broker leads."""

    def __init__(self, led: Leading) -> None:
        log, least = led.log, led.log.config.min_insync_replicas
        self.replicas = 1 + len(led.remote_replicas)
        self.in_sync = len(led.in_sync_replicas)
        self.under_replicated = int(self.in_sync < self.replicas)
        self.under_min_isr = int(self.in_sync < least)
        self.at_min_isr = int(self.in_sync == least)
        self.stable_lag = log.high_watermark - log.last_stable_offset


class OwnPartition(NamedTuple):
    high_watermark: int
    leader: int
    preferred: int


def partition_metrics(parts: BrokerParts) -> Iterator[Found]:
    """A row of each partition, for each of the three types that have one."""
    replicas = parts.replica_manager
    all_led = list(replicas.partitions.leaders())
    under_replicated = under_min_isr = 0
    for each in all_led:
        led = LedPartition(each)
        under_replicated += led.under_replicated
        under_min_isr += led.under_min_isr
        yield row("partition", led, *each.topic_partition)
    partitions, is_offline = len(replicas.partitions.items()), replicas.log_manager.is_offline
    leaders, offline = (0, partitions) if is_offline else (len(all_led), 0)
    counts = ReplicaCounts(leaders, partitions, offline, under_replicated, under_min_isr, replicas.followers)
    yield row("replicas", counts)
    for key, role in replicas.partitions.items():
        yield row("log", role.log, *key)
    topics = parts.metadata_cache.topics
    for each in all_led:
        topic, partition = each.topic_partition
        known = topics.get(topic)
        state = None if known is None else known.partitions.get(partition)
        if state is not None:
            preferred = state.replicas[0] if state.replicas else -1
            yield row("own", OwnPartition(each.log.high_watermark, state.leader, preferred), topic, partition)


# -- coordinators ---------------------------------------------------------------------------------------------------


def coordinator_metrics(parts: BrokerParts) -> Iterator[Found]:
    transactions = Counter[TransactionState]()
    for number, each in enumerate(list(parts.transactions.transactions.values())):
        transactions[each.state] += 1
        if number % STEP == 0:
            yield None
    for state in TransactionState:
        yield row("transactions", transactions[state], state.title)


def group_metrics(parts: BrokerParts) -> Iterator[Found]:
    """The members and the committed offsets of groups, from which lag is computed; and how many groups there are."""
    groups = list(parts.groups.all())
    states, offsets = Counter[str](), 0
    for group in groups:
        states[group.state.value] += 1
        offsets += len(group.offsets.committed)
        yield row("members", group, group.group_id)
    by_state = {state.value: states[state.value] for state in GroupState}
    yield row("groups", SimpleNamespace(groups=len(groups), offsets=offsets, **by_state))
    for group in groups:
        for key, record in list(group.offsets.committed.items()):
            yield row("committed", record, group.group_id, *key)


class Fetched(NamedTuple):
    """The offset after the last fetch of a group, and the records from there on."""

    offset: int
    lag: int


def fetching_metrics(parts: BrokerParts, positions: FetchPositions) -> Iterator[Found]:
    """The last fetches of groups, in the partitions for which they have committed no offset."""
    newest: dict[tuple[str, TopicPartition], tuple[int, Position]] = {}
    for reader in positions.all():
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
            yield row("fetching", Fetched(offset, max(0, role.log.high_watermark - offset)), name, *key)


# -- our own --------------------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """Bytes of records that were sent."""

    sendfile_bytes: int
    copied_bytes: int


def own_metrics(observed: Observed, counters: Counters) -> Iterator[Found]:
    parts, timers = observed.parts, observed.parts.timers
    yield row("broker", None, parts.config.broker_id, observed.address)
    counts = (counters.retired, *counters.topics.values())
    bytes_out = sum(each.bytes_out + each.replication_bytes_out for each in counts)
    yield row("sent", Sent(counters.sendfile_bytes, bytes_out - counters.sendfile_bytes))
    turned_seconds = getattr(timers.clock, "turned_seconds", 0.0)
    yield row("clock", SimpleNamespace(timer=timers.timer, turned_seconds=turned_seconds))
    known = process_figures(len(observed.connections))
    process = FAMILIES["process"]
    metrics = [each for each in process.metrics if each.reader in known]
    yield Family(process.type, (), metrics).row((), SimpleNamespace(**known))
