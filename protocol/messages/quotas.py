"""DescribeClientQuotas and AlterClientQuotas: the quotas of users and client ids (KIP-546)."""

from __future__ import annotations

from minibroker.protocol.primitives import (
    Boolean,
    ErrorCode16,
    ErrorMessage,
    Float64,
    Int8sb,
    Int32sb,
    Meaning,
    NullableString,
    Semantic,
    String,
)
from minibroker.protocol.schema import array, nullable_array, versions

# A list of types, each with a name, or null for the default: ("user", "ann"), ("client-id", None).
ClientEntity = Semantic(
    array(
        "entity_type" / String,
        "entity_name" / NullableString),
    Meaning.CLIENT_ENTITY,
)  # fmt: skip

DescribeClientQuotasRequest = versions("DescribeClientQuotasRequest", 0, 1,
    "components" / array(
        "entity_type" / String,
        "match_type" / Int8sb,                                 # 0 exactly `match`, 1 the default, 2 any name
        "match" / NullableString),
    "strict" / Boolean,                                        # no entities with other types than these
    flexible=1,
)  # fmt: skip

DescribeClientQuotasResponse = versions("DescribeClientQuotasResponse", 0, 1,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "entries" / nullable_array(                                # null with an error
        "entity" / ClientEntity,
        "values" / array(
            "key" / String,
            "value" / Float64)),
    flexible=1,
)  # fmt: skip

AlterClientQuotasRequest = versions("AlterClientQuotasRequest", 0, 1,
    "entries" / array(
        "entity" / ClientEntity,
        "ops" / array(
            "key" / String,
            "value" / Float64,
            "remove" / Boolean)),
    "validate_only" / Boolean,
    flexible=1,
)  # fmt: skip

AlterClientQuotasResponse = versions("AlterClientQuotasResponse", 0, 1,
    "throttle_time_ms" / Int32sb,
    "entries" / array(
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage,
        "entity" / ClientEntity),
    flexible=1,
)  # fmt: skip
