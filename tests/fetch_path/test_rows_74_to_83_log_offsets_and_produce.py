"""Rows 74-83 of kafka 2.0.1's fetch path: which offset is at a time, what retention does, what may be written."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import NO_OFFSET, NO_SEQUENCE, Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.asking import LONG_MS, fill, on_disk, row_of
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import assign, follow
from tests.protocol.batch_bytes import commit_marker, with_fields

pytestmark = pytest.mark.time_jumps

LATEST, EARLIEST = -1, -2
DAY_MS = 24 * 3600 * 1000


async def list_offsets(broker: InMemoryBroker, *asked: tuple[int, int], version: int = 1, **body: Any) -> list[Any]:
    """Ask "t" for (partition, timestamp)...; the rows of the answer."""
    topics = [("t", [(partition, -1, timestamp, 100) for partition, timestamp in asked])]
    answer = await broker.call(ApiKey.LIST_OFFSETS, version, **{"replica_id": -1, "topics": topics, **body})
    return [row for topic in answer.topics for row in topic.partitions]


async def offset_at(broker: InMemoryBroker, timestamp: int, **options: Any) -> tuple[int, int]:
    (row,) = await list_offsets(broker, (0, timestamp), **options)
    assert row.error_code == ErrorCode.NONE
    return row.offset, row.timestamp


async def produce_at(broker: InMemoryBroker, *times_ms: int) -> None:
    batch = build_batch([Record(offset, time_ms, None, b"v") for offset, time_ms in enumerate(times_ms)])
    await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=[("t", [(0, batch)])])


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
async def test_row_74_version_0_lists_segments(broker: InMemoryBroker, timestamp: int, expected: list[int]) -> None:
    await broker.create_topic("t")
    log = broker.log_of("t")
    for number in range(3):
        if number:
            log.roll(NOW_MS)
        await fill(broker, "t")
    for number, segment in enumerate(log.segments):
        segment.last_modified_ms = 1000 * (number + 1)

    (row,) = await list_offsets(broker, (0, timestamp), version=0)

    assert list(row.old_style_offsets) == expected


async def test_row_74_what_is_not_committed_is_hidden_behind_the_high_watermark(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await fill(broker, "t")
    await follow(broker, "t", 1)
    for _ in range(2):
        broker.log_of("t").roll(NOW_MS)
        await fill(broker, "t")

    told = [(await list_offsets(broker, (0, LATEST), version=0, replica_id=each))[0] for each in (-1, 1)]

    assert [list(row.old_style_offsets) for row in told] == [[1, 1, 0], [3, 2, 1, 0]]


@pytest.mark.parametrize("version", [1, 2, 3, 7])
async def test_row_75_the_first_record_not_older_is_found_in_its_batch(broker: InMemoryBroker, version: int) -> None:
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

    assert for_consumers == [(0, 100), (-1, -1), (1, -1), (0, -1)]
    assert await offset_at(broker, 200, replica_id=1) == (1, 200)


@pytest.mark.parametrize("replica_id", [-1, -2, -3, -9, 0, 1, 7])
@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_row_75_only_consumers_are_bound_by_the_high_watermark_and_their_isolation_level(
    broker: InMemoryBroker, replica_id: int, isolation_level: int
) -> None:
    await assign(broker, "t", [0, 1])
    await produce_at(broker, 100)
    open_one = build_batch([Record(0, 200, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0,
                           is_transactional=True)  # fmt: skip
    await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=[("t", [(0, open_one)])])
    await follow(broker, "t", 2)
    await produce_at(broker, 300)
    asked: dict[str, Any] = {"replica_id": replica_id, "isolation_level": isolation_level}

    found = [await offset_at(broker, time_ms, version=2, **asked) for time_ms in (LATEST, EARLIEST, 200, 300)]

    latest, *others = [(3, -1), (0, -1), (1, 200), (2, 300)]
    if replica_id == -1:
        nothing = (-1, -1)
        latest = (1 if isolation_level else 2, -1)
        others = [(0, -1), nothing if isolation_level else (1, 200), nothing]
    assert found == [latest, *others]


@pytest.mark.parametrize("version", [1, 2, 3, 7])
async def test_row_76_a_partition_named_twice_is_invalid_others_are_not(broker: InMemoryBroker, version: int) -> None:
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


async def test_row_78_a_reader_of_what_is_gone_is_out_of_range(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", retention_ms=DAY_MS)
    await fill(broker, "t", batches=3)

    delete_what_is_old(broker)
    codes = [row_of(await broker.fetch(("t", 0, each), max_wait_ms=LONG_MS * (each < 3))).error_code for each in (2, 3)]

    assert codes == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE]


def batch_of(size: int = 1, **options: Any) -> bytearray:
    return build_batch([Record(0, NOW_MS, None, b"x" * size)], **options)


async def send(
    broker: InMemoryBroker,
    records: bytes | bytearray,
    *,
    acks: int = 1,
    version: int = 7,
    topic: str = "t",
    partition: int = 0,
    client_id: str = "test",
) -> tuple[ErrorCode, int]:
    """Error and base offset."""
    topics = [(topic, [(partition, records)])]
    answer = await broker.call(ApiKey.PRODUCE, version, client_id, acks=acks, timeout_ms=1000, topics=topics)
    row = answer.topics[0].partitions[0]
    return ErrorCode(row.error_code), row.base_offset


@pytest.mark.parametrize(
    ("config", "refusal"),
    [("max_message_bytes", ErrorCode.MESSAGE_TOO_LARGE), ("segment_bytes", ErrorCode.RECORD_LIST_TOO_LARGE)],
)
async def test_row_79_one_byte_more_is_too_large(broker: InMemoryBroker, config: str, refusal: ErrorCode) -> None:
    await broker.create_topic("t", **{config: len(batch_of(100))})

    answers = [await send(broker, batch_of(size)) for size in (100, 101)]

    assert answers == [(ErrorCode.NONE, 0), (refusal, NO_OFFSET)]


async def test_row_80_the_last_five_batches_are_known_and_answered_with_their_offsets(broker: InMemoryBroker) -> None:
    def numbered(sequence: int) -> bytearray:
        return batch_of(producer_id=5, producer_epoch=0, base_sequence=sequence)

    await broker.create_topic("t")
    for sequence in range(7):
        await send(broker, numbered(sequence))

    again = [await send(broker, numbered(sequence)) for sequence in range(7)]

    forgotten = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NO_OFFSET)
    assert again == [forgotten, forgotten, *((ErrorCode.NONE, offset) for offset in (2, 3, 4, 5, 6))]
    assert broker.log_of("t").log_end_offset == 7


@pytest.mark.parametrize(
    "batch",
    [
        *(with_fields(commit_marker(), base_sequence=each) for each in (NO_SEQUENCE, 0)),
        with_fields(batch_of(), base_offset=1),
    ],
)
async def test_row_81_control_batches_and_offsets_are_the_brokers(broker: InMemoryBroker, batch: bytearray) -> None:
    await broker.create_topic("t")

    assert await send(broker, batch) == (ErrorCode.CORRUPT_MESSAGE, NO_OFFSET)
    assert on_disk(broker, "t") == b""


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_row_81_a_compacted_topic_takes_no_record_without_a_key(broker: InMemoryBroker, policy: str) -> None:
    await broker.create_topic("t", cleanup_policy=policy)
    records = [Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, None, b"v")]

    answers = [await send(broker, build_batch(records[:count])) for count in (2, 1)]

    assert answers == [(ErrorCode.CORRUPT_MESSAGE, NO_OFFSET), (ErrorCode.NONE, 0)]


@pytest.mark.parametrize("acks", [-2, 2, 32767, -32768])
async def test_row_82_acks_that_mean_nothing_are_refused_without_a_write(broker: InMemoryBroker, acks: int) -> None:
    await broker.create_topic("t")

    assert await send(broker, batch_of(), acks=acks) == (ErrorCode.INVALID_REQUIRED_ACKS, NO_OFFSET)
    assert on_disk(broker, "t") == b""


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
async def test_row_83_only_the_admin_client_writes_internal_topics(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker()
    await broker.create_topic(topic)
    batch = build_batch([Record(0, NOW_MS, b"k", b"v")])

    answers = [await send(broker, bytearray(batch), topic=topic, client_id=each) for each in ("a", "__admin_client")]

    assert answers == [(ErrorCode.INVALID_TOPIC_EXCEPTION, NO_OFFSET), (ErrorCode.NONE, 0)]
