"""The partitions of this broker: appends to them, reads from them, completes the operations that wait for them.

`append`, `fetch` and `delete_records` return their results at once, or a Pending of them. The condition of each wait is
in the module of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.pending import Pending
from minibroker.broker.replica.append import AppendResult, AppendResults, DelayedProduce, failed_append, refused_append
from minibroker.broker.replica.delete_records import (
    DelayedDeleteRecords,
    DeleteRecordsResult,
    DeleteRecordsResults,
    failed_deletion,
)
from minibroker.broker.replica.fetch import DelayedFetch, LogEndWaits, must_wait, read_rows
from minibroker.broker.replica.fetched_partition import FetchedPartition
from minibroker.broker.replica.flusher import LogFlusher
from minibroker.broker.replica.followers import Followers
from minibroker.broker.replica.isr import SaveIsr, saved
from minibroker.broker.replica.leading import ACKS_ALL, Leading
from minibroker.broker.replica.partition_read import FetchParams, FetchRow
from minibroker.broker.replica.partitions import Partitions
from minibroker.broker.replica.replication_quota import LEADER_RATE, ReplicationQuota, names_replica, window_of
from minibroker.broker.time.clock import Clock
from minibroker.broker.upkeep.background import Background
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import NO_OFFSET
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.purgatory.purgatory import Observer as PurgatoryObserver
from minibroker.purgatory.purgatory import Purgatory
from minibroker.purgatory.timing_wheel import Timer
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files.storage_errors import map_storage_errors
from minibroker.storage.log.log import DELETE_TO_HIGH_WATERMARK, Log


class Observer(PurgatoryObserver, Protocol):
    """Sees waits, and the appends that are refused."""

    def refused_append(self, topic_partition: TopicPartition, error: ErrorCode, size_bytes: int) -> None: ...


class ReplicaManager:
    """Owns the partitions and the three purgatories that wait for them.

    `save_isr` saves changed in-sync replicas; `is_alive` is whether a broker is up, `is_known` whether metadata have
    a partition.
    """

    def __init__(
        self,
        *,
        config: KafkaConfig,
        log_manager: LogManager,
        timer: Timer,
        clock: Clock,
        background: Background,
        save_isr: SaveIsr = saved,
        is_alive: Callable[[int], bool] = lambda broker_id: False,
        is_known: Callable[[TopicPartition], bool] = lambda topic_partition: False,
        observer: Observer | None = None,
    ) -> None:
        self._config = config
        self.log_manager = log_manager
        self._clock = clock
        self.is_alive = is_alive
        self.leader_quota = ReplicationQuota(window_of(config))
        self.take_replication_rate()
        self.flusher = LogFlusher(log_manager, background)
        self.partitions = Partitions(
            config=config,
            log_manager=log_manager,
            clock=clock,
            on_change=self.complete_delayed,
            is_known=is_known,
        )
        self._observer = observer
        self.followers = Followers(
            self.partitions,
            broker_id=config.broker_id,
            save_isr=save_isr,
            on_progress=self.complete_delayed,
            habits=config.profile.habits,
        )
        purgatory = partial(Purgatory, timer=timer, observer=observer)
        self.fetch_purgatory = purgatory("Fetch", purge_interval=config.fetch_purgatory_purge_interval_requests)
        self._log_end_waits = LogEndWaits()
        self.produce_purgatory = purgatory("Produce", purge_interval=config.producer_purgatory_purge_interval_requests)
        self.delete_records_purgatory = purgatory(
            "DeleteRecords", purge_interval=config.delete_records_purgatory_purge_interval_requests
        )
        self.purgatories = (self.fetch_purgatory, self.produce_purgatory, self.delete_records_purgatory)

    # -- append -----------------------------------------------------------------------------------------------

    def append(
        self,
        entries: Mapping[TopicPartition, memoryview],
        *,
        required_acks: int,
        timeout_ms: int,
        is_from_client: bool = True,
        remembers_producers: bool = False,
    ) -> AppendResults | Pending[AppendResults]:
        """Append each partition's records, with offsets stamped in place; a failure leaves the other partitions alone.

        Fetches that wait for a partition complete before the next partition is written (as kafka 2.0.1
        Partition.appendRecordsToLeader). Records that flush.messages wants fsynced are neither served nor acknowledged
        before. Then acks=all waits for the in-sync replicas, for `timeout_ms` at most; without `is_from_client` also
        after the client has left. `remembers_producers` as in `Log.append_as_leader`.
        """
        now_ms = self._clock.wall_ms()
        results: AppendResults = {}
        unflushed: list[Leading] = []
        for topic_partition, records in entries.items():
            try:
                partition = self.partitions.led(topic_partition)
                with map_storage_errors(self.log_manager):
                    info = partition.append_as_leader(
                        records,
                        required_acks=required_acks,
                        now_ms=now_ms,
                        is_from_client=is_from_client,
                        remembers_producers=remembers_producers,
                    )
            except KafkaError as error:
                results[topic_partition] = self._refused_append(topic_partition, error, len(records))
                continue
            results[topic_partition] = AppendResult(ErrorCode.NONE, info, info.log_start_offset, None, (), False)
            if partition.log.is_flush_due:
                unflushed.append(partition)
            else:
                self._commit_append(topic_partition, partition)
        if unflushed:
            replicate = partial(self._replicate, results, required_acks, timeout_ms, is_from_client)
            return self._flush(unflushed).then(replicate, partial(flush_failed, results))
        if required_acks != ACKS_ALL:
            return results
        return self._replicate(results, required_acks, timeout_ms, is_from_client)

    def _refused_append(self, topic_partition: TopicPartition, error: KafkaError, size_bytes: int) -> AppendResult:
        if self._observer is not None:
            self._observer.refused_append(topic_partition, error.code, size_bytes)
        if self.log_manager.is_offline:
            self.complete_all_delayed()  # Case E
        known = self.partitions.any(topic_partition)
        return refused_append(error, NO_OFFSET if known is None else known.log.log_start_offset)

    def _flush(self, unflushed: Sequence[Leading]) -> Pending[None]:
        """Fsync the appends of these partitions, one log after the other, then serve them."""
        partitions = iter(unflushed)

        def flush_next(_: None) -> Pending[None] | None:
            following = next(partitions, None)
            return None if following is None else self.flusher.flush(following.log).then(flush_next)

        def serve(_: None) -> None:
            for partition in unflushed:
                topic_partition = partition.topic_partition
                if self.partitions.any(topic_partition) is partition:
                    self._commit_append(topic_partition, partition)

        return self.flusher.flush(next(partitions).log).then(flush_next).then(serve)

    def _commit_append(self, topic_partition: TopicPartition, partition: Leading) -> None:
        """Complete the fetches that read to the log end; move the high watermark, complete what waits for it."""
        if self._log_end_waits.count:
            self.fetch_purgatory.check_and_complete(topic_partition)
        now_ms = self._clock.monotonic_ms() if partition.remote_replicas else 0
        if partition.maybe_increment_high_watermark(now_ms):
            self.fetch_purgatory.check_and_complete(topic_partition)
            self.produce_purgatory.check_and_complete(topic_partition)

    def _replicate(
        self, results: AppendResults, required_acks: int, timeout_ms: int, is_from_client: bool, _: None = None
    ) -> AppendResults | Pending[AppendResults]:
        """Return the results, with acks=all once the in-sync replicas have the records or the time is up."""
        if required_acks != ACKS_ALL or self._are_replicated(results):
            return results
        delayed = DelayedProduce(timeout_ms, results, self.partitions, may_be_abandoned=is_from_client)
        self._watch(delayed, self.produce_purgatory, list(results))
        return delayed.pending.outcome()

    def _are_replicated(self, results: AppendResults) -> bool:
        """Return whether an acks=all append is replicated by now, without an error.

        It is if only this broker is in sync: then no DelayedProduce is made.
        """
        if self.log_manager.is_offline:
            return not results
        for topic_partition, result in results.items():
            if result.info is not None:
                role, end_offset = self.partitions.any(topic_partition), result.info.last_offset + 1
                if not isinstance(role, Leading) or role.has_replicated_to(end_offset) is not ErrorCode.NONE:
                    return False
        return True

    # -- fetch ------------------------------------------------------------------------------------------------

    def fetch(
        self, params: FetchParams, rows: Sequence[FetchRow]
    ) -> list[FetchedPartition] | Pending[list[FetchedPartition]]:
        """Read every partition; wait in the fetch purgatory if that gives too little and the client allows a wait.

        A follower's position is noted before the wait, and only then.
        """
        if self.leader_quota.limit is not None and params.is_from_follower:
            params = params._replace(holds_back=partial(self._holds_back, params.replica_id))
        fetched = read_rows(self.partitions, params, rows)
        if params.is_from_follower:
            fetched = self.followers.note_fetch(params, rows, fetched, self._clock.monotonic_ms())
        if not must_wait(params, fetched):
            return fetched
        delayed = DelayedFetch(params, rows, fetched, self.partitions, self._log_end_waits)
        self._watch(delayed, self.fetch_purgatory, [row.topic_partition for row in rows])
        return delayed.pending.outcome()

    # -- replication quotas -----------------------------------------------------------------------------------

    def take_replication_rate(self) -> None:
        """Take the limit from the changed settings of this broker (those of all brokers set none, as in 2.0.1)."""
        self.leader_quota.set_limit(self._config.of_broker, LEADER_RATE)

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Return whether this broker, as its leader, throttles a partition."""
        role = self.partitions.any(topic_partition)
        return role is not None and names_replica(
            role.log.config.leader_replication_throttled_replicas, topic_partition.partition, self._config.broker_id
        )

    def _holds_back(self, replica_id: int, partition: Leading) -> bool:
        """Return whether a follower gets no records of a partition now.

        As kafka 2.0.1 ReplicaManager.shouldLeaderThrottle.
        """
        return (
            replica_id not in partition.in_sync_replicas
            and self.is_throttled(partition.topic_partition)
            and self.leader_quota.is_exceeded(self._clock.monotonic_ms())
        )

    def segment_offsets_before(self, log: Log, timestamp_ms: int, max_offsets: int) -> list[int]:
        """ListOffsets v0: the base offsets of the segments last written before a time."""
        return log.legacy_fetch_offsets_before(timestamp_ms, max_offsets, now_ms=self._clock.wall_ms())

    # -- delete records ---------------------------------------------------------------------------------------

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> DeleteRecordsResults | Pending[DeleteRecordsResults]:
        """Move each log start offset, -1 for to the high watermark; wait until all live replicas have moved theirs."""
        results = {each: self._delete_records_of(each, offset) for each, offset in offsets.items()}
        if not any(result.is_open for result in results.values()):
            return results
        delayed = DelayedDeleteRecords(timeout_ms, results, self._low_watermark_of)
        self._watch(delayed, self.delete_records_purgatory, list(results))
        return delayed.pending.outcome()

    def _delete_records_of(self, topic_partition: TopicPartition, offset: int) -> DeleteRecordsResult:
        try:
            partition = self.partitions.led(topic_partition)
            if offset == DELETE_TO_HIGH_WATERMARK:
                offset = partition.log.high_watermark
            if offset < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic_partition} has no offset {offset}")
            with map_storage_errors(self.log_manager):
                partition.log.delete_records(offset)
        except KafkaError as error:
            return failed_deletion(error.code)
        self.complete_delayed(topic_partition)
        return DeleteRecordsResult(self._low_watermark_of(topic_partition), ErrorCode.NONE, offset)

    def _low_watermark_of(self, topic_partition: TopicPartition) -> int:
        return self.partitions.led(topic_partition).low_watermark(self.is_alive)

    # -- waiting ----------------------------------------------------------------------------------------------

    def _watch(
        self, operation: DelayedOperation, purgatory: Purgatory, topic_partitions: Sequence[TopicPartition]
    ) -> None:
        """Let `operation` wait in the purgatory. Nothing runs between check and watch, so no completion is missed."""
        purgatory.try_complete_else_watch(operation, topic_partitions, self._clock.monotonic_ms())

    def complete_delayed(self, topic_partition: TopicPartition) -> None:
        """Check the operations that wait for a partition, after it has changed."""
        for purgatory in self.purgatories:
            purgatory.check_and_complete(topic_partition)

    def complete_all_delayed(self) -> None:
        """Complete all operations with the results they have: the broker stops, or its disk has failed."""
        for topic_partition, _ in self.partitions.items():
            for purgatory in self.purgatories:
                purgatory.check_and_complete(topic_partition)
                purgatory.complete_all(topic_partition)

    # -- upkeep -----------------------------------------------------------------------------------------------

    def drop_lagging_replicas(self) -> None:
        """Remove followers that lag by more than replica.lag.time.max.ms from the in-sync replicas."""
        if not self.log_manager.is_offline:
            self.followers.drop_laggards(self._clock.monotonic_ms())

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {topic_partition: role.log.high_watermark for topic_partition, role in self.partitions.items()}


def flush_failed(results: AppendResults, error: Exception) -> AppendResults:
    """The results of appends whose fsync failed."""
    if not isinstance(error, KafkaError):
        raise error
    return {topic_partition: failed_append(error.code) for topic_partition in results}
