"""The APIs by which others' brokers describe share groups (KIP-932) and streams groups (KIP-1071), as kafka 4.4.0.

A broker of ours has none of these groups: its tools ask others.
"""

from __future__ import annotations

from minibroker.protocol.messages.groups import ASSIGNMENT
from minibroker.protocol.primitives import (
    Boolean,
    ErrorCode16,
    ErrorMessage,
    GroupId,
    Int16sb,
    Int16ub,
    Int32sb,
    Int64sb,
    NullableString,
    PartitionIndex,
    String,
    TopicId,
    TopicName,
)
from minibroker.protocol.schema import array, array_of, default, nullable_array, nullable_row, row, since, versions

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
