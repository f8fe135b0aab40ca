"""The offsets of a group: committed, being committed, and committed in open transactions; pure.

As kafka 2.0.1 GroupMetadata: each offset keeps the log offset of its commit. When a transaction ends, an offset of it
counts only if no newer commit was appended since. A removal takes what is on its way too, in a transaction or not, and
its tombstones are for all of it (as later Kafka's group coordinator; 2.0.1 writes none for what is on its way). So
loading the log again, compacted or not, gives the same result.

    prepare_commit -> complete_commit | fail_commit
    prepare_transactional_commit -> complete_transactional_commit | fail_transactional_commit -> complete_transaction

A commit is prepared once its records are appended: a marker that follows them may end the transaction before the append
is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minibroker.broker.group.member import MemberIdentity
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import OffsetRecord
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

Commits = Mapping[TopicPartition, OffsetRecord]
Errors = dict[TopicPartition, ErrorCode]


class Commit(NamedTuple):
    """Offsets that a member commits together, with a producer id as part of its transaction.

    An offset that is refused moves from `records` to `errors`.
    """

    group_id: str
    identity: MemberIdentity
    records: dict[TopicPartition, OffsetRecord]
    errors: Errors
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    def refuse(self, topic_partitions: Iterable[TopicPartition], error: ErrorCode) -> None:
        """Commit nothing for these partitions."""
        for topic_partition in topic_partitions:
            del self.records[topic_partition]
            self.errors[topic_partition] = error

    def ended_with(self, error: ErrorCode) -> Errors:
        """Return the errors of all partitions: this one for each that is not refused."""
        return self.errors | dict.fromkeys(self.records, error)


class PendingCommit(NamedTuple):
    """An offset of an open transaction, by the place of its record in the log.

    Until that is acknowledged, `before` is what the transaction had staged for the partition.
    """

    record: OffsetRecord
    appended_at: int
    before: PendingCommit | None = None


class GroupOffsets:
    """The offsets of one group. OffsetFetch answers those in `committed`."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetRecord] = {}
        self._appended_at: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, OffsetRecord] = {}
        self._pending_by_producer: dict[int, dict[TopicPartition, PendingCommit]] = {}

    # -- commits ----------------------------------------------------------------------------------------------

    def prepare_commit(self, commits: Commits) -> None:
        """Note commits whose records are appended, and may not be acknowledged yet."""
        self._pending.update(commits)

    def complete_commit(self, commits: Commits, appended_at: int) -> None:
        """Apply commits that were appended at `appended_at`, once acknowledged (as onOffsetCommitAppend)."""
        for topic_partition, record in commits.items():
            staged = self._pending.get(topic_partition)
            if staged is None:
                continue  # removed with its topic since
            self._take(topic_partition, record, appended_at)
            if staged == record:
                del self._pending[topic_partition]

    def fail_commit(self, commits: Commits) -> None:
        """Drop commits whose append failed; earlier ones stay (as failPendingOffsetWrite)."""
        for topic_partition, record in commits.items():
            if self._pending.get(topic_partition) == record:
                del self._pending[topic_partition]

    def load(self, topic_partition: TopicPartition, record: OffsetRecord, appended_at: int) -> None:
        """Apply a committed offset while the log is loaded."""
        self.committed[topic_partition] = record
        self._appended_at[topic_partition] = appended_at

    def _take(self, topic_partition: TopicPartition, record: OffsetRecord, appended_at: int) -> None:
        if self._appended_at.get(topic_partition, -1) < appended_at:
            self.load(topic_partition, record, appended_at)

    # -- commits in a transaction -----------------------------------------------------------------------------

    def prepare_transactional_commit(self, producer_id: int, commits: Commits, appended_at: int) -> None:
        """Note commits whose records are appended; none counts until the transaction commits."""
        pending = self._pending_by_producer.setdefault(producer_id, {})
        for topic_partition, record in commits.items():
            pending[topic_partition] = PendingCommit(record, appended_at, pending.get(topic_partition))

    def complete_transactional_commit(self, producer_id: int, commits: Commits) -> None:
        """Keep these commits in the transaction, once acknowledged (as onTxnOffsetCommitAppend)."""
        pending = self._pending_by_producer.get(producer_id, {})
        for topic_partition, record in commits.items():
            staged = pending.get(topic_partition)
            if staged is not None and staged.record == record:
                pending[topic_partition] = staged._replace(before=None)

    def fail_transactional_commit(self, producer_id: int, commits: Commits) -> None:
        """Drop commits whose append failed (as failPendingTxnOffsetCommit); what was staged before stays.

        The log has it. The producer may be a fenced one, and what was staged that of the one that replaced it.
        """
        for topic_partition, record in commits.items():
            staged = self._pending_by_producer.get(producer_id, {}).get(topic_partition)
            if staged is not None and staged.record == record and staged.before is not None:
                self._pending_by_producer[producer_id][topic_partition] = staged.before
            else:
                self.unload_transactional(producer_id, topic_partition)

    def load_transactional(
        self, producer_id: int, topic_partition: TopicPartition, record: OffsetRecord, appended_at: int
    ) -> None:
        """Note an offset of this producer's transaction while the log is loaded."""
        pending = self._pending_by_producer.setdefault(producer_id, {})
        pending[topic_partition] = PendingCommit(record, appended_at)

    def unload_transactional(self, producer_id: int, topic_partition: TopicPartition) -> None:
        """Drop a partition's offset from the transaction while the log is loaded."""
        pending = self._pending_by_producer.get(producer_id)
        if pending is not None:
            pending.pop(topic_partition, None)
            if not pending:
                del self._pending_by_producer[producer_id]

    def complete_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply or drop the transaction's offsets after its marker (as completePendingTxnOffsetCommit)."""
        pending = self._pending_by_producer.pop(producer_id, {})
        if is_commit:
            for topic_partition, (record, appended_at, _) in pending.items():
                self._take(topic_partition, record, appended_at)

    # -- queries ----------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is committed or being committed: an empty group may be removed then."""
        return not (self.committed or self._pending or self._pending_by_producer)

    @property
    def active_producers(self) -> set[int]:
        """The ids of producers that have committed offsets here in an open transaction."""
        return set(self._pending_by_producer)

    def has_pending_transactional(self, topic_partition: TopicPartition) -> bool:
        """Return whether an open transaction may change this offset: an OffsetFetch of stable offsets then fails with
        UNSTABLE_OFFSET_COMMIT."""
        return any(topic_partition in pending for pending in self._pending_by_producer.values())

    # -- removal ----------------------------------------------------------------------------------------------

    def expired(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Return the partitions with expired offsets, of a group in use too (as kafka 2.0.1 removeExpiredOffsets).

        An offset expires at the time that its commit asked for, else `retention_ms` after it. A partition with a
        pending commit, in a transaction or not, keeps its offset.
        """
        return [
            topic_partition
            for topic_partition, record in self.committed.items()
            if expiry_of(record, retention_ms) < now_ms
            and topic_partition not in self._pending
            and not self.has_pending_transactional(topic_partition)
        ]

    @property
    def partitions(self) -> set[TopicPartition]:
        """All partitions with an offset, committed or on its way."""
        return {*self.committed, *self._pending}.union(*self._pending_by_producer.values())

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Remove everything of these partitions; return the ones that had anything, for their tombstones.

        Producers stay active until their transactions end, without an offset too: the group is not empty.
        """
        removed = [each for each in topic_partitions if self._has(each)]
        for topic_partition in removed:
            self.committed.pop(topic_partition, None)
            self._appended_at.pop(topic_partition, None)
            self._pending.pop(topic_partition, None)
            for pending in self._pending_by_producer.values():
                pending.pop(topic_partition, None)
        return removed

    def forget_producers(self) -> None:
        """Drop all open transactions, with the removal of the group."""
        self._pending_by_producer.clear()

    def forget_idle_producers(self) -> None:
        """Drop the open transactions without an offset here: the removal of the group has taken those of others."""
        self._pending_by_producer = {each: pending for each, pending in self._pending_by_producer.items() if pending}

    def _has(self, topic_partition: TopicPartition) -> bool:
        is_plain = topic_partition in self.committed or topic_partition in self._pending
        return is_plain or self.has_pending_transactional(topic_partition)


def expiry_of(record: OffsetRecord, retention_ms: int) -> int:
    """The time at which the offset expires, in milliseconds since the epoch."""
    if record.expire_timestamp_ms is not None:
        return record.expire_timestamp_ms
    return record.commit_timestamp_ms + retention_ms
