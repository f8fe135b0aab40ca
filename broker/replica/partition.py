"""One partition on this broker: its log, who replicates it, and how far it is committed.

The high watermark is the smallest log end offset of the in-sync replicas (as kafka 2.0.1
Partition.maybeIncrementLeaderHW). It is kept with its segment and position, because DelayedFetch counts the
bytes between an offset and the high watermark without reading. It never moves back while this broker leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files import FileSlice
from minibroker.storage.log import Log, LogAppendInfo
from minibroker.storage.log_segment import LogOffsetMetadata
from minibroker.storage.transaction_index import AbortedTxn

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
NO_OFFSET = -1
NO_RECORDS = b""


class FetchedPartition(NamedTuple):
    """One partition's answer; -1 and None as the wire has them when there is an error."""

    topic_partition: TopicPartition
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[AbortedTxn] | None
    records: FileSlice | bytes
    start: LogOffsetMetadata | None  # where the fetch stood; None when it failed

    @property
    def size_bytes(self) -> int:
        return self.records.size_bytes if isinstance(self.records, FileSlice) else 0


# partition, error code, high watermark, last stable offset, log start offset, aborted transactions, records
FetchResponseRow = tuple[int, ErrorCode, int, int, int, list[tuple[int, int]] | None, FileSlice | bytes]


def response_row(result: FetchedPartition, error: ErrorCode) -> FetchResponseRow:
    """One partition as a Fetch response has it, in the order of the schema's fields."""
    aborted = result.aborted_transactions
    return (
        result.topic_partition[1],
        error,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        None if aborted is None else [(txn.producer_id, txn.first_offset) for txn in aborted],
        result.records,
    )


class Replica:
    """What the leader knows of a follower: the offset it has fetched to, -1 before it has."""

    __slots__ = ("broker_id", "log_end_offset")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_end_offset = -1


class Partition:
    """Leader of `log`. `in_sync_replicas` holds broker ids, this broker's included."""

    __slots__ = (
        "_answer_at_end",
        "_row_at_end",
        "broker_id",
        "high_watermark",
        "in_sync_replicas",
        "leader_epoch",
        "log",
        "remote_replicas",
        "topic_partition",
    )

    def __init__(
        self,
        log: Log,
        *,
        broker_id: int,
        leader_epoch: int,
        replicas: Sequence[int],
        in_sync_replicas: Sequence[int],
    ) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.log = log
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.remote_replicas = {replica: Replica(replica) for replica in replicas if replica != broker_id}
        self.in_sync_replicas = list(in_sync_replicas)
        self._answer_at_end: FetchedPartition | None = None
        self._row_at_end: FetchResponseRow | None = None
        self.high_watermark: LogOffsetMetadata = log.convert_to_offset_metadata(log.high_watermark)

    def append_as_leader(
        self, records: memoryview, *, required_acks: int, now_ms: int, is_from_client: bool = True
    ) -> LogAppendInfo:
        """Append what a client sent, or a coordinator of this broker. Raises KafkaError and appends nothing.

        The high watermark is not moved: the caller does that once the append is as durable as it must be.
        """
        if required_acks == -1 and len(self.in_sync_replicas) < self.log.config.min_insync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition}: {len(self.in_sync_replicas)} in-sync replicas, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )
        return self.log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, is_from_client=is_from_client
        )

    def maybe_increment_high_watermark(self, durable_to: int | None = None) -> bool:
        """Move the high watermark to the smallest end offset of the in-sync replicas. True if it moved.

        `durable_to` is how far this replica's own log counts, where that is not its end.
        """
        committed = self.log.log_end_offset_metadata
        if durable_to is not None and durable_to < committed.message_offset:
            committed = self.log.convert_to_offset_metadata(max(durable_to, self.log.log_start_offset))
        for broker_id in self.in_sync_replicas:
            if broker_id != self.broker_id:
                end_offset = self.remote_replicas[broker_id].log_end_offset
                if end_offset < committed.message_offset:
                    committed = self.log.convert_to_offset_metadata(max(end_offset, self.log.log_start_offset))
        if committed.message_offset <= self.high_watermark.message_offset:
            return False
        self.high_watermark = committed
        self.log.update_high_watermark(committed.message_offset)
        return True

    def has_replicated_to(self, required_offset: int) -> ErrorCode | None:
        """Whether an acks=all append up to `required_offset` is committed: None while it is not.

        As kafka 2.0.1 Partition.checkEnoughReplicasReachOffset.
        """
        if self.high_watermark.message_offset < required_offset:
            return None
        if len(self.in_sync_replicas) < self.log.config.min_insync_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def answer_at_end(self, fetch_offset: int) -> FetchedPartition | None:
        """The answer to a read_uncommitted fetch at the log's end; None if it is not there.

        It is the same for everyone until something moves, so it is kept: most fetches of most consumers are this.
        """
        answer, log = self._answer_at_end, self.log
        end = log.log_end_offset_metadata
        if fetch_offset != end.message_offset or log.is_refusing:
            return None
        if (
            answer is None
            or answer.start is not end
            or answer.high_watermark != self.high_watermark.message_offset
            or answer.log_start_offset != log.log_start_offset
        ):
            answer = self._answer_at_end = FetchedPartition(
                self.topic_partition,
                ErrorCode.NONE,
                self.high_watermark.message_offset,
                NO_OFFSET,
                log.log_start_offset,
                None,
                NO_RECORDS,
                end,
            )
            self._row_at_end = response_row(answer, answer.error)
        return answer

    def row_at_end(self, fetch_offset: int) -> FetchResponseRow | None:
        """`answer_at_end` as the response has it."""
        return None if self.answer_at_end(fetch_offset) is None else self._row_at_end

    def last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """Where a read_committed reader must stop: the first open transaction, or the high watermark."""
        offset = self.log.last_stable_offset
        if offset >= self.high_watermark.message_offset:
            return self.high_watermark
        return self.log.convert_to_offset_metadata(offset)

    def end_of_reading(self, *, is_committed_only: bool, isolation_level: int) -> LogOffsetMetadata:
        """How far a fetch may read (fetch-path row 29)."""
        if isolation_level == READ_COMMITTED:
            return self.last_stable_offset_metadata()
        return self.high_watermark if is_committed_only else self.log.log_end_offset_metadata
