"""The records of `__transaction_state`, as Apache Kafka 2.0.1 writes and reads them.

    key: version: int16 = 0 | transactional id: string
    value: version: int16 = 0 | producer id: int64 | producer epoch: int16 | timeout: int32 | status: int8
           | null, or topics: [name: string | partitions: [int32]] | last update: int64 | start: int64

The newest record of a transactional id is its state; a record without a value deletes it. The partitions are null
exactly in the status 0, Empty, which is how Kafka reads them too.

The state of a client of transactions v2 (KIP-890) has value version 1, as Apache Kafka 4.4.0 writes it: with tagged
fields, which kafka 2.0.1 cannot read. That of other clients keeps version 0, so that their log can go back to 2.0.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from minibroker.protocol.compression import corrupt
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.primitives import Int8sb, Int16sb, Int32sb, Int64sb, String, TopicPartition
from minibroker.protocol.schema import Message, array_of, nullable_array, tagged, versions

EMPTY_STATUS = 0
EPOCHS_PER_TRANSACTION = 2  # the version of transactions that has an epoch for each: transactions v2

_version = struct.Struct(">h")

TransactionLogKey = versions("TransactionLogKey", 0, 0,
    "transactional_id" / String,
)  # fmt: skip

TransactionLogValue = versions("TransactionLogValue", 0, 1,
    "producer_id" / Int64sb,
    "previous_producer_id" / Int64sb @ tagged(0, since=1, default=-1),
    "next_producer_id" / Int64sb @ tagged(1, since=1, default=-1),
    "producer_epoch" / Int16sb,
    "next_producer_epoch" / Int16sb @ tagged(3, since=1, default=-1),  # of two-phase commits, which are not here
    "timeout_ms" / Int32sb,
    "status" / Int8sb,
    "topics" / nullable_array(
        "name" / String,
        "partitions" / array_of(Int32sb)),
    "last_update_ms" / Int64sb,
    "start_ms" / Int64sb,
    "client_transaction_version" / Int16sb @ tagged(2, since=1, default=0),
    flexible=1,
)  # fmt: skip


class TransactionRecord(NamedTuple):
    """The stored state of a transactional id. Times are of the wall clock, -1 for no start."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int  # kafka's number of the state
    partitions: frozenset[TopicPartition]
    last_update_ms: int
    start_ms: int
    client_version: int = 0  # of transactions
    previous_producer_id: int = -1
    next_producer_id: int = -1


def encode_key(transactional_id: str) -> bytes:
    return _encode(TransactionLogKey, 0, TransactionLogKey(transactional_id=transactional_id))


def encode_value(record: TransactionRecord) -> bytes:
    topics = None if record.status == EMPTY_STATUS else by_topic(record.partitions)
    row = TransactionLogValue(
        producer_id=record.producer_id,
        previous_producer_id=record.previous_producer_id,
        next_producer_id=record.next_producer_id,
        producer_epoch=record.producer_epoch,
        timeout_ms=record.timeout_ms,
        status=record.status,
        topics=topics,
        last_update_ms=record.last_update_ms,
        start_ms=record.start_ms,
        client_transaction_version=record.client_version,
    )
    return _encode(TransactionLogValue, 1 if record.client_version >= EPOCHS_PER_TRANSACTION else 0, row)


def decode_key(key: bytes) -> str:
    """The transactional id. Raises KafkaError(CORRUPT_MESSAGE) for any other key, also of a later Kafka."""
    transactional_id: str = _decode(TransactionLogKey, key).transactional_id
    return transactional_id


def decode_value(value: bytes) -> TransactionRecord:
    """Raises KafkaError(CORRUPT_MESSAGE) likewise."""
    row = _decode(TransactionLogValue, value)
    partitions = frozenset(
        TopicPartition(topic.name, partition) for topic in row.topics or () for partition in topic.partitions
    )
    return TransactionRecord(
        row.producer_id,
        row.producer_epoch,
        row.timeout_ms,
        row.status,
        partitions,
        row.last_update_ms,
        row.start_ms,
        row.client_transaction_version,
        row.previous_producer_id,
        row.next_producer_id,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Partitions as messages have them, sorted: the numbers under each topic's name."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _encode(message: Message, version: int, row: Any) -> bytes:
    return _version.pack(version) + b"".join(message.encode(version, row))


def _decode(message: Message, data: bytes) -> Any:
    try:
        (version,) = _version.unpack_from(data)
        row, end = message.decode(version, data, _version.size)
    except (struct.error, KafkaProtocolError) as error:
        raise corrupt(f"{len(data)} bytes are not a {message.name}: {error}") from None
    if end != len(data):
        raise corrupt(f"{len(data) - end} bytes behind a {message.name}")
    return row
