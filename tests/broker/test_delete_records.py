"""DeleteRecords with followers: the low watermark, and waiting for it. As kafka 2.0.1 DelayedDeleteRecords."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import FOLLOWER, assign, follow, park

THREE = [b"a", b"b", b"c"]
TIMEOUT_MS = 2000


async def delete(broker: InMemoryBroker, *offsets: tuple[str, int, int]) -> list[tuple[int, int]]:
    """Delete in (topic, partition) below an offset; each row's error and low watermark."""
    topics = [(topic, [(partition, offset)]) for topic, partition, offset in offsets]
    body: Any = await broker.call(ApiKey.DELETE_RECORDS, 1, topics=topics, timeout_ms=TIMEOUT_MS)
    return [(row.error_code, row.low_watermark) for topic in body.topics for row in topic.partitions]


@pytest.fixture
async def cluster(make_broker: MakeBroker) -> InMemoryBroker:
    """A broker that takes every other for alive, with three records that a follower has too."""
    broker = make_broker()
    broker.parts.replica_manager.is_alive = lambda broker_id: True
    await assign(broker, "t", [0, FOLLOWER])
    await broker.produce("t", THREE)
    await follow(broker, "t", 3)
    return broker


async def test_a_follower_that_is_not_up_is_not_waited_for(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)
    await follow(broker, "t", 3)

    with trio.fail_after(0):
        assert await delete(broker, ("t", 0, 2)) == [(ErrorCode.NONE, 2)]


async def test_a_live_follower_is_waited_for_until_its_log_begins_there(
    cluster: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    waiting = await park(nursery, delete, cluster, ("t", 0, 2))

    await follow(cluster, "t", 3, log_start_offset=1)
    not_yet = await waiting.seen()
    await follow(cluster, "t", 3, log_start_offset=2)

    assert not_yet is None
    assert await waiting.seen() == [(ErrorCode.NONE, 2)]
    assert cluster.log_of("t").log_start_offset == 2


async def test_the_timeout_tells_how_far_all_are(cluster: InMemoryBroker, autojump_clock: MockClock) -> None:
    await follow(cluster, "t", 3, log_start_offset=1)
    began = trio.current_time()

    rows = await delete(cluster, ("t", 0, -1))

    assert rows == [(ErrorCode.REQUEST_TIMED_OUT, 1)]
    assert TIMEOUT_MS <= (trio.current_time() - began) * 1000 <= TIMEOUT_MS + 100


async def test_one_partition_that_fails_does_not_cut_the_wait_for_another(
    cluster: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    waiting = await park(nursery, delete, cluster, ("nope", 0, 0), ("t", 0, 3))

    await follow(cluster, "t", 3, log_start_offset=3)

    assert await waiting.seen() == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (ErrorCode.NONE, 3)]


async def test_a_topic_that_is_deleted_ends_the_wait(
    cluster: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    waiting = await park(nursery, delete, cluster, ("t", 0, 2))

    await cluster.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)

    assert await waiting.seen() == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


async def test_internal_topics_keep_their_records(broker: InMemoryBroker) -> None:
    await broker.create_topic("__consumer_offsets")

    assert await delete(broker, ("__consumer_offsets", 0, 0)) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]


async def test_an_offset_below_zero_is_out_of_range_whatever_the_policy(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", cleanup_policy="compact")

    assert await delete(broker, ("t", 0, -2)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert await delete(broker, ("t", 0, 0)) == [(ErrorCode.POLICY_VIOLATION, -1)]
