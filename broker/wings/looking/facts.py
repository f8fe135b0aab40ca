"""The facts of a request that are taken when it ends, since nothing else in the broker keeps them.

Offsets, positions and states are those of that moment. What can be found again later, as the walk through an index, is
not taken (`explanation.py`). A request may name thousands of partitions: `ROWS_MAX` of them are taken. The names here
are those of an explanation's JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from minibroker.broker.config.settings.types import LONG_MAX
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.fetch import DelayedFetch
from minibroker.broker.replica.leading import Leading
from minibroker.broker.wings.looking.answers import ERROR_CODE, RECORDS, error_of
from minibroker.broker.wings.looking.exchange_facts import (
    NEVER,
    NO_WAIT,
    Facts,
    FetchedFacts,
    FetchFacts,
    GroupFacts,
    LoginFacts,
    ProducedFacts,
    ProduceFacts,
    SessionFacts,
    WaitFacts,
)
from minibroker.broker.wings.looking.trace import Before, Trace
from minibroker.protocol.api import API_TABLE, ApiKey, Request
from minibroker.protocol.batches import BatchView, scan_batches
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import SHARE
from minibroker.protocol.messages.fetch import FetchResponse, replica_id_of
from minibroker.protocol.messages.produce import ProduceResponse
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.resources import Resource, ResourceType, name_fields, resources_named
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.log.log import Log

ROWS_MAX = 32
OF_SHARERS = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
TOPICS_MAX = 4
NAMES_MAX = 64  # looked at for the topics of a request
BATCHES_MAX = 64  # looked at in one partition of a Produce
BEFORE_MAX = 32
ISOLATION = {0: "read_uncommitted", 1: "read_committed"}
# Handlers answer with plain tuples; these give them their names.
FETCHED_ROW, PRODUCED_ROW = FetchResponse.row("topics.partitions"), ProduceResponse.row("topics.partitions")
Offsets = dict[tuple[str, int], int]  # by topic and partition


class FactsTaker:
    """Takes the facts of exchanges on a broker with these parts."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._partitions = parts.replica_manager.partitions

    def take(self, exchange: Trace) -> Facts:
        """Take the facts of an exchange. Some may be missing: one that waits has no answer yet."""
        request, answer = exchange.request, exchange.body
        topics: tuple[str, ...] = ()
        records, converted = 0, None
        fetch = produce = group = login = None
        if request is None or request.body is None:
            pass  # it could not be decoded, or is a token of a login
        elif request.api_key == ApiKey.FETCH:
            fetch = self._fetch(exchange, request)
            topics = first_names(row.topic for row in fetch.partitions)
            records = sum(row.bytes > 0 for row in fetch.partitions)
            converted = converted_to(answer) if records else None
        elif request.api_key == ApiKey.PRODUCE:
            produce = self._produce(exchange, request)
            topics = first_names(row.topic for row in produce.partitions)
            records = sum(not row.error for row in produce.partitions)
        elif request.api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            login = login_of(request, answer)
        else:
            topics, group = topics_named(request), self._group(exchange, request)
        throttled_ms, wait = getattr(answer, "throttle_time_ms", 0), wait_of(exchange.operation)
        return Facts(topics, records, throttled_ms, converted, wait, fetch, produce, group, login)

    def topics_of(self, exchange: Trace) -> tuple[str, ...]:
        """The first topics of an exchange, also of one that waits."""
        if exchange.facts is not None:
            return exchange.facts.topics
        session = self._session_of(exchange.request)
        return first_names(islice(session, NAMES_MAX)) or topics_named(exchange.request)

    def names_topic(self, exchange: Trace, topic: str) -> bool:
        """Return whether a request or its fetch session names a topic; of one that is kept, whether its facts do."""
        if exchange.facts is not None:
            return topic in exchange.facts.topics
        request = exchange.request
        if request is None or request.body is None:
            return False
        if topic in self._session_of(request):
            return True
        named = resources_named(API_TABLE[request.api_key].request, request.api_version, request.body)
        return Resource(ResourceType.TOPIC, topic) in named

    def is_empty(self, exchange: Trace) -> bool:
        """Return whether a Fetch was answered without an error and without records."""
        if exchange.api_key != ApiKey.FETCH or exchange.error:
            return False
        if exchange.facts is not None:
            return exchange.facts.fetch is not None and not exchange.facts.fetch.bytes
        return exchange.body is not None and not any(row[RECORDS] for _, row in rows_of(exchange.body))

    def _session_of(self, request: Request | None) -> Iterator[str]:
        """The topics of the fetch session that a request goes on with, one for each partition."""
        if request is None or request.body is None or request.api_key != ApiKey.FETCH:
            return iter(())
        session = self._parts.fetch_sessions.get(request.body.session_id)
        return iter(()) if session is None else (each.topic for each in session.partitions)

    def waits_for_disk(self, operation: DelayedOperation) -> bool:
        """Return whether flush.messages holds records back in one of the first partitions that it waits for."""
        keys = [key for key in islice(operation.watched_keys, ROWS_MAX) if isinstance(key, TopicPartition)]
        logs = [self._log(*key) for key in keys]
        return any(log is not None and log.config.flush_messages < LONG_MAX for log in logs)

    def before(self, request: Request) -> dict[TopicPartition, Before]:
        """The partitions of a Produce as they are now."""
        found = {}
        for topic, partitions in islice(request.body.topics, BEFORE_MAX):
            for row in islice(partitions, BEFORE_MAX):
                log = self._log(topic, row.partition)
                if log is not None:
                    active = log.segments.active
                    found[TopicPartition(topic, row.partition)] = Before(
                        log.high_watermark, log.log_end_offset, active.base_offset, active.size_bytes
                    )
        return found

    def _log(self, topic: str, partition: int) -> Log | None:
        role = self._partitions.any(TopicPartition(topic, partition))
        return None if role is None else role.log

    # -- Fetch ------------------------------------------------------------------------------------------------

    def _fetch(self, exchange: Trace, request: Request) -> FetchFacts:
        asked, answer = request.body, exchange.body
        session = self._parts.fetch_sessions.get(asked.session_id if answer is None else answer.session_id)
        offsets: Offsets = {(topic, row.partition): row.fetch_offset for topic, rows in asked.topics for row in rows}
        named = len(offsets)
        if session is not None and asked.session_epoch > 0:
            offsets = {each: cached.row.fetch_offset for each, cached in session.partitions.items()}
        answered = [] if answer is None else sorted(rows_of(answer), key=is_plain)
        rows = [self._fetched(topic, FETCHED_ROW._make(row), offsets) for topic, row in answered[:ROWS_MAX]]
        if len(answered) == len(rows):
            seen = {(row.topic, row.partition) for row in rows}
            left_out = (each for each in offsets if each not in seen)
            rows += [self._left_out(*each, offsets[each]) for each in islice(left_out, ROWS_MAX - len(rows))]
        return FetchFacts(
            replica_id_of(asked),
            asked.min_bytes,
            asked.max_bytes,
            asked.max_wait_ms,
            ISOLATION.get(asked.isolation_level, str(asked.isolation_level)),
            SessionFacts(
                asked.session_id,
                asked.session_epoch,
                0 if answer is None else answer.session_id,
                error_of(0 if answer is None else answer.error_code),
                named,
                sum(len(partitions) for _, partitions in asked.forgotten_topics),
                len(offsets),
            ),
            exchange.first_bytes,
            len(offsets),
            len(answered),
            sum(bytes_of(row[RECORDS]) for _, row in answered),
            tuple(rows),
        )

    def _fetched(self, topic: str, row: Any, offsets: Offsets) -> FetchedFacts:
        log = self._log(topic, row.partition)
        source = row.records.records if isinstance(row.records, ConvertedSlice) else row.records
        is_slice = isinstance(source, FileSlice)
        stable = row.last_stable_offset
        return FetchedFacts(
            topic,
            row.partition,
            offsets.get((topic, row.partition), NEVER),
            error_of(row.error_code),
            True,
            bytes_of(row.records),
            row.high_watermark,
            log.last_stable_offset if log is not None and stable < 0 and not row.error_code else stable,
            row.log_start_offset,
            NEVER if log is None else log.log_end_offset,
            int(source.file.path.name.partition(".")[0]) if is_slice else None,
            source.position if is_slice else None,
            NEVER if log is None else log.truncations,
        )

    def _left_out(self, topic: str, partition: int, offset: int) -> FetchedFacts:
        log = self._log(topic, partition)
        if log is None:
            return FetchedFacts(topic, partition, offset)
        high_watermark, stable, start, end = (
            log.high_watermark, log.last_stable_offset, log.log_start_offset, log.log_end_offset
        )  # fmt: skip
        return FetchedFacts(
            topic, partition, offset, "", False, 0, high_watermark, stable, start, end, None, None, log.truncations
        )

    # -- Produce ----------------------------------------------------------------------------------------------

    def _produce(self, exchange: Trace, request: Request) -> ProduceFacts:
        asked, answer = request.body, exchange.body
        answered = () if answer is None else rows_of(answer)
        answers = {(topic, row.partition): row for topic, each in answered for row in [PRODUCED_ROW._make(each)]}
        sent = rows_of(asked)
        taken = [
            self._produced(
                exchange, TopicPartition(topic, row.partition), row.records, answers.get((topic, row.partition))
            )
            for topic, row in sent[:ROWS_MAX]
        ]
        return ProduceFacts(asked.acks, asked.transactional_id, asked.timeout_ms, len(sent), tuple(taken))

    def _produced(
        self, exchange: Trace, topic_partition: TopicPartition, records: memoryview, answer: Any | None
    ) -> ProducedFacts:
        role = self._partitions.any(topic_partition)
        views = list(islice(views_of(records), BATCHES_MAX))
        first = views[0] if views else None
        count = sum(max(1, view.records_count) for view in views)
        code, message = ErrorCode.NONE, None
        base_offset = NEVER if first is None else first.base_offset  # an append stamps it in the frame
        if answer is not None:
            code, base_offset, message = answer.error_code, answer.base_offset, answer.error_message
        was_taken = (answer is not None or request_is_silent(exchange)) and not code and base_offset >= 0
        before = (exchange.before or {}).get(topic_partition)
        if before is None and isinstance(role, Leading) and not code and base_offset >= 0:
            before = before_append(role, base_offset)
        change: tuple[Any, ...] = ()
        if before is not None and role is not None and first is not None:
            change = change_by(role.log, before, base_offset, count, was_taken=was_taken)
        return ProducedFacts(
            *topic_partition,
            error_of(code),
            message,
            base_offset,
            NEVER if base_offset < 0 else base_offset + count - 1,
            count,
            len(records),
            len(views),
            "" if role is None else role.log.config.message_timestamp_type,
            "" if role is None else validation_of(role.log, first),
            *(() if first is None else batch_facts(first)),
            *change,
        )

    # -- groups -----------------------------------------------------------------------------------------------

    def _group(self, exchange: Trace, request: Request) -> GroupFacts | None:
        group_id = next((each.name for each in named(request) if each.type is ResourceType.GROUP), None)
        group = None if group_id is None else self._parts.groups.get(group_id)
        member_id = getattr(exchange.body, "member_id", "") or getattr(request.body, "member_id", "")
        if group is None:
            sharing = self._parts.groups.cache.kinds.get(SHARE)
            if group_id is None or sharing is None or request.api_key not in OF_SHARERS:
                return None
            progress = sharing.progress_of(Elsewhere(group_id), member_id)
            return GroupFacts(group_id, "", NEVER, 0, member_id, None, False, "", (), (), *progress)
        kind = self._parts.groups.cache.kind_of(group)
        return GroupFacts(
            group.group_id,
            group.state.value,
            group.generation_id,
            len(group.members),
            member_id,
            kind.assignor_of(group),
            bool(member_id) and group.is_leader(member_id),
            group.rebalance_reason,
            tuple(islice(group.missed_members, ROWS_MAX)),
            tuple(islice(self._commits(request), ROWS_MAX)) if request.api_key == ApiKey.OFFSET_COMMIT else (),
            *kind.progress_of(group, member_id),
        )

    def _commits(self, request: Request) -> Iterator[tuple[str, int, int, int]]:
        for topic, row in rows_of(request.body):
            log = self._log(topic, row.partition)
            lag = NEVER if log is None else max(0, log.high_watermark - row.committed_offset)
            yield topic, row.partition, row.committed_offset, lag


class Elsewhere(NamedTuple):
    """A share group that another broker coordinates; its members read partitions of this one."""

    group_id: str
    members: Mapping[str, object] = {}


# -- a Fetch, a Produce and their answers -----------------------------------------------------------------------------


def rows_of(message: Any) -> list[tuple[str, Any]]:
    """The partitions of a request or an answer, each with its topic."""
    return [(topic, row) for topic, partitions, *_ in message.topics for row in partitions]


def is_plain(answered: tuple[str, Any]) -> bool:
    """Return whether a partition was answered without records and without an error. Those are shown last."""
    _, row = answered
    return not (row[ERROR_CODE] or bytes_of(row[RECORDS]))


def bytes_of(records: Any) -> int:
    return records.size_bytes if isinstance(records, FileSlice | ConvertedSlice) else 0


def converted_to(answer: Any) -> int | None:
    """The magic to which the records of an answered Fetch are converted, None if they are not."""
    found = [] if answer is None else [row[RECORDS] for _, row in rows_of(answer)]
    return next((each.to_magic for each in reversed(found) if isinstance(each, ConvertedSlice)), None)


def batch_facts(view: BatchView) -> tuple[Any, ...]:
    """The fields of ProducedFacts from `magic` on."""
    batch = (view.magic, codec_name(view), view.is_transactional)
    return (*batch, view.producer_id, view.producer_epoch, view.base_sequence)


def change_by(log: Log, before: Before, base_offset: int, count: int, *, was_taken: bool) -> tuple[Any, ...]:
    """The fields of ProducedFacts from `is_duplicate` on: how an append changed a log."""
    is_duplicate = was_taken and base_offset < before.log_end_offset
    holder = log.segments.floor(base_offset) if was_taken and not is_duplicate else None
    end_offset = before.log_end_offset if holder is None else base_offset + count
    offsets = (before.high_watermark, log.high_watermark), (before.log_end_offset, end_offset)
    if holder is None:
        return is_duplicate, *offsets
    rolled = holder.base_offset != before.segment
    return is_duplicate, *offsets, rolled, holder.base_offset, 0 if rolled else before.size_bytes


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
    """Return whether the request was served without a response."""
    return exchange.body is None and exchange.answered_ns != NEVER and not exchange.error


def validation_of(log: Log, first: BatchView | None) -> str:
    """Describe how the log takes the batches of clients, by its settings."""
    if first is not None and first.magic == 2 and log.append_rules.takes_clients_batches_as_sent:
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


def wait_of(operation: DelayedOperation | None) -> WaitFacts:
    if operation is None:
        return NO_WAIT
    case, decided_by = (operation.case, operation.decided_by) if isinstance(operation, DelayedFetch) else ("", None)
    return WaitFacts(
        operation.delay_ms,
        operation.deadline_ms,
        type(operation).__name__.removeprefix("Delayed"),
        len(operation.watched_keys),
        case,
        None if decided_by is None else str(decided_by),
    )


def first_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:TOPICS_MAX]


def topics_named(request: Request | None) -> tuple[str, ...]:
    """The first topics that a request names."""
    return first_names(each.name for each in named(request) if each.type is ResourceType.TOPIC)


def named(request: Request | None) -> Iterator[Resource]:
    if request is None or request.body is None:
        return iter(())
    message = API_TABLE[request.api_key].request
    fields = name_fields(message, request.api_version)
    return islice((each for field in fields for each in field.resources(request.body)), NAMES_MAX)
