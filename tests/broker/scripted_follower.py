"""Followers that fetch when they are told to, on a broker without a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from minibroker.broker.replica.decisions import LeaderAndIsr, PartitionState
from minibroker.broker.replica.leading import Leading
from minibroker.conformance.requests import At
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.asking import rows
from tests.broker.conftest import InMemoryBroker
from tests.requests import by_name

LEADER, FOLLOWER = 0, 1


class Answer(NamedTuple):
    """The answer to a follower's fetch of one partition."""

    error: ErrorCode
    high_watermark: int
    records: bytes


async def assign(broker: InMemoryBroker, name: str, *replicas: Sequence[int], **configs: object) -> None:
    """Create a topic with the brokers of each partition."""
    given = [(key.replace("_", "."), str(value)) for key, value in configs.items()]
    topic = (name, -1, -1, list(enumerate(replicas)), given)
    answer = await broker.call(ApiKey.CREATE_TOPICS, 2, topics=[topic], timeout_ms=1000)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer


def answers(body: Any) -> list[Answer]:
    return [Answer(ErrorCode(row.error_code), row.high_watermark, bytes(row.records)) for _, row in rows(body)]


async def follow(
    broker: InMemoryBroker, topic: str, offset: int, *, partition: int = 0, replica: int = FOLLOWER, **options: Any
) -> Answer:
    """Fetch as the follower whose log ends at `offset`."""
    asked = At(topic, partition, offset, log_start_offset=options.pop("log_start_offset", 0))
    (answer,) = answers(await broker.fetch(asked, replica_id=replica, **options))
    return answer


async def consume(broker: InMemoryBroker, topic: str, offset: int, **options: Any) -> Answer:
    (answer,) = answers(await broker.fetch((topic, 0, offset), **options))
    return answer


async def in_sync(broker: InMemoryBroker, topic: str, partition: int = 0) -> list[int]:
    """The in-sync replicas as Metadata tells them."""
    body = await broker.call(ApiKey.METADATA, 5, topics=by_name(topic), allow_auto_topic_creation=False)
    return list(body.topics[0].partitions[partition].isr_nodes)


def partition_of(broker: InMemoryBroker, topic: str, partition: int = 0) -> Leading:
    found: Leading = broker.parts.replica_manager.partitions.led(TopicPartition(topic, partition))
    return found


def lead_elsewhere(broker: InMemoryBroker, topic: str, partition: int = 0) -> None:
    """Let a controller decide that broker 1 leads the partition."""
    lead(broker, TopicPartition(topic, partition), FOLLOWER, 9)


def lead(
    broker: InMemoryBroker, topic_partition: TopicPartition, leader: int, epoch: int, in_sync: Sequence[int] = ()
) -> None:
    decided = PartitionState(leader, epoch, tuple(in_sync) or (leader,), (LEADER, FOLLOWER))
    assert not broker.parts.own.obey(LeaderAndIsr(0, 1, {topic_partition: decided})).failures
