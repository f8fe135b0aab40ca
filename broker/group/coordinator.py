"""The group coordinator: which groups it has, and its operations for administrators.

Each group is served by its kind (`group_kind.py`); `offsets` serves committed offsets. The coordinator has the groups
of the partitions of `__consumer_offsets` that this broker leads. It loads them when it becomes the leader; their
members' sessions begin anew then. When another broker leads, or this one stops, it answers waiting requests with
NOT_COORDINATOR: the clients look for the coordinator until they find one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import Habit
from minibroker.broker.group.classic_groups import ClassicGroups
from minibroker.broker.group.group import Group, GroupState
from minibroker.broker.group.group_cache import GroupCache
from minibroker.broker.group.group_kind import AnyGroup
from minibroker.broker.group.offset_manager import OffsetManager
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.group.rebalance import Rebalances
from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.coordinator_log import CoordinatorLog, OwnedPartitions, partition_of_name
from minibroker.broker.time.clock import Clock
from minibroker.broker.upkeep.background import Steps
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.purgatory import Observer, Purgatory
from minibroker.purgatory.timing_wheel import Timer

logger = logging.getLogger(__name__)


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
        *,
        config: KafkaConfig,
        clock: Clock,
        timer: Timer,
        run_steps: Callable[[Steps], None],
        observer: Observer | None = None,
    ) -> None:
        self.store = store
        self._clock = clock
        self._log = log
        self._shows_assignments = Habit.SHOWS_ASSIGNMENTS in config.profile.habits
        self._planned_partitions = config.offsets_topic_num_partitions
        self._owned = OwnedPartitions(log, load=self._load, unload=self._unload, run_steps=run_steps)
        self.cache = GroupCache(
            log.partition_for,
            self._owned.refusal,
            log.end_for,
            may_be_unnamed=Habit.KNOWS_UNNAMED_GROUPS in config.profile.habits,
        )
        self.rebalances = Rebalances(
            store,
            initial_delay_ms=config.group_initial_rebalance_delay_ms,
            clock=clock,
            timer=timer,
            observer=observer,
        )
        self.classic = ClassicGroups(self.cache, self.rebalances, config=config, clock=clock, timer=timer)
        self.cache.add_kind(self.classic)
        self.serving = self.cache.serving
        self.offsets = OffsetManager(self.cache, store, config=config, clock=clock)

    def on_leadership(self, topic_partition: TopicPartition, is_leader: bool) -> None:
        """Load the groups of a partition of `__consumer_offsets`, or unload them."""
        self._owned.on_leadership(topic_partition, is_leader)

    def on_partitions_deleted(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Remove the offsets committed for these partitions; those of `__consumer_offsets` unload with their groups."""
        committed = [each for each in topic_partitions if each.topic != GROUP_METADATA_TOPIC]
        if committed:
            self.offsets.on_partitions_deleted(committed)

    def _load(self, partition: int) -> Iterator[None]:
        loaded = yield from self.store.load(partition, self.cache.kinds.values())
        for group in loaded:
            self.cache.kind_of(group).begin(group)

    def _unload(self, partition: int) -> None:
        for group in self.cache.of(partition):
            self._remove(group)

    def _remove(self, group: AnyGroup) -> None:
        self.store.unload(group)
        self.cache.remove(group, self._clock.wall_ms())
        self.cache.kind_of(group).end(group)

    def stop(self) -> None:
        """Serve no more requests, and answer the waiting ones."""
        self.cache.stop()
        for group in self.cache.all():
            self._remove(group)

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
        return self.cache.get(group_id)

    def all(self) -> Iterable[AnyGroup]:
        return self.cache.all()

    @property
    def rebalance_purgatory(self) -> Purgatory:
        """The purgatory in which rebalances wait for the members."""
        return self.rebalances.joins

    # -- for administrators -----------------------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedGroup:
        refusal = self.cache.check(group_id, may_be_unnamed=True)
        if refusal is not ErrorCode.NONE:
            return DescribedGroup(refusal)
        group = self.cache.get_seen(group_id)
        if not isinstance(group, Group):
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
                member.assignment if is_stable or self._shows_assignments else b"",
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
        if self.cache.is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if self._owned.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        wanted_states, wanted_types = {each.lower() for each in states}, {each.lower() for each in types}
        return ErrorCode.NONE, [
            (group.group_id, group.protocol_type or "", group.state.value, group.kind)
            for group in self.cache.seen()
            if (not states or group.state.value.lower() in wanted_states) and (not types or group.kind in wanted_types)
        ]

    def delete(self, group_id: str, *, is_emptied: bool = False) -> ErrorCode | Pending[ErrorCode]:
        """Delete a group without members, and its offsets; before that what its kind keeps, unless that is done."""
        refusal = self.cache.check(group_id, may_be_unnamed=not self.cache.may_be_unnamed)
        if refusal is not ErrorCode.NONE:
            return refusal
        group = self.cache.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        if not is_emptied:

            def go_on(error: ErrorCode) -> ErrorCode | Pending[ErrorCode]:
                return self.delete(group_id, is_emptied=True) if error is ErrorCode.NONE else error

            return then(self.cache.kind_of(group).empty(group), go_on)
        self.offsets.delete_group(group)
        return ErrorCode.NONE
