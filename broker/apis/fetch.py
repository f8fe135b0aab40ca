"""FETCH and ListOffsets: what a consumer, or a follower, reads.

Fetch v0-v8. Behavior: partitions are read in the order of the request, or of its session, under one byte budget;
unknown ones are answered without being read and come last; with too little to read the request waits in the fetch
purgatory. In a session only what has changed is answered (replica/fetch_context.py).
Version notes: v3 knows max_bytes, and oversize first batches get through · v4 isolation_level · v5 log start
offsets · v6 knows KAFKA_STORAGE_ERROR · v7 sessions · v8 the client throttles itself.

ListOffsets v0-v5. Version notes: v0 answers a list of segment starts by file time · v1 one offset by record time
· v2 isolation_level · v4 leader epochs.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any

from minibroker.broker.apis.down_conversion import down_converted, has_newer, wanted_magic
from minibroker.broker.apis.versions import FETCH_WITHOUT_STORAGE_ERROR, error_for_version
from minibroker.broker.client import Client
from minibroker.broker.clock import Clock
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.replica.delayed import DelayedFetch
from minibroker.broker.replica.fetch_context import FetchContext, FetchManager
from minibroker.broker.replica.fetch_session import FINAL_EPOCH, NO_SESSION_ID
from minibroker.broker.replica.partition import (
    NO_OFFSET,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchedPartition,
    Partition,
    response_row,
)
from minibroker.broker.replica.replica_manager import (
    DEBUGGING_REPLICA_ID,
    FetchParams,
    FetchRow,
    ReplicaManager,
    failed_fetch,
)
from minibroker.protocol.api import Request
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.messages.fetch import FetchResponse, ListOffsetsResponse
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files import FileSlice

MAX_BYTES_UNLIMITED = 2**31 - 1
FIRST_VERSION_WITH_MAX_BYTES = 3
LAST_VERSION_OF_OLD_FORMATS = 3

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
UNKNOWN_TIMESTAMP = -1
UNKNOWN_EPOCH = -1

FETCH_RESPONSE = FetchResponse.type

Body = Any


class FetchApis:
    """Handlers of Fetch and ListOffsets."""

    def __init__(
        self, replica_manager: ReplicaManager, metadata_cache: MetadataCache, fetch_manager: FetchManager, clock: Clock
    ) -> None:
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._fetch_manager = fetch_manager
        self._clock = clock

    # -- Fetch ------------------------------------------------------------------------------------------------

    def fetch(self, request: Request, client: Client) -> Body | Coroutine[Any, Any, Body]:
        version, body = request.api_version, request.body
        check_isolation_level(body.isolation_level)
        has_session = body.session_epoch != FINAL_EPOCH or body.session_id != NO_SESSION_ID
        if not has_session and will_not_wait(body) and body.isolation_level == READ_UNCOMMITTED:
            topics = self._replica_manager.rows_at_end(body.topics)
            if topics is not None:
                return FETCH_RESPONSE(topics=topics)
        is_hard_limit = version < FIRST_VERSION_WITH_MAX_BYTES
        params = FetchParams(
            body.replica_id,
            body.max_wait_ms,
            body.min_bytes,
            MAX_BYTES_UNLIMITED if is_hard_limit else body.max_bytes,
            is_hard_limit,
            body.isolation_level,
        )
        requested = requested_rows(body.topics)
        context = None
        if has_session:
            context = self._fetch_manager.new_context(
                body.session_id,
                body.session_epoch,
                rows=requested,
                forgotten=forgotten_partitions(body.forgotten_topics),
                is_from_follower=params.is_from_follower,
            )
        rows, unknown = self._sort_out(requested.values() if context is None else context.rows)
        fetched, delayed = self._replica_manager.fetch_messages(params, rows)
        if delayed is not None:
            return self._fetch_later(version, context, params, rows, unknown, delayed)
        return self._answer(version, context, params, rows, fetched, unknown)

    async def _fetch_later(
        self,
        version: int,
        context: FetchContext | None,
        params: FetchParams,
        rows: Sequence[FetchRow],
        unknown: Sequence[FetchedPartition],
        delayed: DelayedFetch,
    ) -> Body:
        await self._replica_manager.wait_for_data(delayed, rows)
        fetched = self._replica_manager.read_from_local_log(params, rows)
        return self._answer(version, context, params, rows, fetched, unknown)

    def _answer(
        self,
        version: int,
        context: FetchContext | None,
        params: FetchParams,
        rows: Sequence[FetchRow],
        fetched: Sequence[FetchedPartition],
        unknown: Sequence[FetchedPartition],
    ) -> Body:
        if version <= LAST_VERSION_OF_OLD_FORMATS:
            fetched = [
                self._for_old_client(version, params, row, result) for row, result in zip(rows, fetched, strict=True)
            ]
        results = [*fetched, *unknown] if unknown else fetched
        if context is None:
            return fetch_response(version, results)
        answer = context.answer(results, self._clock.monotonic_ms())
        return fetch_response(version, answer.partitions, error=answer.error, session_id=answer.session_id)

    def _for_old_client(
        self, version: int, params: FetchParams, row: FetchRow, result: FetchedPartition
    ) -> FetchedPartition:
        """Convert what this client cannot read (fetch-path rows 67 and 68)."""
        if not isinstance(result.records, FileSlice):
            return result
        config = self._replica_manager.partitions[row.topic_partition].log.config
        to_magic = wanted_magic(version, config)
        if to_magic is None:
            return result
        if not (config.message_downconversion_enable or params.is_from_follower):
            if has_newer(result.records, to_magic):
                return failed_fetch(row.topic_partition, ErrorCode.UNSUPPORTED_VERSION)
            return result
        try:
            records = down_converted(result.records, to_magic, row.fetch_offset)
        except KafkaError as error:
            return failed_fetch(row.topic_partition, error.code)
        return result._replace(records=records)

    def _sort_out(self, requested: Iterable[FetchRow]) -> tuple[list[FetchRow], list[FetchedPartition]]:
        """The partitions to read, and the rows of those that do not exist (fetch-path row 9)."""
        known = self._metadata_cache.topics
        rows, unknown = [], []
        for row in requested:
            name, partition = topic_partition = row.topic_partition
            topic = known.get(name)
            if topic is not None and partition in topic.partitions:
                rows.append(row)
            else:
                unknown.append(failed_fetch(topic_partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return rows, unknown

    # -- ListOffsets ------------------------------------------------------------------------------------------

    def list_offsets(self, request: Request, client: Client) -> Body:
        body, version = request.body, request.api_version
        check_isolation_level(body.isolation_level)
        duplicates = duplicate_partitions(body.topics)
        topics: dict[str, dict[int, Body]] = {}  # as Kafka's map: what is asked twice is answered once
        for topic in body.topics:
            rows = topics.setdefault(topic.topic, {})
            for row in topic.partitions:
                topic_partition = TopicPartition(topic.topic, row.partition)
                if version == 0:
                    rows[row.partition] = self._list_segments(topic_partition, row, body.replica_id)
                elif topic_partition in duplicates:
                    rows[row.partition] = failed_offset(row.partition, ErrorCode.INVALID_REQUEST)
                else:
                    rows[row.partition] = self._list_offset(topic_partition, row.timestamp, body)
        return ListOffsetsResponse(topics=[(name, list(rows.values())) for name, rows in topics.items() if rows])

    def _list_offset(self, topic_partition: TopicPartition, timestamp: int, body: Body) -> Body:
        try:
            partition = self._replica_manager.leader_partition(topic_partition)
            found = self._find_offset(partition, timestamp, body)
        except KafkaError as error:
            return failed_offset(topic_partition.partition, error.code)
        if found is None:
            return list_offsets_row(topic_partition.partition)
        offset, found_timestamp = found
        return list_offsets_row(
            topic_partition.partition,
            timestamp=found_timestamp,
            offset=offset,
            leader_epoch=partition.log.leader_epochs.epoch_for(offset),
        )

    def _find_offset(self, partition: Partition, timestamp: int, body: Body) -> tuple[int, int] | None:
        """The offset and its timestamp, within what this reader may see (fetch-path row 75)."""
        last_fetchable = partition.end_of_reading(
            is_committed_only=body.replica_id in (-1, DEBUGGING_REPLICA_ID),
            isolation_level=body.isolation_level,
        ).message_offset
        if timestamp == LATEST_TIMESTAMP:
            return last_fetchable, UNKNOWN_TIMESTAMP
        found = partition.log.fetch_offset_by_timestamp(timestamp)
        if found is None:
            return None
        if timestamp == EARLIEST_TIMESTAMP or found.offset < last_fetchable:
            return found.offset, found.timestamp_ms
        return None

    def _list_segments(self, topic_partition: TopicPartition, row: Body, replica_id: int) -> Body:
        """v0: the starts of the segments last written before a time, newest first (fetch-path row 74)."""
        try:
            partition = self._replica_manager.leader_partition(topic_partition)
        except KafkaError as error:
            return failed_offset(topic_partition.partition, error.code)
        if row.max_num_offsets < 0:
            return failed_offset(topic_partition.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        offsets = self._replica_manager.segment_offsets_before(partition, row.timestamp, row.max_num_offsets)
        if replica_id == -1:
            offsets = hide_uncommitted(offsets, partition.high_watermark.message_offset)
        return list_offsets_row(topic_partition.partition, old_style_offsets=offsets)


def requested_rows(topics: Sequence[Any]) -> dict[TopicPartition, FetchRow]:
    """What is asked of each partition, as Kafka's map: of one named twice, the first place and the last wish."""
    rows = {}
    for name, partitions in topics:
        for partition, fetch_offset, log_start_offset, max_bytes in partitions:
            topic_partition = TopicPartition(name, partition)
            rows[topic_partition] = FetchRow(topic_partition, fetch_offset, log_start_offset, max_bytes)
    return rows


def check_isolation_level(level: int) -> None:
    """Raises KafkaProtocolError: Kafka 2.0.1 cannot parse a request with a level that it does not know."""
    if level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaProtocolError(f"unknown isolation level {level}")


def will_not_wait(body: Body) -> bool:
    """Whether a consumer wants its answer now, whatever there is. Followers are looked at more closely."""
    return bool((body.max_wait_ms <= 0 or body.min_bytes <= 0) and body.replica_id < 0)


def forgotten_partitions(topics: Sequence[Any]) -> Iterator[TopicPartition]:
    return (TopicPartition(name, partition) for name, partitions in topics for partition in partitions)


def fetch_response(
    version: int,
    results: Sequence[FetchedPartition],
    *,
    error: ErrorCode = ErrorCode.NONE,
    session_id: int = NO_SESSION_ID,
) -> Body:
    """Neighbours of one topic share a topic row, as Kafka's batchByTopic; a topic may so come twice."""
    topics: list[tuple[str, list[Any]]] = []
    last_name: str | None = None
    rows: list[Any] = []
    for result in results:
        name, code = result.topic_partition.topic, result.error
        if name != last_name:
            rows = []
            topics.append((name, rows))
            last_name = name
        if code is not ErrorCode.NONE:
            code = error_for_version(code, version, FETCH_WITHOUT_STORAGE_ERROR)
        rows.append(response_row(result, code))
    return FETCH_RESPONSE(error_code=error, session_id=session_id, topics=topics)


def duplicate_partitions(topics: Sequence[Any]) -> set[TopicPartition]:
    seen: set[TopicPartition] = set()
    duplicates: set[TopicPartition] = set()
    for topic in topics:
        for row in topic.partitions:
            topic_partition = TopicPartition(topic.topic, row.partition)
            (duplicates if topic_partition in seen else seen).add(topic_partition)
    return duplicates


def list_offsets_row(
    partition: int,
    *,
    error: ErrorCode = ErrorCode.NONE,
    timestamp: int = UNKNOWN_TIMESTAMP,
    offset: int = NO_OFFSET,
    leader_epoch: int = UNKNOWN_EPOCH,
    old_style_offsets: Sequence[int] = (),
) -> Body:
    return ListOffsetsResponse.row("topics.partitions")(
        partition=partition,
        error_code=error,
        old_style_offsets=old_style_offsets,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch,
    )


def failed_offset(partition: int, error: ErrorCode) -> Body:
    return list_offsets_row(partition, error=error)


def hide_uncommitted(offsets: Sequence[int], high_watermark: int) -> list[int]:
    """As kafka 2.0.1 KafkaApis.handleListOffsetRequestV0: offsets past the high watermark become the high watermark."""
    if any(offset > high_watermark for offset in offsets):
        return [high_watermark, *(offset for offset in offsets if offset <= high_watermark)]
    return list(offsets)
