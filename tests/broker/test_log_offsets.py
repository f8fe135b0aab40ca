"""ListOffsets, as fetch-path rows 74-77 of kafka 2.0.1 have it, and the largest timestamp of later versions."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.conftest import NOW_MS, InMemoryBroker

MAX_TIMESTAMP = -3


@pytest.mark.parametrize("version", range(1, 8))
async def test_list_offsets_by_time_latest_and_earliest(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a", b"b"])

    offsets = []
    for timestamp in (-2, -1, NOW_MS, NOW_MS + 1):
        answer = await broker.call(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=[("t", [(0, -1, timestamp, 1)])])
        offsets.append(answer.topics[0].partitions[0].offset)

    assert offsets == [0, 2, 0, -1]


async def test_a_partition_listed_twice_is_an_invalid_request(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    answer = await broker.call(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[("t", [(0, -1, -1, 1), (0, -1, -2, 1)])])

    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}


async def produce_at(broker: Any, *times_ms: int, codec: Codec = Codec.NONE) -> None:
    batch = build_batch([Record(offset, time_ms, None, b"v") for offset, time_ms in enumerate(times_ms)], codec=codec)
    await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=[("t", [(0, batch)])])


async def of_max_timestamp(broker: Any, version: int = 7) -> tuple[int, int]:
    answer = await broker.call(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=[("t", [(0, -1, MAX_TIMESTAMP, 1)])])
    ((row,),) = (topic.partitions for topic in answer.topics)
    assert row.error_code == ErrorCode.NONE
    return row.offset, row.timestamp


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_the_largest_timestamp_is_that_of_the_first_of_the_youngest_records(
    broker: InMemoryBroker, codec: Codec
) -> None:
    await broker.create_topic("t", segment_bytes=100)
    for times_ms in ((5, 7, 6), (9, 30, 20, 30), (30,), (8,)):
        await produce_at(broker, *(NOW_MS + each for each in times_ms), codec=codec)

    assert len(broker.log_of("t").segments) > 1
    assert await of_max_timestamp(broker) == (4, NOW_MS + 30)


async def test_an_empty_log_has_no_largest_timestamp(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    assert await of_max_timestamp(broker) == (-1, -1)
    assert broker.log_of("t").fetch_offset_of_max_timestamp() is None


async def test_before_version_7_the_sentinel_is_a_time_like_others(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    await produce_at(broker, NOW_MS, NOW_MS + 5)

    assert await of_max_timestamp(broker, version=6) == (0, NOW_MS)


async def test_records_without_timestamps_have_no_largest_one(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", message_format_version="0.9.0")

    answer = await broker.call(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[("t", [(0, -1, MAX_TIMESTAMP, 1)])])

    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
