"""The records of share groups (KIP-932), as kafka 4.4 writes them: of groups in `__consumer_offsets`, and of each
partition that a group shares in `__share_group_state`.

    key: group [| member id] [| topic id | partition]

An update has only the batches that have changed since the snapshot of its epoch.
"""

from __future__ import annotations

from enum import IntEnum

from minibroker.protocol.coordinator_records import RecordTypes
from minibroker.protocol.primitives import Int8sb, Int16sb, Int32sb, Int64sb, NullableString, String, TopicId
from minibroker.protocol.schema import array, array_of, default, tagged, versions


class ShareRecordType(IntEnum):
    """The first field of a key in `__consumer_offsets`: what the record is of."""

    MEMBER = 10
    GROUP = 11
    TARGET = 12
    TARGET_OF_MEMBER = 13
    ASSIGNMENT = 14
    STATE_METADATA = 15


class StateRecordType(IntEnum):
    """The first field of a key in `__share_group_state`."""

    SNAPSHOT = 0
    UPDATE = 1


PARTITIONS_BY_ID = array("topic_id" / TopicId, "partitions" / array_of(Int32sb))
PARTITIONS_BY_NAME = array("topic_id" / TopicId, "topic_name" / String, "partitions" / array_of(Int32sb))

ShareGroupMemberMetadataValue = versions("ShareGroupMemberMetadataValue", 0, 0,
    "rack_id" / NullableString,
    "client_id" / String,
    "client_host" / String,
    "subscribed_topic_names" / array_of(String),
    flexible=0,
)  # fmt: skip

ShareGroupMetadataValue = versions("ShareGroupMetadataValue", 0, 0,
    "epoch" / Int32sb,
    "metadata_hash" / Int64sb,
    flexible=0,
)  # fmt: skip

ShareGroupTargetAssignmentMetadataValue = versions("ShareGroupTargetAssignmentMetadataValue", 0, 0,
    "assignment_epoch" / Int32sb,
    "assignment_timestamp" / Int64sb @ tagged(0, since=0),
    flexible=0,
)  # fmt: skip

ShareGroupTargetAssignmentMemberValue = versions("ShareGroupTargetAssignmentMemberValue", 0, 0,
    "topic_partitions" / PARTITIONS_BY_ID,
    flexible=0,
)  # fmt: skip

ShareGroupCurrentMemberAssignmentValue = versions("ShareGroupCurrentMemberAssignmentValue", 0, 0,
    "member_epoch" / Int32sb,
    "previous_member_epoch" / Int32sb,
    "state" / Int8sb,
    "assigned_partitions" / PARTITIONS_BY_ID,
    flexible=0,
)  # fmt: skip

ShareGroupStatePartitionMetadataValue = versions("ShareGroupStatePartitionMetadataValue", 0, 0,
    "initializing_topics" / PARTITIONS_BY_NAME,
    "initialized_topics" / PARTITIONS_BY_NAME,
    "deleting_topics" / array("topic_id" / TopicId, "topic_name" / String),
    flexible=0,
)  # fmt: skip

STATE_BATCHES = array(
    "first_offset" / Int64sb,
    "last_offset" / Int64sb,
    "delivery_state" / Int8sb,                                     # 0: available; 2: acknowledged; 4: archived
    "delivery_count" / Int16sb)  # fmt: skip

ShareSnapshotValue = versions("ShareSnapshotValue", 0, 0,
    "snapshot_epoch" / Int32sb,
    "state_epoch" / Int32sb,
    "leader_epoch" / Int32sb,
    "start_offset" / Int64sb,                                      # -1: none yet
    "delivery_complete_count" / Int32sb @ tagged(0, since=0, default=-1),
    "create_timestamp" / Int64sb,
    "write_timestamp" / Int64sb,
    "state_batches" / STATE_BATCHES,
    flexible=0,
)  # fmt: skip

ShareUpdateValue = versions("ShareUpdateValue", 0, 0,
    "snapshot_epoch" / Int32sb,
    "leader_epoch" / Int32sb,
    "start_offset" / Int64sb @ default(-1),                        # -1: as before
    "delivery_complete_count" / Int32sb @ tagged(0, since=0, default=-1),
    "state_batches" / STATE_BATCHES,
    flexible=0,
)  # fmt: skip

_of_group = versions("ShareGroupMetadataKey", 0, 0, "group_id" / String)
_of_member = versions("ShareGroupMemberMetadataKey", 0, 0, "group_id" / String, "member_id" / String)
_of_partition = versions("ShareSnapshotKey", 0, 0,
    "group_id" / String,
    "topic_id" / TopicId,
    "partition" / Int32sb,
)  # fmt: skip

GROUP_RECORDS = RecordTypes(
    {
        ShareRecordType.MEMBER: _of_member,
        ShareRecordType.GROUP: _of_group,
        ShareRecordType.TARGET: _of_group,
        ShareRecordType.TARGET_OF_MEMBER: _of_member,
        ShareRecordType.ASSIGNMENT: _of_member,
        ShareRecordType.STATE_METADATA: _of_group,
    },
    {
        ShareRecordType.MEMBER: ShareGroupMemberMetadataValue,
        ShareRecordType.GROUP: ShareGroupMetadataValue,
        ShareRecordType.TARGET: ShareGroupTargetAssignmentMetadataValue,
        ShareRecordType.TARGET_OF_MEMBER: ShareGroupTargetAssignmentMemberValue,
        ShareRecordType.ASSIGNMENT: ShareGroupCurrentMemberAssignmentValue,
        ShareRecordType.STATE_METADATA: ShareGroupStatePartitionMetadataValue,
    },
)
STATE_RECORDS = RecordTypes(
    {StateRecordType.SNAPSHOT: _of_partition, StateRecordType.UPDATE: _of_partition},
    {StateRecordType.SNAPSHOT: ShareSnapshotValue, StateRecordType.UPDATE: ShareUpdateValue},
)
