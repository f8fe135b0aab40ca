"""Followers that fetch when they are told to, on a broker without a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import trio
from trio.testing import wait_all_tasks_blocked

from minibroker.broker.replica.partition import Partition
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import InMemoryBroker, by_name

LEADER, FOLLOWER = 0, 1
MAX_BYTES = 1 << 20


class Answer(NamedTuple):
    """What a fetch was answered of one partition."""

    error: ErrorCode
    high_watermark: int
    records: bytes


async def assign(broker: InMemoryBroker, name: str, *replicas: Sequence[int], **configs: object) -> None:
    """Create a topic with the brokers of each partition."""
    rows = [(key.replace("_", "."), str(value)) for key, value in configs.items()]
    topic = (name, -1, -1, list(enumerate(replicas)), rows)
    answer = await broker.call(ApiKey.CREATE_TOPICS, 2, topics=[topic], timeout_ms=1000)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer


def answers(body: Any) -> list[Answer]:
    return [
        Answer(ErrorCode(row.error_code), row.high_watermark, bytes(row.records))
        for topic in body.topics
        for row in topic.partitions
    ]


async def follow(
    broker: InMemoryBroker,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    replica: int = FOLLOWER,
    log_start_offset: int = 0,
    **options: Any,
) -> Answer:
    """Fetch as the follower whose log ends at `offset`."""
    rows = [(topic, [wanted(partition, offset, log_start_offset)])]
    (answer,) = answers(await ask(broker, rows, replica_id=replica, **options))
    return answer


def wanted(partition: int, offset: int, log_start_offset: int = 0) -> Any:
    """What a follower asks of one partition."""
    make_row = API_TABLE[ApiKey.FETCH].request.row("topics.partitions")
    return make_row(partition=partition, fetch_offset=offset, log_start_offset=log_start_offset, max_bytes=MAX_BYTES)


async def ask(broker: InMemoryBroker, topics: Sequence[Any], **options: Any) -> Any:
    body = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, **options}
    return await broker.call(ApiKey.FETCH, 8, topics=topics, **body)


async def consume(broker: InMemoryBroker, topic: str, offset: int, **options: Any) -> Answer:
    (answer,) = answers(await broker.fetch((topic, 0, offset), **options))
    return answer


async def in_sync(broker: InMemoryBroker, topic: str, partition: int = 0) -> list[int]:
    """The in-sync replicas as Metadata tells them."""
    body = await broker.call(ApiKey.METADATA, 5, topics=by_name(topic), allow_auto_topic_creation=False)
    return list(body.topics[0].partitions[partition].isr_nodes)


def partition_of(broker: InMemoryBroker, topic: str, partition: int = 0) -> Partition:
    found: Partition = broker.parts.replica_manager.partitions[TopicPartition(topic, partition)]
    return found


class Parked:
    """A request that waits, in a task of its own."""

    def __init__(self) -> None:
        self._answers: list[Any] = []

    async def ask(self, ask: Any, args: Any, options: Any) -> None:
        self._answers.append(await ask(*args, **options))

    async def seen(self) -> Any:
        """The answer, None while it waits."""
        await wait_all_tasks_blocked()
        return self._answers[0] if self._answers else None


async def park(nursery: trio.Nursery, ask: Any, *args: Any, **options: Any) -> Parked:
    """Ask, and see that it waits."""
    parked = Parked()
    nursery.start_soon(parked.ask, ask, args, options)
    assert await parked.seen() is None
    return parked
