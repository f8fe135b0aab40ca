"""The facts of a request that are taken when it ends, since nothing else in the broker keeps them.

Offsets, positions and states are those of that moment. What can be found again later, as the walk through an index, is
not taken (`explanation.py`). A request may name thousands of partitions: `ROWS_MAX` of them are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from minibroker.broker.config.settings.types import LONG_MAX
from minibroker.broker.inside.errors import name_of
from minibroker.broker.inside.trace import NEVER, Before, Trace
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.fetch import DelayedFetch
from minibroker.broker.replica.leading import Leading
from minibroker.protocol.api import API_TABLE, ApiKey, Request
from minibroker.protocol.batches import BatchView, scan_batches
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.resources import Resource, ResourceType, name_fields, resources_named
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.log.log import Log

ROWS_MAX = 32
TOPICS_MAX = 4
NAMES_MAX = 64  # looked at for the topics of a request
BATCHES_MAX = 64  # looked at in one partition of a Produce
BEFORE_MAX = 32
THROTTLE_TIME = "throttle_time_ms"


class FetchedFacts(NamedTuple):
    """One partition of a Fetch; offsets of the log are -1 if this broker does not have it."""

    topic: str
    partition: int
    asked_offset: int
    error: str
    is_in_answer: bool
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    bytes: int
    segment: int  # the base offset of its segment, -1 without records
    position: int
    truncations: int


class FetchFacts(NamedTuple):
    """A Fetch; `partitions_read` counts those of its session, too."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    asked_id: int
    asked_epoch: int
    answered_id: int
    session_error: str
    next_epoch: int
    named: int
    forgotten: int
    partitions_read: int
    answered: int
    bytes: int
    bytes_found_first: int  # when it was parked, else -1
    case: str
    decided_by: TopicPartition | None
    converted_to: int | None
    rows: tuple[FetchedFacts, ...]


class ProducedFacts(NamedTuple):
    """One partition of a Produce."""

    topic: str
    partition: int
    error: str
    message: str | None
    base_offset: int
    last_offset: int
    records: int
    bytes: int
    batches: int
    magic: int
    codec: str
    is_transactional: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_duplicate: bool
    timestamp_type: str
    validation: str
    high_watermark: tuple[int, int]
    log_end_offset: tuple[int, int]
    rolled: bool
    segment: int
    position: int


class ProduceFacts(NamedTuple):
    acks: int
    transactional_id: str | None
    timeout_ms: int
    asked: int
    rows: tuple[ProducedFacts, ...]


class GroupFacts(NamedTuple):
    """The group that a request names, and the offsets that it commits: topic, partition, offset, lag."""

    group_id: str
    state: str
    generation: int
    members: int
    member_id: str
    protocol: str | None
    is_leader: bool
    why: str
    missed: tuple[str, ...]
    offsets: tuple[tuple[str, int, int, int], ...]


class LoginFacts(NamedTuple):
    """A step of an authentication; never a token of it."""

    mechanism: str  # that a SaslHandshake asks for, else empty
    enabled: tuple[str, ...]
    message: str | None  # of the answer to a SaslAuthenticate


class Facts(NamedTuple):
    topics: tuple[str, ...]
    records: int  # partitions answered with records, or appended to
    throttled_ms: int
    watched: int  # keys that it waited for
    max_wait_ms: int
    deadline_ms: int
    kind: str  # of the operation that waited
    fetch: FetchFacts | None = None
    produce: ProduceFacts | None = None
    group: GroupFacts | None = None
    login: LoginFacts | None = None


NO_FACTS = Facts((), 0, 0, 0, NEVER, NEVER, "")


class FactsTaker:
    """Takes the facts of exchanges on a broker with these parts."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._replicas = parts.replica_manager

    def take(self, exchange: Trace) -> Facts:
        """The facts of an exchange, of which some may be missing: one that waits has no answer yet."""
        request, operation = exchange.request, exchange.operation
        fetch = produce = group = login = None
        if request is not None and request.body is not None:
            if request.api_key == ApiKey.FETCH:
                fetch = self._fetch(exchange, request)
            elif request.api_key == ApiKey.PRODUCE:
                produce = self._produce(exchange, request)
            elif request.api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
                login = login_of(request, exchange.body)
            else:
                group = self._group(exchange, request)
        topics: tuple[str, ...]
        if fetch is not None:
            topics = tuple(dict.fromkeys(row.topic for row in fetch.rows))[:TOPICS_MAX]
            records = sum(row.bytes > 0 for row in fetch.rows)
        elif produce is not None:
            topics = tuple(dict.fromkeys(row.topic for row in produce.rows))[:TOPICS_MAX]
            records = sum(not row.error for row in produce.rows)
        else:
            topics, records = topics_named(request), 0
        return Facts(
            topics,
            records,
            throttle_ms_of(exchange.body),
            0 if operation is None else len(operation.watched_keys),
            NEVER if operation is None else operation.delay_ms,
            NEVER if operation is None else operation.deadline_ms,
            "" if operation is None else type(operation).__name__.removeprefix("Delayed"),
            fetch,
            produce,
            group,
            login,
        )

    def topics_of(self, exchange: Trace) -> tuple[str, ...]:
        """The first topics of an exchange, also of one that waits."""
        if exchange.facts is not None:
            return exchange.facts.topics
        request = exchange.request
        if request is not None and request.body is not None and request.api_key == ApiKey.FETCH:
            session = self._parts.fetch_sessions.get(request.body.session_id)
            if session is not None:
                names = dict.fromkeys(each.topic for each in islice(session.partitions, NAMES_MAX))
                return tuple(names)[:TOPICS_MAX]
        return topics_named(request)

    def names_topic(self, exchange: Trace, topic: str) -> bool:
        """Whether a request, its fetch session or its answer names a topic."""
        request = exchange.request
        if request is None or request.body is None:
            return False
        if request.api_key == ApiKey.FETCH:
            session = self._parts.fetch_sessions.get(request.body.session_id)
            if session is not None and any(each.topic == topic for each in session.partitions):
                return True
        named = resources_named(API_TABLE[request.api_key].request, request.api_version, request.body)
        return Resource(ResourceType.TOPIC, topic) in named

    def waits_for_disk(self, operation: DelayedOperation) -> bool:
        """Whether flush.messages holds records back in one of the first partitions that it waits for."""
        for key in islice(operation.watched_keys, ROWS_MAX):
            role = self._replicas.partitions.any(key) if isinstance(key, TopicPartition) else None
            if role is not None and role.log.config.flush_messages < LONG_MAX:
                return True
        return False

    def before(self, request: Request) -> dict[TopicPartition, Before]:
        """The partitions of a Produce as they are now."""
        found = {}
        for topic, partitions in islice(request.body.topics, BEFORE_MAX):
            for partition, _ in islice(partitions, BEFORE_MAX):
                topic_partition = TopicPartition(topic, partition)
                led = self._replicas.partitions.any(topic_partition)
                if led is not None:
                    active = led.log.segments.active
                    found[topic_partition] = Before(
                        led.log.high_watermark,
                        led.log.log_end_offset,
                        active.base_offset,
                        active.size_bytes,
                    )
        return found

    # -- Fetch ------------------------------------------------------------------------------------------------

    def _fetch(self, exchange: Trace, request: Request) -> FetchFacts:
        asked, answer, operation = request.body, exchange.body, exchange.operation
        session = self._parts.fetch_sessions.get(asked.session_id if answer is None else answer.session_id)
        offsets: dict[tuple[str, int], int] = {
            (topic, row[0]): row[2] for topic, partitions in asked.topics for row in partitions
        }
        named = len(offsets)
        read = named
        if session is not None and asked.session_epoch > 0:
            read = len(session.partitions)
            offsets = {(*each,): cached.row.fetch_offset for each, cached in session.partitions.items()}
        rows: list[FetchedFacts] = []
        total_bytes = answered = 0
        converted_to: int | None = None
        plain: list[tuple[str, Any]] = []
        for topic, partitions in () if answer is None else answer.topics:
            answered += len(partitions)
            for row in partitions:
                records = row[7]
                size_bytes = records.size_bytes if isinstance(records, FileSlice | ConvertedSlice) else 0
                total_bytes += size_bytes
                if isinstance(records, ConvertedSlice):
                    converted_to = records.to_magic
                if len(rows) < ROWS_MAX and (size_bytes or row[1]):
                    rows.append(self._fetched(topic, row, offsets))
                elif len(plain) < ROWS_MAX:
                    plain.append((topic, row))
        rows += [self._fetched(topic, row, offsets) for topic, row in plain[: ROWS_MAX - len(rows)]]
        seen = {(row.topic, row.partition) for row in rows}
        left_out = (place for place in offsets if place not in seen)
        if answered == len(rows):
            rows += [self._left_out(*place, offsets[place]) for place in islice(left_out, ROWS_MAX - len(rows))]
        delayed = operation if isinstance(operation, DelayedFetch) else None
        return FetchFacts(
            asked.replica_id,
            asked.max_wait_ms,
            asked.min_bytes,
            asked.max_bytes,
            asked.isolation_level,
            asked.session_id,
            asked.session_epoch,
            0 if answer is None else answer.session_id,
            "" if answer is None or not answer.error_code else name_of(answer.error_code),
            NEVER if session is None else session.epoch,
            named,
            sum(len(partitions) for _, partitions in asked.forgotten_topics),
            read,
            answered,
            total_bytes,
            exchange.first_bytes,
            "" if delayed is None else delayed.case,
            None if delayed is None else delayed.decided_by,
            converted_to,
            tuple(rows),
        )

    def _fetched(self, topic: str, row: Any, offsets: dict[tuple[str, int], int]) -> FetchedFacts:
        partition, code, high_watermark, stable, log_start, _, _, records, *_ = row
        log = self._log(topic, partition)
        source = records.records if isinstance(records, ConvertedSlice) else records
        is_slice = isinstance(source, FileSlice)
        return FetchedFacts(
            topic,
            partition,
            offsets.get((topic, partition), NEVER),
            name_of(code) if code else "",
            True,
            high_watermark,
            log.last_stable_offset if log is not None and stable < 0 and not code else stable,
            log_start,
            NEVER if log is None else log.log_end_offset,
            records.size_bytes if is_slice or isinstance(records, ConvertedSlice) else 0,
            int(source.file.path.name.partition(".")[0]) if is_slice else NEVER,
            source.position if is_slice else NEVER,
            NEVER if log is None else log.truncations,
        )

    def _left_out(self, topic: str, partition: int, offset: int) -> FetchedFacts:
        log = self._log(topic, partition)
        if log is None:
            return FetchedFacts(topic, partition, offset, "", False, NEVER, NEVER, NEVER, NEVER, 0, NEVER, NEVER, NEVER)
        return FetchedFacts(
            topic,
            partition,
            offset,
            "",
            False,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            log.log_end_offset,
            0,
            NEVER,
            NEVER,
            log.truncations,
        )

    def _log(self, topic: str, partition: int) -> Log | None:
        led = self._replicas.partitions.any(TopicPartition(topic, partition))
        return None if led is None else led.log

    # -- Produce ----------------------------------------------------------------------------------------------

    def _produce(self, exchange: Trace, request: Request) -> ProduceFacts:
        asked, answer = request.body, exchange.body
        answered = () if answer is None else answer.topics
        answers = {(topic, row[0]): row for topic, partitions in answered for row in partitions}
        sent = [(topic, *row) for topic, partitions in asked.topics for row in partitions]
        rows = [
            self._produced(exchange, topic, partition, records, answers.get((topic, partition)))
            for topic, partition, records in sent[:ROWS_MAX]
        ]
        return ProduceFacts(asked.acks, asked.transactional_id, asked.timeout_ms, len(sent), tuple(rows))

    def _produced(
        self, exchange: Trace, topic: str, partition: int, records: memoryview, row: Any | None
    ) -> ProducedFacts:
        topic_partition = TopicPartition(topic, partition)
        led = self._replicas.partitions.any(topic_partition)
        before = (exchange.before or {}).get(topic_partition)
        views = list(islice(views_of(records), BATCHES_MAX))
        first = views[0] if views else None
        code = 0 if row is None else row[1]
        count = sum(max(1, view.records_count) for view in views)
        stamped = NEVER if first is None else first.base_offset  # an append stamps it in the frame
        base_offset = stamped if row is None else row[2]
        was_answered = row is not None or request_is_silent(exchange)
        if before is None and isinstance(led, Leading) and not code and base_offset >= 0:
            before = before_append(led, base_offset)
        if before is None or led is None or first is None:
            high_watermark = log_end_offset = (NEVER, NEVER)
            rolled, segment, position = False, NEVER, NEVER
            is_duplicate = False
        else:
            log = led.log
            high_watermark = (before.high_watermark, led.log.high_watermark)
            is_duplicate = was_answered and not code and 0 <= base_offset < before.log_end_offset
            is_appended = was_answered and not code and base_offset >= 0 and not is_duplicate
            log_end_offset = (before.log_end_offset, base_offset + count if is_appended else before.log_end_offset)
            holder = log.segments.floor(base_offset) if is_appended else None
            segment = NEVER if holder is None else holder.base_offset
            rolled = holder is not None and segment != before.segment
            position = NEVER if holder is None else 0 if rolled else before.size_bytes
        return ProducedFacts(
            topic,
            partition,
            name_of(code) if code else "",
            None if row is None else row[6],
            base_offset,
            NEVER if base_offset < 0 else base_offset + count - 1,
            count,
            len(records),
            len(views),
            NEVER if first is None else first.magic,
            "" if first is None else codec_name(first),
            first is not None and first.is_transactional,
            NEVER if first is None else first.producer_id,
            NEVER if first is None else first.producer_epoch,
            NEVER if first is None else first.base_sequence,
            is_duplicate,
            "" if led is None else led.log.config.message_timestamp_type,
            "" if led is None else validation_of(led.log, first),
            high_watermark,
            log_end_offset,
            rolled,
            segment,
            position,
        )

    # -- groups -----------------------------------------------------------------------------------------------

    def _group(self, exchange: Trace, request: Request) -> GroupFacts | None:
        group_id = group_named(request)
        group = None if group_id is None else self._parts.groups.get(group_id)
        if group is None:
            return None
        member_id = getattr(exchange.body, "member_id", "") or getattr(request.body, "member_id", "")
        return GroupFacts(
            group.group_id,
            group.state.value,
            group.generation_id,
            len(group.members),
            member_id,
            group.protocol,
            bool(member_id) and group.is_leader(member_id),
            group.rebalance_reason,
            tuple(islice(group.missed_members, ROWS_MAX)),
            tuple(islice(self._commits(request), ROWS_MAX)) if request.api_key == ApiKey.OFFSET_COMMIT else (),
        )

    def _commits(self, request: Request) -> Iterator[tuple[str, int, int, int]]:
        for topic in request.body.topics:
            for row in topic.partitions:
                log = self._log(topic.name, row.partition)
                lag = NEVER if log is None else max(0, log.high_watermark - row.committed_offset)
                yield topic.name, row.partition, row.committed_offset, lag


def before_append(partition: Leading, base_offset: int) -> Before | None:
    """A partition as it was before an append at `base_offset`, if only this broker's log moves its high watermark."""
    log = partition.log
    segment = log.segments.floor(base_offset)
    if segment is None or partition.remote_replicas or log.config.flush_messages < LONG_MAX:
        return None
    found = segment.translate_offset(base_offset)
    previous = log.segments.lower(base_offset) if segment.base_offset == base_offset else segment
    size_bytes = 0 if found is None else found.position
    return Before(base_offset, base_offset, (previous or segment).base_offset, size_bytes)


def views_of(records: memoryview) -> Iterator[BatchView]:
    """The batches of a Produce, up to one that is malformed."""
    try:
        yield from scan_batches(records, 0, len(records))
    except KafkaError:
        return


def codec_name(view: BatchView) -> str:
    try:
        return view.codec.name.lower()
    except KafkaError:
        return "unknown"


def login_of(request: Request, answer: Any) -> LoginFacts:
    if request.api_key == ApiKey.SASL_HANDSHAKE:
        enabled = () if answer is None else tuple(answer.mechanisms)
        return LoginFacts(request.body.mechanism, enabled, None)
    return LoginFacts("", (), None if answer is None else answer.error_message)


def request_is_silent(exchange: Trace) -> bool:
    """Whether the request was served without a response."""
    return exchange.body is None and exchange.answered_ns != NEVER and not exchange.error


def validation_of(log: Log, first: BatchView | None) -> str:
    """Describe how the log takes the batches of clients, by its settings."""
    if first is not None and first.magic == 2 and log.takes_clients_batches_as_sent:
        return "taken as sent"
    config = log.config
    reasons = []
    if first is not None and first.magic != config.magic:
        reasons.append(f"message.format.version {config.message_format_version}")
    if config.compression_type != "producer":
        reasons.append(f"compression.type={config.compression_type}")
    if config.is_log_append_time:
        reasons.append("message.timestamp.type=LogAppendTime")
    if config.is_compacted:
        reasons.append("cleanup.policy=compact")
    if not reasons:
        reasons.append("message.timestamp.difference.max.ms")
    return "each record checked: " + ", ".join(reasons)


def throttle_ms_of(body: Any) -> int:
    fields = getattr(body, "_fields", ())
    return body.throttle_time_ms if THROTTLE_TIME in fields else 0


def topics_named(request: Request | None) -> tuple[str, ...]:
    """The first topics that a request names."""
    return tuple(dict.fromkeys(each.name for each in named(request) if each.type is ResourceType.TOPIC))[:TOPICS_MAX]


def group_named(request: Request) -> str | None:
    return next((each.name for each in named(request) if each.type is ResourceType.GROUP), None)


def named(request: Request | None) -> Iterator[Resource]:
    if request is None or request.body is None:
        return iter(())
    message = API_TABLE[request.api_key].request
    fields = name_fields(message, request.api_version)
    return islice((each for field in fields for each in field.resources(request.body)), NAMES_MAX)
