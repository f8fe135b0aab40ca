"""Transactions and producers, as a cluster answers."""

from __future__ import annotations

from typing import NamedTuple

from minibroker.client.topic_partition import TopicPartition


class Listed(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


class Described(NamedTuple):
    """`started` is in ms since 1970; None without an open transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started: int | None
    coordinator: int
    partitions: list[TopicPartition]


class ActiveProducer(NamedTuple):
    """`last_timestamp` is in ms since 1970, `transaction_start` the first offset of an open transaction; or None."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int | None
    coordinator_epoch: int
    transaction_start: int | None
