"""Rows 1-20 of kafka 2.0.1's fetch path: how far it is read, what is an error, what never waits.

Each test names its row. Sizes are bytes; every batch of a test has the same size. Time is jumped.
"""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.asking import LONG_MS, codes, fill, magics, on_disk, row_of, rows, seconds, sizes
from tests.broker.conftest import InMemoryBroker
from tests.broker.scripted_follower import assign, follow

pytestmark = pytest.mark.time_jumps

OLD_FORMAT: dict[str, Any] = {"message_format_version": "0.9.0"}  # what v0-v2 read without conversion
FIRST_VERSION_WITH_STORAGE_ERROR = 6
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def starts(partitions: int) -> list[tuple[str, int, int]]:
    """The starts of that many partitions of "t"."""
    return [("t", partition, 0) for partition in range(partitions)]


@pytest.mark.parametrize("version", range(13))
async def test_row_01_one_broker_gives_the_records_in_every_version(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a", b"b"])

    row = row_of(await broker.fetch(("t", 0, 0), version=version))

    assert (row.error_code, row.high_watermark) == (ErrorCode.NONE, 2)
    assert b"a" in bytes(row.records) and b"b" in bytes(row.records)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_row_02_row_06_old_versions_only_limit_partitions(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", 3, **OLD_FORMAT)
    for partition in range(3):
        await fill(broker, "t", partition=partition, size=1000)

    whole = await broker.fetch(*starts(3), version=version, max_bytes=1)
    parts = await broker.fetch(*starts(3), version=version, max_partition_bytes=100)

    stored = [on_disk(broker, "t", partition) for partition in range(3)]
    assert [bytes(row.records) for _, row in rows(whole)] == stored
    assert [bytes(row.records) for _, row in rows(parts)] == [each[:100] for each in stored]


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", [3, 4, 8, 12])
async def test_row_03_the_first_partition_that_has_anything_may_exceed_both_limits_and_no_other(
    broker: InMemoryBroker, version: int, isolation_level: int
) -> None:
    await broker.create_topic("t", 3, message_format_version="0.10.0")
    for partition in (1, 2):
        await fill(broker, "t", partition=partition, size=1000)

    limits = {"max_bytes": 10, "max_partition_bytes": 10}
    answer = await broker.fetch(*starts(3), version=version, isolation_level=isolation_level, **limits)

    assert sizes(answer) == [0, len(on_disk(broker, "t", 1)), 0]


@pytest.mark.parametrize("version", [4, 8, 12])
@pytest.mark.parametrize(
    ("batches", "whole", "each", "expected"),
    [
        pytest.param([4, 4, 4], 2.6, 1.5, [1.5, 1.1, 0], id="a partition gets its limit or what is left of the whole"),
        pytest.param([1, 1], 0.1, 9, [1, 0], id="after an oversize batch nothing is left and not less than nothing"),
        pytest.param([3], 9, 1.01, [1.01], id="a read is cut at the byte"),
        pytest.param([3], 9, 2.99, [2.99], id="a read is cut at the last byte"),
        pytest.param([2, 2], 2.99, 9, [2, 0], id="instead of a part of the first batch there is nothing"),
        pytest.param([10], 90, 7, [7], id="as many batches as the limit has room for come in one answer"),
    ],
)
async def test_row_04_row_05_row_06_row_07_limits(
    broker: InMemoryBroker, version: int, batches: list[int], whole: float, each: float, expected: list[float]
) -> None:
    """Limits and sizes are in batches, of 1000 bytes each."""
    await broker.create_topic("t", len(batches))
    for partition, count in enumerate(batches):
        batch = await fill(broker, "t", partition=partition, batches=count, size=1000 - 70)
    limits = {"max_bytes": int(whole * 1000), "max_partition_bytes": int(each * 1000)}

    answer = await broker.fetch(*starts(len(batches)), version=version, **limits)

    assert batch == 1000
    assert sizes(answer) == [round(share * 1000) for share in expected]
    assert codes(answer) == [ErrorCode.NONE] * len(batches)
    records = bytes(answer.topics[0].partitions[0].records)
    assert records == on_disk(broker, "t")[: len(records)]
    assert set(magics(records)) == {2}


@pytest.mark.parametrize("version", [5, 8, 12])
async def test_row_08_every_partition_is_answered_though_no_byte_is_left(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", 3)
    for partition in range(3):
        await fill(broker, "t", partition=partition, batches=partition + 2)
    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("t", [(2, 3)])], timeout_ms=1000)

    answer = await broker.fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 3), version=version, max_bytes=1, isolation_level=1)

    facts = [(row.high_watermark, row.last_stable_offset, row.log_start_offset) for _, row in rows(answer)]
    assert facts == [(2, 2, 0), (3, 3, 0), (4, 4, 3)]
    assert [size > 0 for size in sizes(answer)] == [True, False, False]


async def test_row_09_what_is_not_in_the_metadata_is_unknown_at_once_and_uses_no_limit(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t", batches=2)

    took, alone = await seconds(broker.fetch(("nope", 0, 0), ("t", 1, 0), ("t", -1, 0), max_wait_ms=LONG_MS))
    beside = await broker.fetch(("nope", 0, 0), ("t", 0, 0), max_bytes=2 * batch)

    assert (took, codes(alone)) == (0, [UNKNOWN] * 3)
    assert [(name, len(row.records)) for name, row in rows(beside)] == [("t", 2 * batch), ("nope", 0)]


async def test_row_10_an_unknown_partition_does_not_cut_the_wait_of_the_others(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    took, answer = await seconds(broker.fetch(("nope", 0, 0), ("t", 0, 0), max_wait_ms=500))

    assert took == pytest.approx(0.5, abs=0.01)
    assert [name for name, _ in rows(answer)] == ["t", "nope"]


@pytest.mark.parametrize("version", [0, 4, 8, 12])
async def test_row_11_unknown_partitions_come_last_in_the_order_asked(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("a", 3)
    await broker.create_topic("b")
    asked = [("nope", 0), ("a", 2), ("b", 0), ("a", 9), ("a", 0), ("b", 1)]

    answer = await broker.fetch(*((*place, 0) for place in asked), version=version)

    known, unknown = [("a", 2), ("b", 0), ("a", 0)], [("nope", 0), ("a", 9), ("b", 1)]
    assert [(name, row.partition) for name, row in rows(answer)] == known + unknown


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("place", [("nope", 0, 0), ("t", 0, 5)], ids=["unknown", "out of range"])
async def test_row_12_an_error_has_no_offsets_no_aborted_list_and_no_records(
    broker: InMemoryBroker, isolation_level: int, place: tuple[str, int, int]
) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a"])

    row = row_of(await broker.fetch(place, isolation_level=isolation_level))

    assert row.error_code != ErrorCode.NONE
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (-1, -1, -1)
    assert (row.aborted_transactions, bytes(row.records)) == (None, b"")


@pytest.mark.parametrize("version", range(13))
async def test_row_15_row_16_a_failed_disk_is_not_an_unknown_partition(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a"])
    broker.parts.replica_manager.log_manager.go_offline("a test")

    told = codes(await broker.fetch(("t", 0, 0), ("t", 1, 0), ("nope", 0, 0), version=version))

    knows_it = version >= FIRST_VERSION_WITH_STORAGE_ERROR
    failed = ErrorCode.KAFKA_STORAGE_ERROR if knows_it else ErrorCode.NOT_LEADER_FOR_PARTITION
    assert told == [failed, UNKNOWN, UNKNOWN]


async def test_row_15_a_partition_without_a_leader_is_unknown(broker: InMemoryBroker) -> None:
    topic: tuple[Any, ...] = ("t", -1, -1, [(0, [7])], [])
    await broker.call(ApiKey.CREATE_TOPICS, 2, topics=[topic], timeout_ms=1000)

    assert codes(await broker.fetch(("t", 0, 0))) == [UNKNOWN]


async def test_row_17_offsets_from_the_start_to_the_end_are_in_range_and_no_others(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"x"] * 5)
    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("t", [(0, 2)])], timeout_ms=1000)

    told = {offset: codes(await broker.fetch(("t", 0, offset))) for offset in range(-1, 8)}

    outside = ErrorCode.OFFSET_OUT_OF_RANGE
    assert told == {offset: [ErrorCode.NONE if 2 <= offset <= 5 else outside] for offset in range(-1, 8)}


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_row_17_row_18_past_high_watermark_nothing_is_read(broker: InMemoryBroker, isolation_level: int) -> None:
    """A log that ends at 3 with its high watermark at 1: an in-sync follower has no more."""
    await assign(broker, "t", [0, 1])
    await broker.produce("t", [b"x"])
    await follow(broker, "t", 1)
    await broker.produce("t", [b"x", b"x"])
    await follow(broker, "t", 1)

    told = [row_of(await broker.fetch(("t", 0, each), isolation_level=isolation_level)) for each in (1, 2, 3, 4)]

    facts = [(row.error_code, row.high_watermark, bytes(row.records)) for row in told]
    assert facts == [*[(ErrorCode.NONE, 1, b"")] * 3, (ErrorCode.OFFSET_OUT_OF_RANGE, -1, b"")]


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize(
    ("places", "options"),
    [
        pytest.param([("t", 0, 0), ("t", 1, 99)], {}, id="an error of one partition"),
        pytest.param([("t", 0, 0)], {"max_wait_ms": 0}, id="no wait"),
        pytest.param([("t", 0, 0)], {"max_wait_ms": -1}, id="less than no wait"),
        pytest.param([("t", 1, 0)], {"min_bytes": 0}, id="nothing is enough"),
        pytest.param([("t", 1, 0)], {"min_bytes": -1}, id="less than nothing is enough"),
        pytest.param([], {}, id="no partition"),
    ],
)
async def test_row_19_row_20_what_is_answered_at_once(
    broker: InMemoryBroker, places: list[tuple[str, int, int]], options: dict[str, int], isolation_level: int
) -> None:
    await broker.create_topic("t", 2)
    batch = await fill(broker, "t")

    limits = {"max_wait_ms": LONG_MS, "min_bytes": 10_000, "isolation_level": isolation_level, **options}
    took, answer = await seconds(broker.fetch(*places, **limits))

    assert (took, answer.error_code) == (0, ErrorCode.NONE)
    assert sizes(answer) == [batch if place[1:] == (0, 0) else 0 for place in places]
    assert broker.parts.replica_manager.fetch_purgatory.statistics().expired == 0


async def test_row_20_exactly_min_bytes_are_enough_and_one_less_is_not(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", 2)
    for partition in range(2):
        batch = await fill(broker, "t", partition=partition)

    enough, _ = await seconds(broker.fetch(*starts(2), min_bytes=2 * batch, max_wait_ms=500))
    too_little, _ = await seconds(broker.fetch(*starts(2), min_bytes=2 * batch + 1, max_wait_ms=500))

    assert enough == 0
    assert too_little == pytest.approx(0.5, abs=0.01)
