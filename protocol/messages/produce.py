"""Produce: appending records."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.messages.current_leaders import CurrentLeader, NodeEndpoints
from minibroker.protocol.primitives import (
    ErrorCode16,
    ErrorMessage,
    Int16sb,
    Int32sb,
    Int64sb,
    NullableString,
    NullableTransactionalId,
    PartitionIndex,
    Records,
    TopicName,
)
from minibroker.protocol.schema import array, default, id_since, since, tagged, versions

# v0, v1 carry magic 0 · v2 magic 1 · v3 and later one record batch of magic 2 a partition · v7 may carry zstd · v11 and
# v12 as v10
ProduceRequest = versions("ProduceRequest", 0, 13,
    "transactional_id" / NullableTransactionalId @ since(3, default=None),
    "acks" / Int16sb,                                          # -1 all in-sync replicas, 0 none and no answer, 1
    "timeout_ms" / Int32sb,
    "topics" / array(
        "topic" / TopicName @ id_since(13),
        "partitions" / array(
            "partition" / PartitionIndex,
            "records" / Records)),
    flexible=9,
)  # fmt: skip

ProduceResponse = versions("ProduceResponse", 0, 13,
    "topics" / array(
        "topic" / TopicName @ id_since(13),
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16,
            "base_offset" / Int64sb @ default(-1),
            "log_append_time_ms" / Int64sb @ since(2, default=-1),
            "log_start_offset" / Int64sb @ since(5, default=-1),
            "record_errors" / array(
                "batch_index" / Int32sb,
                "batch_index_error_message" / NullableString) @ since(8, default=()),
            "error_message" / ErrorMessage @ since(8, default=None),
            "current_leader" / CurrentLeader @ tagged(0, since=10))),
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "node_endpoints" / NodeEndpoints @ tagged(0, since=10),    # of the current leaders
    flexible=9,
)  # fmt: skip


def failed_produce(body: Any, version: int, answer: Any) -> Any:
    """A request with acks=0 has no answer, not even if it fails."""
    return None if body.acks == 0 else answer
