"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and of the broker.

A resource is of type 2 (a topic) or 4 (a broker by its id, or every broker: the empty name).
"""

from __future__ import annotations

from typing import Any

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


def failed_describe_configs(body: Any, version: int, answer: Any) -> Any:
    """The versions of kafka 2.0.1, v0 to v2, do not repeat the type of a resource that is not known."""
    return answer._replace(results=list(map(with_known_type, answer.results))) if version <= 2 else answer


def failed_alter_configs(body: Any, version: int, answer: Any) -> Any:
    """The versions of kafka 2.0.1, v0 and v1, do not repeat the type of a resource that is not known."""
    return answer._replace(responses=list(map(with_known_type, answer.responses))) if version <= 1 else answer


def with_known_type(row: Any) -> Any:
    return row if row.resource_type in (2, 4) else row._replace(resource_type=0)
