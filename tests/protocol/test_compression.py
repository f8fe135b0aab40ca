"""Compressed data: as Kafka's clients write it and read it, and never more of it than was allowed."""

from __future__ import annotations

import gzip
import os
import resource
import struct
import zlib
from functools import partial
from itertools import product

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.compression import GZIP_MAX_MEMBERS, XERIAL_HEADER, Codec, codec_of, compress, decompress
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_set import read_message_header
from tests.protocol.golden_logs import golden_batches
from tests.protocol.kafka_python import codec as kafka_python
from tests.protocol.memory import no_more_memory_than
from tests.protocol.record_strategies import PROPERTY
from tests.refusals import refusal_of

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
CODECS_OF_FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if (codec, magic) not in ((4, 0), (4, 1))]
SAMPLE = b"".join(b"line %d of a text that compresses\n" % (number % 97) for number in range(4000))
LIMIT = 1 << 20


def xerial(*blocks: bytes) -> bytes:
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def zstd_frame(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def refused_code(codec: Codec, data: bytes | bytearray, *, max_size: int = LIMIT, magic: int = 2) -> ErrorCode:
    return refusal_of(lambda: decompress(codec, data, max_size=max_size, magic=magic))


@pytest.mark.parametrize(("magic", "codec"), CODECS_OF_FORMATS)
@PROPERTY
@given(data=st.one_of(st.binary(max_size=300), st.binary(min_size=1, max_size=9).map(lambda part: part * 9000)))
def test_compressed_bytes_come_back(codec: Codec, magic: int, data: bytes) -> None:
    compressed = compress(codec, data, magic=magic)

    assert decompress(codec, compressed, max_size=len(data), magic=magic) == data
    assert decompress(codec, memoryview(compressed), max_size=LIMIT, magic=magic) == data


@pytest.mark.parametrize("codec", CODECS)
def test_other_clients_read_the_compressed_bytes_and_write_readable_ones(codec: Codec) -> None:
    encode, decode = (getattr(kafka_python, f"{codec.name.lower()}_{what}") for what in ("encode", "decode"))

    assert decode(compress(codec, SAMPLE)) == SAMPLE
    assert decompress(codec, encode(SAMPLE), max_size=LIMIT) == SAMPLE


@pytest.mark.parametrize("codec", [*CODECS, Codec.NONE])
def test_the_limit_is_met_exactly(codec: Codec) -> None:
    compressed = compress(codec, SAMPLE)

    assert decompress(codec, compressed, max_size=len(SAMPLE)) == SAMPLE
    assert refused_code(codec, compressed, max_size=len(SAMPLE) - 1) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_cut_off_at_any_byte_is_corrupt(codec: Codec) -> None:
    compressed = compress(codec, SAMPLE[:100] + bytes(range(256)))
    # Between two of its blocks a xerial stream does not show that more should follow; counts of records do.
    whole_streams = {16} if codec is Codec.SNAPPY else set()

    for end in set(range(len(compressed))) - whole_streams:
        assert refused_code(codec, compressed[:end]) is ErrorCode.CORRUPT_MESSAGE, end


@pytest.mark.parametrize("codec", CODECS)
@PROPERTY
@given(data=st.data())
def test_damage_is_refused_or_stays_within_the_limit(codec: Codec, data: st.DataObject) -> None:
    compressed = bytearray(compress(codec, SAMPLE[:5000]))
    for _ in range(data.draw(st.integers(1, 4))):
        compressed[data.draw(st.integers(0, len(compressed) - 1))] = data.draw(st.integers(0, 255))

    assert_refused_or_within(6000, codec, compressed)


@pytest.mark.parametrize("codec", [*CODECS, Codec.NONE])
@PROPERTY
@given(garbage=st.binary(max_size=60))
def test_garbage_is_refused_or_stays_within_the_limit(codec: Codec, garbage: bytes) -> None:
    assert_refused_or_within(1000, codec, garbage)
    assert_refused_or_within(1000, Codec.LZ4, b"\x04\x22\x4d\x18" + garbage, magic=0)  # a header of its own


def assert_refused_or_within(limit: int, codec: Codec, data: bytes | bytearray, *, magic: int = 2) -> None:
    try:
        output = decompress(codec, data, max_size=limit, magic=magic)
    except KafkaError as refusal:
        assert refusal.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
    else:
        assert len(output) <= limit


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(32 << 20))
    decompress(codec, compress(codec, b"first use imports the library"), max_size=LIMIT)

    with no_more_memory_than(3 * LIMIT + len(bomb)):
        assert refused_code(codec, bomb, max_size=LIMIT) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("block", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0fabcdef"])
@pytest.mark.parametrize("framed", [False, True])
def test_a_snappy_block_that_claims_4_gib_is_refused_before_memory_is_taken(block: bytes, framed: bool) -> None:
    with no_more_memory_than(LIMIT):
        assert refused_code(Codec.SNAPPY, xerial(block) if framed else block) is ErrorCode.MESSAGE_TOO_LARGE


def test_snappy_blocks_share_one_limit() -> None:
    block = raw_snappy(bytes(1000))

    assert decompress(Codec.SNAPPY, xerial(*[block] * 10), max_size=10_000) == bytes(10_000)
    assert refused_code(Codec.SNAPPY, xerial(*[block] * 10), max_size=9_999) is ErrorCode.MESSAGE_TOO_LARGE


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    compressed = compress(Codec.SNAPPY, bytes(70_000))

    assert compressed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    sizes, position = [], 16
    while position < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, position)
        sizes.append(cramjam.snappy.decompress_raw_len(compressed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert sizes == [32768, 32768, 4464]


def test_snappy_is_read_without_xerial_framing_and_in_several_streams_of_it() -> None:
    streams = xerial(raw_snappy(b"one, "), raw_snappy(b"")) + xerial(raw_snappy(b"two"))

    assert decompress(Codec.SNAPPY, raw_snappy(SAMPLE), max_size=LIMIT) == SAMPLE
    assert decompress(Codec.SNAPPY, streams, max_size=LIMIT) == b"one, two"


def test_all_members_of_a_gzip_stream_are_read_and_nothing_after_them() -> None:
    stream = gzip.compress(SAMPLE) + gzip.compress(b"") + gzip.compress(b"end")

    assert decompress(Codec.GZIP, stream, max_size=LIMIT) == SAMPLE + b"end"
    assert decompress(Codec.GZIP, stream + b"padding", max_size=LIMIT) == SAMPLE + b"end"
    assert refused_code(Codec.GZIP, stream, max_size=len(SAMPLE) + 2) is ErrorCode.MESSAGE_TOO_LARGE


def with_wrong_checksum(stream: bytes) -> bytes:
    return stream[:-8] + bytes((stream[-8] ^ 1,)) + stream[-7:]


@pytest.mark.parametrize(
    ("codec", "stream"),
    [
        pytest.param(Codec.GZIP, gzip.compress(b"") * (GZIP_MAX_MEMBERS + 1), id="countless empty members"),
        pytest.param(Codec.GZIP, with_wrong_checksum(gzip.compress(SAMPLE)), id="a wrong checksum"),
        pytest.param(Codec.GZIP, zlib.compress(SAMPLE), id="a bare deflate stream"),
        pytest.param(
            Codec.LZ4, lz4.frame.compress(bytes(200_000), block_linked=True), id="blocks that depend on others"
        ),
        pytest.param(Codec.ZSTD, zstd_frame(SAMPLE) + b"rest", id="more behind a frame"),
        pytest.param(Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", id="a window of 2 GiB"),
        *(
            pytest.param(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", size) + b"abcdef", id=f"a block of {size}")
            for size in (-1, -(2**31), 0, 2**31 - 1, 7)
        ),
    ],
)
def test_a_stream_that_cannot_be_is_corrupt(codec: Codec, stream: bytes) -> None:
    assert refused_code(codec, stream) is ErrorCode.CORRUPT_MESSAGE


def test_lz4_is_written_in_independent_blocks_of_64_kib() -> None:
    header = compress(Codec.LZ4, bytes(200_000))[:7]

    assert header == b"\x04\x22\x4d\x18\x60\x40\x82"  # the checksum of 60 40 is 82


def test_lz4_of_other_writers_is_read_and_nothing_after_its_frame() -> None:
    sample = SAMPLE + os.urandom(100_000)  # which no block makes smaller
    for checks in product((False, True), repeat=3):
        names = ("content_checksum", "block_checksum", "store_size")
        frame = lz4.frame.compress(sample, block_linked=False, **dict(zip(names, checks, strict=True)))

        assert decompress(Codec.LZ4, frame, max_size=LIMIT) == sample
        assert decompress(Codec.LZ4, frame + b"rest", max_size=LIMIT) == sample
    assert lz4.frame.decompress(compress(Codec.LZ4, sample)) == sample


@pytest.mark.parametrize("magic", [0, 2])
@pytest.mark.parametrize("bit", [0x01, 0x02])
def test_lz4_with_a_dictionary_or_reserved_bits_is_refused(bit: int, magic: int) -> None:
    frame = bytearray(compress(Codec.LZ4, SAMPLE, magic=magic))
    frame[4] |= bit

    assert refused_code(Codec.LZ4, frame, magic=magic) is ErrorCode.CORRUPT_MESSAGE


def test_lz4_of_magic_0_is_written_as_kafka_writes_it() -> None:
    wrapper = next(
        batch
        for batch in golden_batches()
        if batch.view.magic == 0 and batch.view.attributes & 7 == Codec.LZ4 and len(batch.records) > 1
    )
    header = read_message_header(wrapper.data)
    assert header.codec is Codec.LZ4
    by_kafka = wrapper.data[26:]

    ours = compress(Codec.LZ4, b"anything", magic=0)

    assert ours[:7] == by_kafka[:7]
    assert ours[:7] != compress(Codec.LZ4, b"anything", magic=1)[:7]


def test_only_magic_0_may_have_the_old_lz4_header_checksum() -> None:
    old, right = compress(Codec.LZ4, SAMPLE, magic=0), compress(Codec.LZ4, SAMPLE, magic=1)
    old_with_its_size = bytearray(lz4.frame.compress(SAMPLE, block_linked=False, store_size=True))
    old_with_its_size[14] ^= 0x55

    for frame in (old, right, old_with_its_size):
        assert decompress(Codec.LZ4, frame, max_size=LIMIT, magic=0) == SAMPLE
    for frame, magic in ((old, 1), (old, 2), (old_with_its_size, 1)):
        assert refused_code(Codec.LZ4, bytes(frame), magic=magic) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_no_zstd(magic: int) -> None:
    assert refused_code(Codec.ZSTD, zstd_frame(SAMPLE), magic=magic) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refusal_of(lambda: compress(Codec.ZSTD, SAMPLE, magic=magic)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_frames_may_follow_each_other() -> None:
    assert decompress(Codec.ZSTD, zstd_frame(SAMPLE) * 2, max_size=LIMIT) == SAMPLE * 2


def test_a_zstd_bomb_costs_no_more_than_the_limit() -> None:
    bomb = zstd_frame(bytes(1 << 27))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert len(bomb) < 1 << 16
    assert refused_code(Codec.ZSTD, bomb) is ErrorCode.MESSAGE_TOO_LARGE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_codecs_have_kafkas_names_and_are_in_the_low_three_bits() -> None:
    assert [codec.name.lower() for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [codec_of(0x38 | number) for number in range(5)] == list(Codec)
    assert {refusal_of(partial(codec_of, number)) for number in (5, 6, 7)} == {ErrorCode.CORRUPT_MESSAGE}
