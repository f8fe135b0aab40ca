"""Record batches that were damaged, or that lie under a checksum that is right."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.checksums import crc32c
from minibroker.protocol.compression import Codec, compress
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import (
    BATCH_HEADER_FORMAT,
    LOG_OVERHEAD,
    RECORD_BATCH_OVERHEAD,
    build_batch,
    crc_is_valid,
    iter_records,
    read_header,
)
from tests.protocol.record_strategies import CODECS, LIMIT, PROPERTY, RECORDS, record_lists


def records_of(batch: bytes | bytearray, limit: int = LIMIT) -> list[Record]:
    return list(iter_records(batch, max_decompressed_bytes=limit))


def assert_corrupt(batch: bytes | bytearray) -> None:
    with pytest.raises(KafkaError) as refusal:
        records_of(batch)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


def with_fields(batch: bytearray, **fields: int) -> bytearray:
    """Return the batch with header fields changed and its CRC made right again: a lie no checksum shows."""
    changed = bytearray(struct.pack(BATCH_HEADER_FORMAT, *read_header(batch)._replace(**fields)))
    changed += batch[RECORD_BATCH_OVERHEAD:]
    struct.pack_into(">I", changed, 17, crc32c(changed[21:], 0))
    assert crc_is_valid(changed, 0, read_header(changed)) or "batch_length" in fields
    return changed


def with_body(batch: bytearray, body: bytes) -> bytearray:
    return with_fields(
        batch[:RECORD_BATCH_OVERHEAD] + body, batch_length=RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(body)
    )


@pytest.mark.parametrize("codec", CODECS)
def test_a_flipped_bit_anywhere_after_the_checksum_is_noticed(codec: Codec) -> None:
    batch = build_batch(RECORDS, base_offset=20, codec=codec)
    header = read_header(batch)

    for bit in range(17 * 8, len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        assert not crc_is_valid(batch, 0, read_header(batch))
        batch[bit // 8] ^= 1 << bit % 8
    assert crc_is_valid(batch, 0, header)


def test_a_batch_cut_off_at_any_byte_is_noticed() -> None:
    batch = build_batch(RECORDS, base_offset=20)
    header = read_header(batch)

    for end in range(len(batch)):
        assert not crc_is_valid(batch[:end], 0, header)
        assert_corrupt(batch[:end])


@pytest.mark.parametrize("batch_length", [-(2**31), -1, 0, 9, 48])
def test_a_batch_smaller_than_its_header_is_never_valid(batch_length: int) -> None:
    batch = with_fields(build_batch(RECORDS), batch_length=batch_length)

    assert not crc_is_valid(batch, 0, read_header(batch))
    assert_corrupt(batch)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("records_count", [-(2**31), -1, 0, 1, 2, 4, 5, 2**31 - 1])
def test_a_wrong_count_of_records_is_corrupt(codec: Codec, records_count: int) -> None:
    assert_corrupt(with_fields(build_batch(RECORDS, codec=codec), records_count=records_count))


@pytest.mark.parametrize("last_offset_delta", [-(2**31), -1, 0, 3])
def test_a_record_after_the_batchs_last_offset_is_corrupt(last_offset_delta: int) -> None:
    batch = build_batch(RECORDS, base_offset=20)

    assert_corrupt(with_fields(batch, last_offset_delta=last_offset_delta))


@pytest.mark.parametrize("magic", [-1, 0, 1, 3, 127])
def test_another_magic_is_not_read_as_this_one(magic: int) -> None:
    assert_corrupt(with_fields(build_batch(RECORDS), magic=magic))


def test_bytes_after_the_last_record_are_corrupt() -> None:
    batch = build_batch(RECORDS, base_offset=20)
    body = bytes(batch[RECORD_BATCH_OVERHEAD:])

    assert_corrupt(with_body(batch, body + b"\x00"))
    compressed = with_fields(batch, attributes=Codec.GZIP)
    assert_corrupt(with_body(compressed, compress(Codec.GZIP, body + b"\x00")))
    assert records_of(with_body(compressed, compress(Codec.GZIP, body))) == RECORDS


@pytest.mark.parametrize("attributes", range(1, 8))
def test_a_batch_that_is_not_compressed_as_it_says_is_corrupt(attributes: int) -> None:
    assert_corrupt(with_fields(build_batch(RECORDS), attributes=attributes))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_more_than_the_limit_once_decompressed_is_too_large(codec: Codec) -> None:
    batch = build_batch([Record(0, 0, None, bytes(100_000))], codec=codec)

    assert len(records_of(batch, limit=101_000)) == 1
    with pytest.raises(KafkaError) as refusal:
        records_of(batch, limit=100_000)
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


@PROPERTY
@given(record_lists(headers=True), st.sampled_from(CODECS), st.data())
def test_damage_under_a_right_checksum_is_refused_with_a_code(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = build_batch(records, base_offset=records[0].offset, codec=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(21, len(batch) - 1))] = data.draw(st.integers(0, 255))

    try:
        records_of(batch)
    except KafkaError as refusal:
        codes = (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
        assert refusal.code in codes
