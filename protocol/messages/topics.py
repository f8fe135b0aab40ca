"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords: topic administration."""

from __future__ import annotations

from minibroker.protocol.primitives import (
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
    since,
    tagged,
    until,
    versions,
)

CreateTopicsRequest = versions("CreateTopicsRequest", 0, 7,
    "topics" / array(
        "name" / TopicName,
        "num_partitions" / Int32sb,                            # -1 with assignments; from v4: the broker's default
        "replication_factor" / Int16sb,                        # -1 likewise
        "assignments" / array(
            "partition" / PartitionIndex,
            "broker_ids" / array_of(Int32sb)),
        "configs" / array(
            "name" / String,
            "value" / NullableString)),
    "timeout_ms" / Int32sb,
    "validate_only" / Boolean @ since(1, default=False),
    flexible=5,
)  # fmt: skip

CreateTopicsResponse = versions("CreateTopicsResponse", 0, 7,
    "throttle_time_ms" / Int32sb @ since(2, default=0),
    "topics" / array(
        "name" / TopicName,
        "topic_id" / TopicId @ since(7),
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage @ since(1, default=None),
        "num_partitions" / Int32sb @ since(5, default=-1),     # -1 with an error, as what follows
        "replication_factor" / Int16sb @ since(5, default=-1),
        "configs" / nullable_array(
            "name" / String,
            "value" / NullableString,
            "read_only" / Boolean,
            "config_source" / Int8sb,
            "is_sensitive" / Boolean) @ since(5, default=()),
        "topic_config_error_code" / Int16sb @ tagged(0, since=5)),  # why there are no configs
    flexible=5,
)  # fmt: skip

DeleteTopicsRequest = versions("DeleteTopicsRequest", 0, 6,
    "topics" / array(
        "name" / NullableTopicName @ null_since(6),            # or null, and the id
        "topic_id" / TopicId) @ since(6),
    "topic_names" / array_of(TopicName) @ until(5),
    "timeout_ms" / Int32sb,
    flexible=4,
)  # fmt: skip

DeleteTopicsResponse = versions("DeleteTopicsResponse", 0, 6,
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "topics" / array(
        "name" / NullableTopicName @ null_since(6),            # for an unknown id
        "topic_id" / TopicId @ since(6),
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage @ since(5, default=None)),
    flexible=4,
)  # fmt: skip

CreatePartitionsRequest = versions("CreatePartitionsRequest", 0, 3,
    "topics" / array(
        "name" / TopicName,
        "count" / Int32sb,                                     # the new number of partitions, the old ones included
        "assignments" / nullable_array(                        # of the new ones only; null leaves it to the broker
            "broker_ids" / array_of(Int32sb))),
    "timeout_ms" / Int32sb,
    "validate_only" / Boolean,
    flexible=2,
)  # fmt: skip

CreatePartitionsResponse = versions("CreatePartitionsResponse", 0, 3,
    "throttle_time_ms" / Int32sb,
    "results" / array(
        "name" / TopicName,
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage),
    flexible=2,
)  # fmt: skip

DeleteRecordsRequest = versions("DeleteRecordsRequest", 0, 2,
    "topics" / array(
        "name" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "offset" / Int64sb)),                              # -1: the high watermark
    "timeout_ms" / Int32sb,
    flexible=2,
)  # fmt: skip

DeleteRecordsResponse = versions("DeleteRecordsResponse", 0, 2,
    "throttle_time_ms" / Int32sb,
    "topics" / array(
        "name" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "low_watermark" / Int64sb @ default(-1),
            "error_code" / ErrorCode16)),
    flexible=2,
)  # fmt: skip
