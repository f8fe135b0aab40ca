"""The APIs of exactly-once producers: their identities, their transactions, and the state of both.

InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers; DescribeProducers,
DescribeTransactions, ListTransactions.
"""

from __future__ import annotations

from typing import Any

from minibroker.protocol.primitives import (
    Boolean,
    ErrorCode16,
    ErrorMessage,
    GroupId,
    Int8sb,
    Int16sb,
    Int32sb,
    Int64sb,
    NullableString,
    NullableTransactionalId,
    PartitionIndex,
    ProducerId,
    String,
    TopicName,
    TransactionalId,
)
from minibroker.protocol.schema import array, array_of, default, id_since, since, until, versions

InitProducerIdRequest = versions("InitProducerIdRequest", 0, 6,
    "transactional_id" / NullableTransactionalId,
    "transaction_timeout_ms" / Int32sb,
    "producer_id" / ProducerId @ since(3, default=-1),         # of a producer that goes on after an error
    "producer_epoch" / Int16sb @ since(3, default=-1),
    "enable_2pc" / Boolean @ since(6),                         # a two-phase commit: the transaction has no timeout
    "keep_prepared_txn" / Boolean @ since(6),                  # do not abort the transaction that is open
    flexible=2,
)  # fmt: skip

InitProducerIdResponse = versions("InitProducerIdResponse", 0, 6,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "producer_id" / ProducerId @ default(-1),
    "producer_epoch" / Int16sb @ default(-1),
    "ongoing_txn_producer_id" / ProducerId @ since(6, default=-1),
    "ongoing_txn_producer_epoch" / Int16sb @ since(6, default=-1),
    flexible=2,
)  # fmt: skip

# Clients send up to v3, of one transaction; brokers v4 and later, of several.
AddPartitionsToTxnRequest = versions("AddPartitionsToTxnRequest", 0, 5,
    "transactions" / array(
        "transactional_id" / TransactionalId,
        "producer_id" / ProducerId,
        "producer_epoch" / Int16sb,
        "verify_only" / Boolean,                               # add nothing: are they in the transaction?
        "topics" / array(
            "name" / TopicName,
            "partitions" / array_of(PartitionIndex))) @ since(4),
    "transactional_id" / TransactionalId @ until(3),
    "producer_id" / ProducerId @ until(3),
    "producer_epoch" / Int16sb @ until(3),
    "topics" / array(
        "name" / TopicName,
        "partitions" / array_of(PartitionIndex)) @ until(3),
    flexible=3,
)  # fmt: skip

AddPartitionsToTxnResponse = versions("AddPartitionsToTxnResponse", 0, 5,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16 @ since(4),
    "transactions" / array(
        "transactional_id" / TransactionalId,
        "topics" / array(
            "name" / TopicName,
            "partitions" / array(
                "partition" / PartitionIndex,
                "error_code" / ErrorCode16))) @ since(4),
    "topics" / array(
        "name" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16)) @ until(3),
    flexible=3,
)  # fmt: skip

AddOffsetsToTxnRequest = versions("AddOffsetsToTxnRequest", 0, 4,
    "transactional_id" / TransactionalId,
    "producer_id" / ProducerId,
    "producer_epoch" / Int16sb,
    "group_id" / GroupId,
    flexible=3,
)  # fmt: skip

AddOffsetsToTxnResponse = versions("AddOffsetsToTxnResponse", 0, 4,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    flexible=3,
)  # fmt: skip

TxnOffsetCommitRequest = versions("TxnOffsetCommitRequest", 0, 6,
    "transactional_id" / TransactionalId,
    "group_id" / GroupId,
    "producer_id" / ProducerId,
    "producer_epoch" / Int16sb,
    "generation_id" / Int32sb @ since(3, default=-1),
    "member_id" / String @ since(3, default=""),
    "group_instance_id" / NullableString @ since(3, default=None),
    "topics" / array(
        "name" / TopicName @ id_since(6),
        "partitions" / array(
            "partition" / PartitionIndex,
            "offset" / Int64sb,
            "leader_epoch" / Int32sb @ since(2, default=-1),
            "metadata" / NullableString)),
    flexible=3,
)  # fmt: skip

TxnOffsetCommitResponse = versions("TxnOffsetCommitResponse", 0, 6,
    "throttle_time_ms" / Int32sb,
    "topics" / array(
        "name" / TopicName @ id_since(6),
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16)),
    flexible=3,
)  # fmt: skip

EndTxnRequest = versions("EndTxnRequest", 0, 5,
    "transactional_id" / TransactionalId,
    "producer_id" / ProducerId,
    "producer_epoch" / Int16sb,
    "is_commit" / Boolean,
    flexible=3,
)  # fmt: skip

EndTxnResponse = versions("EndTxnResponse", 0, 5,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "producer_id" / ProducerId @ since(5, default=-1),         # of the next transaction, with the epoch
    "producer_epoch" / Int16sb @ since(5, default=-1),
    flexible=3,
)  # fmt: skip

WriteTxnMarkersRequest = versions("WriteTxnMarkersRequest", 0, 2,
    "markers" / array(
        "producer_id" / ProducerId,
        "producer_epoch" / Int16sb,
        "is_commit" / Boolean,
        "topics" / array(
            "name" / TopicName,
            "partitions" / array_of(PartitionIndex)),
        "coordinator_epoch" / Int32sb,
        "transaction_version" / Int8sb @ since(2, default=0)),
    flexible=1,
)  # fmt: skip

WriteTxnMarkersResponse = versions("WriteTxnMarkersResponse", 0, 2,
    "markers" / array(
        "producer_id" / ProducerId,
        "topics" / array(
            "name" / TopicName,
            "partitions" / array(
                "partition" / PartitionIndex,
                "error_code" / ErrorCode16))),
    flexible=1,
)  # fmt: skip

DescribeProducersRequest = versions("DescribeProducersRequest", 0, 0,
    "topics" / array(
        "name" / TopicName,
        "partitions" / array_of(PartitionIndex)),
    flexible=0,
)  # fmt: skip

DescribeProducersResponse = versions("DescribeProducersResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "topics" / array(
        "name" / TopicName,
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16,
            "error_message" / ErrorMessage,
            "active_producers" / array(
                "producer_id" / ProducerId,
                "producer_epoch" / Int32sb,
                "last_sequence" / Int32sb,
                "last_timestamp" / Int64sb,
                "coordinator_epoch" / Int32sb,
                "current_txn_start_offset" / Int64sb))),
    flexible=0,
)  # fmt: skip

DescribeTransactionsRequest = versions("DescribeTransactionsRequest", 0, 0,
    "transactional_ids" / array_of(TransactionalId),
    flexible=0,
)  # fmt: skip

DescribeTransactionsResponse = versions("DescribeTransactionsResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "transactions" / array(
        "error_code" / ErrorCode16,
        "transactional_id" / TransactionalId,
        "state" / String,
        "timeout_ms" / Int32sb,
        "start_time_ms" / Int64sb,
        "producer_id" / ProducerId,
        "producer_epoch" / Int16sb,
        "topics" / array(
            "name" / TopicName,
            "partitions" / array_of(PartitionIndex))),
    flexible=0,
)  # fmt: skip

ListTransactionsRequest = versions("ListTransactionsRequest", 0, 2,
    "state_filters" / array_of(String),                        # none: all
    "producer_id_filters" / array_of(ProducerId),              # none: all
    "duration_filter_ms" / Int64sb @ since(1, default=-1),     # those that are open for longer; below 0: all
    "transactional_id_pattern" / NullableString @ since(2),    # null or empty: all
    flexible=0,
)  # fmt: skip

ListTransactionsResponse = versions("ListTransactionsResponse", 0, 2,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "unknown_state_filters" / array_of(String),
    "transactions" / array(
        "transactional_id" / TransactionalId,
        "producer_id" / ProducerId,
        "state" / String),
    flexible=0,
)  # fmt: skip


def failed_init_producer_id(body: Any, version: int, answer: Any) -> Any:
    """The versions of kafka 2.0.1, v0 and v1, have epoch 0, later ones -1."""
    return answer._replace(producer_epoch=0) if version <= 1 else answer
