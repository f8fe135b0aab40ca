"""The group coordinator: which groups it has, and its operations for administrators.

`membership` serves the members of classic groups, `heartbeats` those of the consumer protocol (KIP-848), and
`classic_members` those of the classic protocol in their groups; `offsets` serves committed offsets. The coordinator
has the groups of the partitions of `__consumer_offsets` that this broker leads. It loads them when it becomes the
leader; their members' sessions begin anew then. When another broker leads, or this one stops, it answers waiting
requests with NOT_COORDINATOR: the clients look for the coordinator until they find one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.consumer.changes import GroupChanges
from minibroker.broker.group.consumer.classic_members import ClassicMembers
from minibroker.broker.group.consumer.configs import GroupConfigs
from minibroker.broker.group.consumer.group import ConsumerGroup
from minibroker.broker.group.consumer.heartbeats import Heartbeats
from minibroker.broker.group.consumer.migration import Migration
from minibroker.broker.group.consumer.regex_refresh import RegexRefresh
from minibroker.broker.group.consumer.topics import GroupTopics
from minibroker.broker.group.group import Group, GroupState
from minibroker.broker.group.group_cache import AnyGroup, GroupCache
from minibroker.broker.group.member import JoinResult, MemberIdentity, SyncResult
from minibroker.broker.group.membership import JoinRequest, Membership, SyncRequest
from minibroker.broker.group.offset_manager import OffsetManager
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.group.rebalance import Rebalances
from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.coordinator_log import CoordinatorLog, OwnedPartitions, partition_of_name
from minibroker.broker.time.clock import Clock
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.message_values import CLASSIC, CONSUMER
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.purgatory import Observer, Purgatory
from minibroker.purgatory.timing_wheel import Timer

logger = logging.getLogger(__name__)

LeaveAnswer = tuple[ErrorCode, list[tuple[MemberIdentity, ErrorCode]]]


class DescribedMember(NamedTuple):
    """Metadata and assignment are empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group for DescribeGroups: in state Dead if it is unknown, without a state if `error` is set."""

    error: ErrorCode
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()
    problem: str | None = None  # why it is unknown here


class GroupCoordinator:
    """All groups of this broker. `store` writes to `log`, which is `__consumer_offsets`."""

    def __init__(
        self,
        store: OffsetStore,
        log: CoordinatorLog,
        metadata_cache: MetadataCache,
        *,
        config: KafkaConfig,
        group_configs: GroupConfigs,
        clock: Clock,
        timer: Timer,
        run_steps: Callable[[Iterator[None]], None],
        afterwards: Callable[[Callable[[], None]], None],
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._planned_partitions = config.offsets_topic_num_partitions
        self._owned = OwnedPartitions(log, load=self._load, unload=self._unload, run_steps=run_steps)
        self._groups = GroupCache(log.partition_for, self._owned.refusal)
        self._rebalances = Rebalances(
            store,
            initial_delay_ms=config.group_initial_rebalance_delay_ms,
            clock=clock,
            timer=timer,
            observer=observer,
        )
        self.membership = Membership(self._groups, self._rebalances, config=config, clock=clock, timer=timer)
        self.topics = GroupTopics(metadata_cache)
        self.offsets = OffsetManager(self._groups, store, self.topics, config=config, clock=clock)
        migration = Migration(self.topics, self.membership, self._rebalances, config=config, clock=clock)
        self._changes = GroupChanges(
            self._groups,
            store,
            self.topics,
            migration,
            config=config,
            group_configs=group_configs,
            clock=clock,
            timer=timer,
        )
        regexes = RegexRefresh(self._changes, afterwards=afterwards, run_steps=run_steps)
        self.heartbeats = Heartbeats(self._changes, migration, regexes)
        self._classic_members = ClassicMembers(self._changes, migration, regexes)

    def on_leadership(self, topic_partition: TopicPartition, is_leader: bool) -> None:
        """Load the groups of a partition of `__consumer_offsets`, or unload them."""
        self._owned.on_leadership(topic_partition, is_leader)

    def on_partitions_deleted(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Remove the offsets committed for these partitions; those of `__consumer_offsets` unload with their groups."""
        committed = [each for each in topic_partitions if each.topic != GROUP_METADATA_TOPIC]
        if committed:
            self.offsets.on_partitions_deleted(committed)

    def _load(self, partition: int) -> Iterator[None]:
        loaded = yield from self._store.load(partition)
        now_ms = self._clock.monotonic_ms()
        for group_id, record, offsets, consumer in loaded:
            if consumer is not None:
                self._changes.begin(consumer)
                continue
            group = Group.from_record(group_id, record, offsets)
            self._groups.replace(group)
            for member in group.members.values():
                self.membership.watch(group, member)
                member.expect_client(now_ms)

    def _unload(self, partition: int) -> None:
        for group in self._groups.of(partition):
            self._remove(group)

    def _remove(self, group: AnyGroup) -> None:
        self._store.unload(group)
        self._groups.remove(group, self._clock.wall_ms())
        if isinstance(group, ConsumerGroup):
            self._changes.forget(group)
        else:
            self._rebalances.unload(group, ErrorCode.NOT_COORDINATOR)

    def stop(self) -> None:
        """Serve no more requests, and answer those that wait."""
        self._groups.stop()
        for group in self._groups.all():
            self._remove(group)

    # -- for members of the classic protocol, in groups of either ---------------------------------------------

    def join(self, request: JoinRequest) -> JoinResult | Pending[JoinResult]:
        group = self._consumer_group(request.group_id)
        if group is not None and group.is_empty:
            refusal = self.membership.refuse_join(request)
            if refusal is ErrorCode.NONE and request.member_id:
                return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            if refusal is ErrorCode.NONE:
                return then(self._changes.delete_for_classic(group), lambda error: self._joined(request, error))
        elif group is not None:
            refusal = self.membership.refuse_join(request)
            if refusal is ErrorCode.NONE:
                return self._classic_members.join(group, request)
        return self.membership.join(request)

    def _joined(self, request: JoinRequest, error: ErrorCode) -> JoinResult | Pending[JoinResult]:
        if error is not ErrorCode.NONE:
            return JoinResult(error, request.member_id)
        return self.membership.join(request)

    def sync(self, request: SyncRequest) -> SyncResult | Pending[SyncResult]:
        group = self._consumer_group(request.group_id)
        return self.membership.sync(request) if group is None else self._classic_members.sync(group, request)

    def heartbeat(self, group_id: str, identity: MemberIdentity, *, keeps_while_syncing: bool = False) -> ErrorCode:
        group = self._consumer_group(group_id)
        if group is None:
            return self.membership.heartbeat(group_id, identity, keeps_while_syncing=keeps_while_syncing)
        return self._classic_members.heartbeat(group, identity)

    def leave(self, group_id: str, leaving: Sequence[MemberIdentity]) -> LeaveAnswer | Pending[LeaveAnswer]:
        group = self._consumer_group(group_id)
        if group is None:
            return self.membership.leave(group_id, leaving)
        return then(self._classic_members.leave(group, leaving), lambda answers: (ErrorCode.NONE, answers))

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """A group of the consumer protocol that this broker coordinates."""
        group = self._groups.consumer(group_id)
        return None if group is None or self._groups.check(group_id) is not ErrorCode.NONE else group

    # -- for the coordinator of transactions ------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group, or will once the topic exists."""
        partition = self._log.partition_for(group_id)
        return partition_of_name(group_id, self._planned_partitions) if partition is None else partition

    def on_transaction_completed(self, producer_id: int, offsets_partitions: Iterable[int], *, is_commit: bool) -> None:
        """Apply the transaction's markers, which were written to these partitions of `__consumer_offsets`."""
        self.offsets.on_transaction_completed(producer_id, offsets_partitions, is_commit=is_commit)

    # -- for those who look -----------------------------------------------------------------------------------

    def get(self, group_id: str) -> AnyGroup | None:
        return self._groups.get(group_id)

    def all(self) -> Iterable[AnyGroup]:
        return self._groups.all()

    @property
    def rebalance_purgatory(self) -> Purgatory:
        """The purgatory in which rebalances wait for the members."""
        return self._rebalances.joins

    # -- for administrators -----------------------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedGroup:
        refusal = self._groups.check(group_id, may_be_unnamed=True)
        if refusal is not ErrorCode.NONE:
            return DescribedGroup(refusal)
        group = self._groups.get(group_id)
        if group is None or isinstance(group, ConsumerGroup):
            why = "not found" if group is None else "is not a classic group"
            return DescribedGroup(ErrorCode.NONE, GroupState.DEAD.value, problem=f"Group {group_id} {why}.")
        is_stable = group.state is GroupState.STABLE
        protocol = group.protocol or "" if is_stable else ""
        members = [
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ]
        return DescribedGroup(ErrorCode.NONE, group.state.value, group.protocol_type or "", protocol, members)

    def list(
        self, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> tuple[ErrorCode, list[tuple[str, str, str, str]]]:
        """Return id, protocol type, state and type of all groups, or of those in one of `states`, of one of `types`.

        These are compared as kafka 4.4 GroupMetadataManager.listGroups does: capital letters do not matter.
        """
        if self._groups.is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if self._owned.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        wanted_states, wanted_types = {each.lower() for each in states}, {each.lower() for each in types}
        return ErrorCode.NONE, [
            (group.group_id, group.protocol_type or "", group.state.value, type_of(group))
            for group in self._groups.all()
            if (not states or group.state.value.lower() in wanted_states)
            and (not types or type_of(group) in wanted_types)
        ]

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """A group of the consumer protocol, for ConsumerGroupDescribe. Raises KafkaError."""
        refusal = self._groups.check(group_id)
        if refusal is not ErrorCode.NONE:
            raise KafkaError(refusal)
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            why = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")
        return group

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The assignor that the group's next assignment is made by."""
        return group.preferred_assignor(self._changes.default_assignor)

    def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets."""
        refusal = self._groups.check(group_id, may_be_unnamed=True)
        if refusal is not ErrorCode.NONE:
            return refusal
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        self.offsets.delete_group(group)
        return ErrorCode.NONE


def type_of(group: AnyGroup) -> str:
    return CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC
