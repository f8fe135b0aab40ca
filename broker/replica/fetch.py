"""A Fetch over several partitions: reads them under one byte budget, and waits while it has less than `min_bytes`.

    read_rows -> answered at once, or a DelayedFetch watched under its partitions -> read_rows again

As kafka 2.0.1 ReplicaManager.fetchMessages and readFromLocalLog, and DelayedFetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minibroker.broker.pending import Pending
from minibroker.broker.replica.fetched_partition import NO_PREFERRED_REPLICA, FetchedPartition
from minibroker.broker.replica.leading import Leading
from minibroker.broker.replica.partition_read import (
    FetchParams,
    FetchRow,
    failed_fetch,
    read_elsewhere,
    read_partition,
)
from minibroker.broker.replica.partitions import Partitions
from minibroker.broker.replica.reading import end_of_reading
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import READ_COMMITTED
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record_batch import NO_LEADER_EPOCH
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.storage.index.fetch_data import LogOffsetMetadata

DEBUGGING_REPLICA_ID = -2  # reads any replica


def read_rows(partitions: Partitions, params: FetchParams, rows: Sequence[FetchRow]) -> list[FetchedPartition]:
    """Read the partitions in order under one byte budget.

    The first partition with records may exceed every limit by one batch, so that a consumer always makes progress; not
    in v0-v2, whose clients take a limit literally. A read_uncommitted fetch at the log end offset, the most frequent
    one, gets the answer that the partition caches.
    """
    bytes_left = params.max_bytes
    min_one_message = not params.is_hard_limit
    may_be_kept = params.isolation_level != READ_COMMITTED and not params.shows_last_stable_offset
    roles, selector = partitions.readable(), params.selector
    fetched: list[FetchedPartition] = []
    for row in rows:
        topic_partition, fetch_offset, _, _, leader_epoch, last_epoch = row
        partition = roles.get(topic_partition)
        if isinstance(partition, Leading):
            if selector is not None:
                replica_id = selector.select(partition, fetch_offset)
                if replica_id is not None:
                    fetched.append(read_elsewhere(partition, row, replica_id))
                    continue
            if (
                may_be_kept
                and last_epoch < 0
                and (leader_epoch == NO_LEADER_EPOCH or leader_epoch == partition.leader_epoch)
            ):
                at_end = partition.answer_at_end(fetch_offset)
                if at_end is not None:
                    fetched.append(at_end)
                    continue
        elif partition is None or not params.reads_followers:
            fetched.append(unserved(partitions, params, topic_partition))
            continue
        try:
            result = read_partition(partition, params, row, bytes_left, min_one_message)
        except OSError as error:
            result = failed_fetch(topic_partition, partitions.failed_read(error))
        size_bytes = result.size_bytes
        if size_bytes > 0:  # the slice is empty if no record is committed yet
            min_one_message = False
        bytes_left = max(0, bytes_left - size_bytes)
        fetched.append(result)
    return fetched


def unserved(partitions: Partitions, params: FetchParams, topic_partition: TopicPartition) -> FetchedPartition:
    """The row of a partition that this broker cannot read."""
    try:
        partitions.led(topic_partition)
    except KafkaError as error:
        code = error.code
        if params.replica_id == DEBUGGING_REPLICA_ID and code is ErrorCode.NOT_LEADER_FOR_PARTITION:
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        return failed_fetch(topic_partition, code)
    raise AssertionError(f"{topic_partition} can be read")


def must_wait(params: FetchParams, fetched: Sequence[FetchedPartition]) -> bool:
    """Return whether a fetch that has read `fetched` waits for more.

    It is answered at once if its `max_wait_ms` is 0, if it names no partition, if it has read `min_bytes`, or if a
    partition has an error, a diverging epoch or a preferred replica.
    """
    if params.max_wait_ms <= 0 or not fetched:
        return False
    bytes_readable = 0
    for result in fetched:
        if result.error is not ErrorCode.NONE or result.diverging_epoch is not None:
            return False
        if result.preferred_read_replica != NO_PREFERRED_REPLICA:
            return False
        bytes_readable += result.size_bytes
    return bytes_readable < params.min_bytes


# The cases of DelayedFetch in which the leader refuses a read.
CASES = {
    ErrorCode.NOT_LEADER_FOR_PARTITION: "A",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "B",
    ErrorCode.KAFKA_STORAGE_ERROR: "E",
}


class FetchStatus(NamedTuple):
    """The position of a fetch in one partition when it began to wait."""

    topic_partition: TopicPartition
    start: LogOffsetMetadata
    max_bytes: int


class LogEndWaits:
    """Counts the fetches that wait for the ends of logs, as followers' do: without any, an append looks for none."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        self.count += 1

    def remove(self) -> None:
        self.count -= 1


class DelayedFetch(DelayedOperation):
    """A fetch that found less than `min_bytes`. It ends when one of these holds (as kafka 2.0.1 DelayedFetch):

    Case A: this broker no longer leads one of the partitions, nor follows one that the fetch may read of a follower
    Case B: this broker does not know one of the partitions
    Case C: the fetch offset is not on the last segment of the log, or the log was truncated below it
    Case D: the bytes between the fetch offsets and the ends are at least `min_bytes`; none of those held back count
    Case E: a partition's log directory is offline

    `case` is the letter of the one that held, empty while it waits and when its time is over; `decided_by` is the
    partition that decided it. `seen_bytes` is what the last check counted.
    `pending` gets the result of a new read at the end of the wait, as in Kafka. So, if one produce writes to two
    partitions, the answer has the records of the first; and a follower gets the high watermark before its own fetch.
    """

    __slots__ = (
        "_log_end_waits",
        "_params",
        "_partitions",
        "_rows",
        "_statuses",
        "case",
        "decided_by",
        "pending",
        "seen_bytes",
    )

    def __init__(
        self,
        params: FetchParams,
        rows: Sequence[FetchRow],
        fetched: Sequence[FetchedPartition],
        partitions: Partitions,
        log_end_waits: LogEndWaits,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.pending: Pending[list[FetchedPartition]] = Pending(self)
        self._params = params
        self._rows = rows
        self._statuses = [
            FetchStatus(row.topic_partition, result.start, row.max_bytes)
            for row, result in zip(rows, fetched, strict=True)
            if result.start is not None
        ]
        self._partitions = partitions
        self.case = ""
        self.decided_by: TopicPartition | None = None
        self.seen_bytes = 0
        self._log_end_waits = None if params.is_committed_only else log_end_waits
        if self._log_end_waits is not None:
            self._log_end_waits.add()

    def on_end(self) -> None:
        if self._log_end_waits is not None:
            self._log_end_waits.remove()

    def on_complete(self) -> None:
        try:
            fetched = read_rows(self._partitions, self._params, self._rows)
        except Exception as error:  # fails this fetch, not the append that completes it
            self.pending.fail(error)
        else:
            self.pending.resolve(fetched)

    def try_complete(self) -> bool:
        accumulated_bytes = 0
        for status in self._statuses:
            try:
                available_bytes = self._available_bytes(status)
            except KafkaError as error:
                return self._complete_as(CASES.get(error.code, "A"), status)
            except OSError as error:
                self._partitions.failed_read(error)
                return self._complete_as("E", status)
            if available_bytes is None:
                return self._complete_as("C", status)
            accumulated_bytes += available_bytes
        self.seen_bytes = accumulated_bytes
        if accumulated_bytes >= self._params.min_bytes:
            return self._complete_as("D", None)
        return False

    def _complete_as(self, case: str, decided_by: FetchStatus | None) -> bool:
        self.case = case
        self.decided_by = None if decided_by is None else decided_by.topic_partition
        return self.force_complete()

    def _available_bytes(self, status: FetchStatus) -> int | None:
        """The bytes that this partition could add; None if the fetch must be answered at once (Case C)."""
        topic_partition, start, max_bytes = status
        params = self._params
        partition = self._partitions.to_read(topic_partition, of_followers=params.reads_followers)
        end = end_of_reading(
            partition.log,
            is_committed_only=params.is_committed_only,
            isolation_level=params.isolation_level,
        )
        # Compare the offsets first: right after a roll, the same offset is on two segments, which is not Case C.
        if end.message_offset == start.message_offset or start.segment_base_offset < 0:
            return 0
        if end.segment_base_offset < start.segment_base_offset:  # the log was truncated
            return None
        if params.holds_back is not None and isinstance(partition, Leading) and params.holds_back(partition):
            return 0
        if end.segment_base_offset != start.segment_base_offset:
            return None
        if end.message_offset < start.message_offset:
            return 0
        return min(end.relative_position - start.relative_position, max_bytes)
