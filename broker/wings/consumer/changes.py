"""Changes of groups of the consumer protocol: what a member's request, a deadline or a new topic changes, step by step.

Each step puts records into a draft; `commit` appends them, and only then the group is the changed one. A group that an
append waits for is in the log of this broker already: it counts, and the request is answered once the append is
acknowledged, with its error if it fails.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.group import Group
from minibroker.broker.group.group_cache import GroupCache
from minibroker.broker.group.group_configs import ASSIGNMENT_INTERVAL_MS, SESSION_TIMEOUT_MS, GroupConfigs
from minibroker.broker.group.group_topics import GroupTopics
from minibroker.broker.group.member_timers import Deadline, MemberTimers
from minibroker.broker.group.offset_store import OffsetStore, group_contents
from minibroker.broker.pending import Pending, then
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.consumer.assignors import ASSIGNORS, AssignedMember, Subscriptions
from minibroker.broker.wings.consumer.draft import Draft
from minibroker.broker.wings.consumer.group import ConsumerGroup
from minibroker.broker.wings.consumer.member import NOTHING, Assignment, ConsumerMember, MemberState
from minibroker.broker.wings.consumer.migration import Migration
from minibroker.broker.wings.consumer.reconciliation import Reported, Target, reconciled
from minibroker.protocol.consumer_group_records import ConsumerGroupRecord, RecordType
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.text import counted
from minibroker.purgatory.timing_wheel import Timer

logger = logging.getLogger(__name__)

RETRY_MS = 500  # after a deadline whose change could not be stored


class GroupChanges:
    """Makes drafts of groups, and commits them."""

    def __init__(
        self,
        groups: GroupCache,
        store: OffsetStore,
        topics: GroupTopics,
        migration: Migration,
        *,
        config: KafkaConfig,
        group_configs: GroupConfigs,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self.groups = groups
        self.topics = topics
        self.config = config
        self.group_configs = group_configs
        self.timers = MemberTimers(timer, clock)
        self._store = store
        self._migration = migration
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    # -- the end of a change ----------------------------------------------------------------------------------

    def commit(self, draft: Draft) -> ErrorCode | Pending[ErrorCode]:
        """Append the draft's records, and have its group take the place of the one before; return the append's error.

        If the error is known at once, nothing has changed.
        """
        if not draft.is_changed:
            return ErrorCode.NONE
        outcome = self._store.append(draft.group.group_id, draft.contents)
        if not has_failed(outcome):
            self._take(draft)
        return outcome

    def _take(self, draft: Draft) -> None:
        before = draft.replaced
        self.groups.replace(draft.group)
        if before is not None:
            self._migration.end_classic(before)
            for member in draft.group.members.values():
                self.keep_alive(draft.group.group_id, member)
        for member_id in draft.left:
            self.timers.cancel_all(draft.group.group_id, member_id)

    def convert_to_classic(
        self, draft: Draft, leaving: Collection[str], why: str | None
    ) -> ErrorCode | Pending[ErrorCode]:
        """Commit the draft's group as one of the classic protocol, without the members that leave.

        With `why`, it rebalances then.
        """
        group = draft.group
        classic = self._migration.classic_of(group, leaving)
        draft.put_all(group.tombstones())
        outcome = self._store.append(
            group.group_id, [*draft.contents, group_contents(group.group_id, classic.record())]
        )
        if has_failed(outcome):
            return outcome
        self.forget(group)
        self.groups.replace(classic)
        logger.info("group %s: all members use the classic protocol, and so does the group now", group.group_id)
        self._migration.begin_classic(classic, why)
        return outcome

    def delete_for_classic(self, group: ConsumerGroup) -> ErrorCode | Pending[ErrorCode]:
        """Delete a group without members, but its offsets, for a classic one in its place."""
        draft = Draft(group)
        draft.put_all(group.tombstones())
        outcome = self._store.append(group.group_id, draft.contents)
        if not has_failed(outcome):
            self.forget(group)
            self.groups.replace(Group(group.group_id, group.offsets))
        return outcome

    def begin(self, group: ConsumerGroup) -> None:
        """Coordinate a group that was loaded: the sessions of its members begin anew."""
        for regex, resolved in group.resolved.items():  # by the versions of another broker
            group.resolved[regex] = resolved._replace(version=-1)
        self.groups.replace(group)
        for member in group.members.values():
            self.keep_alive(group.group_id, member)
            self.watch_revocation(group.group_id, None, member)

    def forget(self, group: ConsumerGroup) -> None:
        """Forget the deadlines of a group that is no longer coordinated here."""
        for member_id in group.members:
            self.timers.cancel_all(group.group_id, member_id)

    # -- the epoch --------------------------------------------------------------------------------------------

    def refresh(self, draft: Draft, why: str | None) -> None:
        """Begin a new epoch for this reason; without one, if the topics that the members subscribe to have changed.

        As kafka 4.4 GroupMetadataManager.updateSubscriptionMetadata.
        """
        version = self.topics.version
        if why is None and draft.group.topics_version == version:
            return
        metadata_hash = self.topics.hash_of(draft.group.topics)
        if why is not None or metadata_hash != draft.group.metadata_hash:
            self.begin_epoch(draft, metadata_hash, why or "its topics have changed")
        if draft.group.has_old_metadata:
            draft.put(ConsumerGroupRecord(RecordType.OLD_METADATA, draft.group.group_id))
        draft.group.note_topics(version)

    def begin_epoch(self, draft: Draft, metadata_hash: int, why: str, missed: Sequence[str] = ()) -> None:
        draft.put(draft.group.epoch_record(draft.group.epoch + 1, metadata_hash))
        draft.group.note_reason(why, missed, self.now_ms())
        logger.info("group %s: epoch %d: %s", draft.group.group_id, draft.group.epoch, why)

    # -- the target assignment --------------------------------------------------------------------------------

    def assign(self, draft: Draft, beating: str) -> None:
        """Make the target assignment of a new epoch in a member's heartbeat.

        Not if the last one is too recent: a later heartbeat does then.
        """
        group, now_ms = draft.group, self.now_ms()
        if group.assignment_epoch >= group.epoch:
            return
        wait_ms = self.group_configs.value(group.group_id, ASSIGNMENT_INTERVAL_MS)
        if group.assignment_timestamp_ms and now_ms < group.assignment_timestamp_ms + wait_ms:
            return
        assignor = group.preferred_assignor(self.default_assignor, beating)
        found = ASSIGNORS[assignor](self.subscriptions(group))
        for member_id in list(group.members):
            target: Assignment = {
                topic_id: frozenset(partitions) for topic_id, partitions in found.get(member_id, NOTHING).items()
            }
            if group.targets.get(member_id) != target:
                draft.put(group.target_of_member_record(member_id, target))
                group = draft.group
        draft.put(group.target_record(group.epoch, now_ms))
        members = counted(len(group.members), "member")
        logger.info("group %s: epoch %d, assigned to %s by %s", group.group_id, group.epoch, members, assignor)

    @property
    def default_assignor(self) -> str:
        return self.config.group_consumer_assignors[0]

    def subscriptions(self, group: ConsumerGroup) -> Subscriptions:
        members = {
            member.member_id: AssignedMember(
                self.topics.ids_of(group.topics_of(member)), group.target_of(member.member_id), member.instance_id
            )
            for member in group.members.values()
        }
        topic_ids = set[bytes]().union(*{member.topic_ids for member in members.values()})
        counts = {topic_id: self.topics.partition_count(topic_id) for topic_id in topic_ids}
        return Subscriptions(members, counts, group.is_homogeneous)

    # -- a member's own assignment ----------------------------------------------------------------------------

    def reconcile(
        self, draft: Draft, member_id: str, reported: Reported | None, *, is_subscription_new: bool
    ) -> ConsumerMember:
        """Give a member what it may have now. Raises KafkaError."""
        group, member = draft.group, draft.group.members[member_id]
        if not is_subscription_new and member.is_reconciled_to(group.assignment_epoch):
            return member
        target = Target(
            group.assignment_epoch,
            group.target_of(member_id),
            self.topics.ids_of(group.topics_of(member)),
            group.is_owned,
        )
        updated = reconciled(member, target, reported, is_subscription_new=is_subscription_new)
        if updated != member:
            draft.put(updated.assignment_record(group.group_id))
        return updated

    def watch_revocation(self, group_id: str, before: ConsumerMember | None, member: ConsumerMember) -> None:
        """Give a member with partitions to revoke its rebalance timeout to do so, from the change of its state."""
        is_same = before is not None and (before.state, before.member_epoch, before.pending_revocation) == (
            member.state,
            member.member_epoch,
            member.pending_revocation,
        )
        if is_same or member.classic is not None:
            return
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            expire = partial(self._on_rebalance_timeout, group_id, member.member_id, member.member_epoch)
            self.timers.expect(group_id, member.member_id, Deadline.REBALANCE, member.rebalance_timeout_ms, expire)
        else:
            self.timers.cancel(group_id, member.member_id, Deadline.REBALANCE)

    def _on_rebalance_timeout(self, group_id: str, member_id: str, member_epoch: int) -> None:
        group = self.groups.find(ConsumerGroup, group_id)
        member = None if group is None else group.members.get(member_id)
        if member is not None and member.member_epoch == member_epoch:
            self.fence(group_id, member_id, "it has not revoked its partitions in time")

    def check_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """Raise KafkaError(GROUP_MAX_SIZE_REACHED) for a new member of a group that has its most members."""
        most = self.config.group_consumer_max_size
        is_new = group.static_member(instance_id) is None and member_id not in group.members
        if is_new and len(group.members) >= most:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    # -- members that go --------------------------------------------------------------------------------------

    def session_timeout_ms(self, group_id: str, member: ConsumerMember) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self.group_configs.value(group_id, SESSION_TIMEOUT_MS)

    def keep_alive(self, group_id: str, member: ConsumerMember) -> None:
        """Begin the member's session anew."""
        expire = partial(self.fence, group_id, member.member_id, "its session has ended")
        self.timers.keep_alive(group_id, member.member_id, self.session_timeout_ms(group_id, member), expire)

    def expect(self, group_id: str, member: ConsumerMember, deadline: Deadline, why: str) -> None:
        """Give the member its rebalance timeout; then it is removed."""
        expire = partial(self.fence, group_id, member.member_id, why)
        self.timers.expect(group_id, member.member_id, deadline, member.rebalance_timeout_ms, expire)

    def fence(self, group_id: str, member_id: str, why: str) -> None:
        """Remove a member whose deadline has passed; try again if that cannot be stored."""
        group = self.groups.find(ConsumerGroup, group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return

        def on_stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                logger.warning("group %s: cannot store the removal of %s: %s", group_id, member_id, error.name)
                retry = partial(self.fence, group_id, member_id, why)
                self.timers.expect(group_id, member_id, Deadline.SESSION, RETRY_MS, retry)

        then(self.remove(group, [member], f"member {member_id} is removed: {why}", is_missed=True), on_stored)

    def remove(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], why: str, *, is_missed: bool = False
    ) -> ErrorCode | Pending[ErrorCode]:
        """Remove members; the group becomes one of the classic protocol if only members of that are left.

        As kafka 4.4 GroupMetadataManager.consumerGroupFenceMembers.
        """
        draft = Draft(group)
        leaving = [member.member_id for member in members]
        if self._migration.may_be_classic(group, leaving):
            return self.convert_to_classic(draft, leaving, "the last member of the consumer protocol has left")
        for member_id in leaving:
            draft.remove(member_id)
        for regex in {each.topic_regex for each in members if each.topic_regex}:
            if regex not in draft.group.regexes:
                draft.put(ConsumerGroupRecord(RecordType.REGULAR_EXPRESSION, group.group_id, regex))
        missed = leaving if is_missed else ()
        self.begin_epoch(draft, self.topics.hash_of(draft.group.topics), why, missed)
        if not draft.group.members:
            draft.put(draft.group.target_record(draft.group.epoch, 0))
        return self.commit(draft)


def has_failed(outcome: ErrorCode | Pending[ErrorCode]) -> bool:
    """Whether an append is known to have failed; one that waits counts until it has."""
    return outcome is not ErrorCode.NONE and not isinstance(outcome, Pending)
