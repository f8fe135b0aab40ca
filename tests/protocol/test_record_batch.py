"""Record batches of magic 2: as Kafka 2.0.1 writes them, as kafka-python reads them, and damaged ones."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.compression import Codec, compress
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import (
    BATCH_HEADER,
    BATCH_HEADER_FORMAT,
    CODEC_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    TimestampType,
    build_batch,
    build_empty_batch,
    crc_is_valid,
    field_offset,
    iter_records,
    partial_format,
    read_header,
    size_at,
    stamp,
    struct_format,
)
from tests.protocol.batch_bytes import with_fields
from tests.protocol.golden_logs import golden_batches
from tests.protocol.record_strategies import CODECS, INT32, INT64, LIMIT, PROPERTY, RECORDS
from tests.refusals import refusal_of

LARGEST = 2**31 - 1
INT16 = st.integers(-(2**15), 2**15 - 1)
HEADERS = st.builds(
    BatchHeader,
    base_offset=INT64,
    batch_length=INT32,
    partition_leader_epoch=INT32,
    magic=st.integers(-128, 127),
    crc=st.integers(0, 2**32 - 1),
    attributes=INT16,
    last_offset_delta=INT32,
    base_timestamp=INT64,
    max_timestamp=INT64,
    producer_id=INT64,
    producer_epoch=INT16,
    base_sequence=INT32,
    records_count=INT32,
)


def records_of(batch: bytes | bytearray, limit: int = LIMIT) -> list[Record]:
    return list(iter_records(batch, max_decompressed_bytes=limit))


def kafkas_batches() -> list[tuple[bytes, tuple[Record, ...]]]:
    return [(batch.data, batch.records) for batch in golden_batches() if batch.view.magic == 2]


def test_the_struct_format_is_that_of_the_construct_declaration() -> None:
    assert struct.calcsize(BATCH_HEADER_FORMAT) == BATCH_HEADER.sizeof() == RECORD_BATCH_OVERHEAD == 61
    assert tuple(field.name for field in BATCH_HEADER.subcons) == BatchHeader._fields
    assert [field_offset(BATCH_HEADER, name) for name in ("magic", "crc", "attributes")] == [16, 17, 21]
    with pytest.raises(KeyError):
        field_offset(BATCH_HEADER, "no such field")


def test_named_fields_alone_are_read_at_their_positions() -> None:
    header = bytes(range(RECORD_BATCH_OVERHEAD))
    whole = BATCH_HEADER.parse(header)

    for names in (("batch_length",), ("base_offset", "magic"), ("attributes", "records_count")):
        found = struct.unpack_from(partial_format(BATCH_HEADER, *names), header)
        assert found == tuple(whole[name] for name in names)
    assert size_at(b"12345" + header, 5) == whole.batch_length + LOG_OVERHEAD
    assert (header[MAGIC_AT], header[CODEC_AT]) == (whole.magic, whole.attributes & 0xFF)


def test_a_header_of_another_byte_order_has_no_struct_format() -> None:
    from construct import Int32ul, Struct

    with pytest.raises(ValueError, match="big-endian"):
        struct_format(Struct("size" / Int32ul))


@PROPERTY
@given(HEADERS)
def test_construct_and_struct_agree_on_every_header(header: BatchHeader) -> None:
    by_construct = BATCH_HEADER.build(header._asdict())

    assert read_header(b"before" + by_construct + b"after", 6) == header
    parsed = BATCH_HEADER.parse(by_construct)
    assert tuple(parsed[name] for name in header._fields) == header
    assert struct.pack(BATCH_HEADER_FORMAT, *header) == by_construct


def test_kafkas_batches_have_valid_checksums_and_headers_that_fit_their_records() -> None:
    assert {read_header(data).codec for data, _ in kafkas_batches()} == set(CODECS) - {Codec.ZSTD}  # it is 2.0.1

    for data, records in kafkas_batches():
        header = read_header(data)
        assert crc_is_valid(data, 0, header)
        assert header.records_count == len(records)
        assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
        assert header.max_timestamp == max(record.timestamp_ms for record in records)
        assert header.last_sequence == records[-1].sequence or header.is_control


def test_kafkas_batches_are_built_again_with_the_same_records_and_uncompressed_ones_to_the_byte() -> None:
    rebuilt = 0
    for data, records in kafkas_batches():
        header = read_header(data)
        again = build_batch(
            records,
            base_offset=header.base_offset,
            codec=header.codec,
            leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            timestamp_type=header.timestamp_type,
            log_append_time_ms=header.max_timestamp,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
        )

        assert tuple(records_of(again)) == records
        assert read_header(again)._replace(crc=0, batch_length=0) == header._replace(crc=0, batch_length=0)
        if header.codec is Codec.NONE:
            assert again == data
            rebuilt += 1
    assert rebuilt > 100


@pytest.mark.parametrize(
    ("records", "given", "refusal"),
    [
        ([RECORDS[0], RECORDS[0]], {}, "offset 20 cannot follow 20"),
        (RECORDS, {"base_offset": 25}, "offset 20 cannot follow 24"),
    ],
)
def test_records_that_make_no_batch_are_not_built(records: list[Record], given: dict[str, Any], refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal):
        build_batch(records, **given)


def test_a_compacted_batch_may_end_after_its_last_record() -> None:
    batch = build_batch(RECORDS, base_offset=18, last_offset=30)

    assert read_header(batch).last_offset == 30
    assert records_of(batch) == RECORDS


def test_an_empty_batch_keeps_place_and_producer() -> None:
    full = build_batch(
        RECORDS,
        base_offset=20,
        codec=Codec.LZ4,
        producer_id=9,
        producer_epoch=2,
        base_sequence=100,
        is_transactional=True,
        leader_epoch=3,
    )

    empty = build_empty_batch(read_header(full))

    header = read_header(empty)
    assert len(empty) == header.size_bytes == RECORD_BATCH_OVERHEAD
    assert crc_is_valid(empty, 0, header)
    assert records_of(empty) == []
    assert (header.base_offset, header.last_offset, header.last_sequence) == (20, 24, 104)
    assert (header.producer_id, header.producer_epoch, header.partition_leader_epoch) == (9, 2, 3)
    assert (header.is_transactional, header.is_control, header.codec) == (True, False, Codec.NONE)
    assert (header.base_timestamp, header.max_timestamp) == (-1, 1_700_000_000_900)


def test_each_flag_has_a_bit_and_the_sequence_after_the_largest_is_0() -> None:
    flagged = read_header(
        build_batch(RECORDS, codec=Codec.SNAPPY, producer_id=0, is_transactional=True, is_control=True)
    )
    wrapped = build_batch(RECORDS, base_offset=20, producer_id=1, producer_epoch=0, base_sequence=LARGEST - 2)

    assert (flagged.attributes, flagged.last_sequence) == (0x32, -1)
    assert (flagged.is_transactional, flagged.is_control, flagged.has_producer_id) == (True, True, True)
    assert not read_header(build_batch(RECORDS)).has_producer_id
    assert [record.sequence for record in records_of(wrapped)] == [LARGEST - 2, LARGEST - 1, 1]
    assert read_header(wrapped).last_sequence == 1


def test_a_place_in_the_log_is_stamped_without_touching_the_checksum() -> None:
    batch = bytearray(b"before") + build_batch(RECORDS, base_offset=20)
    crc = read_header(batch, 6).crc

    stamp(batch, 6, base_offset=1000, leader_epoch=5)

    header = read_header(batch, 6)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (1000, 1004, 5)
    assert header.crc == crc
    assert crc_is_valid(batch, 6, header)
    assert [record.offset for record in records_of(batch[6:])] == [1000, 1001, 1004]
    assert batch[:6] == b"before"


def test_a_new_timestamp_or_type_of_it_is_stamped_with_a_new_checksum() -> None:
    batch = build_batch(RECORDS, base_offset=20, codec=Codec.GZIP) + b"next batch"
    plain = read_header(batch)

    stamp(batch, 0, base_offset=20, leader_epoch=0, max_timestamp_ms=5000, log_append_time=True)
    appended = read_header(batch)
    stamp(batch, 0, base_offset=20, leader_epoch=0, max_timestamp_ms=plain.max_timestamp)
    back = read_header(batch)

    assert appended.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert appended.max_timestamp == 5000
    assert appended.codec is Codec.GZIP
    assert appended.crc != plain.crc
    assert back == plain._replace(partition_leader_epoch=0)
    assert crc_is_valid(batch, 0, back)
    assert batch[-10:] == b"next batch"


def assert_corrupt(batch: bytes | bytearray) -> None:
    assert refusal_of(lambda: records_of(batch)) is ErrorCode.CORRUPT_MESSAGE


def with_body(batch: bytearray, body: bytes) -> bytearray:
    return with_fields(
        batch[:RECORD_BATCH_OVERHEAD] + body, batch_length=RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(body)
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("batch_length", [-LARGEST - 1, -1, 0, 9, 48]),  # less than a header has
        ("records_count", [-LARGEST - 1, -1, 0, 1, 2, 4, 5, LARGEST]),
        ("last_offset_delta", [-LARGEST - 1, -1, 0, 3]),  # before the last record
        ("magic", [-1, 0, 1, 3, 127]),
        ("attributes", range(1, 8)),  # another codec
    ],
)
def test_a_header_that_lies_is_corrupt(codec: Codec, field: str, values: Iterable[int]) -> None:
    batch = build_batch(RECORDS, base_offset=20, codec=codec)

    for value in values:
        if (field, value) != ("attributes", codec):
            lying = with_fields(batch, **{field: value})
            assert_corrupt(lying)
            assert crc_is_valid(lying, 0, read_header(lying)) == (field != "batch_length")


def test_bytes_after_the_last_record_are_corrupt() -> None:
    batch = build_batch(RECORDS, base_offset=20)
    body = bytes(batch[RECORD_BATCH_OVERHEAD:])

    assert_corrupt(with_body(batch, body + b"\x00"))
    compressed = with_fields(batch, attributes=Codec.GZIP)
    assert_corrupt(with_body(compressed, compress(Codec.GZIP, body + b"\x00")))
    assert records_of(with_body(compressed, compress(Codec.GZIP, body))) == RECORDS
