"""The partitions of this broker: appends to them, reads from them, and wakes those who wait for them.

Reads and appends are plain functions: they never wait. A fetch that finds too little and a produce that must
wait for replicas come back as a delayed operation, which the API parks on (`fetch_messages`, `append_records`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import trio

from minibroker.broker.clock import Clock
from minibroker.broker.config import KafkaConfig
from minibroker.broker.replica.append_result import AppendResult
from minibroker.broker.replica.delayed import DelayedFetch, DelayedProduce, FetchStatus
from minibroker.broker.replica.partition import (
    NO_OFFSET,
    NO_RECORDS,
    READ_COMMITTED,
    FetchedPartition,
    FetchResponseRow,
    Partition,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.purgatory import Purgatory
from minibroker.purgatory.timing_wheel import Timer
from minibroker.storage.log import Log
from minibroker.storage.log_manager import LogManager, map_storage_errors
from minibroker.storage.log_segment import LogOffsetMetadata

logger = logging.getLogger(__name__)

DEBUGGING_REPLICA_ID = -2
FUTURE_REPLICA_ID = -3
NOWHERE = LogOffsetMetadata(NO_OFFSET)
# Appends refused for these are answered without a log start offset (as kafka 2.0.1 ReplicaManager.appendToLocalLog).
EXPECTED_REFUSALS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_TIMESTAMP,
    }
)


class FetchParams(NamedTuple):
    """What a Fetch request asks of all its partitions."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    is_hard_limit: bool  # v0-v2: no oversize first batch, and a partial one is sent
    isolation_level: int

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id >= 0

    @property
    def is_committed_only(self) -> bool:
        """Followers read to the end of the log; consumers, and the debugging replica, to the high watermark."""
        return self.replica_id < 0 and self.replica_id != FUTURE_REPLICA_ID


class FetchRow(NamedTuple):
    """What a Fetch request asks of one partition."""

    topic_partition: TopicPartition
    fetch_offset: int
    log_start_offset: int
    max_bytes: int


class ReplicaManager:
    """Owns the partitions and the two purgatories that wait for them."""

    def __init__(self, *, config: KafkaConfig, log_manager: LogManager, timer: Timer, clock: Clock) -> None:
        self._config = config
        self.log_manager = log_manager
        self._clock = clock
        self.partitions: dict[TopicPartition, Partition] = {}
        self._flushing: defaultdict[TopicPartition, trio.Lock] = defaultdict(trio.Lock)
        self.fetch_purgatory = Purgatory("Fetch", timer, purge_interval=config.fetch_purgatory_purge_interval_requests)
        self.produce_purgatory = Purgatory(
            "Produce", timer, purge_interval=config.producer_purgatory_purge_interval_requests
        )

    # -- partitions -------------------------------------------------------------------------------------------

    def become_leader(
        self, topic_partition: TopicPartition, *, leader_epoch: int, replicas: Sequence[int]
    ) -> Partition:
        """Open or create the log and lead it. The in-sync set starts as this broker alone."""
        with map_storage_errors():
            log = self.log_manager.get_or_create_log(topic_partition, now_ms=self._clock.wall_ms())
            # A log that has an epoch learns of a newer one with its first append: an fsync less for each at the start.
            if log.leader_epochs.latest_epoch < 0:
                log.assign_leader_epoch(leader_epoch)
        partition = Partition(
            log,
            broker_id=self._config.broker_id,
            leader_epoch=leader_epoch,
            replicas=replicas,
            in_sync_replicas=[self._config.broker_id],
        )
        partition.maybe_increment_high_watermark()
        self.partitions[topic_partition] = partition
        return partition

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop serving a partition; those who wait for it are answered (Case B)."""
        del self.partitions[topic_partition]
        self._complete_delayed(topic_partition)
        if delete:
            with map_storage_errors():
                self.log_manager.delete_log(topic_partition)

    def leader_partition(self, topic_partition: TopicPartition) -> Partition:
        """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR when its disk has failed."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} is not on this broker")
        if self.log_manager.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic_partition} is offline")
        return partition

    # -- produce ----------------------------------------------------------------------------------------------

    def append_records(
        self, entries: Mapping[TopicPartition, memoryview], *, required_acks: int, is_from_client: bool = True
    ) -> dict[TopicPartition, AppendResult]:
        """Append each partition's records; a failed one leaves the others alone. Nobody is woken yet."""
        now_ms = self._clock.wall_ms()
        return {
            topic_partition: self._append_to(topic_partition, records, required_acks, now_ms, is_from_client)
            for topic_partition, records in entries.items()
        }

    def _append_to(
        self,
        topic_partition: TopicPartition,
        records: memoryview,
        required_acks: int,
        now_ms: int,
        is_from_client: bool,
    ) -> AppendResult:
        try:
            partition = self.leader_partition(topic_partition)
            with map_storage_errors(self.log_manager):
                info = partition.append_as_leader(
                    records, required_acks=required_acks, now_ms=now_ms, is_from_client=is_from_client
                )
        except KafkaError as error:
            if self.log_manager.is_offline:
                self.complete_all_delayed()  # Case E
            is_expected = error.code in EXPECTED_REFUSALS
            log_start_offset = NO_OFFSET if is_expected else self.partitions[topic_partition].log.log_start_offset
            return AppendResult(error.code, None, log_start_offset, error.message)
        return AppendResult(ErrorCode.NONE, info, info.log_start_offset)

    def logs_to_flush(self, results: dict[TopicPartition, AppendResult]) -> list[Log]:
        """The logs whose flush.messages asks for an fsync before these appends are acknowledged."""
        return [
            self.partitions[topic_partition].log
            for topic_partition, result in results.items()
            if result.info is not None and result.info.needs_flush
        ]

    async def flush(self, logs: Iterable[Log]) -> None:
        """fsync in a thread. Raises KafkaError(KAFKA_STORAGE_ERROR), after which the directory is offline.

        Who comes while a flush is under way waits for the next, which serves all who came meanwhile: group commit.
        """
        for log in logs:
            appended_to = log.log_end_offset
            async with self._flushing[log.topic_partition]:
                if log.recovery_point < appended_to:
                    with map_storage_errors(self.log_manager):
                        await trio.to_thread.run_sync(log.flush)

    def after_append(self, results: dict[TopicPartition, AppendResult]) -> None:
        """Move the high watermarks and wake those who wait for these partitions."""
        for topic_partition, result in results.items():
            partition = self.partitions.get(topic_partition)
            if result.info is not None and partition is not None:
                # What flush.messages wants on the disk is not served before it is there.
                durable_to = partition.log.recovery_point if result.info.needs_flush else None
                if partition.maybe_increment_high_watermark(durable_to):
                    self.produce_purgatory.check_and_complete(topic_partition)
                self.fetch_purgatory.check_and_complete(topic_partition)

    def delayed_produce(self, results: dict[TopicPartition, AppendResult], timeout_ms: int) -> DelayedProduce:
        """What an acks=all produce waits for: each high watermark past what was appended."""
        required = {
            topic_partition: result.info.last_offset + 1
            for topic_partition, result in results.items()
            if result.info is not None
        }
        return DelayedProduce(timeout_ms, required, self)

    async def wait_for_replicas(self, operation: DelayedProduce, topic_partitions: Sequence[TopicPartition]) -> None:
        now_ms = self._clock.monotonic_ms()
        self.produce_purgatory.try_complete_else_watch(operation, topic_partitions, now_ms)
        await operation.wait(self.produce_purgatory)

    # -- fetch ------------------------------------------------------------------------------------------------

    def fetch_messages(
        self, params: FetchParams, rows: Sequence[FetchRow]
    ) -> tuple[list[FetchedPartition], DelayedFetch | None]:
        """Read every partition; with a DelayedFetch to park on when there is too little and time to wait.

        As kafka 2.0.1 ReplicaManager.fetchMessages: answered at once when the client will not wait, when there is
        nothing to wait for, when `min_bytes` are there, or when a partition has an error.
        """
        fetched = self.read_from_local_log(params, rows)
        if params.is_from_follower:
            fetched = [self._for_follower(params.replica_id, result) for result in fetched]
        if params.max_wait_ms <= 0 or not rows:
            return fetched, None
        bytes_readable = 0
        for result in fetched:
            if result.error is not ErrorCode.NONE:
                return fetched, None
            bytes_readable += result.size_bytes
        if bytes_readable >= params.min_bytes:
            return fetched, None
        statuses = [
            FetchStatus(row.topic_partition, result.start, row.max_bytes)
            for row, result in zip(rows, fetched, strict=True)
            if result.start is not None
        ]
        return fetched, DelayedFetch(params, statuses, self)

    async def wait_for_data(self, operation: DelayedFetch, rows: Sequence[FetchRow]) -> None:
        """Park until there is something to read. Checked and watched with no await between: nothing is missed."""
        keys = [row.topic_partition for row in rows]
        self.fetch_purgatory.try_complete_else_watch(operation, keys, self._clock.monotonic_ms())
        await operation.wait(self.fetch_purgatory)

    def rows_at_end(self, topics: Iterable[tuple[str, Sequence[tuple[int, int, int, int]]]]) -> list[Any] | None:
        """The response to a request whose partitions are all read to their ends; None if one is not.

        In one pass over the request as it was decoded: consumers that have caught up ask for little else.
        """
        partitions = {} if self.log_manager.is_offline else self.partitions
        answers: dict[str, dict[int, FetchResponseRow]] = {}
        for name, requested in topics:
            if name in answers:
                return None  # a topic that comes twice is for the path that knows Kafka's order
            rows = answers[name] = {}
            for number, fetch_offset, _, _ in requested:
                partition = partitions.get((name, number))  # type: ignore[call-overload]
                row = None if partition is None else partition.row_at_end(fetch_offset)
                if row is None:
                    return None
                rows[number] = row
        return [(name, list(rows.values())) for name, rows in answers.items() if rows]

    def read_from_local_log(self, params: FetchParams, rows: Sequence[FetchRow]) -> list[FetchedPartition]:
        """Read the partitions in order under one byte budget (as kafka 2.0.1 ReplicaManager.readFromLocalLog).

        The first partition that has anything may exceed every limit by one batch, so that a consumer always
        gets on; not for v0-v2, whose clients take a limit literally.
        """
        bytes_left = params.max_bytes
        min_one_message = not params.is_hard_limit
        is_committed_read = params.isolation_level == READ_COMMITTED
        partitions = {} if self.log_manager.is_offline else self.partitions
        fetched: list[FetchedPartition] = []
        for row in rows:
            partition = partitions.get(row[0])
            if partition is not None and not is_committed_read:
                at_end = partition.answer_at_end(row[1])
                if at_end is not None:
                    fetched.append(at_end)
                    continue
            result = self._read(params, row, bytes_left, min_one_message)
            if result.records:
                min_one_message = False
            bytes_left = max(0, bytes_left - result.size_bytes)
            fetched.append(result)
        return fetched

    def _for_follower(self, replica_id: int, result: FetchedPartition) -> FetchedPartition:
        """Nothing for one that is no replica of the partition (fetch-path row 53).

        Raises KafkaError(UNKNOWN_SERVER_ERROR) for one with this broker's own id, as kafka 2.0.1.
        """
        partition = self.partitions.get(result.topic_partition)
        if partition is None:
            return result
        if replica_id == self._config.broker_id:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a follower that is broker {replica_id}, the leader")
        if result.start is None or replica_id in partition.remote_replicas:
            return result
        return result._replace(records=NO_RECORDS, aborted_transactions=None, start=NOWHERE)

    def _read(self, params: FetchParams, row: FetchRow, bytes_left: int, min_one_message: bool) -> FetchedPartition:
        topic_partition, fetch_offset, _, max_bytes = row
        try:
            partition = self.leader_partition(topic_partition)
            log = partition.log
            high_watermark = partition.high_watermark.message_offset
            is_committed_read = params.isolation_level == READ_COMMITTED
            last_stable_offset = log.last_stable_offset if is_committed_read else NO_OFFSET
            max_offset = None
            if params.is_committed_only:
                max_offset = last_stable_offset if is_committed_read else high_watermark
            limit = min(max_bytes, bytes_left)
            data = log.read(
                fetch_offset,
                max(0, limit),
                max_offset=max_offset,
                min_one_message=min_one_message,
                include_aborted_txns=is_committed_read,
            )
        except KafkaError as error:
            return failed_fetch(topic_partition, error.code)
        if limit < 0 and fetch_offset != log.log_end_offset:
            return failed_fetch(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        records, aborted_transactions = data.records, data.aborted_transactions
        if data.first_entry_incomplete and not params.is_hard_limit:
            records, aborted_transactions = NO_RECORDS, None
        return FetchedPartition(
            topic_partition,
            ErrorCode.NONE,
            high_watermark,
            last_stable_offset,
            log.log_start_offset,
            aborted_transactions,
            records,
            data.offset_metadata,
        )

    def delete_records(self, topic_partition: TopicPartition, offset: int) -> int:
        """Hide what is below `offset` (-1: the high watermark); the new log start offset. Raises KafkaError."""
        partition = self.leader_partition(topic_partition)
        with map_storage_errors(self.log_manager):
            low_watermark = partition.log.delete_records(offset)
        self._complete_delayed(topic_partition)
        return low_watermark

    def segment_offsets_before(self, partition: Partition, timestamp_ms: int, max_offsets: int) -> list[int]:
        """ListOffsets v0: where segments begin that were last written before a time."""
        return partition.log.legacy_fetch_offsets_before(timestamp_ms, max_offsets, now_ms=self._clock.wall_ms())

    def _complete_delayed(self, topic_partition: TopicPartition) -> None:
        self.produce_purgatory.check_and_complete(topic_partition)
        self.fetch_purgatory.check_and_complete(topic_partition)

    # -- upkeep -----------------------------------------------------------------------------------------------

    def complete_all_delayed(self) -> None:
        """Answer everyone who waits with what there is: the broker stops, or its disk has failed."""
        for topic_partition in list(self.partitions):
            self.produce_purgatory.complete_all(topic_partition)
            self.fetch_purgatory.complete_all(topic_partition)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {
            topic_partition: partition.high_watermark.message_offset
            for topic_partition, partition in self.partitions.items()
        }


def failed_fetch(topic_partition: TopicPartition, error: ErrorCode) -> FetchedPartition:
    """An error's row: all offsets -1, no aborted list, no records (fetch-path row 12)."""
    return FetchedPartition(topic_partition, error, NO_OFFSET, NO_OFFSET, NO_OFFSET, None, NO_RECORDS, None)
