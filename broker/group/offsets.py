"""The offsets a group has committed, is committing, and has committed inside open transactions; pure.

As kafka 2.0.1 GroupMetadata: each offset remembers at which offset of the log its commit was appended. When a
transaction ends, what it committed counts only where no newer commit has been appended meanwhile; whoever loads the
log again, compacted or not, comes to the same.

    prepare_commit -> complete_commit | fail_commit
    prepare_transactional_commit -> complete_transactional_commit | fail_transactional_commit -> complete_transaction
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minibroker.protocol.group_records import OffsetRecord
from minibroker.protocol.primitives import TopicPartition

Commits = Mapping[TopicPartition, OffsetRecord]


class PendingCommit(NamedTuple):
    """An offset of an open transaction; `appended_at` is None until its record is in the log."""

    record: OffsetRecord
    appended_at: int | None


class GroupOffsets:
    """The offsets of one group. `committed` is what OffsetFetch answers."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetRecord] = {}
        self._appended_at: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, OffsetRecord] = {}
        self._pending_by_producer: dict[int, dict[TopicPartition, PendingCommit]] = {}
        self._has_plain_commits = False
        self._has_transactional_commits = False

    # -- commits ----------------------------------------------------------------------------------------------

    def prepare_commit(self, commits: Commits) -> None:
        """Their records are about to be appended."""
        self._has_plain_commits = True
        self._pending.update(commits)

    def complete_commit(self, commits: Commits, appended_at: int) -> None:
        """Their records are in the log, in the batch at `appended_at` (as onOffsetCommitAppend)."""
        for topic_partition, record in commits.items():
            staged = self._pending.get(topic_partition)
            if staged is None:
                continue  # removed meanwhile, with its topic
            self._take(topic_partition, record, appended_at)
            if staged == record:
                del self._pending[topic_partition]

    def fail_commit(self, commits: Commits) -> None:
        """They could not be appended; what was committed before stays (as failPendingOffsetWrite)."""
        for topic_partition, record in commits.items():
            if self._pending.get(topic_partition) == record:
                del self._pending[topic_partition]

    def load(self, topic_partition: TopicPartition, record: OffsetRecord, appended_at: int) -> None:
        """Take a committed offset from the log, which is read from its start."""
        self.committed[topic_partition] = record
        self._appended_at[topic_partition] = appended_at

    def unload(self, topic_partition: TopicPartition) -> None:
        """The log says that the offset is gone."""
        if self.committed.pop(topic_partition, None) is not None:
            del self._appended_at[topic_partition]

    def _take(self, topic_partition: TopicPartition, record: OffsetRecord, appended_at: int) -> None:
        if self._appended_at.get(topic_partition, -1) < appended_at:
            self.load(topic_partition, record, appended_at)

    # -- commits in a transaction -----------------------------------------------------------------------------

    def prepare_transactional_commit(self, producer_id: int, commits: Commits) -> None:
        """Their records are about to be appended; none counts until the transaction is committed."""
        self._has_transactional_commits = True
        pending = self._pending_by_producer.setdefault(producer_id, {})
        for topic_partition, record in commits.items():
            pending[topic_partition] = PendingCommit(record, None)

    def complete_transactional_commit(self, producer_id: int, commits: Commits, appended_at: int) -> None:
        """Their records are in the log, the transaction is open (as onTxnOffsetCommitAppend)."""
        pending = self._pending_by_producer.get(producer_id, {})
        for topic_partition, record in commits.items():
            staged = pending.get(topic_partition)
            if staged is not None and staged.record == record:
                pending[topic_partition] = PendingCommit(record, appended_at)

    def fail_transactional_commit(self, producer_id: int, commits: Commits) -> None:
        """They could not be appended (as failPendingTxnOffsetCommit)."""
        for topic_partition in commits:
            self.unload_transactional(producer_id, topic_partition)

    def load_transactional(
        self, producer_id: int, topic_partition: TopicPartition, record: OffsetRecord, appended_at: int
    ) -> None:
        """Take an offset from the log that was committed in a transaction of this producer."""
        pending = self._pending_by_producer.setdefault(producer_id, {})
        pending[topic_partition] = PendingCommit(record, appended_at)

    def unload_transactional(self, producer_id: int, topic_partition: TopicPartition) -> None:
        """The transaction says nothing of this partition any more."""
        pending = self._pending_by_producer.get(producer_id)
        if pending is not None:
            pending.pop(topic_partition, None)
            if not pending:
                del self._pending_by_producer[producer_id]

    def complete_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker is in the log (as completePendingTxnOffsetCommit)."""
        pending = self._pending_by_producer.pop(producer_id, {})
        if is_commit:
            for topic_partition, (record, appended_at) in pending.items():
                if appended_at is not None:
                    self._take(topic_partition, record, appended_at)

    # -- what there is ----------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed and nothing may yet be: an empty group may go then."""
        return not (self.committed or self._pending or self._pending_by_producer)

    @property
    def active_producers(self) -> set[int]:
        """Producer ids whose open transaction has committed offsets here."""
        return set(self._pending_by_producer)

    def has_pending_transactional(self, topic_partition: TopicPartition) -> bool:
        """Whether an open transaction may change this offset: UNSTABLE_OFFSET_COMMIT for who wants stable ones."""
        return any(topic_partition in pending for pending in self._pending_by_producer.values())

    @property
    def are_consistent(self) -> bool:
        """False once both consumers and transactional producers have committed in a generation."""
        return not (self._has_plain_commits and self._has_transactional_commits)

    def on_new_generation(self) -> None:
        self._has_plain_commits = self._has_transactional_commits = False

    # -- removal ----------------------------------------------------------------------------------------------

    def expired(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Partitions whose offsets are too old, be the group in use or not (as kafka 2.0.1 removeExpiredOffsets).

        That is after the time their commit asked for, or else `retention_ms` after it. One that a commit is on its
        way for, in a transaction or not, stays.
        """
        return [
            topic_partition
            for topic_partition, record in self.committed.items()
            if expiry_of(record, retention_ms) < now_ms
            and topic_partition not in self._pending
            and not self.has_pending_transactional(topic_partition)
        ]

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget all there is of these partitions; those that had an offset (as removeOffsets)."""
        removed = []
        for topic_partition in topic_partitions:
            self._pending.pop(topic_partition, None)
            for producer_id in self.active_producers:
                self.unload_transactional(producer_id, topic_partition)
            if topic_partition in self.committed:
                self.unload(topic_partition)
                removed.append(topic_partition)
        return removed


def expiry_of(record: OffsetRecord, retention_ms: int) -> int:
    """Until when the offset is kept, in milliseconds since the epoch."""
    if record.expire_timestamp_ms is not None:
        return record.expire_timestamp_ms
    return record.commit_timestamp_ms + retention_ms
