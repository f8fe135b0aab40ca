"""The results of an append to several partitions, and the wait of acks=all for the in-sync replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minibroker.broker.pending import Pending
from minibroker.broker.replica.partitions import Partitions
from minibroker.protocol.errors import ErrorCode, InvalidRecordsError, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import NO_OFFSET
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.storage.log.appending import LogAppendInfo

# Results with these errors have no log start offset (as kafka 2.0.1 ReplicaManager.appendToLocalLog); those of invalid
# records have one since kafka 2.4.
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


class AppendResult(NamedTuple):
    """The result of one partition's append. `info` is None if nothing was appended; with an error, the records were
    appended but not replicated."""

    error: ErrorCode
    info: LogAppendInfo | None
    log_start_offset: int
    message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()  # the place of each refused record in its batch, and why
    is_invalid: bool = False  # since kafka 2.4 the error is INVALID_RECORD in place of CORRUPT_MESSAGE


AppendResults = dict[TopicPartition, AppendResult]


def failed_append(code: ErrorCode) -> AppendResult:
    return AppendResult(code, None, NO_OFFSET)


def refused_append(error: KafkaError, log_start_offset: int) -> AppendResult:
    """The result of an append that the partition refused."""
    if isinstance(error, InvalidRecordsError):
        return AppendResult(error.code, None, log_start_offset, error.message, error.record_errors, is_invalid=True)
    if error.code in EXPECTED_REFUSALS:
        log_start_offset = NO_OFFSET
    return AppendResult(error.code, None, log_start_offset, error.message)


def with_errors(results: AppendResults, errors: Mapping[TopicPartition, ErrorCode]) -> AppendResults:
    """Add replication errors to successful appends; offsets stay (as kafka 2.0.1 DelayedProduce)."""
    return {
        topic_partition: result._replace(error=errors[topic_partition]) if errors.get(topic_partition) else result
        for topic_partition, result in results.items()
    }


class DelayedProduce(DelayedOperation):
    """An acks=all append that waits for the in-sync replicas (as kafka 2.0.1 DelayedProduce).

    It completes when each high watermark has passed the appended records. `pending` gets the results, with an error for
    each partition that failed: NOT_ENOUGH_REPLICAS_AFTER_APPEND, a lost leadership, or REQUEST_TIMED_OUT.
    """

    __slots__ = ("_errors", "_partitions", "_required", "_results", "pending")

    def __init__(
        self, delay_ms: int, results: AppendResults, partitions: Partitions, *, may_be_abandoned: bool
    ) -> None:
        super().__init__(delay_ms)
        self.pending: Pending[AppendResults] = Pending(self if may_be_abandoned else None)
        self._results = results
        self._required = {
            topic_partition: result.info.last_offset + 1
            for topic_partition, result in results.items()
            if result.info is not None
        }
        self._errors: dict[TopicPartition, ErrorCode] = {}
        self._partitions = partitions

    def try_complete(self) -> bool:
        for topic_partition, required_offset in list(self._required.items()):
            try:
                error = self._partitions.led(topic_partition).has_replicated_to(required_offset)
            except KafkaError as refused:
                error = refused.code
            if error is not None:
                self._errors[topic_partition] = error
                del self._required[topic_partition]
        return not self._required and self.force_complete()

    def on_complete(self) -> None:
        self._errors |= dict.fromkeys(self._required, ErrorCode.REQUEST_TIMED_OUT)
        self.pending.resolve(with_errors(self._results, self._errors))
