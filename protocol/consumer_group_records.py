"""The records of `__consumer_offsets` that keep groups of the consumer protocol (KIP-848), as kafka 4.4 writes them.

    key: group [| member id, or regular expression]

A group is what its records make it: one for the group, one for its target assignment, three for each member, one for
each regular expression that members subscribe to.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from minibroker.protocol.coordinator_records import RecordTypes
from minibroker.protocol.primitives import Bytes, Int8sb, Int32sb, Int64sb, NullableString, String, TopicId
from minibroker.protocol.record import Record
from minibroker.protocol.schema import Message, array, array_of, default, nullable_tagged_row, tagged, versions


class RecordType(IntEnum):
    """The first field of a key: what the record is of."""

    GROUP = 3
    OLD_METADATA = 4  # before kafka 4.1; later ones only delete it
    MEMBER = 5
    TARGET = 6
    TARGET_OF_MEMBER = 7
    ASSIGNMENT = 8
    REGULAR_EXPRESSION = 16


class ConsumerGroupRecord(NamedTuple):
    """One record. `name` is the member id, or the regular expression; a `value` of None deletes the earlier one."""

    type: RecordType
    group_id: str
    name: str = ""
    value: Any = None


ConsumerGroupMetadataKey = versions("ConsumerGroupMetadataKey", 0, 0, "group_id" / String)
ConsumerGroupMetadataValue = versions("ConsumerGroupMetadataValue", 0, 0,
    "epoch" / Int32sb,
    "metadata_hash" / Int64sb @ tagged(0, since=0),
    flexible=0,
)  # fmt: skip

ConsumerGroupPartitionMetadataKey = versions("ConsumerGroupPartitionMetadataKey", 0, 0, "group_id" / String)

ConsumerGroupMemberMetadataKey = versions("ConsumerGroupMemberMetadataKey", 0, 0,
    "group_id" / String,
    "member_id" / String,
)  # fmt: skip
ConsumerGroupMemberMetadataValue = versions("ConsumerGroupMemberMetadataValue", 0, 0,
    "instance_id" / NullableString,
    "rack_id" / NullableString,
    "client_id" / String,
    "client_host" / String,
    "subscribed_topic_names" / array_of(String),
    "subscribed_topic_regex" / NullableString,
    "rebalance_timeout_ms" / Int32sb @ default(-1),
    "server_assignor" / NullableString,
    "classic_member_metadata" / nullable_tagged_row(           # of a member of the classic protocol
        "session_timeout_ms" / Int32sb,
        "supported_protocols" / array(
            "name" / String,
            "metadata" / Bytes)) @ tagged(0, since=0, default=(0, ())),
    flexible=0,
)  # fmt: skip

ConsumerGroupTargetAssignmentMetadataKey = versions(
    "ConsumerGroupTargetAssignmentMetadataKey", 0, 0, "group_id" / String
)
ConsumerGroupTargetAssignmentMetadataValue = versions("ConsumerGroupTargetAssignmentMetadataValue", 0, 0,
    "assignment_epoch" / Int32sb,
    "assignment_timestamp" / Int64sb @ tagged(0, since=0),     # when it was computed
    flexible=0,
)  # fmt: skip

ConsumerGroupTargetAssignmentMemberKey = versions("ConsumerGroupTargetAssignmentMemberKey", 0, 0,
    "group_id" / String,
    "member_id" / String,
)  # fmt: skip
ConsumerGroupTargetAssignmentMemberValue = versions("ConsumerGroupTargetAssignmentMemberValue", 0, 0,
    "topic_partitions" / array(
        "topic_id" / TopicId,
        "partitions" / array_of(Int32sb)),
    flexible=0,
)  # fmt: skip

PARTITIONS_WITH_EPOCHS = array(
    "topic_id" / TopicId,
    "partitions" / array_of(Int32sb),
    "assignment_epochs" / array_of(Int32sb, is_nullable=True) @ tagged(0, since=0))  # fmt: skip

ConsumerGroupCurrentMemberAssignmentKey = versions("ConsumerGroupCurrentMemberAssignmentKey", 0, 0,
    "group_id" / String,
    "member_id" / String,
)  # fmt: skip
ConsumerGroupCurrentMemberAssignmentValue = versions("ConsumerGroupCurrentMemberAssignmentValue", 0, 0,
    "member_epoch" / Int32sb,
    "previous_member_epoch" / Int32sb,
    "state" / Int8sb,
    "assigned_partitions" / PARTITIONS_WITH_EPOCHS,
    "partitions_pending_revocation" / PARTITIONS_WITH_EPOCHS,
    flexible=0,
)  # fmt: skip

ConsumerGroupRegularExpressionKey = versions("ConsumerGroupRegularExpressionKey", 0, 0,
    "group_id" / String,
    "regular_expression" / String,
)  # fmt: skip
ConsumerGroupRegularExpressionValue = versions("ConsumerGroupRegularExpressionValue", 0, 0,
    "topics" / array_of(String),
    "version" / Int64sb,                                       # of the cluster's metadata
    "timestamp" / Int64sb,
    flexible=0,
)  # fmt: skip

KEYS: dict[int, Message] = {
    RecordType.GROUP: ConsumerGroupMetadataKey,
    RecordType.OLD_METADATA: ConsumerGroupPartitionMetadataKey,
    RecordType.MEMBER: ConsumerGroupMemberMetadataKey,
    RecordType.TARGET: ConsumerGroupTargetAssignmentMetadataKey,
    RecordType.TARGET_OF_MEMBER: ConsumerGroupTargetAssignmentMemberKey,
    RecordType.ASSIGNMENT: ConsumerGroupCurrentMemberAssignmentKey,
    RecordType.REGULAR_EXPRESSION: ConsumerGroupRegularExpressionKey,
}
VALUES: dict[int, Message] = {
    RecordType.GROUP: ConsumerGroupMetadataValue,
    RecordType.MEMBER: ConsumerGroupMemberMetadataValue,
    RecordType.TARGET: ConsumerGroupTargetAssignmentMetadataValue,
    RecordType.TARGET_OF_MEMBER: ConsumerGroupTargetAssignmentMemberValue,
    RecordType.ASSIGNMENT: ConsumerGroupCurrentMemberAssignmentValue,
    RecordType.REGULAR_EXPRESSION: ConsumerGroupRegularExpressionValue,
}

TYPES = RecordTypes(KEYS, VALUES)


def key_of(record: ConsumerGroupRecord) -> bytes:
    """Its key. Raises struct.error for a name of more than 32767 bytes."""
    return TYPES.key(record.type, record.group_id, record.name)


def value_of(record: ConsumerGroupRecord) -> bytes | None:
    return TYPES.value(record.type, record.value)


def read_record(record: Record) -> ConsumerGroupRecord | None:
    """Decode a record of these; None for one of another type. Raises UnreadableRecordError."""
    found = TYPES.read(record)
    if found is None:
        return None
    group_id, name = (*found.names, "")[:2]
    return ConsumerGroupRecord(RecordType(found.type), group_id, name, found.value)
