"""The APIs of groups: their coordinator, membership, committed offsets, and administration."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.primitives import (
    Boolean,
    Bytes,
    CoordinatorKey,
    CoordinatorType,
    ErrorCode16,
    ErrorMessage,
    GroupId,
    Int8sb,
    Int32sb,
    Int64sb,
    NullableString,
    PartitionIndex,
    String,
    TopicId,
    TopicName,
)
from minibroker.protocol.schema import (
    array,
    array_of,
    default,
    id_since,
    null_since,
    nullable_array,
    nullable_row,
    row,
    since,
    until,
    versions,
)

FindCoordinatorRequest = versions("FindCoordinatorRequest", 0, 6,
    "key" / CoordinatorKey @ until(3),                         # a group id, or a transactional id
    "key_type" / CoordinatorType @ since(1, default=0),        # 0 group, 1 transaction
    "coordinator_keys" / array_of(CoordinatorKey) @ since(4),
    flexible=3,
)  # fmt: skip

FindCoordinatorResponse = versions("FindCoordinatorResponse", 0, 6,
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "error_code" / ErrorCode16 @ until(3),
    "error_message" / ErrorMessage @ since(1, until=3),
    "node_id" / Int32sb @ until(3, default=-1),
    "host" / String @ until(3),
    "port" / Int32sb @ until(3, default=-1),
    "coordinators" / array(
        "key" / CoordinatorKey,
        "node_id" / Int32sb @ default(-1),
        "host" / String,
        "port" / Int32sb @ default(-1),
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage) @ since(4),
    flexible=3,
)  # fmt: skip

JoinGroupRequest = versions("JoinGroupRequest", 0, 9,
    "group_id" / GroupId,
    "session_timeout_ms" / Int32sb,
    "rebalance_timeout_ms" / Int32sb @ since(1, default=-1),   # v0: the session timeout
    "member_id" / String,                                      # empty: not a member yet
    "group_instance_id" / NullableString @ since(5),
    "protocol_type" / String,
    "protocols" / array(                                       # in the member's order of preference
        "name" / String,
        "metadata" / Bytes),
    "reason" / NullableString @ since(8),                      # why it joins
    flexible=6,
)  # fmt: skip

JoinGroupResponse = versions("JoinGroupResponse", 0, 9,
    "throttle_time_ms" / Int32sb @ since(2, default=0),
    "error_code" / ErrorCode16,
    "generation_id" / Int32sb @ default(-1),
    "protocol_type" / NullableString @ since(7),
    "protocol_name" / NullableString @ default("") @ null_since(7),
    "leader" / String,
    "skip_assignment" / Boolean @ since(9, default=False),     # the leader, a static member, keeps the assignment
    "member_id" / String,
    "members" / array(                                         # only for the leader
        "member_id" / String,
        "group_instance_id" / NullableString @ since(5),
        "metadata" / Bytes),
    flexible=6,
)  # fmt: skip

SyncGroupRequest = versions("SyncGroupRequest", 0, 5,
    "group_id" / GroupId,
    "generation_id" / Int32sb,
    "member_id" / String,
    "group_instance_id" / NullableString @ since(3),
    "protocol_type" / NullableString @ since(5),
    "protocol_name" / NullableString @ since(5),
    "assignments" / array(                                     # only from the leader
        "member_id" / String,
        "assignment" / Bytes),
    flexible=4,
)  # fmt: skip

SyncGroupResponse = versions("SyncGroupResponse", 0, 5,
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "error_code" / ErrorCode16,
    "protocol_type" / NullableString @ since(5),
    "protocol_name" / NullableString @ since(5),
    "assignment" / Bytes,
    flexible=4,
)  # fmt: skip

HeartbeatRequest = versions("HeartbeatRequest", 0, 4,
    "group_id" / GroupId,
    "generation_id" / Int32sb,
    "member_id" / String,
    "group_instance_id" / NullableString @ since(3),
    flexible=4,
)  # fmt: skip

HeartbeatResponse = versions("HeartbeatResponse", 0, 4,
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "error_code" / ErrorCode16,
    flexible=4,
)  # fmt: skip

LeaveGroupRequest = versions("LeaveGroupRequest", 0, 5,
    "group_id" / GroupId,
    "member_id" / String @ until(2),
    "members" / array(
        "member_id" / String,
        "group_instance_id" / NullableString,
        "reason" / NullableString @ since(5)) @ since(3),
    flexible=4,
)  # fmt: skip

LeaveGroupResponse = versions("LeaveGroupResponse", 0, 5,
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "error_code" / ErrorCode16,
    "members" / array(
        "member_id" / String,
        "group_instance_id" / NullableString,
        "error_code" / ErrorCode16) @ since(3),
    flexible=4,
)  # fmt: skip

OffsetCommitRequest = versions("OffsetCommitRequest", 0, 10,
    "group_id" / GroupId,
    "generation_id" / Int32sb @ since(1, default=-1),          # or member epoch; -1: no member, it only commits offsets
    "member_id" / String @ since(1),
    "group_instance_id" / NullableString @ since(7),
    "retention_time_ms" / Int64sb @ since(2, until=4, default=-1),
    "topics" / array(
        "name" / TopicName @ id_since(10),
        "partitions" / array(
            "partition" / PartitionIndex,
            "committed_offset" / Int64sb,
            "committed_leader_epoch" / Int32sb @ since(6, default=-1),
            "commit_timestamp" / Int64sb @ since(1, until=1, default=-1),
            "committed_metadata" / NullableString)),
    flexible=8,
)  # fmt: skip

OffsetCommitResponse = versions("OffsetCommitResponse", 0, 10,
    "throttle_time_ms" / Int32sb @ since(3, default=0),
    "topics" / array(
        "name" / TopicName @ id_since(10),
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16)),
    flexible=8,
)  # fmt: skip

OffsetFetchRequest = versions("OffsetFetchRequest", 0, 10,
    "group_id" / GroupId @ until(7),
    "topics" / nullable_array(                                 # null: all, from v2
        "name" / TopicName,
        "partitions" / array_of(PartitionIndex)) @ until(7),
    "groups" / array(
        "group_id" / GroupId,
        "member_id" / NullableString @ since(9),               # of a member of the consumer protocol
        "member_epoch" / Int32sb @ since(9, default=-1),
        "topics" / nullable_array(                             # null: all
            "name" / TopicName @ id_since(10),
            "partitions" / array_of(PartitionIndex))) @ since(8),
    "require_stable" / Boolean @ since(7, default=False),
    flexible=6,
)  # fmt: skip

OffsetFetchResponse = versions("OffsetFetchResponse", 0, 10,
    "throttle_time_ms" / Int32sb @ since(3, default=0),
    "topics" / array(
        "name" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "committed_offset" / Int64sb @ default(-1),
            "committed_leader_epoch" / Int32sb @ since(5, default=-1),
            "metadata" / NullableString @ default(""),
            "error_code" / ErrorCode16)) @ until(7),
    "error_code" / ErrorCode16 @ since(2, default=0, until=7),
    "groups" / array(
        "group_id" / GroupId,
        "topics" / array(
            "name" / TopicName @ id_since(10),
            "partitions" / array(
                "partition" / PartitionIndex,
                "committed_offset" / Int64sb @ default(-1),
                "committed_leader_epoch" / Int32sb @ default(-1),
                "metadata" / NullableString @ default(""),
                "error_code" / ErrorCode16)),
        "error_code" / ErrorCode16) @ since(8),
    flexible=6,
)  # fmt: skip

DescribeGroupsRequest = versions("DescribeGroupsRequest", 0, 6,
    "groups" / array_of(GroupId),
    "include_authorized_operations" / Boolean @ since(3, default=False),
    flexible=5,
)  # fmt: skip

DescribeGroupsResponse = versions("DescribeGroupsResponse", 0, 6,
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "groups" / array(
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage @ since(6),
        "group_id" / GroupId,
        "group_state" / String,
        "protocol_type" / String,
        "protocol_data" / String,                              # the protocol's name, while the group is stable
        "members" / array(
            "member_id" / String,
            "group_instance_id" / NullableString @ since(4),
            "client_id" / String,
            "client_host" / String,
            "member_metadata" / Bytes,
            "member_assignment" / Bytes),
        "authorized_operations" / Int32sb @ since(3, default=-(2**31))),
    flexible=5,
)  # fmt: skip

ListGroupsRequest = versions("ListGroupsRequest", 0, 5,
    "states_filter" / array_of(String) @ since(4),             # empty: all
    "types_filter" / array_of(String) @ since(5),              # empty: all
    flexible=3,
)  # fmt: skip

ListGroupsResponse = versions("ListGroupsResponse", 0, 5,
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "error_code" / ErrorCode16,
    "groups" / array(
        "group_id" / GroupId,
        "protocol_type" / String,
        "group_state" / String @ since(4),
        "group_type" / String @ since(5)),
    flexible=3,
)  # fmt: skip

# -- the consumer protocol (KIP-848) --------------------------------------------------------------------------

PARTITIONS_BY_ID = (
    "topic_id" / TopicId,
    "partitions" / array_of(PartitionIndex),
)  # fmt: skip

ConsumerGroupHeartbeatRequest = versions("ConsumerGroupHeartbeatRequest", 0, 1,
    "group_id" / GroupId,
    "member_id" / String,                                      # v0: may be empty, the coordinator makes one then
    "member_epoch" / Int32sb,                                  # 0: joins; -1: leaves; -2: static, and will come back
    "instance_id" / NullableString,                            # null, or -1: as in its last heartbeat
    "rack_id" / NullableString,
    "rebalance_timeout_ms" / Int32sb @ default(-1),
    "subscribed_topic_names" / array_of(TopicName, is_nullable=True),
    "subscribed_topic_regex" / NullableString @ since(1),
    "server_assignor" / NullableString,
    "topic_partitions" / nullable_array(*PARTITIONS_BY_ID),    # those that it owns
    flexible=0,
)  # fmt: skip

ConsumerGroupHeartbeatResponse = versions("ConsumerGroupHeartbeatResponse", 0, 1,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "member_id" / NullableString,
    "member_epoch" / Int32sb,
    "heartbeat_interval_ms" / Int32sb,
    "assignment" / nullable_row(                               # null: as in the last response
        "topic_partitions" / array(*PARTITIONS_BY_ID)),
    flexible=0,
)  # fmt: skip

ConsumerGroupDescribeRequest = versions("ConsumerGroupDescribeRequest", 0, 1,
    "group_ids" / array_of(GroupId),
    "include_authorized_operations" / Boolean,
    flexible=0,
)  # fmt: skip

ASSIGNMENT = row(
    "topic_partitions" / array(
        "topic_id" / TopicId,
        "topic_name" / TopicName,
        "partitions" / array_of(PartitionIndex)))  # fmt: skip

ConsumerGroupDescribeResponse = versions("ConsumerGroupDescribeResponse", 0, 1,
    "throttle_time_ms" / Int32sb,
    "groups" / array(
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage,
        "group_id" / GroupId,
        "group_state" / String,
        "group_epoch" / Int32sb,
        "assignment_epoch" / Int32sb,
        "assignor_name" / String,
        "members" / array(
            "member_id" / String,
            "instance_id" / NullableString,
            "rack_id" / NullableString,
            "member_epoch" / Int32sb,
            "client_id" / String,
            "client_host" / String,
            "subscribed_topic_names" / array_of(TopicName),
            "subscribed_topic_regex" / NullableString,
            "assignment" / ASSIGNMENT,
            "target_assignment" / ASSIGNMENT,
            "member_type" / Int8sb @ since(1, default=-1)),    # 0: of the classic protocol; 1: of the consumer protocol
        "authorized_operations" / Int32sb @ default(-(2**31))),
    flexible=0,
)  # fmt: skip

# -- the ends of groups ---------------------------------------------------------------------------------------

DeleteGroupsRequest = versions("DeleteGroupsRequest", 0, 3,
    "group_names" / array_of(GroupId),
    flexible=2,
)  # fmt: skip

DeleteGroupsResponse = versions("DeleteGroupsResponse", 0, 3,
    "throttle_time_ms" / Int32sb,
    "results" / array(
        "group_id" / GroupId,
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage @ since(3)),
    flexible=2,
)  # fmt: skip

OffsetDeleteRequest = versions("OffsetDeleteRequest", 0, 0,
    "group_id" / GroupId,
    "topics" / array(
        "name" / TopicName,
        "partitions" / array_of(PartitionIndex)),
)  # fmt: skip

OffsetDeleteResponse = versions("OffsetDeleteResponse", 0, 0,
    "error_code" / ErrorCode16,
    "throttle_time_ms" / Int32sb,
    "topics" / array(
        "name" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16)),
)  # fmt: skip


def failed_join_group(body: Any, version: int, answer: Any) -> Any:
    """The answer repeats the member id. Other APIs repeat only rows: a failed InitProducerId has no producer id."""
    return answer._replace(member_id=body.member_id)


def failed_offset_fetch(body: Any, version: int, answer: Any) -> Any:
    """The versions that have an error code of their own have no rows then."""
    return answer if version < OffsetFetchResponse.field("error_code").first else answer._replace(topics=[])


def failed_offset_delete(body: Any, version: int, answer: Any) -> Any:
    """The answer has an error code of its own, and no rows then."""
    return answer._replace(topics=[])
