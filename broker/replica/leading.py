"""The role of a leader in one partition: its followers, its in-sync replicas, and how far its records are committed.

The high watermark is the smallest log end offset of the in-sync replicas, and of the followers that are about to join
them: those caught up within replica.lag.time.max.ms (as kafka 2.0.1 Partition.maybeIncrementLeaderHW). It is kept with
its segment and position, because DelayedFetch counts the bytes between an offset and the high watermark without
reading. It never moves back while this broker leads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from minibroker.broker.replica.fetched_partition import NO_RECORDS, FetchedPartition
from minibroker.broker.replica.isr import IsrChange
from minibroker.broker.replica.reading import check_leader_epoch
from minibroker.broker.replica.replica import NEVER_MS, Replica
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import NO_OFFSET
from minibroker.protocol.text import counted
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.index.leader_epochs import EpochEndOffset
from minibroker.storage.log.appending import LogAppendInfo
from minibroker.storage.log.log import Log

ZSTD = "zstd"
# Of Produce; 1 waits for the leader alone.
ACKS_NONE = 0
ACKS_ALL = -1


NONE_KNOWN: Mapping[int, Replica] = {}


class Leadership(NamedTuple):
    """A leader's term: its epoch, the in-sync replicas, and the version of the partition's state that has both.

    The in-sync replicas are broker ids, also the leader's own.
    """

    leader_epoch: int
    in_sync_replicas: tuple[int, ...]
    state_version: int = 0
    asked_in_sync_replicas: tuple[int, ...] = ()  # while the state of the cluster has not answered

    def counts(self, broker_id: int) -> bool:
        """Return whether the high watermark waits for a replica: one in sync, or about to be."""
        return broker_id in self.in_sync_replicas or broker_id in self.asked_in_sync_replicas


class Leading:
    """The leader of a partition.

    A follower that is in sync when this broker begins to lead must catch up within `max_lag_ms` from then on. Those in
    `known` go on as they are: this broker has led them before. One that is not in sync must fetch again before the high
    watermark waits for it: a controller has removed it, since its broker has ended (Kafka 2.0.1 waits for it as long
    as it was caught up within `max_lag_ms`, and acks=all with it).
    """

    __slots__ = (
        "_answer_at_end",
        "_max_lag_ms",
        "broker_id",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leadership",
        "log",
        "remote_replicas",
        "topic_partition",
    )

    def __init__(
        self,
        log: Log,
        *,
        broker_id: int,
        leadership: Leadership,
        replicas: Sequence[int],
        max_lag_ms: int,
        now_ms: int,
        known: Mapping[int, Replica] = NONE_KNOWN,
    ) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.log = log
        self.broker_id = broker_id
        self.leadership = leadership
        self.leader_epoch = leadership.leader_epoch  # of all the term
        self.leader_epoch_start_offset = log.log_end_offset
        self.remote_replicas = {
            replica: known.get(replica) or Replica(replica, last_caught_up_ms=now_ms)
            if replica in leadership.in_sync_replicas
            else Replica(replica, last_caught_up_ms=NEVER_MS)
            for replica in replicas
            if replica != broker_id
        }
        self._max_lag_ms = max_lag_ms
        self._answer_at_end: FetchedPartition | None = None

    @property
    def in_sync_replicas(self) -> tuple[int, ...]:
        return self.leadership.in_sync_replicas

    def append_as_leader(
        self,
        records: memoryview,
        *,
        required_acks: int,
        now_ms: int,
        is_from_client: bool = True,
        remembers_producers: bool = False,
    ) -> LogAppendInfo:
        """Append records of a client or of a coordinator. Raises KafkaError and appends nothing.

        The caller moves the high watermark, once the append is as durable as flush.messages asks.
        """
        if required_acks == ACKS_ALL and len(self.in_sync_replicas) < self._least_in_sync():
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition}: {counted(len(self.in_sync_replicas), 'in-sync replica')}, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )
        return self.log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            is_from_client=is_from_client,
            remembers_producers=remembers_producers,
        )

    # -- high watermark ---------------------------------------------------------------------------------------

    def maybe_increment_high_watermark(self, now_ms: int) -> bool:
        """Move the high watermark to the least end of the replicas that count. Return whether it moved.

        Of its own log a leader counts what flush.messages allows to serve, and what it had when its term began: no
        append waits for the fsync of that. No log is read: a disk that fails must not fail what an append completes.
        Without followers `now_ms` is not used.
        """
        committed = self.log.durable_end_metadata
        if committed.message_offset < self.leader_epoch_start_offset:
            committed = LogOffsetMetadata(self.leader_epoch_start_offset)
        if self.remote_replicas:
            committed = self._least_end(committed, now_ms)
        return self.log.move_high_watermark(committed)

    def _least_end(self, own_end: LogOffsetMetadata, now_ms: int) -> LogOffsetMetadata:
        least = own_end
        for broker_id, replica in self.remote_replicas.items():
            if replica.log_end_offset.message_offset < least.message_offset and (
                self.leadership.counts(broker_id) or replica.is_caught_up(now_ms, self._max_lag_ms)
            ):
                least = replica.log_end_offset
        return least

    def has_replicated_to(self, required_offset: int) -> ErrorCode | None:
        """Return how an acks=all append up to `required_offset` ended, NONE for committed; None while it waits.

        As kafka 2.0.1 Partition.checkEnoughReplicasReachOffset.
        """
        if self.log.high_watermark < required_offset:
            return None
        if len(self.in_sync_replicas) < self._least_in_sync():
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # -- followers --------------------------------------------------------------------------------------------

    def note_follower_fetch(
        self, replica_id: int, result: FetchedPartition, log_start_offset: int, now_ms: int
    ) -> bool:
        """Note the offsets of a follower's fetch, just read. Return whether its log start offset has moved up."""
        replica = self.remote_replicas[replica_id]
        if result.diverging_epoch is not None:
            return False  # it must truncate its log first (as later Kafka)
        if result.start is None:
            replica.note_failed_fetch()
            return False
        before = replica.log_start_offset
        replica.note_fetch(
            result.start,
            log_start_offset=log_start_offset,
            leader_end_offset=self.log.log_end_offset,
            now_ms=now_ms,
        )
        return log_start_offset > before

    def isr_with(self, replica_id: int) -> tuple[int, ...] | None:
        """Return the in-sync replicas with this follower; None if it is among them, or may not join yet.

        It must have reached the high watermark and the start of this leader epoch: before that its log may differ
        (KAFKA-7128). As kafka 2.0.1 Partition.maybeExpandIsr.
        """
        end_offset = self.remote_replicas[replica_id].log_end_offset.message_offset
        is_in_sync = end_offset >= max(self.log.high_watermark, self.leader_epoch_start_offset)
        if replica_id in self.in_sync_replicas or not is_in_sync:
            return None
        return *self.in_sync_replicas, replica_id

    def isr_without_laggards(self, now_ms: int) -> tuple[int, ...] | None:
        """Return the in-sync replicas without the lagging ones; None if none lags.

        As kafka 2.0.1 Partition.getOutOfSyncReplicas.
        """
        in_sync = tuple(
            broker_id
            for broker_id in self.in_sync_replicas
            if (replica := self.remote_replicas.get(broker_id))
            is None  # this broker, or one that no longer is assigned
            or replica.is_caught_up(now_ms, self._max_lag_ms)
        )
        return None if len(in_sync) == len(self.in_sync_replicas) else in_sync

    def isr_without(self, replica_id: int) -> tuple[int, ...] | None:
        """Return the in-sync replicas without a follower, which counts as never caught up; None if it is not among
        them."""
        self.remote_replicas[replica_id].note_removal()
        in_sync = tuple(broker_id for broker_id in self.in_sync_replicas if broker_id != replica_id)
        return None if len(in_sync) == len(self.in_sync_replicas) else in_sync

    def ask_for_isr(self, in_sync_replicas: tuple[int, ...]) -> IsrChange:
        """Begin a change of the in-sync replicas; return what to ask the state of the cluster for."""
        leadership = self.leadership
        self.leadership = leadership._replace(asked_in_sync_replicas=in_sync_replicas)
        return IsrChange(in_sync_replicas, leadership.leader_epoch, leadership.state_version)

    def end_isr_change(self, state_version: int | None) -> bool:
        """Take the version of the state that has the change, None for a change that it did not take; return whether it
        did. A leader whose state is stale keeps its in-sync replicas until it hears of a newer one."""
        leadership = self.leadership
        if state_version is None:
            self.leadership = leadership._replace(asked_in_sync_replicas=())
            return False
        self.leadership = Leadership(leadership.leader_epoch, leadership.asked_in_sync_replicas, state_version)
        return True

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """The least log start offset of the live replicas. As kafka 2.0.1 Partition.lowWatermarkIfLeader."""
        starts = [replica.log_start_offset for replica in self.remote_replicas.values() if is_alive(replica.broker_id)]
        return min(self.log.log_start_offset, *starts) if starts else self.log.log_start_offset

    # -- leader epochs ----------------------------------------------------------------------------------------

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raises KafkaError as `reading.check_leader_epoch`."""
        check_leader_epoch(self.log, self.leader_epoch, current_leader_epoch)

    def end_offset_of_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Return the end of an epoch, or of the newest known one before it; (-1, -1) if no end is known.

        As kafka 2.0.1 Partition.lastOffsetForLeaderEpoch.
        """
        log = self.log
        return log.leader_epochs.end_offset_for(leader_epoch, log.log_end_offset, led_in=self.leader_epoch)

    # -- reading ----------------------------------------------------------------------------------------------

    def _least_in_sync(self) -> int:
        return self.log.config.least_in_sync(len(self.remote_replicas) + 1)

    def answer_at_end(self, fetch_offset: int) -> FetchedPartition | None:
        """Return the answer to a read_uncommitted fetch at the log end offset; None for any other fetch offset.

        Most fetches of most consumers are such. The answer is the same for all until an offset moves, so it is cached.
        """
        answer, log = self._answer_at_end, self.log
        if fetch_offset != log.log_end_offset or log.is_refusing:
            return None
        end = log.log_end_offset_metadata
        if (
            answer is None
            or answer.start is not end
            or answer.high_watermark != log.high_watermark
            or answer.log_start_offset != log.log_start_offset
        ):
            if log.config.compression_type == ZSTD:
                return None  # the answer depends on the client: see `partition_read.py`
            answer = self._answer_at_end = FetchedPartition(
                self.topic_partition,
                ErrorCode.NONE,
                log.high_watermark,
                NO_OFFSET,
                log.log_start_offset,
                None,
                NO_RECORDS,
                end,
            )
        return answer
