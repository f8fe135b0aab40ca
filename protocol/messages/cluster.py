"""DescribeCluster, DescribeLogDirs, ElectLeaders and the like: the APIs about brokers and replicas."""

from __future__ import annotations

from minibroker.protocol.primitives import (
    Boolean,
    ErrorCode16,
    ErrorMessage,
    Int8sb,
    Int16ub,
    Int32sb,
    Int64sb,
    NullableString,
    PartitionIndex,
    String,
    TopicName,
    Uuid,
)
from minibroker.protocol.schema import array, array_of, default, nullable_array, since, versions

DescribeClusterRequest = versions("DescribeClusterRequest", 0, 2,
    "include_cluster_authorized_operations" / Boolean,
    "endpoint_type" / Int8sb @ since(1, default=1),            # 1 brokers, 2 controllers
    "include_fenced_brokers" / Boolean @ since(2, default=False),
    flexible=0,
)  # fmt: skip

DescribeClusterResponse = versions("DescribeClusterResponse", 0, 2,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "endpoint_type" / Int8sb @ since(1, default=1),
    "cluster_id" / String,
    "controller_id" / Int32sb @ default(-1),
    "brokers" / array(
        "broker_id" / Int32sb,
        "host" / String,
        "port" / Int32sb,
        "rack" / NullableString,
        "is_fenced" / Boolean @ since(2, default=False)),
    "cluster_authorized_operations" / Int32sb @ default(-(2**31)),
    flexible=0,
)  # fmt: skip

DescribeLogDirsRequest = versions("DescribeLogDirsRequest", 0, 5,
    "topics" / nullable_array(                                 # null: all
        "topic" / TopicName,
        "partitions" / array_of(PartitionIndex)),
    flexible=2,
)  # fmt: skip

DescribeLogDirsResponse = versions("DescribeLogDirsResponse", 0, 5,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16 @ since(3, default=0),
    "results" / array(
        "error_code" / ErrorCode16,
        "log_dir" / String,
        "topics" / array(
            "name" / TopicName,
            "partitions" / array(
                "partition" / PartitionIndex,
                "size_bytes" / Int64sb,
                "offset_lag" / Int64sb,
                "is_future_key" / Boolean)),
        "total_bytes" / Int64sb @ since(4, default=-1),        # of the file system; -1 unknown
        "usable_bytes" / Int64sb @ since(4, default=-1),
        "is_cordoned" / Boolean @ since(5, default=False)),
    flexible=2,
)  # fmt: skip

AlterReplicaLogDirsRequest = versions("AlterReplicaLogDirsRequest", 0, 2,
    "dirs" / array(
        "path" / String,
        "topics" / array(
            "name" / TopicName,
            "partitions" / array_of(PartitionIndex))),
    flexible=2,
)  # fmt: skip

AlterReplicaLogDirsResponse = versions("AlterReplicaLogDirsResponse", 0, 2,
    "throttle_time_ms" / Int32sb,
    "topics" / array(
        "name" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16)),
    flexible=2,
)  # fmt: skip

ElectLeadersRequest = versions("ElectLeadersRequest", 0, 2,
    "election_type" / Int8sb @ since(1, default=0),            # 0 preferred, 1 unclean
    "topic_partitions" / nullable_array(                       # null: all
        "topic" / TopicName,
        "partitions" / array_of(PartitionIndex)),
    "timeout_ms" / Int32sb,
    flexible=2,
)  # fmt: skip

ElectLeadersResponse = versions("ElectLeadersResponse", 0, 2,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16 @ since(1, default=0),
    "topics" / array(
        "topic" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16,
            "error_message" / ErrorMessage)),
    flexible=2,
)  # fmt: skip

AlterPartitionReassignmentsRequest = versions("AlterPartitionReassignmentsRequest", 0, 1,
    "timeout_ms" / Int32sb @ default(60_000),
    "allow_replication_factor_change" / Boolean @ since(1, default=True),
    "topics" / array(
        "name" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "replicas" / array_of(Int32sb, is_nullable=True))),  # null: cancel the reassignment
    flexible=0,
)  # fmt: skip

AlterPartitionReassignmentsResponse = versions("AlterPartitionReassignmentsResponse", 0, 1,
    "throttle_time_ms" / Int32sb,
    "allow_replication_factor_change" / Boolean @ since(1, default=True),
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "topics" / array(
        "name" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16,
            "error_message" / ErrorMessage)),
    flexible=0,
)  # fmt: skip

ListPartitionReassignmentsRequest = versions("ListPartitionReassignmentsRequest", 0, 0,
    "timeout_ms" / Int32sb,
    "topics" / nullable_array(                                 # null: all
        "name" / TopicName,
        "partitions" / array_of(PartitionIndex)),
    flexible=0,
)  # fmt: skip

ListPartitionReassignmentsResponse = versions("ListPartitionReassignmentsResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "topics" / array(
        "name" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "replicas" / array_of(Int32sb),
            "adding_replicas" / array_of(Int32sb),
            "removing_replicas" / array_of(Int32sb))),
    flexible=0,
)  # fmt: skip

REPLICA_STATES = array(
    "replica_id" / Int32sb,
    "replica_directory_id" / Uuid @ since(2),
    "log_end_offset" / Int64sb,
    "last_fetch_timestamp" / Int64sb @ since(1, default=-1),
    "last_caught_up_timestamp" / Int64sb @ since(1, default=-1),
)  # fmt: skip

# Only brokers without ZooKeeper have it: the quorum of their controllers.
DescribeQuorumRequest = versions("DescribeQuorumRequest", 0, 2,
    "topics" / array(
        "topic_name" / TopicName,
        "partitions" / array("partition_index" / Int32sb)),
    flexible=0,
)  # fmt: skip

DescribeQuorumResponse = versions("DescribeQuorumResponse", 0, 2,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage @ since(2),
    "topics" / array(
        "topic_name" / TopicName,
        "partitions" / array(
            "partition_index" / Int32sb,
            "error_code" / ErrorCode16,
            "error_message" / ErrorMessage @ since(2),
            "leader_id" / Int32sb,
            "leader_epoch" / Int32sb,
            "high_watermark" / Int64sb,
            "current_voters" / REPLICA_STATES,
            "observers" / REPLICA_STATES)),
    "nodes" / array(
        "node_id" / Int32sb,
        "listeners" / array(
            "name" / String,
            "host" / String,
            "port" / Int16ub)) @ since(2),
    flexible=0,
)  # fmt: skip
