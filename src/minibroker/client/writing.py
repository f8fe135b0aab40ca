"""Appends records with acks=all: a batch to a partition, at its leader, wherever that is by now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from minibroker.client.client import RETRY_SECONDS, Client
from minibroker.client.errors import ELSEWHERE, check
from minibroker.client.topic_partition import TopicPartition
from minibroker.client.transactions import Transactions
from minibroker.protocol.api import ASKED_TABLE, ApiKey
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch

ANSWER_MS = 15_000
ALL_IN_SYNC = -1
FIRST_WITH_MAGIC_2 = 3  # of Produce, in Kafka 0.11


class Place(NamedTuple):
    """The place of a record, and its time there in ms since 1970."""

    partition: int
    offset: int
    timestamp_ms: int


def append(
    client: Client,
    at: TopicPartition,
    records: Sequence[Record],
    codec: Codec = Codec.NONE,
    transactions: Transactions | None = None,
) -> list[Place]:
    """Append one batch, whose records have the offsets 0, 1, ...; nothing is sent twice that may have been written.

    With `transactions`, it belongs to the one that is open there. Raises KafkaError, also for headers where the broker
    has none, and ClientError.
    """
    marks = {} if transactions is None else transactions.add(client, at, len(records))
    data = encoded(client, records, codec, **marks)
    transactional_id = None if transactions is None else transactions.transactional_id
    row = ASKED_TABLE[ApiKey.PRODUCE].request.row
    topics = [row("topics")(at.topic, [row("topics.partitions")(at.partition, data)])]
    deadline = time.monotonic() + ANSWER_MS / 1000
    while True:
        leader = client.leaders([at.topic]).get(at, -1)
        code, message = int(ErrorCode.LEADER_NOT_AVAILABLE), None
        if leader >= 0:
            answer = client.ask(
                ApiKey.PRODUCE,
                broker=leader,
                transactional_id=transactional_id,
                acks=ALL_IN_SYNC,
                timeout_ms=ANSWER_MS,
                topics=topics,
            )
            (appended,) = answer.topics[0].partitions
            code, message = appended.error_code, appended.error_message
        if code not in ELSEWHERE or time.monotonic() > deadline:
            check(code, message)
            break
        time.sleep(RETRY_SECONDS)
    appended_ms = appended.log_append_time_ms
    return [
        Place(at.partition, appended.base_offset + number, each.timestamp_ms if appended_ms < 0 else appended_ms)
        for number, each in enumerate(records)
    ]


def encoded(client: Client, records: Sequence[Record], codec: Codec, **marks: Any) -> bytes:
    """A batch with the marks of a producer, or for Kafka 0.10 a message set. Raises KafkaError for its headers."""
    if client.version_of(ApiKey.PRODUCE) >= FIRST_WITH_MAGIC_2:
        return bytes(build_batch(records, codec=codec, **marks))
    if any(record.headers for record in records):
        raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "records have headers since Kafka 0.11")
    return bytes(build_message_set(records, magic=1, codec=codec))
