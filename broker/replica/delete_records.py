"""DeleteRecords: moves the log start offset, and waits until every live replica has moved its own.

Each fetch of a follower carries its log start offset. The low watermark is the least log start offset of the live
replicas: no live replica has a record below it. As kafka 2.0.1 ReplicaManager.deleteRecords and DelayedDeleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minibroker.broker.pending import Pending
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import NO_OFFSET
from minibroker.purgatory.delayed_operation import DelayedOperation


class DeleteRecordsResult(NamedTuple):
    """The result for one partition. `offset` is its requested log start offset, -1 with an error."""

    low_watermark: int
    error: ErrorCode
    offset: int

    @property
    def is_open(self) -> bool:
        """Return whether a live replica still has records below the offset."""
        return self.error is ErrorCode.NONE and self.low_watermark < self.offset


DeleteRecordsResults = dict[TopicPartition, DeleteRecordsResult]


class DelayedDeleteRecords(DelayedOperation):
    """A deletion that waits for followers. `pending` gets the results: REQUEST_TIMED_OUT for open partitions."""

    __slots__ = ("_low_watermark_of", "_results", "pending")

    def __init__(
        self, delay_ms: int, results: DeleteRecordsResults, low_watermark_of: Callable[[TopicPartition], int]
    ) -> None:
        super().__init__(delay_ms)
        self.pending: Pending[DeleteRecordsResults] = Pending(self)
        self._results = results
        self._low_watermark_of = low_watermark_of  # raises KafkaError

    def try_complete(self) -> bool:
        for topic_partition, result in self._results.items():
            if result.is_open:
                self._results[topic_partition] = self._updated(topic_partition, result)
        return not any(result.is_open for result in self._results.values()) and self.force_complete()

    def _updated(self, topic_partition: TopicPartition, result: DeleteRecordsResult) -> DeleteRecordsResult:
        try:
            low_watermark = self._low_watermark_of(topic_partition)
        except KafkaError as error:
            return failed_deletion(error.code)
        return result._replace(low_watermark=low_watermark)

    def on_complete(self) -> None:
        for topic_partition, result in self._results.items():
            if result.is_open:
                self._results[topic_partition] = result._replace(error=ErrorCode.REQUEST_TIMED_OUT)
        self.pending.resolve(self._results)


def failed_deletion(error: ErrorCode) -> DeleteRecordsResult:
    return DeleteRecordsResult(NO_OFFSET, error, NO_OFFSET)
