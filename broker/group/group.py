"""A group: its state, its members, its generation. Pure: no clock, no IO.

PreparingRebalance   waits for its members to join again
    JoinGroup waits · Heartbeat and SyncGroup REBALANCE_IN_PROGRESS · commits of the last generation are accepted
    -> CompletingRebalance when all have joined, or time is up · Empty when no member is left · Dead
CompletingRebalance  waits for the leader's assignment
    SyncGroup waits · OffsetCommit, and Heartbeat before v3, REBALANCE_IN_PROGRESS
    -> Stable with the assignment · PreparingRebalance when a member joins anew, leaves or fails · Dead
Stable               every member has its assignment
    SyncGroup, and JoinGroup of an unchanged follower, return the generation again
    -> PreparingRebalance when a member joins, leaves or fails, or the leader joins again · Dead
Empty                has no members; keeps offsets, also those of consumers that assign partitions themselves
    -> PreparingRebalance with its first member · Dead when it is deleted, or its last offset is removed
Dead                 has been removed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum

from minibroker.broker.group.member import (
    Heartbeat,
    JoinedMember,
    JoinResult,
    JoinTerms,
    Member,
    MemberIdentity,
    Protocols,
    SyncResult,
)
from minibroker.broker.group.offsets import GroupOffsets
from minibroker.protocol.consumer_protocol import read_subscription
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.group_records import GroupRecord
from minibroker.protocol.message_values import CLASSIC, CONSUMER_PROTOCOL_TYPE


class GroupState(Enum):
    """The values are the names in DescribeGroups and ListGroups."""

    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"


# The states from which each may be entered (as kafka 2.0.1 GroupMetadata.validPreviousStates).
VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class Group:
    """One group. Times are milliseconds since the epoch; they are only stored."""

    kind: str = CLASSIC

    def __init__(self, group_id: str, offsets: GroupOffsets | None = None) -> None:
        self.group_id = group_id
        self.offsets = GroupOffsets() if offsets is None else offsets
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}  # by member id, in the order in which they joined
        self.pending_members: dict[str, Heartbeat] = {}  # by their new id, until they join with it
        self.static_members: dict[str, str] = {}  # member ids by group.instance.id
        self.rebalance_reason = ""  # of the last rebalance that began here
        self.missed_members: Sequence[str] = ()  # those that it went on without
        self.has_new_member = False  # since the initial rebalance was last delayed
        self._supporters: Counter[str] = Counter()  # number of members that support each protocol

    @classmethod
    def from_record(cls, group_id: str, record: GroupRecord | None, offsets: GroupOffsets) -> Group:
        """Make a stored group: stable, or without members (as kafka 2.0.1 GroupMetadata.loadGroup)."""
        group = cls(group_id, offsets)
        if record is None:
            return group
        for each in record.members:
            group.add(Member.from_record(each, record.protocol or ""), record.protocol_type)
        group.state = GroupState.STABLE if record.members else GroupState.EMPTY
        group.state_timestamp_ms = record.current_state_timestamp_ms
        group.generation_id = record.generation_id
        group.protocol_type = record.protocol_type or None
        group.protocol = record.protocol
        group.leader_id = record.leader
        return group

    def record(self, assignments: dict[str, bytes] | None = None) -> GroupRecord:
        """Make the record to store, with `assignments` by member id if given, else with the members' own."""
        return GroupRecord(
            protocol_type=self.protocol_type or "",
            generation_id=self.generation_id,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                member.record(
                    self.protocol or "", member.assignment if assignments is None else assignments[member.member_id]
                )
                for member in self.members.values()
            ),
        )

    # -- states -----------------------------------------------------------------------------------------------

    def can_become(self, state: GroupState) -> bool:
        return self.state in VALID_PREVIOUS_STATES[state]

    def become(self, state: GroupState, now_ms: int) -> None:
        if not self.can_become(state):
            raise ValueError(f"group {self.group_id} cannot become {state.value}: it is {self.state.value}")
        self.state = state
        self.state_timestamp_ms = now_ms

    def restore(self, state: GroupState, protocol: str, now_ms: int) -> None:
        """Begin in this state, as a group that was of the consumer protocol until now."""
        self.state, self.protocol, self.state_timestamp_ms = state, protocol, now_ms

    def begin_rebalance(self, why: str, now_ms: int) -> None:
        """Wait for the members to join again."""
        self.become(GroupState.PREPARING_REBALANCE, now_ms)
        self.rebalance_reason, self.missed_members = why, ()

    def delay_rebalance(self) -> None:
        """Wait for more members than have joined so far."""
        self.has_new_member = False

    def go_on_without(self, missed: Sequence[Member]) -> None:
        """Remove the members that have not joined in time."""
        self.missed_members = [member.member_id for member in missed]
        for member in missed:
            member.forget_heartbeat()
            self.remove(member)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Give each member its assignment by its id, an empty one where there is none."""
        for member in self.members.values():
            member.assign(assignments.get(member.member_id, b""))

    def begin_generation(self, now_ms: int) -> None:
        """Begin a generation after all members have joined: choose the protocol, wait for the leader's assignment."""
        self.generation_id += 1
        self.protocol = self.select_protocol() if self.members else None
        self.become(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)

    # -- members ----------------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member. The first one sets the protocol type, and leads the group."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if self.state is GroupState.PREPARING_REBALANCE and self.generation_id == 0:
            self.has_new_member = True
        self._supporters.update({name for name, _ in member.protocols})
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member; if it led the group, another member leads."""
        del self.members[member.member_id]
        self._supporters -= Counter({name for name, _ in member.protocols})
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member.member_id):
            self.leader_id = next(iter(self.members), None)

    def update(self, member: Member, terms: JoinTerms) -> None:
        """Give a member that joins again its new protocols and timeouts (as kafka 3.9 GroupMetadata.updateMember)."""
        self._supporters -= Counter({name for name, _ in member.protocols})
        member.take(terms)
        self._supporters.update({name for name, _ in member.protocols})

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member that came back a new id, and fence the client with the old one (KIP-345)."""
        old_id = member.member_id
        assert member.group_instance_id is not None
        member.answer_join(JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        member.answer_sync(SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        del self.members[old_id]
        member.rename(member_id)
        self.members[member_id] = member
        self.static_members[member.group_instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def static_member(self, group_instance_id: str | None) -> Member | None:
        member_id = None if group_instance_id is None else self.static_members.get(group_instance_id)
        return None if member_id is None else self.members[member_id]

    def is_fenced(self, member_id: str, group_instance_id: str | None) -> bool:
        """Return whether another client has taken the place of this static member."""
        static = self.static_member(group_instance_id)
        return static is not None and static.member_id != member_id

    def refuse_fenced(self, identity: MemberIdentity) -> ErrorCode:
        """Return NONE, or why this client may not act for its static member.

        Once a start has loaded the member, and until its client is heard from, the error is one to retry. librdkafka
        forgets its member id when its session ends without a broker, and then commits before it joins again: fenced,
        it would give up for good. A Kafka that has just started answers it likewise.
        """
        if not self.is_fenced(identity.member_id, identity.group_instance_id):
            return ErrorCode.NONE
        static = self.static_member(identity.group_instance_id)
        is_awaited = static is not None and static.is_unheard and identity.generation_id >= 0
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_awaited else ErrorCode.FENCED_INSTANCE_ID

    def has_all_members_joined(self) -> bool:
        return not self.pending_members and all(member.join_reply is not None for member in self.members.values())

    def elect_joined_leader(self) -> bool:
        """Let a member that has joined lead; return False if none has (as kafka 2.3 maybeElectNewJoinedLeader)."""
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is not None and leader.join_reply is None:
            leader = next((member for member in self.members.values() if member.join_reply is not None), None)
            if leader is not None:
                self.leader_id = leader.member_id
        return leader is not None

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- protocols --------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can be in this group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        if self.protocol_type != protocol_type:
            return False
        return any(self._supporters[name] == len(self.members) for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the protocol with most votes among the ones that all members support."""
        candidates = {name for name, supporters in self._supporters.items() if supporters == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def joined_members(self) -> list[JoinedMember]:
        """The members with their metadata, for the leader."""
        protocol = self.protocol or ""
        return [
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol))
            for member in self.members.values()
        ]

    def join_result(self, member_id: str, *, with_members: bool) -> JoinResult:
        """The answer to a JoinGroup of a member of the present generation."""
        return JoinResult(
            ErrorCode.NONE,
            member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol,
            self.leader_id or "",
            self.joined_members() if with_members else (),
        )

    def sync_result(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def die(self, now_ms: int) -> None:
        """Note that it has been removed."""
        self.become(GroupState.DEAD, now_ms)

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member consumes the topic, or may since its subscription is unknown (as kafka 2.4)."""
        if not (self.is_consumer_group and self.members and self.protocol is not None):
            return bool(self.members)
        try:
            return any(topic in subscribed_topics(member.metadata(self.protocol)) for member in self.members.values())
        except (KafkaProtocolError, KeyError):
            return True


def subscribed_topics(metadata: bytes) -> list[str]:
    """The topics of a consumer's subscription. Raises KafkaProtocolError."""
    topics: list[str] = read_subscription(metadata).topics
    return topics
