"""CreateTopics, DeleteTopics, DeleteRecords and DescribeConfigs: what an administrator asks for."""

from __future__ import annotations

from minibroker.protocol.primitives import Boolean, Int8sb, Int16sb, Int32sb, Int64sb, NullableString, String
from minibroker.protocol.schema import array, array_of, since, until, versions

CreateTopicsRequest = versions("CreateTopicsRequest", 0, 4,
    "topics" / array(
        "name" / String,
        "num_partitions" / Int32sb,                            # -1 with assignments; from v4: the broker's default
        "replication_factor" / Int16sb,                        # -1 likewise
        "assignments" / array(
            "partition" / Int32sb,
            "broker_ids" / array_of(Int32sb)),
        "configs" / array(
            "name" / String,
            "value" / NullableString)),
    "timeout_ms" / Int32sb,
    "validate_only" / Boolean @ since(1, default=False),
)  # fmt: skip

CreateTopicsResponse = versions("CreateTopicsResponse", 0, 4,
    "throttle_time_ms" / Int32sb @ since(2, default=0),
    "topics" / array(
        "name" / String,
        "error_code" / Int16sb,
        "error_message" / NullableString @ since(1, default=None)),
)  # fmt: skip

DeleteTopicsRequest = versions("DeleteTopicsRequest", 0, 3,
    "topic_names" / array_of(String),
    "timeout_ms" / Int32sb,
)  # fmt: skip

DeleteTopicsResponse = versions("DeleteTopicsResponse", 0, 3,
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "topics" / array(
        "name" / String,
        "error_code" / Int16sb),
)  # fmt: skip

DeleteRecordsRequest = versions("DeleteRecordsRequest", 0, 1,
    "topics" / array(
        "name" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "offset" / Int64sb)),                              # -1: the high watermark
    "timeout_ms" / Int32sb,
)  # fmt: skip

DeleteRecordsResponse = versions("DeleteRecordsResponse", 0, 1,
    "throttle_time_ms" / Int32sb,
    "topics" / array(
        "name" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "low_watermark" / Int64sb,
            "error_code" / Int16sb)),
)  # fmt: skip

DescribeConfigsRequest = versions("DescribeConfigsRequest", 0, 2,
    "resources" / array(
        "resource_type" / Int8sb,                              # 2 topic, 4 broker
        "resource_name" / String,
        "configuration_keys" / array_of(String, is_nullable=True)),  # null: all
    "include_synonyms" / Boolean @ since(1, default=False),
)  # fmt: skip

DescribeConfigsResponse = versions("DescribeConfigsResponse", 0, 2,
    "throttle_time_ms" / Int32sb,
    "results" / array(
        "error_code" / Int16sb,
        "error_message" / NullableString,
        "resource_type" / Int8sb,
        "resource_name" / String,
        "configs" / array(
            "name" / String,
            "value" / NullableString,
            "read_only" / Boolean,
            "is_default" / Boolean @ until(0, default=False),
            "config_source" / Int8sb @ since(1, default=-1),
            "is_sensitive" / Boolean,
            "synonyms" / array(
                "name" / String,
                "value" / NullableString,
                "source" / Int8sb) @ since(1, default=()))),
)  # fmt: skip
