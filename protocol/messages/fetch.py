"""Fetch, ListOffsets and OffsetForLeaderEpoch: reading records, and finding offsets."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.messages.current_leaders import CurrentLeader, NodeEndpoints
from minibroker.protocol.primitives import (
    ErrorCode16,
    Int32sb,
    Int64sb,
    IsolationLevel8,
    PartitionIndex,
    ProducerId,
    Records,
    String,
    TopicName,
)
from minibroker.protocol.schema import (
    array,
    array_of,
    default,
    id_since,
    nullable_array,
    row,
    since,
    tagged,
    until,
    versions,
)

# v1 and v2 as v0 (v2 may be answered with magic 1) · v6 knows KAFKA_STORAGE_ERROR · v8 is throttled after the response
# · v10 knows zstd · v13 to v18 as v12, apart from the fields
FetchRequest = versions("FetchRequest", 0, 18,
    "replica_id" / Int32sb @ until(14, default=-1),            # -1 for a consumer
    "max_wait_ms" / Int32sb,
    "min_bytes" / Int32sb,
    "max_bytes" / Int32sb @ since(3, default=2**31 - 1),       # of the whole response
    "isolation_level" / IsolationLevel8 @ since(4, default=0),  # 0 read_uncommitted, 1 read_committed
    "session_id" / Int32sb @ since(7, default=0),
    "session_epoch" / Int32sb @ since(7, default=-1),
    "topics" / array(
        "topic" / TopicName @ id_since(13),
        "partitions" / array(
            "partition" / PartitionIndex,
            "current_leader_epoch" / Int32sb @ since(9, default=-1),  # that the client knows; -1 for none
            "fetch_offset" / Int64sb,
            "last_fetched_epoch" / Int32sb @ since(12, default=-1),  # of the record before the fetch offset
            "log_start_offset" / Int64sb @ since(5, default=-1),  # a follower's own
            "max_bytes" / Int32sb)),
    "forgotten_topics" / array(
        "topic" / TopicName @ id_since(13),
        "partitions" / array_of(PartitionIndex)) @ since(7, default=()),
    "rack_id" / String @ since(11, default=""),
    "replica_state" / row(                                     # of a follower
        "replica_id" / Int32sb @ default(-1),
        "replica_epoch" / Int64sb @ default(-1)) @ tagged(1, since=15),
    flexible=12,
)  # fmt: skip

FetchResponse = versions("FetchResponse", 0, 18,
    "throttle_time_ms" / Int32sb @ since(1, default=0),
    "error_code" / ErrorCode16 @ since(7, default=0),
    "session_id" / Int32sb @ since(7, default=0),
    "topics" / array(
        "topic" / TopicName @ id_since(13),
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16,
            "high_watermark" / Int64sb @ default(-1),
            "last_stable_offset" / Int64sb @ since(4, default=-1),
            "log_start_offset" / Int64sb @ since(5, default=-1),
            "aborted_transactions" / nullable_array(
                "producer_id" / ProducerId,
                "first_offset" / Int64sb) @ since(4, default=None),
            "preferred_read_replica" / Int32sb @ since(11, default=-1),
            "records" / Records @ default(b""),
            "diverging_epoch" / row(                           # where the reader's log diverges from this one
                "epoch" / Int32sb,
                "end_offset" / Int64sb) @ tagged(0, since=12),
            "current_leader" / CurrentLeader @ tagged(1, since=12))),
    "node_endpoints" / NodeEndpoints @ tagged(0, since=16),    # of the current leaders
    flexible=12,
)  # fmt: skip


def rows_once(body: Any) -> Any:
    """A Fetch that names each partition once: the answer to a failed one has a row for each, neighbours together."""
    make = FetchRequest.row("topics")
    once = {(name, asked.partition): asked for name, partitions in body.topics for asked in partitions}
    topics: list[Any] = []
    for (name, _), asked in once.items():
        if not topics or topics[-1][0] != name:
            topics.append(make(name, []))
        topics[-1][1].append(asked)
    return body._replace(topics=topics)


def replica_id_of(body: Any) -> int:
    """The follower that a Fetch is of, -1 for a consumer."""
    state = body.replica_state
    replica_id: int = body.replica_id if state is None else state.replica_id
    return replica_id


ListOffsetsRequest = versions("ListOffsetsRequest", 0, 11,
    "replica_id" / Int32sb,
    "isolation_level" / IsolationLevel8 @ since(2, default=0),
    "topics" / array(
        "topic" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "current_leader_epoch" / Int32sb @ since(4, default=-1),
            "timestamp" / Int64sb,                             # below 0: those of `apis/log_offsets.py`
            "max_num_offsets" / Int32sb @ until(0, default=1))),
    "timeout_ms" / Int32sb @ since(10, default=0),             # for reads of tiered storage
    flexible=6,
)  # fmt: skip

ListOffsetsResponse = versions("ListOffsetsResponse", 0, 11,
    "throttle_time_ms" / Int32sb @ since(2, default=0),
    "topics" / array(
        "topic" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16,
            "old_style_offsets" / array_of(Int64sb) @ until(0, default=()),
            "timestamp" / Int64sb @ since(1, default=-1),
            "offset" / Int64sb @ since(1, default=-1),
            "leader_epoch" / Int32sb @ since(4, default=-1))),
    flexible=6,
)  # fmt: skip

OffsetForLeaderEpochRequest = versions("OffsetForLeaderEpochRequest", 0, 4,
    "replica_id" / Int32sb @ since(3, default=-2),
    "topics" / array(
        "topic" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "current_leader_epoch" / Int32sb @ since(2, default=-1),
            "leader_epoch" / Int32sb)),                        # find the end of this one
    flexible=4,
)  # fmt: skip

OffsetForLeaderEpochResponse = versions("OffsetForLeaderEpochResponse", 0, 4,
    "throttle_time_ms" / Int32sb @ since(2, default=0),
    "topics" / array(
        "topic" / TopicName,
        "partitions" / array(
            "error_code" / ErrorCode16,
            "partition" / PartitionIndex,
            "leader_epoch" / Int32sb @ since(1, default=-1),
            "end_offset" / Int64sb @ default(-1))),
    flexible=4,
)  # fmt: skip
