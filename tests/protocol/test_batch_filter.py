"""Batches of which some records are taken out."""

from __future__ import annotations

import pytest

from minibroker.protocol.batch_filter import RECORDS_PER_SLICE, KeyedRecord, open_batch
from minibroker.protocol.batches import BatchView, batch_is_valid, iter_all_records, view_batch
from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import build_records
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch, read_header
from tests.refusals import refusal_of

BOUND = 1 << 20
KEYS = (b"", b"k", None, b"x" * 63, b"x" * 64, b"x" * 10_000)
VALUES = (b"", None, b"v", b"v" * 64, b"v" * 9000)


def view_of(batch: bytes | bytearray) -> BatchView:
    view = view_batch(batch, 0, len(batch))
    assert view is not None
    return view


def opened(batch: bytes | bytearray) -> list[KeyedRecord]:
    slices = open_batch(batch, view_of(batch), max_decompressed_bytes=BOUND).slices()
    return [record for records in slices for record in records]


def kept(batch: bytes | bytearray, offsets: set[int]) -> bytearray:
    found = open_batch(batch, view_of(batch), max_decompressed_bytes=BOUND)
    return found.keep([record for records in found.slices() for record in records if record[0] in offsets])


def records_in(batch: bytes | bytearray) -> list[Record]:
    view = view_of(batch)
    assert batch_is_valid(batch, view)
    assert view.size_bytes == len(batch)
    return list(iter_all_records(batch, view, max_decompressed_bytes=BOUND))


def some_records(base_offset: int = 0) -> list[Record]:
    pairs = [(key, value) for key in KEYS for value in VALUES]
    return [
        Record(base_offset + number, 1_000_000 + number * 97 * (-1) ** number, key, value)
        for number, (key, value) in enumerate(pairs)
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_records_are_seen_as_they_are_read(magic: int, codec: Codec) -> None:
    if magic < 2 and codec is Codec.NONE:
        batches = [build_records([record], magic=magic, base_offset=record.offset) for record in some_records()]
    else:
        batches = [build_records(some_records(), magic=magic, base_offset=0, codec=codec)]

    for batch in batches:
        assert [record[:4] for record in opened(batch)] == [
            (record.offset, record.key, record.value is not None, record.timestamp_ms) for record in records_in(batch)
        ]


@pytest.mark.parametrize("count", [1, RECORDS_PER_SLICE, RECORDS_PER_SLICE + 1, 3 * RECORDS_PER_SLICE])
@pytest.mark.parametrize("magic", [1, 2])
def test_they_come_in_slices(magic: int, count: int) -> None:
    records = [Record(number, 5, b"k", None) for number in range(count)]
    batch = build_records(records, magic=magic, base_offset=0, codec=Codec.GZIP)

    sizes = [len(each) for each in open_batch(batch, view_of(batch), max_decompressed_bytes=BOUND).slices()]

    assert sum(sizes) == count
    assert max(sizes) <= RECORDS_PER_SLICE
    assert len(sizes) == -(-count // RECORDS_PER_SLICE)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_filtered_batch_keeps_its_header_but_for_the_count(codec: Codec) -> None:
    batch = build_batch(
        (record._replace(headers=(("h", b"1"), ("n", None))) for record in some_records(100)),
        base_offset=90,
        codec=codec,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=2,
        base_sequence=70,
        is_transactional=True,
        last_offset=150,
    )
    before = {record.offset: record for record in records_in(batch)}

    left = kept(batch, {101, 107, 129})

    assert records_in(left) == [before[offset] for offset in (101, 107, 129)]
    latest_ms = max(before[offset].timestamp_ms for offset in (101, 107, 129))
    assert read_header(left)._replace(batch_length=0, crc=0) == read_header(batch)._replace(
        batch_length=0, crc=0, records_count=3, max_timestamp=latest_ms
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_has_the_last_offset_of_the_kept_records(magic: int) -> None:
    batch = build_records(some_records(50), magic=magic, base_offset=50, codec=Codec.GZIP)
    before = {record.offset: record for record in records_in(batch)}

    left = kept(batch, {52, 57})

    assert records_in(left) == [before[52], before[57]]
    assert (view_of(left).last_offset, view_of(left).codec) == (57, Codec.GZIP)


def damaged(batch: bytearray, position: int, value: int) -> bytearray:
    changed = bytearray(batch)
    changed[position] = value
    return changed


def test_whatever_byte_is_wrong_it_is_an_answer_of_ours_or_records() -> None:
    batch = build_batch([Record(number, 5, b"key", b"value", (("h", b"x"),)) for number in range(3)])
    for position in range(57, len(batch)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            try:
                found = opened(damaged(batch, position, value))
            except KafkaError as error:
                assert error.code is ErrorCode.CORRUPT_MESSAGE
            else:
                assert [record[0] for record in found if not 0 <= record[0] <= 2] == []
                assert [record for record in found if not 0 <= record[4] < record[5] <= len(batch) - 61] == []


@pytest.mark.parametrize("count", [-1, 2, 4, 1_000_000])
def test_a_wrong_count_is_found(count: int) -> None:
    batch = build_batch([Record(number, 5, b"key", b"value") for number in range(3)])
    batch[57:61] = count.to_bytes(4, "big", signed=True)

    assert refused_code(batch) is ErrorCode.CORRUPT_MESSAGE


def test_more_than_may_be_unpacked_is_refused() -> None:
    batch = build_batch([Record(0, 5, b"key", b"0" * 2 * BOUND)], codec=Codec.GZIP)

    assert refused_code(batch) is ErrorCode.MESSAGE_TOO_LARGE


def refused_code(batch: bytearray) -> ErrorCode:
    return refusal_of(lambda: opened(batch))
