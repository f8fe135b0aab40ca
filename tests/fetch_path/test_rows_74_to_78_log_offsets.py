"""Rows 74-78 of kafka 2.0.1's fetch path: which offset is at a time, and what retention does to fetches."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import assign, follow
from tests.broker.transactional import started
from tests.fetch_path.asking import LONG_MS, fetch_rows, fill, row_of, rows, wanted

LATEST, EARLIEST = -1, -2
DAY_MS = 24 * 3600 * 1000


async def list_offsets(broker: InMemoryBroker, *asked: tuple[int, int], version: int = 1, **body: Any) -> list[Any]:
    """Ask "t" for (partition, timestamp)...; the rows of the answer."""
    topics = [("t", [(partition, -1, timestamp, 100) for partition, timestamp in asked])]
    answer = await broker.call(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=topics, **body)
    return [row for topic in answer.topics for row in topic.partitions]


async def offset_at(broker: InMemoryBroker, timestamp: int, **options: Any) -> tuple[int, int]:
    (row,) = await list_offsets(broker, (0, timestamp), **options)
    assert row.error_code == ErrorCode.NONE
    return row.offset, row.timestamp


async def produce_at(broker: InMemoryBroker, *times_ms: int) -> None:
    batch = build_batch([Record(offset, time_ms, None, b"v") for offset, time_ms in enumerate(times_ms)])
    await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=[("t", [(0, batch)])])


async def three_segments(broker: InMemoryBroker) -> None:
    """Segments at 0, 1 and 2, last written at 1000, 2000 and 3000 ms."""
    await broker.create_topic("t")
    log = broker.log_of("t")
    for number in range(3):
        if number:
            log.roll(NOW_MS)
        await fill(broker, "t")
    for number, segment in enumerate(log.segments):
        segment.last_modified_ms = 1000 * (number + 1)


# -- row 74: version 0 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (LATEST, [3, 2, 1, 0]),
        (EARLIEST, [0]),
        (999, []),
        (1000, [0]),
        (2999, [1, 0]),
        (3000, [2, 1, 0]),
        (NOW_MS, [3, 2, 1, 0]),
    ],
)
async def test_row_74_version_0_lists_the_segments_last_written_before_a_time(
    broker: InMemoryBroker, timestamp: int, expected: list[int]
) -> None:
    await three_segments(broker)

    (row,) = await list_offsets(broker, (0, timestamp), version=0)

    assert list(row.old_style_offsets) == expected


@pytest.mark.parametrize("limit", range(6))
async def test_row_74_no_more_than_are_asked_for_the_newest_first(broker: InMemoryBroker, limit: int) -> None:
    await three_segments(broker)

    answer = await broker.call(ApiKey.LIST_OFFSETS, 0, replica_id=-1, topics=[("t", [(0, -1, LATEST, limit)])])

    assert list(row_of(answer).old_style_offsets) == [3, 2, 1, 0][:limit]


async def test_row_74_what_is_not_committed_is_hidden_behind_the_high_watermark(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await fill(broker, "t")
    await follow(broker, "t", 1)
    for _ in range(2):
        broker.log_of("t").roll(NOW_MS)
        await fill(broker, "t")

    (consumer,) = await list_offsets(broker, (0, LATEST), version=0)
    answer = await broker.call(ApiKey.LIST_OFFSETS, 0, replica_id=1, topics=[("t", [(0, -1, LATEST, 10)])])

    assert list(consumer.old_style_offsets) == [1, 1, 0]
    assert list(row_of(answer).old_style_offsets) == [3, 2, 1, 0]


# -- row 75: later versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3, 7])
async def test_row_75_the_first_record_that_is_not_older_is_found_inside_its_batch(
    broker: InMemoryBroker, version: int
) -> None:
    await broker.create_topic("t")
    await produce_at(broker, 100, 300, 200, 400)
    await produce_at(broker, 50, 500)

    found = [await offset_at(broker, time_ms, version=version) for time_ms in (0, 100, 101, 301, 401, 501)]

    assert found == [(0, 100), (0, 100), (1, 300), (3, 400), (5, 500), (-1, -1)]


async def test_row_75_nothing_is_found_that_a_reader_may_not_see(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await produce_at(broker, 100)
    await follow(broker, "t", 1)
    await produce_at(broker, 200)

    for_consumers = [await offset_at(broker, time_ms) for time_ms in (100, 200, LATEST, EARLIEST)]
    answer = await broker.call(ApiKey.LIST_OFFSETS, 1, replica_id=1, topics=[("t", [(0, -1, 200, 1)])])

    assert for_consumers == [(0, 100), (-1, -1), (1, -1), (0, -1)]
    assert (row_of(answer).offset, row_of(answer).timestamp) == (1, 200)


async def test_row_75_committed_readers_see_up_to_the_last_stable_offset(make_broker: MakeBroker) -> None:
    broker = make_broker(transaction_state_log_num_partitions=1)
    await broker.create_topic("t")
    await produce_at(broker, 100)
    await (await started(broker)).send("t", b"open")  # at NOW_MS

    asked = (100, NOW_MS, LATEST)
    uncommitted = [(await offset_at(broker, each, version=2, isolation_level=0))[0] for each in asked]
    committed = [(await offset_at(broker, each, version=2, isolation_level=1))[0] for each in asked]

    assert (uncommitted, committed) == ([0, 1, 2], [0, -1, 1])


# -- rows 76 and 77: refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3, 7])
async def test_row_76_a_partition_named_twice_is_an_invalid_request_and_the_others_are_answered(
    broker: InMemoryBroker, version: int
) -> None:
    await broker.create_topic("t", 2)

    answered = await list_offsets(broker, (0, LATEST), (1, LATEST), (0, EARLIEST), version=version)

    codes = {row.partition: row.error_code for row in answered}
    assert codes == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}


async def test_row_77_records_without_timestamps_cannot_be_looked_up_by_time(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", message_format_version="0.9.0")
    await fill(broker, "t")

    answered = [(await list_offsets(broker, (0, time_ms)))[0] for time_ms in (NOW_MS, 0, LATEST, EARLIEST)]

    refused = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert [row.error_code for row in answered] == [refused, refused, ErrorCode.NONE, ErrorCode.NONE]
    assert [row.offset for row in answered[2:]] == [1, 0]


# -- row 78: retention ----------------------------------------------------------------------------------------


def delete_what_is_old(broker: InMemoryBroker) -> None:
    broker.clock.wall_now_ms += 10 * DAY_MS
    broker.parts.replica_manager.log_manager.cleanup_logs(broker.clock.wall_now_ms)


async def test_row_78_retention_takes_nothing_that_is_not_committed(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    log = broker.log_of("t")
    await fill(broker, "t")
    await follow(broker, "t", 1)
    log.roll(NOW_MS)
    await fill(broker, "t", batches=2)
    log.roll(NOW_MS)

    delete_what_is_old(broker)
    behind = log.log_start_offset
    await follow(broker, "t", 2)  # one of the segment's two
    delete_what_is_old(broker)
    half = log.log_start_offset
    await follow(broker, "t", 3)
    delete_what_is_old(broker)

    assert (behind, half, log.log_start_offset) == (1, 1, 3)


async def test_row_78_a_session_is_told_that_the_log_begins_further_on(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await broker.create_topic("t", 2, retention_ms=DAY_MS)
    for _ in range(3):
        await fill(broker, "t")
    answer = await fetch_rows(broker, ("t", [wanted(0, 3), wanted(1, 0)]), session_epoch=0, session_id=0)

    delete_what_is_old(broker)
    told = await fetch_rows(broker, session_id=answer.session_id, session_epoch=1)
    again = await fetch_rows(broker, session_id=answer.session_id, session_epoch=2)

    assert [(row.partition, row.log_start_offset, row.high_watermark) for _, row in rows(told)] == [(0, 3, 3)]
    assert rows(again) == []


async def test_row_78_a_reader_of_what_is_gone_is_out_of_range(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await broker.create_topic("t", retention_ms=DAY_MS)
    await fill(broker, "t", batches=3)

    delete_what_is_old(broker)
    codes = [row_of(await broker.fetch(("t", 0, each), max_wait_ms=LONG_MS * (each < 3))).error_code for each in (2, 3)]

    assert codes == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE]
