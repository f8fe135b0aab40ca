"""Rows 67-69 of kafka 2.0.1's fetch path: records for clients that are older than the records."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.batches import iter_all_records, scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import down_convert
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.files import converted_slice
from minibroker.storage.files.converted_slice import ConvertedSlice
from tests.broker.asking import codes, fill, magics, on_disk, row_of
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker, fetch_body

KAFKAS_CHUNK_BYTES = 128 * 1024
MAGIC_OF_VERSION = {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 8: 2, 12: 2}


async def write(broker: InMemoryBroker, *values: bytes, codec: Codec = Codec.NONE) -> None:
    batch = build_batch([Record(each, NOW_MS, b"k", value) for each, value in enumerate(values)], codec=codec)
    await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=[("t", [(0, batch)])])


def records_in(data: bytes) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for view in scan_batches(data, 0, len(data))
        for record in iter_all_records(data, view, max_decompressed_bytes=1 << 20)
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("version", MAGIC_OF_VERSION)
async def test_row_67_each_version_gets_the_newest_format_it_knows(
    broker: InMemoryBroker, version: int, codec: Codec
) -> None:
    await broker.create_topic("t")
    await write(broker, *(b"%d" % number * 100 for number in range(3)), codec=codec)

    data = bytes(row_of(await broker.fetch(("t", 0, 0), version=version)).records)

    assert set(magics(data)) == {MAGIC_OF_VERSION[version]}
    assert records_in(data) == [(number, b"%d" % number * 100) for number in range(3)]


@pytest.mark.parametrize(("version", "log_format", "magic"), [(1, "0.9.0", 0), (3, "0.10.0", 1), (3, "0.9.0", 0)])
async def test_row_67_what_is_old_enough_is_sent_as_it_is(
    broker: InMemoryBroker, version: int, log_format: str, magic: int
) -> None:
    await broker.create_topic("t", message_format_version=log_format)
    await write(broker, b"a", b"b")

    data = bytes(row_of(await broker.fetch(("t", 0, 0), version=version)).records)

    assert data == on_disk(broker, "t")
    assert magics(data) == [magic, magic]


async def test_row_68_a_topic_that_is_not_converted_is_an_error_of_its_partitions_alone(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", message_downconversion_enable="false")
    await broker.create_topic("u")
    for topic in ("t", "u"):
        await fill(broker, topic)

    told = {version: codes(await broker.fetch(("t", 0, 0), ("u", 0, 0), version=version)) for version in range(9)}

    refused, served = [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE], [ErrorCode.NONE, ErrorCode.NONE]
    assert told == {version: refused if version < 4 else served for version in range(9)}


async def test_row_68_the_brokers_setting_is_the_default(make_broker: MakeBroker) -> None:
    broker = make_broker(log_message_downconversion_enable="false")
    await broker.create_topic("t")
    await fill(broker, "t")

    row = row_of(await broker.fetch(("t", 0, 0), version=3))

    assert (row.error_code, row.high_watermark) == (ErrorCode.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize("version", range(4))
async def test_row_68_nothing_is_refused_where_nothing_would_be_converted(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", message_downconversion_enable="false", message_format_version="0.9.0")
    await fill(broker, "t")

    assert row_of(await broker.fetch(("t", 0, 0), version=version)).error_code == ErrorCode.NONE


async def test_row_68_followers_are_served_all_the_same(broker: InMemoryBroker) -> None:
    topic = ("t", -1, -1, [(0, [0, 7])], [("message.downconversion.enable", "false")])
    await broker.call(ApiKey.CREATE_TOPICS, 2, topics=[topic], timeout_ms=1000)
    await fill(broker, "t")

    row = row_of(await broker.fetch(("t", 0, 0), version=3, replica_id=7))

    assert row.error_code == ErrorCode.NONE
    assert magics(bytes(row.records))[0] == 1


def converted(broker: InMemoryBroker, version: int) -> ConvertedSlice:
    """The records of an answer that has not been sent yet."""
    chunks = broker.dispatch(ApiKey.FETCH, version, **fetch_body(("t", 0, 0)))
    (records,) = [chunk for chunk in chunks if isinstance(chunk, ConvertedSlice)]
    return records


@pytest.mark.parametrize("version", [0, 3])
async def test_row_69_one_batch_is_converted_for_the_answer_and_the_rest_while_it_is_sent(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    await broker.create_topic("t")
    await fill(broker, "t", batches=60, size=10_000)
    conversions = []
    convert = down_convert

    def counted(*args: Any, **options: Any) -> bytearray:
        conversions.append(args)
        return convert(*args, **options)

    monkeypatch.setattr(converted_slice, "down_convert", counted)

    pieces = converted(broker, version).pieces()
    before_sending = len(conversions)
    first = next(pieces)
    after_a_piece = len(conversions)
    rest = list(pieces)

    assert before_sending == 1
    assert after_a_piece < len(conversions) // 10
    assert all(len(piece) <= KAFKAS_CHUNK_BYTES for piece in (first, *rest))


async def test_row_69_what_conversion_saves_is_filled_with_the_head_of_a_batch_that_cannot_be_whole(
    broker: InMemoryBroker,
) -> None:
    await broker.create_topic("t")
    size = await fill(broker, "t", batches=1)

    records = converted(broker, 1)
    data = records.read()

    message_bytes = 12 + int.from_bytes(data[8:12], "big")
    filler = data[message_bytes:]
    assert (len(data), records.size_bytes) == (size, size)
    assert int.from_bytes(filler[:8], "big", signed=True) == -1
    assert int.from_bytes(filler[8:12], "big") > len(filler) - 12
    assert [offset for offset, _ in records_in(data)] == [0]


async def test_row_69_a_first_batch_that_grows_is_sent_whole(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    await write(broker, *(b"%d" % number for number in range(100)))  # each record gets a head of its own
    stored = len(on_disk(broker, "t"))

    data = converted(broker, 2).read()

    assert len(data) > 2 * stored
    assert [offset for offset, _ in records_in(data)] == list(range(100))
