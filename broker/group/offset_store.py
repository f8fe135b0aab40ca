"""Stores groups and their offsets in `__consumer_offsets`: one append a change; loads them from a partition.

Records, and the errors after a failed append, are those of kafka 2.0.1 GroupMetadataManager. An offset counts once its
append is acknowledged; an offset of a transaction, once the transaction's marker is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.group_kind import AnyGroup, GroupKind
from minibroker.broker.group.offset_loader import OffsetLoader
from minibroker.broker.group.offsets import Commit, Errors, GroupOffsets
from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.coordinator_log import Contents, CoordinatorLog
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import (
    GroupRecord,
    group_headers,
    group_key,
    group_value,
    offset_headers,
    offset_key,
    offset_value,
)
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

Outcome = ErrorCode | Pending[ErrorCode]

MS_PER_MINUTE = 60_000
FIRST_SEQUENCE = 0  # of every commit, also outside transactions, as in Kafka's records
TOMBSTONE_BATCH_BYTES = 256 * 1024

# As kafka 2.0.1 GroupMetadataManager.storeOffsets; other errors are answered unchanged.
COMMIT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_FOR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
# As storeGroup.
GROUP_ERRORS = {
    **COMMIT_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class OffsetStore:
    """The only writer of `__consumer_offsets`."""

    def __init__(self, log: CoordinatorLog, config: KafkaConfig) -> None:
        self.retention_ms = config.offsets_retention_minutes * MS_PER_MINUTE
        self._log = log
        self._load_bytes = config.offsets_load_buffer_size
        # A marker names a producer and a partition, but no groups.
        self._groups_of_producer: defaultdict[int, set[str]] = defaultdict(set)

    def load(self, partition: int, kinds: Iterable[GroupKind] = ()) -> Generator[None, None, list[AnyGroup]]:
        """Load all groups of a partition, with the offsets of open transactions, in steps."""
        loader = OffsetLoader(f"{self._log.topic}-{partition}", kinds)
        yield from loader.read(self._log.read_batches(partition, self._load_bytes))
        loaded = loader.groups()
        for group in loaded:
            for producer_id in group.offsets.active_producers:
                self._groups_of_producer[producer_id].add(group.group_id)
        return loaded

    def unload(self, group: AnyGroup) -> None:
        """Forget what is remembered of a group: another broker has its partition."""
        for producer_id in group.offsets.active_producers:
            self._forget_producer(producer_id, group.group_id)

    def store_group(self, group_id: str, record: GroupRecord | None) -> Outcome:
        """Append the group's record, or with None its tombstone. Return the error for the client."""
        return self.append(group_id, [group_contents(group_id, record)])

    def append(self, group_id: str, contents: Iterable[Contents]) -> Outcome:
        """Append records of a group together. Return the error for the client."""
        return then(self._log.append(group_id, split(contents)).error, lambda error: GROUP_ERRORS.get(error, error))

    def commit(self, offsets: GroupOffsets, commit: Commit) -> Errors | Pending[Errors]:
        """Append the offsets in one batch; `offsets` has them once it is acknowledged, or the transaction is committed.

        Return the error of each partition. Raises KafkaError(UNKNOWN_SERVER_ERROR) for a producer without an epoch.
        """
        group_id, records, producer_id = commit.group_id, commit.records, commit.producer_id
        if producer_id != NO_PRODUCER_ID and commit.producer_epoch == NO_PRODUCER_EPOCH:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Invalid negative producer epoch")
        contents: list[Contents] = [
            (offset_key(group_id, topic_partition), offset_value(record, self.retention_ms), offset_headers(record))
            for topic_partition, record in records.items()
        ]
        appended = self._log.append(
            group_id,
            [contents],
            producer_id=producer_id,
            producer_epoch=commit.producer_epoch,
            base_sequence=FIRST_SEQUENCE,
        )
        if producer_id == NO_PRODUCER_ID:
            offsets.prepare_commit(records)
        else:
            offsets.prepare_transactional_commit(producer_id, records, appended.offset)
            self._groups_of_producer[producer_id].add(group_id)
        return then(appended.error, partial(self._end_commit, offsets, commit, appended.offset))

    def _end_commit(self, offsets: GroupOffsets, commit: Commit, appended_at: int, error: ErrorCode) -> Errors:
        records, producer_id = commit.records, commit.producer_id
        if producer_id == NO_PRODUCER_ID:
            if error is ErrorCode.NONE:
                offsets.complete_commit(records, appended_at)
            else:
                offsets.fail_commit(records)
        elif error is ErrorCode.NONE:
            offsets.complete_transactional_commit(producer_id, records)
        else:
            offsets.fail_transactional_commit(producer_id, records)
            if producer_id not in offsets.active_producers:
                self._forget_producer(producer_id, commit.group_id)
        return commit.ended_with(COMMIT_ERRORS.get(error, error))

    def complete_transaction(
        self,
        producer_id: int,
        offsets_partitions: Iterable[int],
        *,
        is_commit: bool,
        offsets_of: Callable[[str], GroupOffsets | None],
    ) -> None:
        """Apply or drop the transaction's offsets, after its markers were written to these partitions.

        `offsets_of` returns the offsets of a group, None if the group is gone.
        """
        partitions = set(offsets_partitions)
        for group_id in list(self._groups_of_producer.get(producer_id, ())):
            if self._log.partition_for(group_id) in partitions:
                self._forget_producer(producer_id, group_id)
                offsets = offsets_of(group_id)
                if offsets is not None:
                    offsets.complete_transaction(producer_id, is_commit=is_commit)

    def remove_offsets(
        self,
        group_id: str,
        offsets: GroupOffsets,
        topic_partitions: Iterable[TopicPartition],
        *,
        group_tombstones: Sequence[Contents] = (),
    ) -> Outcome:
        """Remove these offsets, from `offsets` at once; append the group's tombstones too, if it goes with them.

        As kafka 2.0.1 cleanupGroupMetadata, which writes no tombstone for a group that was never stored (generation 0).
        Here the open transactions of a deleted group need one too, or a start would find them again.
        """
        contents: list[Contents] = [(offset_key(group_id, each), None, ()) for each in offsets.remove(topic_partitions)]
        if group_tombstones:
            contents += group_tombstones
            offsets.forget_producers()
            for producer_id in list(self._groups_of_producer):
                self._forget_producer(producer_id, group_id)
        if not contents:
            return ErrorCode.NONE
        return then(self._log.append(group_id, split(contents)).error, lambda error: COMMIT_ERRORS.get(error, error))

    def _forget_producer(self, producer_id: int, group_id: str) -> None:
        groups = self._groups_of_producer[producer_id]
        groups.discard(group_id)
        if not groups:
            del self._groups_of_producer[producer_id]


def group_contents(group_id: str, record: GroupRecord | None) -> Contents:
    """The record of a classic group; with None its tombstone."""
    if record is None:
        return group_key(group_id), None, ()
    return group_key(group_id), group_value(record), group_headers(record)


def split(contents: Iterable[Contents]) -> Iterator[list[Contents]]:
    """Split records into batches that every topic accepts: a group may have more offsets than fit into one."""
    batch: list[Contents] = []
    size_bytes = 0
    for each in contents:
        if size_bytes >= TOMBSTONE_BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(each)
        size_bytes += len(each[0]) + len(each[1] or b"")
    yield batch
