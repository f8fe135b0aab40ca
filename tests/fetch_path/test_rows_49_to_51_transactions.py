"""Rows 49-51 of kafka 2.0.1's fetch path: how far committed readers get, and what they are told was aborted."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.batches import scan_batches
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.asking import fill, magics, row_of, rows
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import assign, follow
from tests.broker.transactional import Producer, started

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
VERSIONS = (4, 8, 12)


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    """One whose coordinator has a small topic: fifty partitions take their time."""
    return make_broker(transaction_state_log_num_partitions=1)


async def read(broker: InMemoryBroker, offset: int = 0, *, max_bytes: int = 1 << 20, **options: Any) -> Any:
    """The row of a read_committed fetch of the first partition of "t"."""
    options = {"isolation_level": READ_COMMITTED, "max_partition_bytes": max_bytes, **options}
    return row_of(await broker.fetch(("t", 0, offset), **options))


def aborted(row: Any) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in row.aborted_transactions]


def batch_sizes(data: bytes) -> list[int]:
    return [view.end_position - view.position for view in scan_batches(data, 0, len(data))]


async def transaction(producer: Producer, *values: bytes, is_commit: bool) -> None:
    for value in values:
        await producer.send("t", value)
    assert await producer.end(is_commit=is_commit) is ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_49_committed_readers_stop_at_the_first_open_transaction(
    broker: InMemoryBroker, version: int
) -> None:
    await broker.create_topic("t")
    await fill(broker, "t", batches=2)
    producer = await started(broker)
    await producer.send("t", b"open")
    await fill(broker, "t")

    row = await read(broker, version=version)

    assert (row.high_watermark, row.last_stable_offset) == (4, 2)
    assert magics(bytes(row.records)) == [2, 2]


async def test_row_49_it_is_never_beyond_the_high_watermark(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await fill(broker, "t")
    await follow(broker, "t", 1)
    batch = build_batch(
        [Record(0, NOW_MS, None, b"open")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    await fill(broker, "t", batches=2)
    broker.log_of("t").append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    await follow(broker, "t", 2)

    behind = await read(broker)
    await follow(broker, "t", 4)
    caught_up = await read(broker)

    ends = [(row.high_watermark, row.last_stable_offset) for row in (behind, caught_up)]
    assert ends == [(2, 2), (4, 3)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_49_others_are_not_told_of_it_and_read_on(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")
    producer = await started(broker)
    await producer.send("t", b"open")

    row = await read(broker, isolation_level=READ_UNCOMMITTED, version=version)

    assert (row.high_watermark, row.last_stable_offset) == (1, -1)
    assert b"open" in bytes(row.records)


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_50_what_was_aborted_is_listed_with_its_producer_and_first_offset(
    broker: InMemoryBroker, version: int
) -> None:
    await broker.create_topic("t")
    one, other = await started(broker, "one"), await started(broker, "other")
    await one.send("t", b"0")
    await other.send("t", b"1")
    await one.send("t", b"2")
    await other.end(is_commit=False)  # its marker is at 3
    await one.end(is_commit=False)  # and this at 4
    await transaction(one, b"5", is_commit=True)

    row = await read(broker, version=version)

    # In the order of their markers; what was committed is not listed.
    assert aborted(row) == [(other.producer_id, 1), (one.producer_id, 0)]


async def test_row_50_what_ended_before_the_offset_is_left_out(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    producer = await started(broker)
    for value in (b"0", b"2", b"4"):  # with markers at 1, 3 and 5
        await transaction(producer, value, is_commit=False)

    firsts = {offset: [first for _, first in aborted(await read(broker, offset))] for offset in range(6)}

    assert firsts == {0: [0, 2, 4], 1: [0, 2, 4], 2: [2, 4], 3: [2, 4], 4: [4], 5: [4]}


@pytest.mark.parametrize("offset", [0, 1], ids=["records", "at the end"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_row_51_the_list_is_null_for_who_reads_everything_and_empty_for_who_has_nothing_to_skip(
    broker: InMemoryBroker, version: int, offset: int
) -> None:
    await broker.create_topic("t")
    await fill(broker, "t")

    lists = [
        (await read(broker, offset, isolation_level=level, version=version)).aborted_transactions
        for level in (READ_UNCOMMITTED, READ_COMMITTED)
    ]

    assert lists == [None, []]


async def test_row_51_a_partition_cut_to_nothing_has_none_either(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", 2)
    for partition in range(2):
        batch = await fill(broker, "t", partition=partition)

    both = (("t", 0, 0), ("t", 1, 0))
    answers = [await broker.fetch(*both, max_bytes=batch + left, isolation_level=READ_COMMITTED) for left in (0, 1)]

    # Kafka takes the list away with a first batch that would be cut, and has none to cut where no byte is left.
    assert [[row.aborted_transactions for _, row in rows(answer)] for answer in answers] == [[[], []], [[], None]]
