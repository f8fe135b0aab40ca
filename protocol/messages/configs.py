"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and of the broker.

A resource is of type 2 (a topic) or 4 (a broker by its id, or every broker: the empty name).
"""

from __future__ import annotations

from minibroker.protocol.primitives import (
    Boolean,
    ErrorCode16,
    ErrorMessage,
    Int8sb,
    Int32sb,
    NullableString,
    ResourceName,
    ResourceType8,
    String,
)
from minibroker.protocol.schema import array, array_of, since, until, versions

DescribeConfigsRequest = versions("DescribeConfigsRequest", 0, 4,
    "resources" / array(
        "resource_type" / ResourceType8,
        "resource_name" / ResourceName,
        "configuration_keys" / array_of(String, is_nullable=True)),  # null: all
    "include_synonyms" / Boolean @ since(1, default=False),
    "include_documentation" / Boolean @ since(3, default=False),
    flexible=4,
)  # fmt: skip

DescribeConfigsResponse = versions("DescribeConfigsResponse", 0, 4,
    "throttle_time_ms" / Int32sb,
    "results" / array(
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage,
        "resource_type" / ResourceType8,
        "resource_name" / ResourceName,
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
                "source" / Int8sb) @ since(1, default=()),
            "config_type" / Int8sb @ since(3, default=0),      # 0 unknown, 1 boolean, 2 string, 3 int ...
            "documentation" / NullableString @ since(3, default=None))),
    flexible=4,
)  # fmt: skip

AlterConfigsRequest = versions("AlterConfigsRequest", 0, 2,
    "resources" / array(
        "resource_type" / ResourceType8,
        "resource_name" / ResourceName,
        "configs" / array(                                     # the new configs; all others are unset
            "name" / String,
            "value" / NullableString)),
    "validate_only" / Boolean,
    flexible=2,
)  # fmt: skip

AlterConfigsResponse = versions("AlterConfigsResponse", 0, 2,
    "throttle_time_ms" / Int32sb,
    "responses" / array(
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage,
        "resource_type" / ResourceType8,
        "resource_name" / ResourceName),
    flexible=2,
)  # fmt: skip

ListConfigResourcesRequest = versions("ListConfigResourcesRequest", 0, 1,
    "resource_types" / array_of(Int8sb) @ since(1, default=()),  # none: all; v0: client metrics
    flexible=0,
)  # fmt: skip

ListConfigResourcesResponse = versions("ListConfigResourcesResponse", 0, 1,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "config_resources" / array(
        "resource_name" / ResourceName,
        "resource_type" / ResourceType8 @ since(1, default=16)),
    flexible=0,
)  # fmt: skip

IncrementalAlterConfigsRequest = versions("IncrementalAlterConfigsRequest", 0, 1,
    "resources" / array(
        "resource_type" / ResourceType8,
        "resource_name" / ResourceName,
        "configs" / array(
            "name" / String,
            "operation" / Int8sb,                              # 0 set, 1 delete, 2 append, 3 subtract
            "value" / NullableString)),
    "validate_only" / Boolean,
    flexible=1,
)  # fmt: skip

IncrementalAlterConfigsResponse = versions("IncrementalAlterConfigsResponse", 0, 1,
    "throttle_time_ms" / Int32sb,
    "responses" / array(
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage,
        "resource_type" / ResourceType8,
        "resource_name" / ResourceName),
    flexible=1,
)  # fmt: skip
