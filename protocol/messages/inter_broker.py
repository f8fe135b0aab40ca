"""The APIs with which a controller leads brokers, and a broker announces its end: in the versions of kafka 2.0.1.

LeaderAndIsr, StopReplica, UpdateMetadata; ControlledShutdown. Brokers do not ask each other for ApiVersions:
inter.broker.protocol.version decides on the versions.
"""

from __future__ import annotations

from minibroker.protocol.primitives import (
    Boolean,
    ErrorCode16,
    Int16sb,
    Int32sb,
    NullableString,
    PartitionIndex,
    String,
    TopicName,
)
from minibroker.protocol.schema import array, array_of, since, until, versions

LeaderAndIsrRequest = versions("LeaderAndIsrRequest", 0, 1,
    "controller_id" / Int32sb,
    "controller_epoch" / Int32sb,
    "partition_states" / array(
        "topic_name" / TopicName,
        "partition" / PartitionIndex,
        "controller_epoch" / Int32sb,                          # of the controller that decided this state
        "leader" / Int32sb,                                    # -1: none
        "leader_epoch" / Int32sb,
        "isr" / array_of(Int32sb),
        "state_version" / Int32sb,                             # of the partition's node in ZooKeeper
        "replicas" / array_of(Int32sb),
        "is_new" / Boolean @ since(1)),                        # this replica has had no log
    "live_leaders" / array(
        "broker_id" / Int32sb,
        "host" / String,
        "port" / Int32sb),
)  # fmt: skip

LeaderAndIsrResponse = versions("LeaderAndIsrResponse", 0, 1,
    "error_code" / ErrorCode16,
    "partition_errors" / array(
        "topic_name" / TopicName,
        "partition" / PartitionIndex,
        "error_code" / ErrorCode16),
)  # fmt: skip

StopReplicaRequest = versions("StopReplicaRequest", 0, 0,
    "controller_id" / Int32sb,
    "controller_epoch" / Int32sb,
    "delete_partitions" / Boolean,
    "partitions" / array(
        "topic_name" / TopicName,
        "partition" / PartitionIndex),
)  # fmt: skip

StopReplicaResponse = versions("StopReplicaResponse", 0, 0,
    "error_code" / ErrorCode16,
    "partition_errors" / array(
        "topic_name" / TopicName,
        "partition" / PartitionIndex,
        "error_code" / ErrorCode16),
)  # fmt: skip

UpdateMetadataRequest = versions("UpdateMetadataRequest", 0, 4,
    "controller_id" / Int32sb,
    "controller_epoch" / Int32sb,
    "partition_states" / array(
        "topic_name" / TopicName,
        "partition" / PartitionIndex,
        "controller_epoch" / Int32sb,
        "leader" / Int32sb,                                    # -1: none; -2: the topic is being deleted
        "leader_epoch" / Int32sb,
        "isr" / array_of(Int32sb),
        "state_version" / Int32sb,
        "replicas" / array_of(Int32sb),
        "offline_replicas" / array_of(Int32sb) @ since(4)),
    "live_brokers" / array(
        "broker_id" / Int32sb,
        "host" / String @ until(0),
        "port" / Int32sb @ until(0),
        "endpoints" / array(
            "port" / Int32sb,
            "host" / String,
            "listener" / String @ since(3),                    # the name of the security protocol before v3
            "security_protocol" / Int16sb) @ since(1),
        "rack" / NullableString @ since(2)),
)  # fmt: skip

UpdateMetadataResponse = versions("UpdateMetadataResponse", 0, 4,
    "error_code" / ErrorCode16,
)  # fmt: skip

ControlledShutdownRequest = versions("ControlledShutdownRequest", 0, 1,
    "broker_id" / Int32sb,
)  # fmt: skip

ControlledShutdownResponse = versions("ControlledShutdownResponse", 0, 1,
    "error_code" / ErrorCode16,
    "remaining_partitions" / array(                            # those that the broker leads still
        "topic_name" / TopicName,
        "partition" / PartitionIndex),
)  # fmt: skip
