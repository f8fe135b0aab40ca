"""A share group: what its records make it. Pure: no clock, no IO.

A change is a list of records: the coordinator appends them, and the group as it is with them takes the place of the
one before. As kafka 4.4 ShareGroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from minibroker.broker.group.offsets import GroupOffsets
from minibroker.protocol.message_values import SHARE
from minibroker.protocol.share_group_records import (
    GROUP_RECORDS,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    ShareRecordType,
)

FIRST_EPOCH = 1  # of a group that has had no member: the first one makes it 2
Assignment = Mapping[bytes, frozenset[int]]
NOTHING: Assignment = {}


class ShareGroupState(Enum):
    """The values are the names in ShareGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareMember(NamedTuple):
    """A member, as a value."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    assigned: Assignment = NOTHING


class GroupRecord(NamedTuple):
    """One record of a group. `name` is a member's id; a `value` of None deletes the earlier one."""

    type: ShareRecordType
    group_id: str
    name: str = ""
    value: Any = None

    @property
    def contents(self) -> tuple[bytes, bytes | None, tuple[()]]:
        """Key, value and headers."""
        return GROUP_RECORDS.key(self.type, self.group_id, self.name), GROUP_RECORDS.value(self.type, self.value), ()


class ShareGroup:
    """One group. `initialized` has the partitions, by topic id, for which there is state; with the topic's name."""

    rebalance_reason: str = ""
    missed_members: Sequence[str] = ()
    state_timestamp_ms: int = -1

    def __init__(self, group_id: str, offsets: GroupOffsets | None = None) -> None:
        self.group_id = group_id
        self.offsets = GroupOffsets() if offsets is None else offsets
        self.epoch = self.assignment_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.initialized: dict[bytes, tuple[str, frozenset[int]]] = {}
        self.is_dead = False

    def copy(self) -> ShareGroup:
        """The same group, to be changed."""
        copy = ShareGroup(self.group_id, self.offsets)
        copy.epoch, copy.assignment_epoch, copy.metadata_hash = self.epoch, self.assignment_epoch, self.metadata_hash
        copy.members, copy.targets, copy.initialized = dict(self.members), dict(self.targets), dict(self.initialized)
        return copy

    @property
    def kind(self) -> str:
        return SHARE

    @property
    def state(self) -> ShareGroupState:
        if self.is_dead:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def protocol_type(self) -> str:
        return SHARE

    @property
    def generation_id(self) -> int:
        """Its epoch, by the word of classic groups."""
        return self.epoch

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_consumer_group(self) -> bool:
        return False

    def is_leader(self, member_id: str) -> bool:
        """Return False: the coordinator makes the assignment."""
        return False

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topic_names for member in self.members.values())

    def die(self, now_ms: int) -> None:
        """Note that it has been removed."""
        self.is_dead = True

    @property
    def topics(self) -> frozenset[str]:
        return frozenset[str]().union(*(member.topic_names for member in self.members.values()))

    def numbers_of(self, topic_id: bytes) -> frozenset[int]:
        """The partitions of a topic that have state."""
        return self.initialized[topic_id][1] if topic_id in self.initialized else frozenset()

    # -- records ----------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """Take one of its records."""
        name, value = record.name, record.value
        member = self.members.get(name) or ShareMember(name)
        match record.type:
            case ShareRecordType.GROUP:
                self.is_dead = value is None
                if value is not None:
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ShareRecordType.MEMBER:
                if value is None:
                    self.members.pop(name, None)
                else:
                    self.members[name] = member._replace(
                        rack_id=value.rack_id,
                        client_id=value.client_id,
                        client_host=value.client_host,
                        topic_names=frozenset(value.subscribed_topic_names),
                    )
            case ShareRecordType.ASSIGNMENT:
                if value is not None:
                    self.members[name] = member._replace(
                        member_epoch=value.member_epoch,
                        previous_member_epoch=value.previous_member_epoch,
                        assigned=assignment_of(value.assigned_partitions),
                    )
            case ShareRecordType.TARGET:
                self.assignment_epoch = -1 if value is None else value.assignment_epoch
            case ShareRecordType.TARGET_OF_MEMBER:
                if value is None:
                    self.targets.pop(name, None)
                else:
                    self.targets[name] = assignment_of(value.topic_partitions)
            case ShareRecordType.STATE_METADATA:
                rows = () if value is None else value.initialized_topics
                self.initialized = {topic_id: (topic, frozenset(numbers)) for topic_id, topic, numbers in rows}

    def epoch_record(self, epoch: int, metadata_hash: int) -> GroupRecord:
        value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        return GroupRecord(ShareRecordType.GROUP, self.group_id, value=value)

    def target_record(self, epoch: int, timestamp_ms: int) -> GroupRecord:
        value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        return GroupRecord(ShareRecordType.TARGET, self.group_id, value=value)

    def target_of_member_record(self, member_id: str, target: Assignment) -> GroupRecord:
        value = ShareGroupTargetAssignmentMemberValue(topic_partitions=rows_of(target))
        return GroupRecord(ShareRecordType.TARGET_OF_MEMBER, self.group_id, member_id, value)

    def member_record(self, member: ShareMember) -> GroupRecord:
        value = ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
        )
        return GroupRecord(ShareRecordType.MEMBER, self.group_id, member.member_id, value)

    def assignment_record(self, member: ShareMember) -> GroupRecord:
        value = ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=0,
            assigned_partitions=rows_of(member.assigned),
        )
        return GroupRecord(ShareRecordType.ASSIGNMENT, self.group_id, member.member_id, value)

    def initialized_record(self, initialized: Mapping[bytes, tuple[str, frozenset[int]]]) -> GroupRecord:
        value = ShareGroupStatePartitionMetadataValue(
            initializing_topics=[],
            initialized_topics=[(topic_id, name, sorted(each)) for topic_id, (name, each) in initialized.items()],
            deleting_topics=[],
        )
        return GroupRecord(ShareRecordType.STATE_METADATA, self.group_id, value=value)

    def member_tombstones(self, member_id: str) -> list[GroupRecord]:
        """The records that delete a member."""
        kinds = (ShareRecordType.ASSIGNMENT, ShareRecordType.TARGET_OF_MEMBER, ShareRecordType.MEMBER)
        return [GroupRecord(kind, self.group_id, member_id) for kind in kinds]

    def tombstones(self) -> list[GroupRecord]:
        """The records that delete it."""
        members = [record for member_id in self.members for record in self.member_tombstones(member_id)]
        kinds = (ShareRecordType.TARGET, ShareRecordType.STATE_METADATA, ShareRecordType.GROUP)
        return [*members, *(GroupRecord(kind, self.group_id) for kind in kinds)]


def rows_of(assignment: Assignment) -> list[tuple[bytes, list[int]]]:
    return [(topic_id, sorted(partitions)) for topic_id, partitions in assignment.items()]


def assignment_of(rows: Iterable[Any]) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in rows}
