"""Stores groups and their offsets in `__consumer_offsets`: one append a change; loads them from a partition.

Records, and the errors after a failed append, are those of kafka 2.0.1 GroupMetadataManager. An offset counts once its
append is acknowledged; an offset of a transaction, once the transaction's marker is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.group import Group
from minibroker.broker.group.offset_loader import LoadedGroup, OffsetLoader
from minibroker.broker.group.offsets import Commits, GroupOffsets
from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.coordinator_log import CoordinatorLog
from minibroker.broker.time.clock import Clock
from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import build_records
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
from minibroker.protocol.primitives import TopicPartition, new
from minibroker.protocol.record import NO_SEQUENCE, Headers, Record
from minibroker.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

Outcome = ErrorCode | Pending[ErrorCode]
Finish = Callable[[ErrorCode, int], ErrorCode]  # from an append's error to the answer's
Contents = tuple[bytes, bytes | None, Headers]  # key, value and headers of a record

MS_PER_MINUTE = 60_000
NO_OFFSET = -1
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

    def __init__(self, log: CoordinatorLog, config: KafkaConfig, clock: Clock) -> None:
        self.retention_ms = config.offsets_retention_minutes * MS_PER_MINUTE
        self._log = log
        self._clock = clock
        self._load_bytes = config.offsets_load_buffer_size
        self._codec = Codec(config.offsets_topic_compression_codec)
        # A marker names a producer and a partition, but no groups.
        self._groups_of_producer: defaultdict[int, set[str]] = defaultdict(set)

    def load(self, partition: int) -> Generator[None, None, list[LoadedGroup]]:
        """Load all groups of a partition, with the offsets of open transactions, in steps."""
        loader = OffsetLoader(f"{self._log.topic}-{partition}")
        yield from loader.read(self._log.read_batches(partition, self._load_bytes))
        loaded = loader.groups()
        for group in loaded:
            for producer_id in group.offsets.active_producers:
                self._groups_of_producer[producer_id].add(group.group_id)
        return loaded

    def unload(self, group: Group) -> None:
        """Forget what is remembered of a group: another broker has its partition."""
        for producer_id in group.offsets.active_producers:
            self._forget_producer(producer_id, group.group_id)

    def store_group(self, group_id: str, record: GroupRecord | None) -> Outcome:
        """Append the group's record, or with None its tombstone. Return the error for the client."""
        contents: Contents = (group_key(group_id), None, ())
        if record is not None:
            contents = (group_key(group_id), group_value(record), group_headers(record))
        return self._append(group_id, [[contents]], lambda error, _: GROUP_ERRORS.get(error, error))

    def commit(
        self,
        group_id: str,
        offsets: GroupOffsets,
        commits: Commits,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> Outcome:
        """Append these offsets in one batch; add them to `offsets` once it is acknowledged.

        With a producer id they are part of its transaction. Return the error for every partition. Raises
        KafkaError(UNKNOWN_SERVER_ERROR) for a producer without an epoch.
        """
        contents: list[Contents] = [
            (offset_key(group_id, topic_partition), offset_value(record, self.retention_ms), offset_headers(record))
            for topic_partition, record in commits.items()
        ]
        if producer_id != NO_PRODUCER_ID:
            return self._commit_in_transaction(group_id, offsets, commits, contents, producer_id, producer_epoch)

        def finish(error: ErrorCode, appended_at: int) -> ErrorCode:
            if error is ErrorCode.NONE:
                offsets.complete_commit(commits, appended_at)
            else:
                offsets.fail_commit(commits)
            return COMMIT_ERRORS.get(error, error)

        offsets.prepare_commit(commits)
        return self._append(group_id, [contents], finish, base_sequence=FIRST_SEQUENCE)

    def _commit_in_transaction(
        self,
        group_id: str,
        offsets: GroupOffsets,
        commits: Commits,
        contents: list[Contents],
        producer_id: int,
        producer_epoch: int,
    ) -> Outcome:
        if producer_epoch == NO_PRODUCER_EPOCH:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Invalid negative producer epoch")

        def finish(error: ErrorCode, appended_at: int) -> ErrorCode:
            if error is ErrorCode.NONE:
                offsets.complete_transactional_commit(producer_id, commits, appended_at)
            else:
                offsets.fail_transactional_commit(producer_id, commits)
                if producer_id not in offsets.active_producers:
                    self._forget_producer(producer_id, group_id)
            return COMMIT_ERRORS.get(error, error)

        def on_written(appended_at: int) -> None:
            """Note the offsets before they are acknowledged: a marker after them in the log may complete them first."""
            offsets.complete_transactional_commit(producer_id, commits, appended_at)

        offsets.prepare_transactional_commit(producer_id, commits)
        self._groups_of_producer[producer_id].add(group_id)
        return self._append(
            group_id,
            [contents],
            finish,
            on_written=on_written,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=FIRST_SEQUENCE,
        )

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
        self, group_id: str, offsets: GroupOffsets, topic_partitions: Iterable[TopicPartition], *, also_group: bool
    ) -> Outcome:
        """Remove these offsets, from `offsets` at once; with `also_group` append the group's tombstone too.

        As kafka 2.0.1 cleanupGroupMetadata, which writes no tombstone for a group that was never stored (generation 0).
        Here the open transactions of a deleted group need one too, or a start would find them again.
        """
        contents: list[Contents] = [(offset_key(group_id, each), None, ()) for each in offsets.remove(topic_partitions)]
        if also_group:
            contents.append((group_key(group_id), None, ()))
            offsets.forget_producers()
            for producer_id in list(self._groups_of_producer):
                self._forget_producer(producer_id, group_id)
        if not contents:
            return ErrorCode.NONE
        return self._append(group_id, split(contents), lambda error, _: COMMIT_ERRORS.get(error, error))

    def _forget_producer(self, producer_id: int, group_id: str) -> None:
        groups = self._groups_of_producer[producer_id]
        groups.discard(group_id)
        if not groups:
            del self._groups_of_producer[producer_id]

    def _append(
        self,
        group_id: str,
        batches: Iterable[list[Contents]],
        finish: Finish,
        *,
        on_written: Callable[[int], None] | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> Outcome:
        """Append the batches at once. `finish` gets the error, and the offset of the first batch.

        `on_written` gets that offset as soon as the batches are in the log, unless they are acknowledged at once.
        """
        partition = self._log.partition_for(group_id)
        try:
            if partition is None:
                raise KafkaError(ErrorCode.NOT_LEADER_FOR_PARTITION)
            log = self._log.log_of(partition)
        except KafkaError:
            return finish(ErrorCode.NOT_LEADER_FOR_PARTITION, NO_OFFSET)
        magic, appended_at = log.config.magic, log.log_end_offset
        if magic < 2 and producer_id != NO_PRODUCER_ID:
            return finish(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, NO_OFFSET)
        now_ms = self._clock.wall_ms()
        data = bytearray()
        for contents in batches:
            data += build_records(
                records_of(contents, now_ms),
                magic=magic,
                base_offset=0,
                codec=self._codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                is_transactional=producer_id != NO_PRODUCER_ID,
            )
        outcome = self._log.append(partition, data)
        if on_written is not None and isinstance(outcome, Pending):
            on_written(appended_at)
        return then(outcome, lambda error: finish(error, appended_at))


def records_of(contents: Iterable[Contents], now_ms: int) -> list[Record]:
    """The records; a format without headers drops theirs."""
    return [new(Record, (number, now_ms, *each, NO_SEQUENCE)) for number, each in enumerate(contents)]


def split(contents: Iterable[Contents]) -> Iterator[list[Contents]]:
    """Split tombstones into batches that every topic accepts: a group may have more offsets than fit into one."""
    batch: list[Contents] = []
    size_bytes = 0
    for each in contents:
        if size_bytes >= TOMBSTONE_BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(each)
        size_bytes += len(each[0])
    yield batch
