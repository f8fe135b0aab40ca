"""Produce: what is written."""

from __future__ import annotations

from minibroker.protocol.primitives import Int16sb, Int32sb, Int64sb, NullableString, Records, String
from minibroker.protocol.schema import array, since, versions

# v0, v1 carry magic 0 · v2 magic 1 · v3 and later one record batch of magic 2 a partition · v7 may carry zstd
ProduceRequest = versions("ProduceRequest", 0, 9,
    "transactional_id" / NullableString @ since(3, default=None),
    "acks" / Int16sb,                                          # -1 all in-sync replicas, 0 none and no answer, 1
    "timeout_ms" / Int32sb,
    "topics" / array(
        "topic" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "records" / Records)),
    flexible=9,
)  # fmt: skip

ProduceResponse = versions("ProduceResponse", 0, 9,
    "topics" / array(
        "topic" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "error_code" / Int16sb,
            "base_offset" / Int64sb,
            "log_append_time_ms" / Int64sb @ since(2, default=-1),
            "log_start_offset" / Int64sb @ since(5, default=-1),
            "record_errors" / array(
                "batch_index" / Int32sb,
                "batch_index_error_message" / NullableString) @ since(8, default=()),
            "error_message" / NullableString @ since(8, default=None))),
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    flexible=9,
)  # fmt: skip
