"""DescribeAcls, CreateAcls and DeleteAcls: the rules of the authorizer.

Resource types, pattern types, operations and permissions are Kafka's numbers (`protocol/rights.py`). Before v1 every
pattern is literal.
"""

from __future__ import annotations

from minibroker.protocol.primitives import ErrorCode16, ErrorMessage, Int8sb, Int32sb, NullableString, String
from minibroker.protocol.schema import array, since, versions

LITERAL = 3

DescribeAclsRequest = versions("DescribeAclsRequest", 0, 3,
    "resource_type_filter" / Int8sb,                           # 1 any
    "resource_name_filter" / NullableString,                   # null: any, and so on
    "pattern_type_filter" / Int8sb @ since(1, default=LITERAL),
    "principal_filter" / NullableString,
    "host_filter" / NullableString,
    "operation" / Int8sb,                                      # 1 any
    "permission_type" / Int8sb,                                # 1 any
    flexible=2,
)  # fmt: skip

DescribeAclsResponse = versions("DescribeAclsResponse", 0, 3,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "resources" / array(
        "resource_type" / Int8sb,
        "resource_name" / String,
        "pattern_type" / Int8sb @ since(1, default=LITERAL),
        "acls" / array(
            "principal" / String,
            "host" / String,
            "operation" / Int8sb,
            "permission_type" / Int8sb)),
    flexible=2,
)  # fmt: skip

CreateAclsRequest = versions("CreateAclsRequest", 0, 3,
    "creations" / array(
        "resource_type" / Int8sb,
        "resource_name" / String,
        "resource_pattern_type" / Int8sb @ since(1, default=LITERAL),
        "principal" / String,
        "host" / String,
        "operation" / Int8sb,
        "permission_type" / Int8sb),
    flexible=2,
)  # fmt: skip

CreateAclsResponse = versions("CreateAclsResponse", 0, 3,
    "throttle_time_ms" / Int32sb,
    "results" / array(                                         # in the order of the creations
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage),
    flexible=2,
)  # fmt: skip

DeleteAclsRequest = versions("DeleteAclsRequest", 0, 3,
    "filters" / array(
        "resource_type_filter" / Int8sb,
        "resource_name_filter" / NullableString,
        "pattern_type_filter" / Int8sb @ since(1, default=LITERAL),
        "principal_filter" / NullableString,
        "host_filter" / NullableString,
        "operation" / Int8sb,
        "permission_type" / Int8sb),
    flexible=2,
)  # fmt: skip

DeleteAclsResponse = versions("DeleteAclsResponse", 0, 3,
    "throttle_time_ms" / Int32sb,
    "filter_results" / array(                                  # in the order of the filters
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage,
        "matching_acls" / array(
            "error_code" / ErrorCode16,
            "error_message" / ErrorMessage,
            "resource_type" / Int8sb,
            "resource_name" / String,
            "pattern_type" / Int8sb @ since(1, default=LITERAL),
            "principal" / String,
            "host" / String,
            "operation" / Int8sb,
            "permission_type" / Int8sb)),
    flexible=2,
)  # fmt: skip
