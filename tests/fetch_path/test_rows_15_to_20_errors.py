"""Rows 15-20 of kafka 2.0.1's fetch path: what is an error, and what is answered without waiting. Time is jumped."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker
from tests.broker.scripted_follower import assign, follow
from tests.fetch_path.asking import LONG_MS, fetch_rows, fill, row_of, rows, seconds, sizes, wanted

FIRST_VERSION_WITH_STORAGE_ERROR = 6


def fail_the_disk(broker: InMemoryBroker) -> None:
    broker.parts.replica_manager.log_manager.go_offline("a test")


# -- rows 15 and 16: which error ------------------------------------------------------------------------------


async def test_row_15_a_partition_that_is_not_there_and_one_whose_disk_failed_are_told_apart(
    broker: InMemoryBroker,
) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a"])
    fail_the_disk(broker)

    answer = await broker.fetch(("t", 0, 0), ("t", 1, 0), ("nope", 0, 0))

    assert [row.error_code for _, row in rows(answer)] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_row_15_a_partition_that_nobody_leads_is_not_there(broker: InMemoryBroker) -> None:
    topic: tuple[Any, ...] = ("t", -1, -1, [(0, [7])], [])
    await broker.call(ApiKey.CREATE_TOPICS, 2, topics=[topic], timeout_ms=1000)

    assert row_of(await broker.fetch(("t", 0, 0))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(13))
async def test_row_16_clients_that_do_not_know_the_storage_error_are_told_to_look_for_another_leader(
    broker: InMemoryBroker, version: int
) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a"])
    fail_the_disk(broker)

    code = row_of(await broker.fetch(("t", 0, 0), version=version)).error_code

    knows_it = version >= FIRST_VERSION_WITH_STORAGE_ERROR
    assert code == (ErrorCode.KAFKA_STORAGE_ERROR if knows_it else ErrorCode.NOT_LEADER_FOR_PARTITION)


# -- rows 17 and 18: offsets ----------------------------------------------------------------------------------


async def test_row_17_offsets_from_the_start_to_the_end_are_in_range_and_no_others(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"x"] * 5)
    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("t", [(0, 2)])], timeout_ms=1000)

    codes = {offset: row_of(await broker.fetch(("t", 0, offset))).error_code for offset in range(-1, 8)}

    in_range = {offset for offset, code in codes.items() if code == ErrorCode.NONE}
    assert in_range == {2, 3, 4, 5}
    assert {code for offset, code in codes.items() if offset not in in_range} == {ErrorCode.OFFSET_OUT_OF_RANGE}


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_row_17_the_high_watermark_is_no_bound_of_the_range(broker: InMemoryBroker, isolation_level: int) -> None:
    await behind_the_end(broker)

    codes = [
        row_of(await broker.fetch(("t", 0, offset), isolation_level=isolation_level)).error_code for offset in (2, 3, 4)
    ]

    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("offset", [1, 2, 3])
async def test_row_18_between_the_high_watermark_and_the_end_there_is_nothing_and_no_error(
    broker: InMemoryBroker, isolation_level: int, offset: int
) -> None:
    await behind_the_end(broker)

    row = row_of(await broker.fetch(("t", 0, offset), isolation_level=isolation_level))

    assert (row.error_code, row.high_watermark, bytes(row.records)) == (ErrorCode.NONE, 1, b"")


async def behind_the_end(broker: InMemoryBroker) -> None:
    """A log that ends at 3 with its high watermark at 1: an in-sync follower has no more."""
    await assign(broker, "t", [0, 1])
    await broker.produce("t", [b"x"])
    await follow(broker, "t", 1)
    await broker.produce("t", [b"x", b"x"])
    await follow(broker, "t", 1)


# -- rows 19 and 20: no wait ----------------------------------------------------------------------------------


async def test_row_19_an_error_of_one_partition_ends_the_wait_for_min_bytes(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await broker.create_topic("t", 2)
    batch = await fill(broker, "t")

    took, answer = await seconds(broker.fetch(("t", 0, 0), ("t", 1, 99), min_bytes=10_000, max_wait_ms=LONG_MS))

    assert took == 0
    assert sizes(answer) == [batch, 0]


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("max_wait_ms", [0, -1])
async def test_row_20_who_will_not_wait_is_answered_at_once(
    broker: InMemoryBroker, autojump_clock: MockClock, max_wait_ms: int, isolation_level: int
) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t")

    asked = {"max_wait_ms": max_wait_ms, "min_bytes": 10_000, "isolation_level": isolation_level}
    took, answer = await seconds(broker.fetch(("t", 0, 0), **asked))

    assert (took, sizes(answer)) == (0, [batch])
    assert broker.parts.replica_manager.fetch_purgatory.statistics().expired == 0


async def test_row_20_who_asks_for_no_partition_is_answered_at_once(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    took, answer = await seconds(broker.fetch(max_wait_ms=LONG_MS, min_bytes=10_000))

    assert (took, answer.error_code, rows(answer)) == (0, ErrorCode.NONE, [])


@pytest.mark.parametrize("min_bytes", [0, -1])
async def test_row_20_who_wants_nothing_gets_it_at_once(
    broker: InMemoryBroker, autojump_clock: MockClock, min_bytes: int
) -> None:
    await broker.create_topic("t")

    took, _ = await seconds(broker.fetch(("t", 0, 0), max_wait_ms=LONG_MS, min_bytes=min_bytes))

    assert took == 0


async def test_row_20_exactly_min_bytes_are_enough_and_one_less_is_not(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await broker.create_topic("t", 2)
    for partition in range(2):
        batch = await fill(broker, "t", partition=partition)
    both = ("t", [wanted(0, 0), wanted(1, 0)])

    enough, _ = await seconds(fetch_rows(broker, both, min_bytes=2 * batch, max_wait_ms=500))
    too_little, _ = await seconds(fetch_rows(broker, both, min_bytes=2 * batch + 1, max_wait_ms=500))

    assert enough == 0
    assert too_little == pytest.approx(0.5, abs=0.01)
