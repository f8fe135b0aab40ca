"""ListOffsets and OffsetForLeaderEpoch: the offset at a time, and the end of a leader epoch.

ListOffsets v0-v11. Version notes: v0 answers a list of segment base offsets by file time · v1 one offset by record time
· v2 isolation_level · v4 leader epochs, and refuses other epochs than this leader's · v7 knows the largest timestamp ·
v8, v9 and v11 know offsets of tiered storage, which no log here has.

OffsetForLeaderEpoch v0-v4. Version notes: v1 answers the epoch it found · v2 refuses other epochs than this leader's ·
v3 names the replica, which makes no difference here: consumers use the API since 2.1, followers always did. v0-v1 know
no partition that is on other brokers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.fetch import check_isolation_level
from minibroker.broker.apis.routes import Routes
from minibroker.broker.config.profiles import EVERYTHING, Habit, Profile
from minibroker.broker.replica.fetch import DEBUGGING_REPLICA_ID
from minibroker.broker.replica.partitions import Role
from minibroker.broker.replica.reading import check_leader_epoch, end_of_reading
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.protocol.api import API_TABLE, ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from minibroker.protocol.messages.fetch import ListOffsetsResponse, OffsetForLeaderEpochResponse
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import NO_OFFSET
from minibroker.protocol.record_batch import NO_LEADER_EPOCH
from minibroker.protocol.schema import FOREVER
from minibroker.storage.files.storage_errors import map_storage_errors

MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP = -4, -5, -6
ONLY_TIERED = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
# The first version that knows a timestamp below 0. Those of kafka 2.0.1 take any other one for a time.
FIRST_VERSIONS = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
LAST_VERSION_OF_2_0 = API_TABLE[ApiKey.LIST_OFFSETS].last_of_2_0
UNKNOWN_TIMESTAMP = -1
FIRST_VERSION_OF_CONSUMERS = 2

Body = Any


class LogOffsetApis:
    """Handlers of ListOffsets and OffsetForLeaderEpoch."""

    def __init__(self, replica_manager: ReplicaManager, profile: Profile = EVERYTHING) -> None:
        self._lists_each_row = Habit.LISTS_EACH_ROW in profile.habits
        self._keeps_empty_topics = Habit.KEEPS_EMPTY_TOPICS in profile.habits
        self._first_later_version = profile.first_of(LAST_VERSION_OF_2_0 + 1)
        if Habit.TAKES_NEGATIVE_TIMES in profile.habits:
            self._first_later_version = FOREVER
        self._unknown_to_debuggers = {ErrorCode.NOT_LEADER_FOR_PARTITION}
        if Habit.DEBUGS_REPLICAS in profile.habits:
            self._unknown_to_debuggers.add(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._replica_manager = replica_manager

    def routes(self) -> Routes:
        return {ApiKey.LIST_OFFSETS: self.list_offsets, ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch}

    # -- ListOffsets ------------------------------------------------------------------------------------------

    def list_offsets(self, request: Request, client: Client) -> Body:
        body, version = request.body, request.api_version
        check_isolation_level(body.isolation_level)
        duplicates = duplicate_partitions(body.topics) if version else ()

        def answer(name: str, row: Body) -> Body:
            topic_partition = TopicPartition(name, row.partition)
            if version == 0:
                return self._list_segments(topic_partition, row, body.replica_id)
            if topic_partition in duplicates:
                return failed_offset(row.partition, ErrorCode.INVALID_REQUEST)
            return self._list_offset(request, topic_partition, row)

        return ListOffsetsResponse(topics=rows_of(body.topics, answer, each=self._lists_each_row))

    def _list_offset(self, request: Request, topic_partition: TopicPartition, row: Body) -> Body:
        try:
            self._check_timestamp(row.timestamp, request.api_version)
            partition = self._role(topic_partition, request.body.replica_id)
            check_leader_epoch(partition.log, partition.leader_epoch, row.current_leader_epoch)
            with map_storage_errors(self._replica_manager.log_manager):
                found = self._find_offset(request, partition, row.timestamp)
        except KafkaError as error:
            return failed_offset(topic_partition.partition, error.code)
        if found is None:
            return list_offsets_row(topic_partition.partition)
        offset, timestamp = found
        is_latest = row.timestamp == LATEST_TIMESTAMP
        return list_offsets_row(
            topic_partition.partition,
            timestamp=timestamp,
            offset=offset,
            leader_epoch=partition.leader_epoch if is_latest else partition.log.leader_epochs.epoch_for(offset),
        )

    def _check_timestamp(self, timestamp: int, version: int) -> None:
        """Raises KafkaError for one that a later version than this one knows, as kafka 4.4."""
        first = FIRST_VERSIONS.get(timestamp, FOREVER)
        if version >= self._first_later_version and timestamp < 0 and version < first:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def _role(self, topic_partition: TopicPartition, replica_id: int) -> Role:
        """The role whose log is asked: the leader, or for a debugger any replica. Raises KafkaError."""
        is_debugger = replica_id == DEBUGGING_REPLICA_ID
        try:
            return self._replica_manager.partitions.to_read(topic_partition, of_followers=is_debugger)
        except KafkaError as error:
            if is_debugger and error.code in self._unknown_to_debuggers:
                raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE) from error
            raise

    def _find_offset(self, request: Request, partition: Role, timestamp: int) -> tuple[int, int] | None:
        """Find an offset and its timestamp, a consumer's below the end of its reading (fetch-path row 75).

        Any other reader's are those of the log, whatever its isolation level.
        """
        body, last_fetchable = request.body, partition.log.log_end_offset
        if body.replica_id == CONSUMER_REPLICA_ID:
            last_fetchable = end_of_reading(
                partition.log, is_committed_only=True, isolation_level=body.isolation_level
            ).message_offset
        if timestamp == LATEST_TIMESTAMP:
            return last_fetchable, UNKNOWN_TIMESTAMP
        is_special = request.api_version >= self._first_later_version
        if is_special and timestamp in ONLY_TIERED:
            return None
        if is_special and timestamp == EARLIEST_LOCAL_TIMESTAMP:
            timestamp = EARLIEST_TIMESTAMP
        if is_special and timestamp == MAX_TIMESTAMP:
            found = partition.log.fetch_offset_of_max_timestamp()
        else:
            found = partition.log.fetch_offset_by_timestamp(timestamp)
        if found is None:
            return None
        if timestamp == EARLIEST_TIMESTAMP or found.offset < last_fetchable:
            return found.offset, found.timestamp_ms
        return None

    def _list_segments(self, topic_partition: TopicPartition, row: Body, replica_id: int) -> Body:
        """v0: the base offsets of the segments last written before a time, newest first (fetch-path row 74)."""
        try:
            if row.timestamp < EARLIEST_TIMESTAMP:
                self._check_timestamp(row.timestamp, 0)
            partition = self._role(topic_partition, replica_id)
        except KafkaError as error:
            return failed_offset(topic_partition.partition, error.code)
        if row.max_num_offsets < 0:
            return failed_offset(topic_partition.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        offsets = self._replica_manager.segment_offsets_before(partition.log, row.timestamp, row.max_num_offsets)
        if replica_id == CONSUMER_REPLICA_ID:
            offsets = hide_uncommitted(offsets, partition.log.high_watermark)
        return list_offsets_row(topic_partition.partition, old_style_offsets=offsets)

    # -- OffsetForLeaderEpoch ---------------------------------------------------------------------------------

    def offset_for_leader_epoch(self, request: Request, client: Client) -> Body:
        def answer(name: str, row: Body) -> Body:
            return self._end_of_epoch(request, TopicPartition(name, row.partition), row)

        return OffsetForLeaderEpochResponse(topics=rows_of(request.body.topics, answer, each=self._keeps_empty_topics))

    def _end_of_epoch(self, request: Request, topic_partition: TopicPartition, row: Body) -> Body:
        partitions = self._replica_manager.partitions
        if request.api_version < FIRST_VERSION_OF_CONSUMERS and partitions.any(topic_partition) is None:
            return epoch_row(topic_partition.partition, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            partition = partitions.led(topic_partition)
            partition.check_leader_epoch(row.current_leader_epoch)
        except KafkaError as error:
            return epoch_row(topic_partition.partition, error=error.code)
        epoch, end_offset = partition.end_offset_of_epoch(row.leader_epoch)
        return epoch_row(topic_partition.partition, leader_epoch=epoch, end_offset=end_offset)


def rows_of(
    topics: Sequence[Any], answer: Callable[[str, Body], Body], *, each: bool
) -> list[tuple[str, Sequence[Body]]]:
    """The answers by topic: to each row that is asked, or as in Kafka's map one for each partition."""
    if each:
        return [(topic.topic, [answer(topic.topic, row) for row in topic.partitions]) for topic in topics]
    found: dict[str, dict[int, Body]] = {}
    for topic in topics:
        rows = found.setdefault(topic.topic, {})
        for row in topic.partitions:
            rows[row.partition] = answer(topic.topic, row)
    return [(name, list(rows.values())) for name, rows in found.items() if rows]


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
    leader_epoch: int = NO_LEADER_EPOCH,
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


def epoch_row(
    partition: int,
    *,
    error: ErrorCode = ErrorCode.NONE,
    leader_epoch: int = NO_LEADER_EPOCH,
    end_offset: int = NO_OFFSET,
) -> Body:
    return OffsetForLeaderEpochResponse.row("topics.partitions")(
        error_code=error, partition=partition, leader_epoch=leader_epoch, end_offset=end_offset
    )


def hide_uncommitted(offsets: Sequence[int], high_watermark: int) -> list[int]:
    """As kafka 2.0.1 KafkaApis.handleListOffsetRequestV0: offsets past the high watermark become the high watermark."""
    if any(offset > high_watermark for offset in offsets):
        return [high_watermark, *(offset for offset in offsets if offset <= high_watermark)]
    return list(offsets)
