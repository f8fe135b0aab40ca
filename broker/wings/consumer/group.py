"""A group of the consumer protocol: what its records make it. Pure: no clock, no IO.

Empty         has no members; keeps offsets
Assigning     its epoch is ahead of its target assignment, which a heartbeat will make anew
Reconciling   some member has not reached its target assignment
Stable        every member has

The epoch grows with each change of the members, of what they subscribe to, or of those topics. A change is a list of
records: the coordinator appends them, and the group as it is with them takes the place of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from minibroker.broker.group.offsets import GroupOffsets
from minibroker.broker.wings.consumer.assignors import ASSIGNORS
from minibroker.broker.wings.consumer.member import Assignment, ConsumerMember, assignment_of, rows_of
from minibroker.broker.wings.consumer.member_counts import MemberCounts
from minibroker.protocol.consumer_group_records import (
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    RecordType,
)
from minibroker.protocol.message_values import CONSUMER, CONSUMER_PROTOCOL_TYPE

NO_EPOCH = -1
FIRST_EPOCH = 1  # of a group that has had no member, as kafka 4.4: the first one makes it 2
NO_PARTITIONS: Assignment = {}


class ConsumerGroupState(Enum):
    """The values are the names in ConsumerGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, by the metadata of `version`, at a time since the epoch."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """One group, and its offsets, which are the same in all its versions."""

    __slots__ = (
        "_counts",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "epoch",
        "group_id",
        "has_old_metadata",
        "is_dead",
        "members",
        "metadata_hash",
        "missed_members",
        "offsets",
        "rebalance_reason",
        "resolved",
        "state_timestamp_ms",
        "targets",
        "topics_version",
    )

    def __init__(self, group_id: str, offsets: GroupOffsets | None = None) -> None:
        self.group_id = group_id
        self.offsets = GroupOffsets() if offsets is None else offsets
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0  # of the topics that its members subscribe to
        self.members: dict[str, ConsumerMember] = {}
        self._counts = MemberCounts()
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0  # 0: the next target assignment need not wait
        self.targets: dict[str, Assignment] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        self.has_old_metadata = False
        self.is_dead = False
        self.topics_version = -1  # of the topics by which its hash was made
        self.rebalance_reason = ""  # why its present epoch began here
        self.missed_members: Sequence[str] = ()  # those that it went on without then
        self.state_timestamp_ms = -1  # when

    def copy(self) -> ConsumerGroup:
        """The same group, to be changed."""
        copy = ConsumerGroup(self.group_id, self.offsets)
        copy.epoch, copy.metadata_hash = self.epoch, self.metadata_hash
        copy.assignment_epoch = self.assignment_epoch
        copy.assignment_timestamp_ms = self.assignment_timestamp_ms
        copy.members, copy.targets, copy.resolved = dict(self.members), dict(self.targets), dict(self.resolved)
        copy._counts = self._counts.copy()
        copy.has_old_metadata, copy.topics_version = self.has_old_metadata, self.topics_version
        copy.note_reason(self.rebalance_reason, self.missed_members, self.state_timestamp_ms)
        return copy

    def note_topics(self, version: int) -> None:
        """Note that its hash is that of the topics of this version."""
        self.topics_version = version

    def note_reason(self, why: str, missed: Sequence[str], now_ms: int) -> None:
        """Note why an epoch begins, and without which members; only those who look need it."""
        self.rebalance_reason, self.missed_members, self.state_timestamp_ms = why, missed, now_ms

    def die(self, now_ms: int) -> None:
        """Note that it has been removed."""
        self.is_dead = True

    # -- records ----------------------------------------------------------------------------------------------

    def apply(self, record: ConsumerGroupRecord) -> None:
        """Take one of its records (as kafka 4.4 GroupMetadataManager.replay)."""
        name, value = record.name, record.value
        match record.type:
            case RecordType.GROUP:
                self.is_dead = value is None
                if value is not None:
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case RecordType.OLD_METADATA:
                self.has_old_metadata = value is not None
            case RecordType.MEMBER:
                if value is None:
                    self._counts.change(self.members.pop(name, None), None)
                else:
                    self.put(self.member_or_new(name).with_record(value))
            case RecordType.ASSIGNMENT:
                if value is not None:
                    self.put(self.member_or_new(name).with_assignment_record(value))
                elif name in self.members:
                    self.put(self.members[name].without_assignment())
            case RecordType.TARGET:
                epoch, timestamp_ms = (NO_EPOCH, 0) if value is None else value
                self.assignment_epoch, self.assignment_timestamp_ms = epoch, timestamp_ms
            case RecordType.TARGET_OF_MEMBER:
                if value is None:
                    self.targets.pop(name, None)
                else:
                    self.targets[name] = assignment_of(value.topic_partitions)
            case RecordType.REGULAR_EXPRESSION:
                if value is None:
                    self.resolved.pop(name, None)
                else:
                    self.resolved[name] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)

    def epoch_record(self, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
        value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        return ConsumerGroupRecord(RecordType.GROUP, self.group_id, value=value)

    def target_record(self, epoch: int, timestamp_ms: int) -> ConsumerGroupRecord:
        value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        return ConsumerGroupRecord(RecordType.TARGET, self.group_id, value=value)

    def target_of_member_record(self, member_id: str, target: Assignment) -> ConsumerGroupRecord:
        value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=rows_of(target))
        return ConsumerGroupRecord(RecordType.TARGET_OF_MEMBER, self.group_id, member_id, value)

    def regex_record(self, regex: str, resolved: ResolvedRegex) -> ConsumerGroupRecord:
        value = ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        )
        return ConsumerGroupRecord(RecordType.REGULAR_EXPRESSION, self.group_id, regex, value)

    def records(self) -> list[ConsumerGroupRecord]:
        """All its records, of a group that has come from the classic protocol."""
        return [
            *(member.record(self.group_id) for member in self.members.values()),
            self.epoch_record(self.epoch, self.metadata_hash),
            *(self.target_of_member_record(each, self.target_of(each)) for each in self.members),
            self.target_record(self.assignment_epoch, self.assignment_timestamp_ms),
            *(member.assignment_record(self.group_id) for member in self.members.values()),
        ]

    def tombstones(self) -> list[ConsumerGroupRecord]:
        """The records that delete it."""
        of = ConsumerGroupRecord
        return [
            *(of(RecordType.ASSIGNMENT, self.group_id, each) for each in self.members),
            *(of(RecordType.TARGET_OF_MEMBER, self.group_id, each) for each in self.members),
            of(RecordType.TARGET, self.group_id),
            *(of(RecordType.MEMBER, self.group_id, each) for each in self.members),
            *(of(RecordType.REGULAR_EXPRESSION, self.group_id, each) for each in self.resolved),
            of(RecordType.OLD_METADATA, self.group_id),
            of(RecordType.GROUP, self.group_id),
        ]

    def member_tombstones(self, member_id: str) -> list[ConsumerGroupRecord]:
        """The records that delete a member."""
        kinds = (RecordType.ASSIGNMENT, RecordType.TARGET_OF_MEMBER, RecordType.MEMBER)
        return [ConsumerGroupRecord(kind, self.group_id, member_id) for kind in kinds]

    # -- members ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        is_stable = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return ConsumerGroupState.STABLE if is_stable else ConsumerGroupState.RECONCILING

    @property
    def kind(self) -> str:
        return CONSUMER

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_leader(self, member_id: str) -> bool:
        """Return False: the coordinator makes the assignment."""
        return False

    @property
    def is_consumer_group(self) -> bool:
        return True

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def generation_id(self) -> int:
        """Its epoch, by the word of classic groups."""
        return self.epoch

    def put(self, member: ConsumerMember) -> None:
        """Have this member, in place of one with its id."""
        self._counts.change(self.members.get(member.member_id), member)
        self.members[member.member_id] = member

    def member_or_new(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self._counts.static_ids.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        """Whether a member has the partition, or has yet to revoke it."""
        return (topic_id, partition) in self._counts.owners

    def lacking(self, member: ConsumerMember) -> Iterator[tuple[bytes, int, str]]:
        """The partitions of a member's target that another one has yet to release, with the id of that."""
        others = [each for each in self.members.values() if each is not member]
        for topic_id, partitions in self.target_of(member.member_id).items():
            for partition in sorted(partitions.difference(member.assigned.get(topic_id, ()))):
                holder = next((each.member_id for each in others if each.has(topic_id, partition)), None)
                if holder is not None:
                    yield topic_id, partition, holder

    # -- subscriptions ----------------------------------------------------------------------------------------

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that a member subscribes to, by name and by what its expression matched."""
        resolved = self.resolved.get(member.topic_regex) if member.topic_regex else None
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    @property
    def topics(self) -> frozenset[str]:
        """The names of all topics that its members subscribe to."""
        return frozenset(self._counts.topics).union(*self._matched)

    @property
    def _matched(self) -> list[frozenset[str]]:
        return [self.resolved[each].topics for each in self.regexes if each in self.resolved]

    @property
    def regexes(self) -> Mapping[str, int]:
        """The regular expressions that its members subscribe to, with the number of these."""
        return self._counts.regexes

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same, in the same way (as kafka 4.4 ConsumerGroup.subscriptionType)."""
        members = iter(self.members.values())
        first = next(members, None)
        if first is None:
            return True
        is_same = all(
            each.topic_names == first.topic_names and (each.topic_regex or "") == (first.topic_regex or "")
            for each in members
        )
        return is_same and not (first.topic_regex and first.topic_names)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._counts.topics or any(topic in topics for topics in self._matched)

    def preferred_assignor(self, default: str, beating: str | None = None) -> str:
        """The assignor that most members ask for.

        Of two that as many ask for, it is uniform; in the heartbeat of a member that asks for range alone, it is range.
        So such a group has another epoch with each of these heartbeats, as by kafka 4.4
        ConsumerGroup.computePreferredServerAssignor: it counts in a hash table whose newest name comes first.
        """
        asked = self._counts.assignors
        if not asked:
            return default
        beats = self.members.get(beating or "")
        newest = beats.server_assignor if beats and asked.get(beats.server_assignor or "") == 1 else None
        ordered = sorted(filter(asked.__contains__, ASSIGNORS), key=lambda name: name != newest)
        return max(ordered, key=asked.__getitem__, default=default)
