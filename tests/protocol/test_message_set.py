"""Messages of magic 0 and 1, alone and in wrappers: as Kafka 2.0.1 and kafka-python have them, and damaged."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.compression import Codec, compress
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_set import (
    MESSAGE_HEADER_V0,
    MESSAGE_HEADER_V1,
    MESSAGE_OVERHEAD_V0,
    MESSAGE_OVERHEAD_V1,
    MessageHeader,
    build_message_set,
    iter_message_records,
    message_crc_is_valid,
    read_message_header,
    stamp_message,
)
from minibroker.protocol.record import NO_TIMESTAMP, Record
from minibroker.protocol.record_batch import TimestampType
from tests.protocol.golden_logs import golden_batches
from tests.protocol.record_strategies import INT32, INT64, LIMIT, PROPERTY
from tests.protocol.record_strategies import RECORDS as NEW_RECORDS
from tests.refusals import refusal_of

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
WRAPPERS = [(magic, codec) for magic in (0, 1) for codec in CODECS[1:]]
RECORDS = [record._replace(headers=()) for record in NEW_RECORDS]


def records_of(messages: bytes | bytearray, limit: int = LIMIT, *, is_sent: bool = False) -> list[Record]:
    """Return the records of all messages and wrappers in the set."""
    records: list[Record] = []
    position = 0
    while position < len(messages):
        records += iter_message_records(messages, position, max_decompressed_bytes=limit, is_sent=is_sent)
        position += read_message_header(messages, position).size_bytes
    return records


def refused_code(messages: bytes | bytearray, limit: int = LIMIT, *, is_sent: bool = False) -> ErrorCode:
    return refusal_of(lambda: records_of(messages, limit, is_sent=is_sent))


def wrapped(
    content: bytes | bytearray | None, *, magic: int, codec: Codec = Codec.GZIP, offset: int, attributes: int = 0
) -> bytearray:
    """Return a wrapper of any content; a content of None is a null value."""
    value = None if content is None else compress(codec, content, magic=magic)
    message = build_message_set([Record(offset, 5000, None, value)], magic=magic)
    message[17] = attributes | codec
    struct.pack_into(">I", message, 12, zlib.crc32(message[16:]))
    return message


def test_the_headers_are_those_of_the_construct_declarations() -> None:
    assert (MESSAGE_HEADER_V0.sizeof(), MESSAGE_HEADER_V1.sizeof()) == (18, 26)
    assert (MESSAGE_OVERHEAD_V0, MESSAGE_OVERHEAD_V1) == (14, 22)
    assert tuple(field.name for field in MESSAGE_HEADER_V1.subcons) == MessageHeader._fields


@PROPERTY
@given(INT64, st.integers(22, 2**31 - 1), st.integers(0, 2**32 - 1), st.integers(-128, 127), INT64)
def test_construct_and_struct_agree_on_every_header(
    offset: int, size: int, crc: int, attributes: int, timestamp: int
) -> None:
    new = MessageHeader(offset, size, crc, 1, attributes, timestamp)
    old = MessageHeader(offset, size, crc, 0, attributes, NO_TIMESTAMP)

    assert read_message_header(MESSAGE_HEADER_V1.build(new._asdict())) == new
    assert read_message_header(b"..." + MESSAGE_HEADER_V0.build(old._asdict()), 3) == old


@pytest.mark.parametrize("magic", [0, 1])
def test_kafkas_messages_are_valid_and_built_again(magic: int) -> None:
    codecs, unequal = set(), 0
    for _, view, data, records in golden_batches():
        if view.magic != magic:
            continue
        header = read_message_header(data)
        assert message_crc_is_valid(data, 0, header)
        assert records[-1].offset == header.offset
        rebuilt = build_message_set(records, magic=magic, codec=header.codec)
        assert tuple(records_of(rebuilt)) == records
        unequal += rebuilt != data
        codecs.add(header.codec)

    assert codecs == set(CODECS)
    # Two wrappers of magic 1 are as a Python client compressed them; all others were built by Kafka.
    assert unequal == (2 if magic == 1 else 0)


def test_offsets_inside_a_wrapper_are_relative_in_magic_1_and_absolute_in_magic_0() -> None:
    wrappers = [build_message_set(RECORDS, magic=magic, codec=Codec.GZIP) for magic in (0, 1)]
    contents = [zlib.decompress(wrapper[size:], 31) for wrapper, size in zip(wrappers, (26, 34), strict=True)]

    assert [[each.offset for each in records_of(content)] for content in contents] == [[20, 21, 24], [0, 1, 4]]


@pytest.mark.parametrize(("magic", "codec"), WRAPPERS)
def test_a_wrapper_has_the_last_offset_the_latest_timestamp_and_no_key(magic: int, codec: Codec) -> None:
    header = read_message_header(build_message_set(RECORDS, magic=magic, codec=codec))

    assert (header.offset, header.codec, header.is_compressed) == (24, codec, True)
    assert header.timestamp == (1_700_000_000_900 if magic else NO_TIMESTAMP)


@pytest.mark.parametrize(("offset", "inside"), [(1004, [1000, 1001, 1004]), (0, [0, 1, 4])])
def test_a_wrapper_moves_the_offsets_inside_by_its_own_unless_it_is_0(offset: int, inside: list[int]) -> None:
    wrapper = build_message_set(RECORDS, magic=1, codec=Codec.SNAPPY)
    crc = read_message_header(wrapper).crc

    stamp_message(wrapper, 0, offset=offset)

    assert [record.offset for record in records_of(wrapper, is_sent=True)] == inside
    assert read_message_header(wrapper).crc == crc
    stamp_message(wrapper, 0, offset=3)
    assert refused_code(wrapper, is_sent=True) is ErrorCode.CORRUPT_MESSAGE, "it lies before its last message"


@pytest.mark.parametrize(("offset", "inside"), [(1054, [1050, 1051, 1054]), (24, [20, 21, 24]), (4, [0, 1, 4])])
def test_in_a_log_the_offset_of_a_wrapper_is_right_whatever_the_offsets_inside(offset: int, inside: list[int]) -> None:
    """As earlier versions of minibroker stored them."""
    content = b"".join(build_message_set([record], magic=1) for record in RECORDS)

    wrapper = wrapped(content, magic=1, offset=offset)

    assert [record.offset for record in records_of(wrapper)] == inside


def test_the_only_record_of_a_wrapper_at_0_in_a_log_is_there_and_one_that_was_sent_where_it_is_inside() -> None:
    wrapper = wrapped(build_message_set(RECORDS[:1], magic=1), magic=1, offset=0)

    assert [[each.offset for each in records_of(wrapper, is_sent=is_sent)] for is_sent in (False, True)] == [[0], [20]]


def test_append_time_stamped_on_a_wrapper_is_that_of_every_message_inside() -> None:
    wrapper = build_message_set(RECORDS, magic=1, codec=Codec.LZ4) + b"next"
    before = read_message_header(wrapper)

    stamp_message(wrapper, 0, offset=24, timestamp_ms=88, log_append_time=True)

    header = read_message_header(wrapper)
    assert message_crc_is_valid(wrapper, 0, header)
    assert (header.timestamp, header.timestamp_type) == (88, TimestampType.LOG_APPEND_TIME)
    assert header.codec is Codec.LZ4
    assert {record.timestamp_ms for record in records_of(wrapper[:-4])} == {88}
    assert wrapper.endswith(b"next")
    stamp_message(wrapper, 0, offset=24, timestamp_ms=before.timestamp)
    assert read_message_header(wrapper) == before


def test_magic_0_has_no_time() -> None:
    messages = build_message_set(RECORDS, magic=0, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=77)

    assert {record.timestamp_ms for record in records_of(messages)} == {NO_TIMESTAMP}
    assert messages[17] == 0
    assert read_message_header(wrapped(b"", magic=0, offset=0, attributes=8)).timestamp_type is (
        TimestampType.CREATE_TIME
    )
    with pytest.raises(ValueError, match="no timestamp"):
        stamp_message(messages, 0, offset=5, timestamp_ms=77)


def test_no_message_set_of_magic_2_is_built() -> None:
    with pytest.raises(ValueError, match="magic 2"):
        build_message_set(RECORDS, magic=2)


@pytest.mark.parametrize(("magic", "codec"), WRAPPERS)
def test_a_wrapper_in_a_wrapper_is_corrupt(magic: int, codec: Codec) -> None:
    inner = build_message_set(RECORDS, magic=magic, codec=codec)

    assert refused_code(wrapped(inner, magic=magic, codec=codec, offset=24)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_of_anything_but_whole_messages_of_its_magic_is_corrupt(magic: int) -> None:
    inner = build_message_set(RECORDS, magic=magic)
    wrong_checksum, record_batch = bytearray(inner), bytearray(inner)
    wrong_checksum[-1] ^= 1
    record_batch[16] = 2
    others = build_message_set(RECORDS, magic=1 - magic)

    assert len(records_of(wrapped(inner, magic=magic, offset=24))) == 3
    cut_to_nothing = inner[:20]
    for content in (None, b"", b"\x00" * 11, b"\xff" * 40, others, cut_to_nothing, wrong_checksum, record_batch):
        assert refused_code(wrapped(content, magic=magic, offset=24)) is ErrorCode.CORRUPT_MESSAGE, content


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_cut_off_at_the_end_of_a_wrapper_does_not_count(magic: int) -> None:
    inner = build_message_set(RECORDS, magic=magic)
    last_size = len(build_message_set(RECORDS[2:], magic=magic))

    for cut in range(1, last_size):
        assert [each.offset for each in records_of(wrapped(inner[:-cut], magic=magic, offset=21))] == [20, 21]


@pytest.mark.parametrize("magic", [0, 1])
@PROPERTY
@given(key_size=INT32, value_size=INT32)
def test_sizes_that_do_not_fill_the_message_are_corrupt(magic: int, key_size: int, value_size: int) -> None:
    message = build_message_set([Record(0, 0, b"key", b"value")], magic=magic)
    key_at = 18 if magic == 0 else 26
    for at, size, true_size in ((key_at, key_size, 3), (key_at + 7, value_size, 5)):
        changed = message.copy()
        struct.pack_into(">i", changed, at, size)
        if size != true_size:
            assert refused_code(changed) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(("magic", "size"), [(0, 13), (0, 0), (0, -1), (1, 21), (1, -(2**31)), (2, 49), (-1, 49)])
def test_an_impossible_size_or_magic_of_a_message_is_corrupt(magic: int, size: int) -> None:
    data = struct.pack(">qiIbb40x", 0, size, 0, magic, 0)

    assert refusal_of(lambda: read_message_header(data)) is ErrorCode.CORRUPT_MESSAGE
