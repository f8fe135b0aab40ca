"""The partitions of this broker: appends to them, reads from them, and wakes those who wait for them.

Reads and appends are plain functions: they never wait. What must wait, a fetch that finds too little, a produce or a
deletion of records that others must follow, comes back as a delayed operation which the API parks on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.parked import ParkedOperation
from minibroker.broker.replica.append_result import AppendResult
from minibroker.broker.replica.delayed import DelayedFetch, DelayedProduce, FetchStatus
from minibroker.broker.replica.followers import Followers, IsrChangeListener
from minibroker.broker.replica.partition import (
    NO_EPOCH,
    NO_OFFSET,
    READ_COMMITTED,
    FetchedPartition,
    FetchResponseRow,
    Partition,
)
from minibroker.broker.replica.reading import DEBUGGING_REPLICA_ID as DEBUGGING_REPLICA_ID
from minibroker.broker.replica.reading import FUTURE_REPLICA_ID as FUTURE_REPLICA_ID
from minibroker.broker.replica.reading import FetchParams as FetchParams
from minibroker.broker.replica.reading import FetchRow as FetchRow
from minibroker.broker.replica.reading import failed_fetch as failed_fetch
from minibroker.broker.replica.reading import read_partition
from minibroker.broker.time.clock import Clock
from minibroker.protocol.errors import ErrorCode, InvalidRecordsError, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.purgatory import Purgatory
from minibroker.purgatory.timing_wheel import Timer
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files.storage_errors import map_storage_errors
from minibroker.storage.log.log import Log

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


class ReplicaManager:
    """Owns the partitions and the three purgatories that wait for them.

    `on_isr_change` writes down who is in sync with this broker; `is_alive` says which brokers are up.
    """

    def __init__(
        self,
        *,
        config: KafkaConfig,
        log_manager: LogManager,
        timer: Timer,
        clock: Clock,
        on_isr_change: IsrChangeListener = lambda changes: None,
        is_alive: Callable[[int], bool] = lambda broker_id: False,
    ) -> None:
        self._config = config
        self.log_manager = log_manager
        self._clock = clock
        self.is_alive = is_alive
        self.partitions: dict[TopicPartition, Partition] = {}
        self._followers = Followers(
            self.partitions,
            broker_id=config.broker_id,
            on_isr_change=on_isr_change,
            on_progress=self.complete_delayed,
        )
        self._flushing: defaultdict[TopicPartition, trio.Lock] = defaultdict(trio.Lock)
        self.fetch_purgatory = Purgatory("Fetch", timer, purge_interval=config.fetch_purgatory_purge_interval_requests)
        self.fetches_waiting_for_log_ends = 0
        self.produce_purgatory = Purgatory(
            "Produce", timer, purge_interval=config.producer_purgatory_purge_interval_requests
        )
        self.delete_records_purgatory = Purgatory(
            "DeleteRecords", timer, purge_interval=config.delete_records_purgatory_purge_interval_requests
        )

    # -- partitions -------------------------------------------------------------------------------------------

    def become_leader(
        self,
        topic_partition: TopicPartition,
        *,
        leader_epoch: int,
        replicas: Sequence[int],
        in_sync_replicas: Sequence[int] = (),
    ) -> Partition:
        """Open or create the log and lead it. Without `in_sync_replicas` this broker alone is in sync."""
        with map_storage_errors():
            log = self.log_manager.get_or_create_log(topic_partition, now_ms=self._clock.wall_ms())
            # A log that has an epoch learns of a newer one with its first append: an fsync less for each at the start.
            if log.leader_epochs.latest_epoch < 0:
                log.assign_leader_epoch(leader_epoch)
        now_ms = self._clock.monotonic_ms() if len(replicas) > 1 else 0
        partition = Partition(
            log,
            broker_id=self._config.broker_id,
            leader_epoch=leader_epoch,
            replicas=replicas,
            in_sync_replicas=in_sync_replicas or [self._config.broker_id],
            max_lag_ms=self._config.replica_lag_time_max_ms,
            now_ms=now_ms,
        )
        partition.maybe_increment_high_watermark(now_ms)
        self.partitions[topic_partition] = partition
        return partition

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop serving a partition; those who wait for it are answered (Case B)."""
        del self.partitions[topic_partition]
        self._flushing.pop(topic_partition, None)
        self.complete_delayed(topic_partition)
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
        """Append each partition's records; a failed one leaves the others alone.

        Who waits for a partition is woken before the next one is written (as kafka 2.0.1
        Partition.appendRecordsToLeader), except for those of `logs_to_flush`.
        """
        now_ms = self._clock.wall_ms()
        results = {}
        for topic_partition, records in entries.items():
            result = self._append_to(topic_partition, records, required_acks, now_ms, is_from_client)
            results[topic_partition] = result
            info = result.info
            if info is not None and not info.needs_flush:
                self._commit_append(topic_partition, self.partitions[topic_partition], None)
        return results

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
            record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
            return AppendResult(error.code, None, log_start_offset, error.message, record_errors)
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

    def after_flush(self, results: dict[TopicPartition, AppendResult]) -> None:
        """Serve and acknowledge what `flush` has brought to the disk."""
        for topic_partition, result in results.items():
            partition = self.partitions.get(topic_partition)
            if result.info is not None and result.info.needs_flush and partition is not None:
                # What flush.messages wants on the disk is not served before it is there.
                self._commit_append(topic_partition, partition, partition.log.recovery_point)

    def _commit_append(self, topic_partition: TopicPartition, partition: Partition, durable_to: int | None) -> None:
        """Move the high watermark and wake who waits for it; before that, who reads to the log's end."""
        if self.fetches_waiting_for_log_ends:
            self.fetch_purgatory.check_and_complete(topic_partition)
        now_ms = self._clock.monotonic_ms() if partition.remote_replicas else 0
        if partition.maybe_increment_high_watermark(now_ms, durable_to):
            self.fetch_purgatory.check_and_complete(topic_partition)
            self.produce_purgatory.check_and_complete(topic_partition)

    def are_replicated(self, results: dict[TopicPartition, AppendResult]) -> bool:
        """Whether all of an acks=all append is, so that there is nothing to wait for and no error to tell.

        It always is where this broker is the only replica in sync: then no DelayedProduce need be made.
        """
        if self.log_manager.is_offline:
            return False
        for topic_partition, result in results.items():
            if result.info is not None:
                partition = self.partitions.get(topic_partition)
                if partition is None or partition.has_replicated_to(result.info.last_offset + 1) is not ErrorCode.NONE:
                    return False
        return True

    def delayed_produce(self, results: dict[TopicPartition, AppendResult], timeout_ms: int) -> DelayedProduce:
        """What an acks=all produce waits for: each high watermark past what was appended."""
        required = {
            topic_partition: result.info.last_offset + 1
            for topic_partition, result in results.items()
            if result.info is not None
        }
        return DelayedProduce(timeout_ms, required, self)

    def park_produce(self, operation: DelayedProduce, topic_partitions: Sequence[TopicPartition]) -> None:
        """Have it wait for the in-sync replicas of these partitions."""
        self.watch(operation, self.produce_purgatory, topic_partitions)

    # -- fetch ------------------------------------------------------------------------------------------------

    def fetch_messages(
        self, params: FetchParams, rows: Sequence[FetchRow]
    ) -> tuple[list[FetchedPartition], DelayedFetch | None]:
        """Read every partition; with a DelayedFetch to park on when there is too little and time to wait.

        As kafka 2.0.1 ReplicaManager.fetchMessages: answered at once when the client will not wait, when there is
        nothing to wait for, when `min_bytes` are there, or when a partition has an error or another past.
        """
        fetched = self.read_from_local_log(params, rows)
        if params.is_from_follower:
            fetched = self._followers.note_fetch(params.replica_id, rows, fetched, self._clock.monotonic_ms())
        if params.max_wait_ms <= 0 or not rows:
            return fetched, None
        bytes_readable = 0
        for result in fetched:
            if result.error is not ErrorCode.NONE or result.diverging_epoch is not None:
                return fetched, None
            bytes_readable += result.size_bytes
        if bytes_readable >= params.min_bytes:
            return fetched, None
        statuses = [
            FetchStatus(row.topic_partition, result.start, row.max_bytes)
            for row, result in zip(rows, fetched, strict=True)
            if result.start is not None
        ]
        return fetched, DelayedFetch(params, rows, statuses, self)

    def park_fetch(self, operation: DelayedFetch, rows: Sequence[FetchRow]) -> None:
        """Have it wait until there is something to read.

        What a follower has said of itself is not looked at again: it was so when it asked.
        """
        self.watch(operation, self.fetch_purgatory, [row.topic_partition for row in rows])
        if not (operation.is_completed or operation.params.is_committed_only):
            self.fetches_waiting_for_log_ends += 1
            operation.is_counted = True

    def fetched_by(self, operation: DelayedFetch, rows: Sequence[FetchRow]) -> list[FetchedPartition]:
        """What there was when its wait was over. Raises OSError."""
        return self.read_from_local_log(operation.params, rows) if operation.fetched is None else operation.fetched

    def rows_at_end(self, topics: Iterable[tuple[str, Sequence[tuple[int, ...]]]], seen: list[Any]) -> list[Any] | None:
        """The response to a request whose partitions are all read to their ends; None if one is not.

        In one pass over the request as it was decoded: consumers that have caught up ask for little else. `seen`
        gets the partition, the offset and the row of each.
        """
        partitions = {} if self.log_manager.is_offline else self.partitions
        answers: dict[str, dict[int, FetchResponseRow]] = {}
        for name, requested in topics:
            if name in answers:
                return None  # a topic that comes twice is for the path that knows Kafka's order
            rows = answers[name] = {}
            for number, leader_epoch, fetch_offset, last_epoch, _, _ in requested:
                partition = partitions.get((name, number))  # type: ignore[call-overload]
                row = None if partition is None else partition.row_at_end(fetch_offset)
                if row is None or last_epoch >= 0:
                    return None
                if leader_epoch != NO_EPOCH and leader_epoch != partition.leader_epoch:
                    return None
                rows[number] = row
                seen.append((partition, fetch_offset, row))
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
            topic_partition, fetch_offset, _, _, leader_epoch, last_epoch = row
            partition = partitions.get(topic_partition)
            if (
                partition is not None
                and not is_committed_read
                and (leader_epoch == NO_EPOCH or leader_epoch == partition.leader_epoch)
                and last_epoch < 0
            ):
                at_end = partition.answer_at_end(fetch_offset)
                if at_end is not None:
                    fetched.append(at_end)
                    continue
            result = self._read(params, row, bytes_left, min_one_message)
            size_bytes = result.size_bytes
            if size_bytes > 0:  # a slice may be empty: nothing is committed yet
                min_one_message = False
            bytes_left = max(0, bytes_left - size_bytes)
            fetched.append(result)
        return fetched

    def _read(self, params: FetchParams, row: FetchRow, bytes_left: int, min_one_message: bool) -> FetchedPartition:
        try:
            partition = self.leader_partition(row.topic_partition)
        except KafkaError as error:
            return failed_fetch(row.topic_partition, error.code)
        return read_partition(partition, params, row, bytes_left, min_one_message)

    def segment_offsets_before(self, partition: Partition, timestamp_ms: int, max_offsets: int) -> list[int]:
        """ListOffsets v0: where segments begin that were last written before a time."""
        return partition.log.legacy_fetch_offsets_before(timestamp_ms, max_offsets, now_ms=self._clock.wall_ms())

    # -- waiting ----------------------------------------------------------------------------------------------

    def watch(
        self, operation: ParkedOperation, purgatory: Purgatory, topic_partitions: Sequence[TopicPartition]
    ) -> None:
        """Have `operation` wait in the purgatory. Checked and watched with nothing in between: nothing is missed."""
        purgatory.try_complete_else_watch(operation, topic_partitions, self._clock.monotonic_ms())

    def complete_delayed(self, topic_partition: TopicPartition) -> None:
        """Wake who waits for a partition: something about it has changed."""
        for purgatory in (self.fetch_purgatory, self.produce_purgatory, self.delete_records_purgatory):
            purgatory.check_and_complete(topic_partition)

    def complete_all_delayed(self) -> None:
        """Answer everyone who waits with what there is: the broker stops, or its disk has failed."""
        for topic_partition in list(self.partitions):
            for purgatory in (self.fetch_purgatory, self.produce_purgatory, self.delete_records_purgatory):
                purgatory.check_and_complete(topic_partition)
                purgatory.complete_all(topic_partition)

    # -- upkeep -----------------------------------------------------------------------------------------------

    def drop_lagging_replicas(self) -> None:
        """Take those out of sync who lag for more than replica.lag.time.max.ms; every half of that time."""
        if not self.log_manager.is_offline:
            self._followers.drop_laggards(self._clock.monotonic_ms())

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {
            topic_partition: partition.high_watermark.message_offset
            for topic_partition, partition in self.partitions.items()
        }
