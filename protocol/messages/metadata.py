"""ApiVersions and Metadata: the APIs of a broker, and the brokers, topics and leaders of the cluster."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.primitives import (
    ApiKey16,
    Boolean,
    ErrorCode16,
    ErrorMessage,
    Int8sb,
    Int16sb,
    Int32sb,
    Int64sb,
    NullableString,
    NullableTopicName,
    PartitionIndex,
    String,
    TopicId,
    TopicName,
)
from minibroker.protocol.schema import (
    array,
    array_of,
    default,
    null_since,
    nullable_array,
    nullable_row,
    since,
    tagged,
    until,
    versions,
)

ApiVersionsRequest = versions("ApiVersionsRequest", 0, 5,
    "client_software_name" / String @ since(3, default="unknown"),
    "client_software_version" / String @ since(3, default="unknown"),
    "cluster_id" / NullableString @ since(5),                  # of the broker that the client means to ask
    "node_id" / Int32sb @ since(5, default=-1),
    flexible=3,
)  # fmt: skip

ApiVersionsResponse = versions("ApiVersionsResponse", 0, 5,
    "error_code" / ErrorCode16,
    "api_keys" / array(
        "api_key" / ApiKey16,
        "min_version" / Int16sb,
        "max_version" / Int16sb),
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "supported_features" / array(
        "name" / String,
        "min_version" / Int16sb,
        "max_version" / Int16sb) @ tagged(0, since=3),
    "finalized_features_epoch" / Int64sb @ tagged(1, since=3, default=-1),
    "finalized_features" / array(
        "name" / String,
        "max_version_level" / Int16sb,
        "min_version_level" / Int16sb) @ tagged(2, since=3),
    flexible=3,
)  # fmt: skip

# v0: an empty list means all topics · v1 and later: null does · v12: a topic may be named by its id
MetadataRequest = versions("MetadataRequest", 0, 13,
    "topics" / nullable_array(
        "topic_id" / TopicId @ since(10),
        "name" / NullableTopicName @ null_since(10)) @ null_since(1),
    "allow_auto_topic_creation" / Boolean @ since(4, default=True),
    "include_cluster_authorized_operations" / Boolean @ since(8, until=10, default=False),
    "include_topic_authorized_operations" / Boolean @ since(8, default=False),
    flexible=9,
)  # fmt: skip

MetadataResponse = versions("MetadataResponse", 0, 13,
    "throttle_time_ms" / Int32sb @ since(3, default=0),
    "brokers" / array(
        "node_id" / Int32sb,
        "host" / String,
        "port" / Int32sb,
        "rack" / NullableString @ since(1, default=None)),
    "cluster_id" / NullableString @ since(2, default=None),
    "controller_id" / Int32sb @ since(1, default=-1),
    "topics" / array(
        "error_code" / ErrorCode16,
        "name" / NullableTopicName @ null_since(12),           # for an unknown id
        "topic_id" / TopicId @ since(10),
        "is_internal" / Boolean @ since(1, default=False),
        "partitions" / array(
            "error_code" / ErrorCode16,
            "partition" / PartitionIndex,
            "leader_id" / Int32sb,
            "leader_epoch" / Int32sb @ since(7, default=-1),
            "replica_nodes" / array_of(Int32sb),
            "isr_nodes" / array_of(Int32sb),
            "offline_replicas" / array_of(Int32sb) @ since(5, default=())),
        "topic_authorized_operations" / Int32sb @ since(8, default=-(2**31))),
    "cluster_authorized_operations" / Int32sb @ since(8, until=10, default=-(2**31)),
    "error_code" / ErrorCode16 @ since(13, default=0),
    flexible=9,
)  # fmt: skip

UpdateFeaturesRequest = versions("UpdateFeaturesRequest", 0, 2,
    "timeout_ms" / Int32sb @ default(60_000),
    "feature_updates" / array(
        "feature" / String,
        "max_version_level" / Int16sb,                         # below 1: to be off
        "allow_downgrade" / Boolean @ until(0, default=False),
        "upgrade_type" / Int8sb @ since(1, default=1)),        # 1 upgrade, 2 safe downgrade, 3 unsafe downgrade
    "validate_only" / Boolean @ since(1, default=False),
    flexible=0,
)  # fmt: skip

UpdateFeaturesResponse = versions("UpdateFeaturesResponse", 0, 2,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "results" / array(
        "feature" / String,
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage) @ until(1, default=()),
    flexible=0,
)  # fmt: skip

CURSOR = nullable_row(                                         # where the next answer goes on; null: nothing is left
    "topic_name" / String,
    "partition_index" / Int32sb,
)  # fmt: skip

DescribeTopicPartitionsRequest = versions("DescribeTopicPartitionsRequest", 0, 0,
    "topics" / array("name" / TopicName),                      # none: all
    "response_partition_limit" / Int32sb @ default(2000),
    "cursor" / CURSOR,
    flexible=0,
)  # fmt: skip

DescribeTopicPartitionsResponse = versions("DescribeTopicPartitionsResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "topics" / array(
        "error_code" / ErrorCode16,
        "name" / NullableTopicName,
        "topic_id" / TopicId,
        "is_internal" / Boolean,
        "partitions" / array(
            "error_code" / ErrorCode16,
            "partition" / PartitionIndex,
            "leader_id" / Int32sb,
            "leader_epoch" / Int32sb @ default(-1),
            "replica_nodes" / array_of(Int32sb),
            "isr_nodes" / array_of(Int32sb),
            "eligible_leader_replicas" / array_of(Int32sb, is_nullable=True),
            "last_known_elr" / array_of(Int32sb, is_nullable=True),
            "offline_replicas" / array_of(Int32sb)),
        "topic_authorized_operations" / Int32sb @ default(-(2**31))),
    "next_cursor" / CURSOR,
    flexible=0,
)  # fmt: skip


def failed_metadata(body: Any, version: int, answer: Any) -> Any:
    """A topic that was named by its id has an empty name, also in the versions that allow null."""
    return answer._replace(topics=[topic._replace(name=topic.name or "") for topic in answer.topics])
