"""The offsets of groups: checks commits, answers OffsetFetch, and removes expired and deleted offsets.

As kafka 2.0.1 GroupCoordinator and GroupMetadataManager; later came stable offsets (2.5) and OffsetDelete (2.4). A
commit is one append. Offsets of a transaction count once its markers are in `__consumer_offsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import Habit
from minibroker.broker.group.group import Group
from minibroker.broker.group.group_cache import GroupCache
from minibroker.broker.group.group_kind import AnyGroup
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.group.offsets import Commit, Errors, GroupOffsets
from minibroker.broker.pending import Pending, then
from minibroker.broker.time.clock import Clock
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import NO_OFFSET
from minibroker.protocol.record_batch import NO_LEADER_EPOCH
from minibroker.protocol.text import utf16_length

logger = logging.getLogger(__name__)


class FetchedOffset(NamedTuple):
    """An answer to OffsetFetch: offset -1 without an error if none is committed."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


UNKNOWN_OFFSET = FetchedOffset()
UNSTABLE_OFFSET = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)


class OffsetManager:
    """Commits, fetches and removals of the offsets of all groups."""

    def __init__(self, groups: GroupCache, store: OffsetStore, *, config: KafkaConfig, clock: Clock) -> None:
        self._groups = groups
        self._store = store
        self._config = config
        self._shows_stored_groups = Habit.SHOWS_STORED_GROUPS in config.profile.habits
        self._clock = clock
        self.retention_ms = store.retention_ms

    # -- OffsetCommit -----------------------------------------------------------------------------------------

    def commit(self, commit: Commit, *, has_member_epochs: bool = False) -> Errors | Pending[Errors]:
        """Commit offsets of a member, or of a client with generation -1 that uses a group without members.

        `has_member_epochs` is whether the client knows the consumer protocol.
        """
        group_id, identity = commit.group_id, commit.identity
        refusal = self._groups.check(group_id, may_be_unnamed=True)
        if refusal is not ErrorCode.NONE:
            return commit.ended_with(refusal)
        group = self._groups.get(group_id)
        if group is None:
            if identity.generation_id >= 0:
                unknown = ErrorCode.GROUP_ID_NOT_FOUND if has_member_epochs else ErrorCode.ILLEGAL_GENERATION
                return commit.ended_with(unknown)
            group = self._new_group(group_id)
        refusal = self._groups.kind_of(group).refuse_commit(group, commit, has_member_epochs=has_member_epochs)
        if refusal is not ErrorCode.NONE:
            return commit.ended_with(refusal)
        return self._store_commit(group, commit)

    def admit_transactional(self, group_id: str) -> ErrorCode:
        """Return NONE, or why a group cannot have offsets of a transaction, before that is verified."""
        refusal = self._groups.check(group_id)
        if refusal is ErrorCode.NONE and Habit.ADDS_GROUPS_FIRST in self._config.profile.habits:
            self._groups.get_or_add(group_id)
        return refusal

    def commit_transactional(self, commit: Commit) -> Errors | Pending[Errors]:
        """Commit offsets of a transactional producer; check member and generation if they are given (KIP-447)."""
        refusal = self._groups.check(commit.group_id)
        if refusal is not ErrorCode.NONE:
            return commit.ended_with(refusal)
        if self._groups.get(commit.group_id) is None and commit.identity.generation_id >= 0:
            return commit.ended_with(ErrorCode.ILLEGAL_GENERATION)  # as kafka 4.4
        group = self._groups.get(commit.group_id) or self._new_group(commit.group_id)
        refusal = self._groups.kind_of(group).refuse_transactional_commit(group, commit)
        if refusal is not ErrorCode.NONE:
            return commit.ended_with(refusal)
        return self._store_commit(group, commit)

    def _new_group(self, group_id: str) -> AnyGroup:
        return self._groups.add_unseen(group_id) if self._shows_stored_groups else self._groups.add(Group(group_id))

    def _store_commit(self, group: AnyGroup, commit: Commit) -> Errors | Pending[Errors]:
        largest = self._config.offset_metadata_max_bytes
        too_large = [each for each, record in commit.records.items() if utf16_length(record.metadata) > largest]
        if too_large:
            commit.refuse(too_large, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if not commit.records:
            return commit.errors
        return self._store.commit(group.offsets, commit)

    def on_transaction_completed(self, producer_id: int, offsets_partitions: Iterable[int], *, is_commit: bool) -> None:
        """Apply the transaction's markers, which were written to these partitions of `__consumer_offsets`."""
        self._store.complete_transaction(
            producer_id, set(offsets_partitions), is_commit=is_commit, offsets_of=self._offsets_of
        )

    def _offsets_of(self, group_id: str) -> GroupOffsets | None:
        group = self._groups.get(group_id)
        return None if group is None else group.offsets

    # -- OffsetFetch ------------------------------------------------------------------------------------------

    def fetch(
        self,
        group_id: str,
        topic_partitions: Sequence[TopicPartition] | None,
        *,
        must_be_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        """Return the committed offsets of these partitions, of all with None; in any state of the group.

        A member of the consumer protocol names itself and its epoch.
        """
        refusal = self._groups.check(group_id, may_be_unnamed=True)
        group = self._groups.get(group_id)
        if group is not None and refusal is ErrorCode.NONE:
            refusal = self._groups.kind_of(group).refuse_fetch(group, member_id, member_epoch)
        if refusal is not ErrorCode.NONE:
            return refusal, {}
        offsets = self._offsets_of(group_id) or GroupOffsets()
        asked = list(offsets.committed) if topic_partitions is None else topic_partitions
        return ErrorCode.NONE, {each: fetched(offsets, each, must_be_stable=must_be_stable) for each in asked}

    # -- removals ---------------------------------------------------------------------------------------------

    def delete(self, group_id: str, topic_partitions: Sequence[TopicPartition]) -> tuple[ErrorCode, Errors]:
        """OffsetDelete: return an error for the group, or one for each partition. Keep topics that it subscribes to.

        The last offset of a group without members takes the group with it; a consumer group stays until the next
        removal of expired offsets, as in kafka 4.4.
        """
        refusal = self._groups.check(group_id)
        if refusal is not ErrorCode.NONE:
            return refusal, {}
        group = self._groups.get(group_id)
        if group is None or not self._groups.kind_of(group).has_offsets:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        if not group.is_empty and not group.is_consumer_group:
            return ErrorCode.NON_EMPTY_GROUP, {}
        errors = {
            each: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(each.topic) else ErrorCode.NONE
            for each in topic_partitions
        }
        deleted = [each for each, error in errors.items() if error is ErrorCode.NONE]
        if deleted:
            self._clean_up(group, deleted)
        return ErrorCode.NONE, errors

    def delete_group(self, group: AnyGroup) -> None:
        """Delete a group without members, and its offsets."""
        self._groups.remove(group, self._clock.wall_ms())
        self._remove(group, sorted(group.offsets.partitions), also_group=True)

    def expire(self) -> None:
        """Remove expired offsets, and the groups that then have neither members nor offsets."""
        now_ms = self._clock.wall_ms()
        for group in self._groups.all():
            expired = group.offsets.expired(now_ms, self.retention_ms)
            if not self._groups.kind_of(group).goes_with_its_offsets:  # as kafka 4.4
                expired = [each for each in expired if not group.is_subscribed_to(each.topic)]
            self._clean_up(group, expired, also_group=self._groups.kind_of(group).expires)

    def on_partitions_deleted(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Remove the offsets of deleted partitions, and the groups that then have neither members nor offsets."""
        gone = list(topic_partitions)
        for group in self._groups.all():
            self._clean_up(group, gone)

    def _clean_up(
        self, group: AnyGroup, topic_partitions: Sequence[TopicPartition], *, also_group: bool = False
    ) -> None:
        """As kafka 2.0.1 GroupMetadataManager.cleanupGroupMetadata."""
        self._remove(group, topic_partitions)
        goes = also_group or self._groups.kind_of(group).goes_with_its_offsets
        if goes and group.is_empty and group.offsets.is_empty:
            self._groups.remove(group, self._clock.wall_ms())
            self._remove(group, (), also_group=True)

    def _remove(self, group: AnyGroup, topic_partitions: Sequence[TopicPartition], *, also_group: bool = False) -> None:
        tombstones = self._groups.kind_of(group).tombstones(group) if also_group else []
        if not topic_partitions and not tombstones:
            return
        outcome = self._store.remove_offsets(
            group.group_id, group.offsets, topic_partitions, group_tombstones=tombstones
        )
        then(outcome, partial(log_unless_removed, group))


def log_unless_removed(group: AnyGroup, outcome: ErrorCode) -> None:
    """Log a failed removal: the next start loads the offsets again, and the broker removes them again."""
    if outcome is not ErrorCode.NONE:
        logger.warning("group %s: cannot store the removal of its offsets: %s", group.group_id, outcome.name)


def fetched(offsets: GroupOffsets, topic_partition: TopicPartition, *, must_be_stable: bool) -> FetchedOffset:
    if must_be_stable and offsets.has_pending_transactional(topic_partition):
        return UNSTABLE_OFFSET
    record = offsets.committed.get(topic_partition)
    if record is None:
        return UNKNOWN_OFFSET
    return FetchedOffset(record.offset, record.leader_epoch, record.metadata)
