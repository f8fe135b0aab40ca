"""One record of magic 2, and the numbers it is made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import (
    Record,
    RecordOrigin,
    decode_record,
    encode_record,
    increment_sequence,
    read_varint,
    varint,
    write_varint,
)
from tests.protocol.record_strategies import FIELDS, HEADERS, INT64, PROPERTY
from tests.refusals import refusal_of

ORIGIN = RecordOrigin(base_offset=100, last_offset=109, base_timestamp=5000, log_append_time_ms=None, base_sequence=-1)


def encoded(record: Record, origin: RecordOrigin = ORIGIN) -> bytes:
    output = bytearray()
    encode_record(
        output,
        record,
        offset_delta=record.offset - origin.base_offset,
        timestamp_delta=record.timestamp_ms - origin.base_timestamp,
    )
    return bytes(output)


def assert_corrupt(data: bytes, origin: RecordOrigin = ORIGIN) -> None:
    assert refusal_of(lambda: decode_record(data, 0, origin)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_numbers_are_zigzag_and_seven_bits_a_byte(value: int, data: str) -> None:
    output = bytearray()
    write_varint(output, value)

    assert output.hex() == varint(value).hex() == data
    assert read_varint(bytes(output) + b"\x01", 0) == (value, len(output))


@PROPERTY
@given(INT64)
def test_any_number_comes_back(value: int) -> None:
    output = bytearray(b"x")
    write_varint(output, value)

    assert output == b"x" + varint(value)
    assert read_varint(bytes(output), 1) == (value, len(output))


@pytest.mark.parametrize("data", ["", "80", "ffffffffff", "80" * 10 + "00", "ff" * 20, "ffffffffffffffffff02"])
def test_a_number_that_ends_nowhere_or_is_over_64_bits_is_corrupt(data: str) -> None:
    assert refusal_of(lambda: read_varint(bytes.fromhex(data), 0)) is ErrorCode.CORRUPT_MESSAGE


@PROPERTY
@given(st.integers(100, 109), INT64, FIELDS, FIELDS, HEADERS, INT64)
def test_any_record_comes_back(
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    base_timestamp: int,
) -> None:
    origin = ORIGIN._replace(base_timestamp=base_timestamp)
    record = Record(offset, timestamp_ms, key, value, tuple(headers))
    data = encoded(record, origin)

    assert decode_record(b"..." + data + b"...", 3, origin) == (record, 3 + len(data))


def test_header_keys_that_are_no_utf_8_survive() -> None:
    data = bytes.fromhex("14 00 00 00 01 01 02 04 ff 41 01")

    record, _ = decode_record(data, 0, ORIGIN)

    assert record.headers == (("\udcffA", None),)
    assert encoded(record) == data


def test_timestamps_wrap_around_as_javas_do_and_an_append_time_replaces_them() -> None:
    latest, earliest = 2**63 - 1, -(2**63)
    origin = ORIGIN._replace(base_timestamp=latest)
    data = encoded(Record(100, latest + 1, None, None), origin)

    assert decode_record(data, 0, origin)[0].timestamp_ms == earliest
    assert decode_record(data, 0, origin._replace(log_append_time_ms=42))[0].timestamp_ms == 42


def test_sequence_numbers_begin_again_at_zero() -> None:
    origin = ORIGIN._replace(base_sequence=2**31 - 2)
    sequences = [
        decode_record(encoded(Record(100 + index, 0, None, None)), 0, origin)[0].sequence for index in range(4)
    ]

    assert sequences == [2**31 - 2, 2**31 - 1, 0, 1]
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(5, 10) == 15


def test_a_record_cut_off_at_any_byte_is_corrupt() -> None:
    data = encoded(Record(105, 5100, b"key", b"value", (("name", b"content"), ("none", None))))

    for end in range(len(data)):
        assert_corrupt(data[:end])


@pytest.mark.parametrize(
    ("why", "data"),
    [
        ("shorter than any record", "0a 00 00 00 01 01 00"),
        ("of negative length", "01 00 00 00 01 01 00"),
        ("longer than the batch", "0e 00 00 00 01 01 00"),
        ("longer than its fields", "0e 00 00 00 01 01 00 00"),
        ("key longer than the record", "0c 00 00 00 7e 01 00"),
        ("value reaches into the next record", "0c 00 00 00 01 04 00 00 00 00"),
        ("as many headers as an int32 can say", "14 00 00 00 01 01 fe ff ff ff 0f"),
        ("more headers than bytes", "0e 00 00 00 01 01 06 00 00 00 00"),
        ("a negative number of headers", "0c 00 00 00 01 01 01"),
        ("a header without a key", "10 00 00 00 01 01 02 01 01"),
        ("a header value longer than the record", "12 00 00 00 01 01 02 02 41 7e"),
        ("an offset before the batch", "0c 00 00 01 01 01 00"),
        ("an offset after the batch", "0c 00 00 14 01 01 00"),
        ("an offset over 64 bits", "1e 00 00 fe ff ff ff ff ff ff ff ff 01 01 01 00"),
    ],
)
def test_a_record_that_lies_about_itself_is_corrupt(why: str, data: str) -> None:
    assert_corrupt(bytes.fromhex(data.replace(" ", "")))


@PROPERTY
@given(st.binary(max_size=60))
def test_garbage_is_corrupt_or_a_record_that_fits(garbage: bytes) -> None:
    try:
        record, end = decode_record(garbage, 0, ORIGIN)
    except KafkaError as refusal:
        assert refusal.code is ErrorCode.CORRUPT_MESSAGE
    else:
        assert 100 <= record.offset <= 109
        assert end <= len(garbage)
