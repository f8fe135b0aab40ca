"""Fetch and ListOffsets: what is read, and from where."""

from __future__ import annotations

from minibroker.protocol.primitives import Int8sb, Int16sb, Int32sb, Int64sb, Records, String
from minibroker.protocol.schema import array, array_of, nullable_array, since, until, versions

# v1 and v2 as v0 (v2 may be answered with magic 1) · v6 knows KAFKA_STORAGE_ERROR · v8 is throttled after the response
FetchRequest = versions("FetchRequest", 0, 8,
    "replica_id" / Int32sb,                                    # -1 for a consumer
    "max_wait_ms" / Int32sb,
    "min_bytes" / Int32sb,
    "max_bytes" / Int32sb @ since(3, default=2**31 - 1),       # of the whole response
    "isolation_level" / Int8sb @ since(4, default=0),          # 0 read_uncommitted, 1 read_committed
    "session_id" / Int32sb @ since(7, default=0),
    "session_epoch" / Int32sb @ since(7, default=-1),
    "topics" / array(
        "topic" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "fetch_offset" / Int64sb,
            "log_start_offset" / Int64sb @ since(5, default=-1),  # a follower's own
            "max_bytes" / Int32sb)),
    "forgotten_topics" / array(
        "topic" / String,
        "partitions" / array_of(Int32sb)) @ since(7, default=()),
)  # fmt: skip

FetchResponse = versions("FetchResponse", 0, 8,
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "error_code" / Int16sb @ since(7, default=0),
    "session_id" / Int32sb @ since(7, default=0),
    "topics" / array(
        "topic" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "error_code" / Int16sb,
            "high_watermark" / Int64sb,
            "last_stable_offset" / Int64sb @ since(4, default=-1),
            "log_start_offset" / Int64sb @ since(5, default=-1),
            "aborted_transactions" / nullable_array(
                "producer_id" / Int64sb,
                "first_offset" / Int64sb) @ since(4, default=None),
            "records" / Records)),
)  # fmt: skip

ListOffsetsRequest = versions("ListOffsetsRequest", 0, 5,
    "replica_id" / Int32sb,
    "isolation_level" / Int8sb @ since(2, default=0),
    "topics" / array(
        "topic" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "current_leader_epoch" / Int32sb @ since(4, default=-1),
            "timestamp" / Int64sb,                             # -1 latest, -2 earliest
            "max_num_offsets" / Int32sb @ until(0, default=1))),
)  # fmt: skip

ListOffsetsResponse = versions("ListOffsetsResponse", 0, 5,
    "throttle_time_ms" / Int32sb @ since(2, default=0),
    "topics" / array(
        "topic" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "error_code" / Int16sb,
            "old_style_offsets" / array_of(Int64sb) @ until(0, default=()),
            "timestamp" / Int64sb @ since(1, default=-1),
            "offset" / Int64sb @ since(1, default=-1),
            "leader_epoch" / Int32sb @ since(4, default=-1))),
)  # fmt: skip
