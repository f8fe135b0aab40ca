"""What makes writing exactly-once: a producer's identity, its transactions, and what is known of both.

InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers; DescribeProducers,
DescribeTransactions, ListTransactions.
"""

from __future__ import annotations

from minibroker.protocol.primitives import Boolean, Int16sb, Int32sb, Int64sb, NullableString, String
from minibroker.protocol.schema import array, array_of, since, versions

InitProducerIdRequest = versions("InitProducerIdRequest", 0, 4,
    "transactional_id" / NullableString,
    "transaction_timeout_ms" / Int32sb,
    "producer_id" / Int64sb @ since(3, default=-1),            # of a producer that wants to go on after an error
    "producer_epoch" / Int16sb @ since(3, default=-1),
    flexible=2,
)  # fmt: skip

InitProducerIdResponse = versions("InitProducerIdResponse", 0, 4,
    "throttle_time_ms" / Int32sb @ since(0, default=0),
    "error_code" / Int16sb,
    "producer_id" / Int64sb @ since(0, default=-1),
    "producer_epoch" / Int16sb @ since(0, default=-1),
    flexible=2,
)  # fmt: skip

AddPartitionsToTxnRequest = versions("AddPartitionsToTxnRequest", 0, 3,
    "transactional_id" / String,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "topics" / array(
        "name" / String,
        "partitions" / array_of(Int32sb)),
    flexible=3,
)  # fmt: skip

AddPartitionsToTxnResponse = versions("AddPartitionsToTxnResponse", 0, 3,
    "throttle_time_ms" / Int32sb,
    "topics" / array(
        "name" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "error_code" / Int16sb)),
    flexible=3,
)  # fmt: skip

AddOffsetsToTxnRequest = versions("AddOffsetsToTxnRequest", 0, 3,
    "transactional_id" / String,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "group_id" / String,
    flexible=3,
)  # fmt: skip

AddOffsetsToTxnResponse = versions("AddOffsetsToTxnResponse", 0, 3,
    "throttle_time_ms" / Int32sb,
    "error_code" / Int16sb,
    flexible=3,
)  # fmt: skip

TxnOffsetCommitRequest = versions("TxnOffsetCommitRequest", 0, 3,
    "transactional_id" / String,
    "group_id" / String,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "generation_id" / Int32sb @ since(3, default=-1),
    "member_id" / String @ since(3, default=""),
    "group_instance_id" / NullableString @ since(3, default=None),
    "topics" / array(
        "name" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "offset" / Int64sb,
            "leader_epoch" / Int32sb @ since(2, default=-1),
            "metadata" / NullableString)),
    flexible=3,
)  # fmt: skip

TxnOffsetCommitResponse = versions("TxnOffsetCommitResponse", 0, 3,
    "throttle_time_ms" / Int32sb,
    "topics" / array(
        "name" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "error_code" / Int16sb)),
    flexible=3,
)  # fmt: skip

EndTxnRequest = versions("EndTxnRequest", 0, 3,
    "transactional_id" / String,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "is_commit" / Boolean,
    flexible=3,
)  # fmt: skip

EndTxnResponse = versions("EndTxnResponse", 0, 3,
    "throttle_time_ms" / Int32sb,
    "error_code" / Int16sb,
    flexible=3,
)  # fmt: skip

WriteTxnMarkersRequest = versions("WriteTxnMarkersRequest", 0, 1,
    "markers" / array(
        "producer_id" / Int64sb,
        "producer_epoch" / Int16sb,
        "is_commit" / Boolean,
        "topics" / array(
            "name" / String,
            "partitions" / array_of(Int32sb)),
        "coordinator_epoch" / Int32sb),
    flexible=1,
)  # fmt: skip

WriteTxnMarkersResponse = versions("WriteTxnMarkersResponse", 0, 1,
    "markers" / array(
        "producer_id" / Int64sb,
        "topics" / array(
            "name" / String,
            "partitions" / array(
                "partition" / Int32sb,
                "error_code" / Int16sb))),
    flexible=1,
)  # fmt: skip

DescribeProducersRequest = versions("DescribeProducersRequest", 0, 0,
    "topics" / array(
        "name" / String,
        "partitions" / array_of(Int32sb)),
    flexible=0,
)  # fmt: skip

DescribeProducersResponse = versions("DescribeProducersResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "topics" / array(
        "name" / String,
        "partitions" / array(
            "partition" / Int32sb,
            "error_code" / Int16sb,
            "error_message" / NullableString,
            "active_producers" / array(
                "producer_id" / Int64sb,
                "producer_epoch" / Int32sb,
                "last_sequence" / Int32sb,
                "last_timestamp" / Int64sb,
                "coordinator_epoch" / Int32sb,
                "current_txn_start_offset" / Int64sb))),
    flexible=0,
)  # fmt: skip

DescribeTransactionsRequest = versions("DescribeTransactionsRequest", 0, 0,
    "transactional_ids" / array_of(String),
    flexible=0,
)  # fmt: skip

DescribeTransactionsResponse = versions("DescribeTransactionsResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "transactions" / array(
        "error_code" / Int16sb,
        "transactional_id" / String,
        "state" / String,
        "timeout_ms" / Int32sb,
        "start_time_ms" / Int64sb,
        "producer_id" / Int64sb,
        "producer_epoch" / Int16sb,
        "topics" / array(
            "name" / String,
            "partitions" / array_of(Int32sb))),
    flexible=0,
)  # fmt: skip

ListTransactionsRequest = versions("ListTransactionsRequest", 0, 0,
    "state_filters" / array_of(String),                        # none: all
    "producer_id_filters" / array_of(Int64sb),                 # none: all
    flexible=0,
)  # fmt: skip

ListTransactionsResponse = versions("ListTransactionsResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "error_code" / Int16sb,
    "unknown_state_filters" / array_of(String),
    "transactions" / array(
        "transactional_id" / String,
        "producer_id" / Int64sb,
        "state" / String),
    flexible=0,
)  # fmt: skip
