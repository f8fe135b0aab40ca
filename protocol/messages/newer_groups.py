"""Share groups (KIP-932), and how others' brokers describe streams groups (KIP-1071), as kafka 4.4.0.

A broker of ours has no streams groups: its tools ask others.
"""

from __future__ import annotations

from typing import Any

from minibroker.protocol.messages.groups import ASSIGNMENT, PARTITIONS_BY_ID
from minibroker.protocol.primitives import (
    Boolean,
    ErrorCode16,
    ErrorMessage,
    GroupId,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int64sb,
    Meaning,
    NullableString,
    PartitionIndex,
    Semantic,
    Sized,
    String,
    TopicId,
    TopicName,
)
from minibroker.protocol.schema import (
    Message,
    array,
    array_of,
    default,
    nullable_array,
    nullable_row,
    row,
    since,
    versions,
)

NullableGroupId = Semantic(NullableString, Meaning.GROUP)
SharedRecords = Semantic(Sized("records", is_nullable=False), Meaning.RECORDS)

ShareGroupHeartbeatRequest = versions("ShareGroupHeartbeatRequest", 1, 1,
    "group_id" / GroupId,
    "member_id" / String,
    "member_epoch" / Int32sb,                                      # 0: joins; -1: leaves
    "rack_id" / NullableString,
    "subscribed_topic_names" / array_of(TopicName, is_nullable=True),
    flexible=0,
)  # fmt: skip

ShareGroupHeartbeatResponse = versions("ShareGroupHeartbeatResponse", 1, 1,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "member_id" / NullableString,
    "member_epoch" / Int32sb,
    "heartbeat_interval_ms" / Int32sb,
    "assignment" / nullable_row(                                   # null: as in the last response
        "topic_partitions" / array(*PARTITIONS_BY_ID)),
    flexible=0,
)  # fmt: skip

ACKNOWLEDGEMENTS = array(
    "first_offset" / Int64sb,
    "last_offset" / Int64sb,
    "acknowledge_types" / array_of(Int8sb))  # fmt: skip
LEADER = row("leader_id" / Int32sb, "leader_epoch" / Int32sb)
ENDPOINTS = array("node_id" / Int32sb, "host" / String, "port" / Int32sb, "rack" / NullableString)

# v2 acquires by records, and renews locks (KIP-1206, KIP-1222)
ShareFetchRequest = versions("ShareFetchRequest", 1, 2,
    "group_id" / NullableGroupId,
    "member_id" / NullableString,
    "share_session_epoch" / Int32sb,                               # 0: a new session; -1: its end
    "max_wait_ms" / Int32sb,
    "min_bytes" / Int32sb,
    "max_bytes" / Int32sb @ default(2**31 - 1),
    "max_records" / Int32sb,
    "batch_size" / Int32sb,
    "share_acquire_mode" / Int8sb @ since(2, default=0),           # 0: whole batches; 1: at most max_records
    "is_renew_ack" / Boolean @ since(2, default=False),
    "topics" / array(
        "topic_id" / TopicId,
        "partitions" / array(
            "partition" / PartitionIndex,
            "acknowledgement_batches" / ACKNOWLEDGEMENTS)),
    "forgotten_topics" / array(
        "topic_id" / TopicId,
        "partitions" / array_of(PartitionIndex)),
    flexible=0,
)  # fmt: skip

ShareFetchResponse = versions("ShareFetchResponse", 1, 2,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "acquisition_lock_timeout_ms" / Int32sb,
    "responses" / array(
        "topic_id" / TopicId,
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16,
            "error_message" / ErrorMessage,
            "acknowledge_error_code" / ErrorCode16,
            "acknowledge_error_message" / NullableString,
            "current_leader" / LEADER @ default((0, 0)),
            "records" / SharedRecords @ default(b""),
            "acquired_records" / array(
                "first_offset" / Int64sb,
                "last_offset" / Int64sb,
                "delivery_count" / Int16sb))),
    "node_endpoints" / ENDPOINTS,
    flexible=0,
)  # fmt: skip


def failed_share(body: Any, version: int, answer: Any) -> Any:
    """The answer has an error code of its own, and no rows then."""
    return answer._replace(responses=[])


ShareAcknowledgeRequest = versions("ShareAcknowledgeRequest", 1, 2,
    "group_id" / NullableGroupId,
    "member_id" / NullableString,
    "share_session_epoch" / Int32sb,
    "is_renew_ack" / Boolean @ since(2, default=False),
    "topics" / array(
        "topic_id" / TopicId,
        "partitions" / array(
            "partition" / PartitionIndex,
            "acknowledgement_batches" / ACKNOWLEDGEMENTS)),
    flexible=0,
)  # fmt: skip

ShareAcknowledgeResponse = versions("ShareAcknowledgeResponse", 1, 2,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "acquisition_lock_timeout_ms" / Int32sb @ since(2, default=0),
    "responses" / array(
        "topic_id" / TopicId,
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16,
            "error_message" / ErrorMessage,
            "current_leader" / LEADER @ default((0, 0)))),
    "node_endpoints" / ENDPOINTS,
    flexible=0,
)  # fmt: skip

DeleteShareGroupOffsetsRequest = versions("DeleteShareGroupOffsetsRequest", 0, 0,
    "group_id" / GroupId,
    "topics" / array("topic_name" / TopicName),
    flexible=0,
)  # fmt: skip

DeleteShareGroupOffsetsResponse = versions("DeleteShareGroupOffsetsResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "responses" / array(
        "topic_name" / TopicName,
        "topic_id" / TopicId,
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage),
    flexible=0,
)  # fmt: skip

ShareGroupDescribeRequest = versions("ShareGroupDescribeRequest", 1, 1,
    "group_ids" / array_of(GroupId),
    "include_authorized_operations" / Boolean,
    flexible=0,
)  # fmt: skip

ShareGroupDescribeResponse = versions("ShareGroupDescribeResponse", 1, 1,
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
            "rack_id" / NullableString,
            "member_epoch" / Int32sb,
            "client_id" / String,
            "client_host" / String,
            "subscribed_topic_names" / array_of(TopicName),
            "assignment" / ASSIGNMENT),
        "authorized_operations" / Int32sb @ default(-(2**31))),
    flexible=0,
)  # fmt: skip

DescribeShareGroupOffsetsRequest = versions("DescribeShareGroupOffsetsRequest", 0, 1,
    "groups" / array(
        "group_id" / GroupId,
        "topics" / nullable_array(                                 # null: all
            "topic_name" / TopicName,
            "partitions" / array_of(PartitionIndex))),
    flexible=0,
)  # fmt: skip

DescribeShareGroupOffsetsResponse = versions("DescribeShareGroupOffsetsResponse", 0, 1,
    "throttle_time_ms" / Int32sb,
    "groups" / array(
        "group_id" / GroupId,
        "topics" / array(
            "topic_name" / TopicName,
            "topic_id" / TopicId,
            "partitions" / array(
                "partition_index" / PartitionIndex,
                "start_offset" / Int64sb,                          # -1: none yet
                "leader_epoch" / Int32sb,
                "lag" / Int64sb @ since(1, default=-1),
                "error_code" / ErrorCode16,
                "error_message" / ErrorMessage)),
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage),
    flexible=0,
)  # fmt: skip

AlterShareGroupOffsetsRequest = versions("AlterShareGroupOffsetsRequest", 0, 0,
    "group_id" / GroupId,
    "topics" / array(
        "topic_name" / TopicName,
        "partitions" / array(
            "partition_index" / PartitionIndex,
            "start_offset" / Int64sb)),
    flexible=0,
)  # fmt: skip

AlterShareGroupOffsetsResponse = versions("AlterShareGroupOffsetsResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "responses" / array(
        "topic_name" / TopicName,
        "topic_id" / TopicId,
        "partitions" / array(
            "partition_index" / PartitionIndex,
            "error_code" / ErrorCode16,
            "error_message" / ErrorMessage)),
    flexible=0,
)  # fmt: skip

# The state of the partitions that groups share, which brokers keep for each other.
STATE_BATCHES = array(
    "first_offset" / Int64sb,
    "last_offset" / Int64sb,
    "delivery_state" / Int8sb,                                     # 0: available; 2: acknowledged; 4: archived
    "delivery_count" / Int16sb)  # fmt: skip


def state_request(name: str, last: int, *fields: Any) -> Message:
    """A request of the partitions of one group, with these fields for each."""
    partitions = array("partition" / PartitionIndex, *fields)
    topics = array("topic_id" / TopicId, "partitions" / partitions)
    return versions(name, 0, last, "group_id" / GroupId, "topics" / topics, flexible=0)


def state_response(name: str, last: int, *fields: Any) -> Message:
    """The answer to it."""
    partitions = array(
        "partition" / PartitionIndex, "error_code" / ErrorCode16, "error_message" / ErrorMessage, *fields
    )
    return versions(name, 0, last, "results" / array("topic_id" / TopicId, "partitions" / partitions), flexible=0)


STATE_EPOCH, LEADER_EPOCH = "state_epoch" / Int32sb, "leader_epoch" / Int32sb
START_OFFSET = "start_offset" / Int64sb  # -1: none yet, or as before
COMPLETE_COUNT = "delivery_complete_count" / Int32sb @ since(1, default=-1)  # records behind the start that are done

InitializeShareGroupStateRequest = state_request("InitializeShareGroupStateRequest", 0, STATE_EPOCH, START_OFFSET)
InitializeShareGroupStateResponse = state_response("InitializeShareGroupStateResponse", 0)
ReadShareGroupStateRequest = state_request("ReadShareGroupStateRequest", 0, LEADER_EPOCH)
ReadShareGroupStateResponse = state_response(
    "ReadShareGroupStateResponse", 0, STATE_EPOCH, START_OFFSET, "state_batches" / STATE_BATCHES
)
WriteShareGroupStateRequest = state_request(
    "WriteShareGroupStateRequest",
    1,
    STATE_EPOCH,
    LEADER_EPOCH,
    START_OFFSET,
    COMPLETE_COUNT,
    "state_batches" / STATE_BATCHES,
)
WriteShareGroupStateResponse = state_response("WriteShareGroupStateResponse", 1)
DeleteShareGroupStateRequest = state_request("DeleteShareGroupStateRequest", 0)
DeleteShareGroupStateResponse = state_response("DeleteShareGroupStateResponse", 0)
ReadShareGroupStateSummaryRequest = state_request("ReadShareGroupStateSummaryRequest", 1, LEADER_EPOCH)
ReadShareGroupStateSummaryResponse = state_response(
    "ReadShareGroupStateSummaryResponse", 1, STATE_EPOCH, LEADER_EPOCH, START_OFFSET, COMPLETE_COUNT
)

StreamsGroupDescribeRequest = versions("StreamsGroupDescribeRequest", 0, 0,
    "group_ids" / array_of(GroupId),
    "include_authorized_operations" / Boolean,
    flexible=0,
)  # fmt: skip

PAIRS = array("key" / String, "value" / String)
INTERNAL_TOPICS = array(
    "name" / TopicName,
    "partitions" / Int32sb,
    "replication_factor" / Int16sb,
    "topic_configs" / PAIRS)  # fmt: skip
TASK_OFFSETS = array("subtopology_id" / String, "partition" / PartitionIndex, "offset" / Int64sb)
TASKS = array("subtopology_id" / String, "partitions" / array_of(PartitionIndex))
ASSIGNED_TASKS = row("active_tasks" / TASKS, "standby_tasks" / TASKS, "warmup_tasks" / TASKS)

StreamsGroupDescribeResponse = versions("StreamsGroupDescribeResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "groups" / array(
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage,
        "group_id" / GroupId,
        "group_state" / String,
        "group_epoch" / Int32sb,
        "assignment_epoch" / Int32sb,
        "topology" / nullable_row(
            "epoch" / Int32sb,
            "subtopologies" / nullable_array(
                "subtopology_id" / String,
                "source_topics" / array_of(TopicName),
                "repartition_sink_topics" / array_of(TopicName),
                "state_changelog_topics" / INTERNAL_TOPICS,
                "repartition_source_topics" / INTERNAL_TOPICS)),
        "members" / array(
            "member_id" / String,
            "member_epoch" / Int32sb,
            "instance_id" / NullableString,
            "rack_id" / NullableString,
            "client_id" / String,
            "client_host" / String,
            "topology_epoch" / Int32sb,
            "process_id" / String,
            "user_endpoint" / nullable_row("host" / String, "port" / Int16ub),
            "client_tags" / PAIRS,
            "task_offsets" / TASK_OFFSETS,
            "task_end_offsets" / TASK_OFFSETS,
            "assignment" / ASSIGNED_TASKS,
            "target_assignment" / ASSIGNED_TASKS,
            "is_classic" / Boolean),
        "authorized_operations" / Int32sb @ default(-(2**31))),
    flexible=0,
)  # fmt: skip
