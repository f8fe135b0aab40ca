"""Groups of the consumer protocol (KIP-848) as a kind of group.

A member of the classic protocol may be in such a group (`classic_members`). One that joins a group without members
makes it a classic one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.coordinator import GroupCoordinator
from minibroker.broker.group.group_configs import GroupConfigs
from minibroker.broker.group.group_kind import LeaveAnswer, LoadedGroups
from minibroker.broker.group.group_topics import GroupTopics
from minibroker.broker.group.member import JoinResult, MemberIdentity, SyncResult
from minibroker.broker.group.membership import JoinRequest, SyncRequest
from minibroker.broker.group.offsets import Commit
from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.coordinator_log import Contents
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.consumer import commits
from minibroker.broker.wings.consumer.changes import GroupChanges
from minibroker.broker.wings.consumer.classic_members import ClassicMembers
from minibroker.broker.wings.consumer.group import ConsumerGroup
from minibroker.broker.wings.consumer.heartbeats import Heartbeats
from minibroker.broker.wings.consumer.migration import Migration
from minibroker.broker.wings.consumer.regex_refresh import RegexRefresh
from minibroker.protocol.consumer_group_records import key_of, read_record
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_values import CONSUMER
from minibroker.protocol.record import Record
from minibroker.purgatory.timing_wheel import Timer

ROWS_MAX = 32  # of what is shown of a member


class ConsumerGroups:
    """Serves groups of the consumer protocol. A GroupKind; `heartbeats` serves their members."""

    name: str = CONSUMER
    goes_with_its_offsets: bool = False
    has_offsets: bool = True
    expires: bool = True

    def __init__(
        self,
        coordinator: GroupCoordinator,
        topics: GroupTopics,
        *,
        config: KafkaConfig,
        group_configs: GroupConfigs,
        clock: Clock,
        timer: Timer,
        run_steps: Callable[[Iterator[None]], None],
        afterwards: Callable[[Callable[[], None]], None],
    ) -> None:
        self.topics = topics
        self._groups = coordinator.cache
        self._classic = coordinator.classic
        migration = Migration(topics, self._classic, coordinator.rebalances, config=config, clock=clock)
        self._changes = GroupChanges(
            self._groups,
            coordinator.store,
            topics,
            migration,
            config=config,
            group_configs=group_configs,
            clock=clock,
            timer=timer,
        )
        regexes = RegexRefresh(self._changes, afterwards=afterwards, run_steps=run_steps)
        self.heartbeats = Heartbeats(self._changes, migration, regexes)
        self._classic_members = ClassicMembers(self._changes, migration, regexes)

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        assert isinstance(group, ConsumerGroup)
        return group

    # -- requests of the classic protocol ---------------------------------------------------------------------

    def join(self, request: JoinRequest) -> JoinResult | Pending[JoinResult]:
        """Join a group, which is a classic one from now on if it has no members."""
        refusal = self._classic.refuse_join(request)
        if refusal is not ErrorCode.NONE:
            return JoinResult(refusal, request.member_id)
        group = self._group(request.group_id)
        if not group.is_empty:
            return self._classic_members.join(group, request)
        if request.member_id:
            return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        return then(self._changes.delete_for_classic(group), lambda error: self._joined(request, error))

    def _joined(self, request: JoinRequest, error: ErrorCode) -> JoinResult | Pending[JoinResult]:
        if error is not ErrorCode.NONE:
            return JoinResult(error, request.member_id)
        return self._classic.join(request)

    def sync(self, request: SyncRequest) -> SyncResult:
        """Return a member's assignment."""
        return self._classic_members.sync(self._group(request.group_id), request)

    def heartbeat(self, group_id: str, identity: MemberIdentity, *, keeps_while_syncing: bool = False) -> ErrorCode:
        """Return NONE, or REBALANCE_IN_PROGRESS for a member that has to join again."""
        return self._classic_members.heartbeat(self._group(group_id), identity)

    def leave(self, group_id: str, leaving: Sequence[MemberIdentity]) -> LeaveAnswer | Pending[LeaveAnswer]:
        """Remove members together; return the error of each."""
        left = self._classic_members.leave(self._group(group_id), leaving)
        return then(left, lambda answers: (ErrorCode.NONE, answers))

    # -- offsets ----------------------------------------------------------------------------------------------

    def refuse_commit(self, group: ConsumerGroup, commit: Commit, *, has_member_epochs: bool) -> ErrorCode:
        """Return NONE, or why a member may not commit."""
        return commits.refuse_commit(group, commit, self.topics, has_member_epochs=has_member_epochs)

    def refuse_transactional_commit(self, group: ConsumerGroup, commit: Commit) -> ErrorCode:
        """Return NONE, or why a producer may not commit for a member."""
        return commits.refuse_transactional_commit(group, commit, self.topics)

    def refuse_fetch(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE, or why a member may not read the group's offsets."""
        return commits.refuse_fetch(group, member_id, epoch)

    # -- the log ----------------------------------------------------------------------------------------------

    def read(self, record: Record, loaded: LoadedGroups) -> bool:
        """Take a record of a group; that of the group itself is the last of its tombstones."""
        found = read_record(record)
        if found is None:
            return False
        group = loaded.other(found.group_id, None if found.value is None else ConsumerGroup)
        if group is not None:
            group.apply(found)
            if group.is_dead:
                loaded.drop_other(found.group_id)
        return True

    def begin(self, group: ConsumerGroup) -> None:
        """Coordinate a group that was loaded: the sessions of its members begin anew."""
        self._changes.begin(group)

    def end(self, group: ConsumerGroup) -> None:
        """Forget the deadlines of a group that is no longer coordinated here."""
        self._changes.forget(group)

    def empty(self, group: ConsumerGroup) -> ErrorCode:
        """There is nothing else."""
        return ErrorCode.NONE

    def tombstones(self, group: ConsumerGroup) -> Sequence[Contents]:
        """The records that delete a group."""
        return [(key_of(each), None, ()) for each in group.tombstones()]

    # -- for administrators, and those who look ---------------------------------------------------------------

    def described(self, group_id: str) -> ConsumerGroup:
        """A group, for ConsumerGroupDescribe. Raises KafkaError."""
        return self._groups.described(ConsumerGroup, group_id, "a consumer group")

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The assignor that the group's next assignment is made by."""
        return group.preferred_assignor(self._changes.default_assignor)

    def progress_of(self, group: ConsumerGroup, member_id: str) -> tuple[Any, ...]:
        """A member's epoch, the partitions that it revokes, and the ones that another member has yet to release."""
        member = group.members.get(member_id)
        if member is None:
            return ()
        name_of = self.topics.name_of
        revokes = [
            (topic_id, each) for topic_id, partitions in member.pending_revocation.items() for each in partitions
        ]
        return (
            member.member_epoch,
            tuple((name_of(topic_id) or "?", each) for topic_id, each in islice(sorted(revokes), ROWS_MAX)),
            tuple(
                (name_of(topic_id) or "?", each, holder)
                for topic_id, each, holder in islice(group.lacking(member), ROWS_MAX)
            ),
        )
