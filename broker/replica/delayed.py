"""Operations that wait in a purgatory for the log to move: DelayedFetch and DelayedProduce.

Each is an object that a connection is parked on. Completing a fetch reads the log afresh: what it answers is never
what was seen when it began to wait.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minibroker.broker.parked import ParkedOperation
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.delayed_operation import Ending
from minibroker.storage.index.fetch_data import LogOffsetMetadata

if TYPE_CHECKING:
    from minibroker.broker.replica.partition import FetchedPartition
    from minibroker.broker.replica.reading import FetchParams, FetchRow
    from minibroker.broker.replica.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class FetchStatus:
    """Where one partition's fetch stood when it began to wait."""

    __slots__ = ("max_bytes", "start", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, start: LogOffsetMetadata, max_bytes: int) -> None:
        self.topic_partition = topic_partition
        self.start = start
        self.max_bytes = max_bytes


class DelayedFetch(ParkedOperation):
    """A fetch that found less than `min_bytes`. It ends when one of these holds (as kafka 2.0.1 DelayedFetch):

    Case A: this broker no longer leads one of the partitions
    Case B: this broker does not know one of the partitions
    Case C: the fetch offset is not on the last segment of the log, or the log was truncated below it
    Case D: the bytes between the fetch offsets and the ends are at least `min_bytes`
    Case E: a partition's log directory is offline

    `fetched` is what there was at the end of the wait, as in Kafka: of two partitions that one request writes the
    answer has the first, and a follower's the high watermark of before.
    """

    __slots__ = ("_replica_manager", "_rows", "_statuses", "fetched", "is_counted", "params")

    def __init__(
        self,
        params: FetchParams,
        rows: Sequence[FetchRow],
        statuses: Sequence[FetchStatus],
        replica_manager: ReplicaManager,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.params = params
        self.fetched: list[FetchedPartition] | None = None
        self.is_counted = False  # among the fetches that wait for log ends
        self._rows = rows
        self._statuses = statuses
        self._replica_manager = replica_manager

    def on_complete(self) -> None:
        try:
            self.fetched = self._replica_manager.read_from_local_log(self.params, self._rows)
        except OSError as error:  # not the fault of who appends: who makes the answer tries again, and tells
            logger.warning("reading for a fetch that waited: %s", error)
        super().on_complete()

    def _end(self, ending: Ending) -> bool:
        if not super()._end(ending):
            return False
        if self.is_counted:
            self._replica_manager.fetches_waiting_for_log_ends -= 1
        return True

    def try_complete(self) -> bool:
        accumulated_bytes = 0
        for status in self._statuses:
            try:
                available_bytes = self._available_bytes(status)
            except KafkaError:  # Cases A, B, E
                return self.force_complete()
            if available_bytes is None:  # Case C
                return self.force_complete()
            accumulated_bytes += available_bytes
        if accumulated_bytes >= self.params.min_bytes:  # Case D
            return self.force_complete()
        return False

    def _available_bytes(self, status: FetchStatus) -> int | None:
        """Bytes that this partition could add; None when reading must begin at once (Case C)."""
        partition = self._replica_manager.leader_partition(status.topic_partition)
        end = partition.end_of_reading(
            is_committed_only=self.params.is_committed_only, isolation_level=self.params.isolation_level
        )
        start = status.start
        # Equal offsets first: just after a roll, the same offset lies on two segments and is no Case C.
        if end.message_offset == start.message_offset or start.segment_base_offset < 0:
            return 0
        if end.segment_base_offset != start.segment_base_offset:
            return None
        if end.message_offset < start.message_offset:
            return 0
        return min(end.relative_position - start.relative_position, status.max_bytes)


class DelayedProduce(ParkedOperation):
    """An acks=all append that waits for the in-sync replicas (as kafka 2.0.1 DelayedProduce).

    `required` maps each partition to the offset its high watermark must reach; `errors` is filled per partition:
    NONE, NOT_ENOUGH_REPLICAS_AFTER_APPEND, a lost leadership, or REQUEST_TIMED_OUT for what was open in the end.
    """

    __slots__ = ("_replica_manager", "_required", "errors")

    def __init__(self, delay_ms: int, required: dict[TopicPartition, int], replica_manager: ReplicaManager) -> None:
        super().__init__(delay_ms)
        self._required = dict(required)
        self._replica_manager = replica_manager
        self.errors: dict[TopicPartition, ErrorCode] = {}

    def try_complete(self) -> bool:
        for topic_partition, required_offset in list(self._required.items()):
            try:
                error = self._replica_manager.leader_partition(topic_partition).has_replicated_to(required_offset)
            except KafkaError as refused:
                error = refused.code
            if error is not None:
                self.errors[topic_partition] = error
                del self._required[topic_partition]
        return not self._required and self.force_complete()

    def on_complete(self) -> None:
        for topic_partition in self._required:
            self.errors[topic_partition] = ErrorCode.REQUEST_TIMED_OUT
        super().on_complete()
