"""Helpers of tests of requests: answers row by row, how long one took, and what is on the disk."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import trio

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.conftest import NOW_MS, InMemoryBroker

UNLIMITED = 1 << 20
LONG_MS = 60_000
TOPIC, BROKER = 2, 4  # types of resources that have configs


def rows(answer: Any) -> list[tuple[str, Any]]:
    """Every partition of an answer, in its order, with its topic."""
    return [(topic.topic, row) for topic in answer.topics for row in topic.partitions]


def row_of(answer: Any) -> Any:
    """The only partition of an answer."""
    ((_, row),) = rows(answer)
    return row


def codes(answer: Any) -> list[int]:
    return [row.error_code for _, row in rows(answer)]


def sizes(answer: Any) -> list[int]:
    return [len(row.records) for _, row in rows(answer)]


async def seconds(waiting: Awaitable[Any]) -> tuple[float, Any]:
    """How long it took by trio's clock, and what came."""
    started = trio.current_time()
    answer = await waiting
    return trio.current_time() - started, answer


async def fill(broker: InMemoryBroker, topic: str, *, partition: int = 0, batches: int = 1, size: int = 100) -> int:
    """Write batches of one record; the bytes of one batch."""
    for _ in range(batches):
        answer = await broker.produce(topic, [b"x" * size], partition=partition)
        assert answer.error_code == 0, answer
    return len(batch_of(b"x" * size))


def batch_of(value: bytes = b"v", *, key: bytes | None = None, **options: Any) -> bytearray:
    """A batch of one record; `options` are those of `build_batch`."""
    return build_batch([Record(0, NOW_MS, key, value, ())], **options)


async def described(broker: InMemoryBroker, kind: int, name: str, *keys: str, version: int = 1, **more: Any) -> Any:
    """The configs of a topic or broker by name, all unless `keys` are given."""
    answer = await broker.call(ApiKey.DESCRIBE_CONFIGS, version, resources=[(kind, name, list(keys) or None)], **more)
    assert answer.results[0].error_code == ErrorCode.NONE, answer
    return {row.name: row for row in answer.results[0].configs}


def on_disk(broker: InMemoryBroker, topic: str, partition: int = 0) -> bytes:
    """All bytes of a partition's log."""
    return b"".join(segment.path.read_bytes() for segment in broker.log_of(topic, partition).segments)


def magics(data: bytes) -> list[int]:
    """The format of each batch or message that begins in these bytes and tells it."""
    found, position = [], 0
    while position + 17 <= len(data):
        found.append(data[position + 16])
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found
