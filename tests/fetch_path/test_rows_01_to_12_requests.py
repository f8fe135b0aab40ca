"""Rows 1-12 of kafka 2.0.1's fetch path: what a request may ask, how far it is read, what is answered of what is not.

Each test names its row. Sizes are bytes; every batch of a test has the same size.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.asking import LONG_MS, codes, fill, magics, on_disk, row_of, rows, seconds, sizes
from tests.broker.conftest import InMemoryBroker, fetch_body

pytestmark = pytest.mark.time_jumps

OLD_FORMAT: dict[str, Any] = {"message_format_version": "0.9.0"}  # what v0-v2 read without conversion


async def answer_size(broker: InMemoryBroker, version: int) -> int:
    """The bytes of an answer to a fetch at the end of the log."""
    answer = await broker.answer(broker.frame(ApiKey.FETCH, version, **fetch_body(("t", 0, 0))))
    assert answer is not None
    return len(answer)


async def test_row_01_every_version_is_answered_in_its_own_layout(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    bytes_of = [await answer_size(broker, version) for version in range(9)]

    # v1: throttle time · v4: last stable offset, aborted list · v5: log start offset · v7: error, session id
    assert [after - before for before, after in pairwise(bytes_of)] == [4, 0, 0, 12, 8, 0, 6, 0]


@pytest.mark.parametrize("version", range(13))
async def test_row_01_one_broker_gives_the_records_in_every_version(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a", b"b"])

    row = row_of(await broker.fetch(("t", 0, 0), version=version))

    assert (row.error_code, row.high_watermark) == (ErrorCode.NONE, 2)
    assert b"a" in bytes(row.records) and b"b" in bytes(row.records)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_row_02_old_versions_get_no_more_than_they_ask_for_even_of_the_first_batch(
    broker: InMemoryBroker, version: int
) -> None:
    await broker.create_topic("t", **OLD_FORMAT)
    await broker.produce("t", [b"x" * 1000])

    answer = await broker.fetch(("t", 0, 0), version=version, max_partition_bytes=100)

    assert bytes(row_of(answer).records) == on_disk(broker, "t")[:100]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_row_02_old_versions_have_no_limit_over_all_partitions(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", 3, **OLD_FORMAT)
    for partition in range(3):
        await broker.produce("t", [b"x" * 1000], partition=partition)

    answer = await broker.fetch(*(("t", partition, 0) for partition in range(3)), version=version, max_bytes=1)

    assert sizes(answer) == [len(on_disk(broker, "t", partition)) for partition in range(3)]


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", [3, 4, 8, 12])
async def test_row_03_the_first_partition_that_has_anything_may_exceed_both_limits_and_no_other(
    broker: InMemoryBroker, version: int, isolation_level: int
) -> None:
    await broker.create_topic("t", 3, message_format_version="0.10.0")
    for partition in (1, 2):
        await broker.produce("t", [b"x" * 1000], partition=partition)

    answer = await broker.fetch(
        *(("t", partition, 0) for partition in range(3)),
        version=version,
        isolation_level=isolation_level,
        max_bytes=10,
        max_partition_bytes=10,
    )

    assert sizes(answer) == [0, len(on_disk(broker, "t", 1)), 0]


async def test_row_04_a_partition_gets_its_own_limit_or_what_is_left_of_the_whole(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", 3)
    for partition in range(3):
        batch = await fill(broker, "t", partition=partition, batches=4)

    answer = await broker.fetch(
        *(("t", partition, 0) for partition in range(3)),
        max_partition_bytes=batch + 50,
        max_bytes=2 * batch + 60,
    )

    assert sizes(answer) == [batch + 50, batch + 10, 0]


async def test_row_04_after_an_oversize_batch_nothing_is_left_and_not_less_than_nothing(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", 2)
    for partition in range(2):
        batch = await fill(broker, "t", partition=partition, size=1000)

    answer = await broker.fetch(("t", 0, 0), ("t", 1, 0), max_bytes=10)

    assert sizes(answer) == [batch, 0]
    assert codes(answer) == [ErrorCode.NONE] * 2


@pytest.mark.parametrize("limit_in_batches", [1.01, 1.5, 2.0, 2.99])
async def test_row_05_a_read_is_cut_at_the_byte(broker: InMemoryBroker, limit_in_batches: float) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t", batches=3)
    limit = int(limit_in_batches * batch)

    answer = await broker.fetch(("t", 0, 0), max_partition_bytes=limit)

    assert bytes(row_of(answer).records) == on_disk(broker, "t")[:limit]


@pytest.mark.parametrize("version", [4, 8, 12])
async def test_row_06_instead_of_a_part_of_the_first_batch_there_is_nothing(
    broker: InMemoryBroker, version: int
) -> None:
    await broker.create_topic("t", 2)
    for partition in range(2):
        batch = await fill(broker, "t", partition=partition, batches=2)

    answer = await broker.fetch(("t", 0, 0), ("t", 1, 0), version=version, max_bytes=3 * batch - 1)

    assert sizes(answer) == [2 * batch, 0]


async def test_row_06_old_versions_get_the_part(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", 2, **OLD_FORMAT)
    for partition in range(2):
        await broker.produce("t", [b"x" * 1000], partition=partition)

    answer = await broker.fetch(("t", 0, 0), ("t", 1, 0), version=2, max_partition_bytes=17)

    assert sizes(answer) == [17, 17]


async def test_row_07_as_many_batches_as_the_limit_has_room_for_come_in_one_answer(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t", batches=10)

    answer = await broker.fetch(("t", 0, 0), max_partition_bytes=7 * batch)

    assert magics(bytes(row_of(answer).records)) == [2] * 7


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


async def test_row_09_what_is_not_in_the_metadata_is_unknown_and_answered_at_once(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    took, answer = await seconds(broker.fetch(("nope", 0, 0), ("t", 1, 0), ("t", -1, 0), max_wait_ms=LONG_MS))

    assert took == 0
    assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3


async def test_row_09_an_unknown_partition_is_not_read_and_uses_no_limit(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t", batches=2)

    answer = await broker.fetch(("nope", 0, 0), ("t", 0, 0), max_bytes=2 * batch)

    assert [(name, len(row.records)) for name, row in rows(answer)] == [("t", 2 * batch), ("nope", 0)]


async def test_row_10_an_unknown_partition_does_not_cut_the_wait_of_the_others(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    took, answer = await seconds(broker.fetch(("nope", 0, 0), ("t", 0, 0), max_wait_ms=500))

    assert took == pytest.approx(0.5, abs=0.01)
    assert [name for name, _ in rows(answer)] == ["t", "nope"]


@pytest.mark.parametrize("version", [0, 4, 8, 12])
async def test_row_11_unknown_partitions_come_after_the_others_each_in_the_order_asked(
    broker: InMemoryBroker, version: int
) -> None:
    await broker.create_topic("a", 3)
    await broker.create_topic("b")

    answer = await broker.fetch(
        ("nope", 0, 0), ("a", 2, 0), ("b", 0, 0), ("a", 9, 0), ("a", 0, 0), ("b", 1, 0), version=version
    )

    assert [(name, row.partition) for name, row in rows(answer)] == [
        *[("a", 2), ("b", 0), ("a", 0)],
        *[("nope", 0), ("a", 9), ("b", 1)],
    ]


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("offset", [None, 5], ids=["unknown", "out of range"])
async def test_row_12_an_error_has_no_offsets_no_aborted_list_and_no_records(
    broker: InMemoryBroker, isolation_level: int, offset: int | None
) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a"])

    asked = ("nope", 0, 0) if offset is None else ("t", 0, offset)
    row = row_of(await broker.fetch(asked, isolation_level=isolation_level))

    assert row.error_code != ErrorCode.NONE
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (-1, -1, -1)
    assert row.aborted_transactions is None
    assert bytes(row.records) == b""
