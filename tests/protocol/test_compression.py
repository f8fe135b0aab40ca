"""Compressed data: as Kafka's clients write it and read it, and never more of it than was allowed."""

from __future__ import annotations

import gzip
import resource
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.compression import (
    GZIP_MAX_MEMBERS,
    XERIAL_HEADER,
    Codec,
    codec_of,
    compress,
    decompress,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_set import read_message_header
from tests.protocol.golden_logs import golden_batches
from tests.protocol.kafka_python import codec as kafka_python
from tests.protocol.record_strategies import PROPERTY

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
CODECS_OF_FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if (codec, magic) not in ((4, 0), (4, 1))]
ENCODERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: kafka_python.gzip_encode,
    Codec.SNAPPY: kafka_python.snappy_encode,
    Codec.LZ4: kafka_python.lz4_encode,
    Codec.ZSTD: kafka_python.zstd_encode,
}
DECODERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: kafka_python.gzip_decode,
    Codec.SNAPPY: kafka_python.snappy_decode,
    Codec.LZ4: kafka_python.lz4_decode,
    Codec.ZSTD: kafka_python.zstd_decode,
}
SAMPLE = b"".join(b"line %d of a text that compresses\n" % (number % 97) for number in range(4000))
LIMIT = 1 << 20


def xerial(*blocks: bytes) -> bytes:
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def zstd_frame(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def refused_code(codec: Codec, data: bytes | bytearray, *, max_size: int = LIMIT, magic: int = 2) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        decompress(codec, data, max_size=max_size, magic=magic)
    return refusal.value.code


@pytest.mark.parametrize(("magic", "codec"), CODECS_OF_FORMATS)
@PROPERTY
@given(data=st.one_of(st.binary(max_size=300), st.binary(min_size=1, max_size=9).map(lambda part: part * 9000)))
def test_what_was_compressed_comes_back(codec: Codec, magic: int, data: bytes) -> None:
    compressed = compress(codec, data, magic=magic)

    assert decompress(codec, compressed, max_size=len(data), magic=magic) == data
    assert decompress(codec, memoryview(compressed), max_size=LIMIT, magic=magic) == data


@pytest.mark.parametrize("codec", CODECS)
def test_another_client_reads_what_is_written(codec: Codec) -> None:
    assert DECODERS[codec](compress(codec, SAMPLE)) == SAMPLE


@pytest.mark.parametrize("codec", CODECS)
def test_what_another_client_writes_is_read(codec: Codec) -> None:
    assert decompress(codec, ENCODERS[codec](SAMPLE), max_size=LIMIT) == SAMPLE


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_met_exactly(codec: Codec) -> None:
    compressed = compress(codec, SAMPLE)

    assert decompress(codec, compressed, max_size=len(SAMPLE)) == SAMPLE
    assert refused_code(codec, compressed, max_size=len(SAMPLE) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_uncompressed_data_is_bounded_too() -> None:
    assert refused_code(Codec.NONE, SAMPLE, max_size=10) is ErrorCode.MESSAGE_TOO_LARGE


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

    try:
        output = decompress(codec, compressed, max_size=6000)
    except KafkaError as refusal:
        assert refusal.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
    else:
        assert len(output) <= 6000


@pytest.mark.parametrize("codec", [*CODECS, Codec.NONE])
@PROPERTY
@given(garbage=st.binary(max_size=60))
def test_garbage_is_refused_or_stays_within_the_limit(codec: Codec, garbage: bytes) -> None:
    try:
        output = decompress(codec, garbage, max_size=1000)
    except KafkaError as refusal:
        assert refusal.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
    else:
        assert len(output) <= 1000


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(32 << 20))
    decompress(codec, compress(codec, b"first use imports the library"), max_size=LIMIT)

    tracemalloc.start()
    try:
        code = refused_code(codec, bomb, max_size=LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 3 * LIMIT + len(bomb)


@pytest.mark.parametrize("block", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0fabcdef"])
@pytest.mark.parametrize("framed", [False, True])
def test_a_snappy_block_that_claims_4_gib_is_refused_before_memory_is_taken(block: bytes, framed: bool) -> None:
    tracemalloc.start()
    try:
        code = refused_code(Codec.SNAPPY, xerial(block) if framed else block)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < LIMIT


def test_snappy_blocks_share_one_limit() -> None:
    block = raw_snappy(bytes(1000))

    assert decompress(Codec.SNAPPY, xerial(*[block] * 10), max_size=10_000) == bytes(10_000)
    assert refused_code(Codec.SNAPPY, xerial(*[block] * 10), max_size=9_999) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 2**31 - 1, 7])
def test_a_snappy_block_of_impossible_size_is_corrupt(size: int) -> None:
    stream = XERIAL_HEADER + struct.pack(">i", size) + b"abcdef"

    assert refused_code(Codec.SNAPPY, stream) is ErrorCode.CORRUPT_MESSAGE


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    compressed = compress(Codec.SNAPPY, bytes(70_000))

    assert compressed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    sizes, position = [], 16
    while position < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, position)
        sizes.append(cramjam.snappy.decompress_raw_len(compressed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert sizes == [32768, 32768, 4464]


def test_snappy_without_xerial_framing_is_read() -> None:
    assert decompress(Codec.SNAPPY, raw_snappy(SAMPLE), max_size=LIMIT) == SAMPLE


def test_a_second_xerial_stream_behind_the_first_is_read() -> None:
    stream = xerial(raw_snappy(b"one, "), raw_snappy(b"")) + xerial(raw_snappy(b"two"))

    assert decompress(Codec.SNAPPY, stream, max_size=LIMIT) == b"one, two"


def test_all_members_of_a_gzip_stream_are_read_and_what_follows_them_is_not() -> None:
    stream = gzip.compress(SAMPLE) + gzip.compress(b"") + gzip.compress(b"end")

    assert decompress(Codec.GZIP, stream, max_size=LIMIT) == SAMPLE + b"end"
    assert decompress(Codec.GZIP, stream + b"padding", max_size=LIMIT) == SAMPLE + b"end"
    assert refused_code(Codec.GZIP, stream, max_size=len(SAMPLE) + 2) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_gzip_stream_of_countless_empty_members_is_refused() -> None:
    stream = gzip.compress(b"") * (GZIP_MAX_MEMBERS + 1)

    assert refused_code(Codec.GZIP, stream) is ErrorCode.CORRUPT_MESSAGE


def test_a_gzip_stream_of_the_wrong_checksum_is_corrupt() -> None:
    compressed = bytearray(compress(Codec.GZIP, SAMPLE))
    compressed[-8] ^= 1

    assert refused_code(Codec.GZIP, bytes(compressed)) is ErrorCode.CORRUPT_MESSAGE


def test_a_bare_deflate_stream_is_no_gzip() -> None:
    assert refused_code(Codec.GZIP, zlib.compress(SAMPLE)) is ErrorCode.CORRUPT_MESSAGE


def test_lz4_is_written_in_independent_blocks_of_64_kib() -> None:
    header = compress(Codec.LZ4, bytes(200_000))[:7]

    assert header == b"\x04\x22\x4d\x18\x60\x40\x82"  # the checksum of 60 40 is 82


def test_lz4_blocks_that_depend_on_each_other_are_refused() -> None:
    linked = lz4.frame.compress(bytes(200_000), block_linked=True)

    assert refused_code(Codec.LZ4, linked) is ErrorCode.CORRUPT_MESSAGE


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

    assert decompress(Codec.LZ4, old, max_size=LIMIT, magic=0) == SAMPLE
    assert decompress(Codec.LZ4, right, max_size=LIMIT, magic=0) == SAMPLE
    assert refused_code(Codec.LZ4, old, magic=1) is ErrorCode.CORRUPT_MESSAGE
    assert refused_code(Codec.LZ4, old, magic=2) is ErrorCode.CORRUPT_MESSAGE


def test_lz4_of_magic_0_may_say_its_size_and_still_have_the_old_checksum() -> None:
    frame = bytearray(lz4.frame.compress(SAMPLE, block_linked=False, store_size=True))
    frame[14] ^= 0x55

    assert decompress(Codec.LZ4, frame, max_size=LIMIT, magic=0) == SAMPLE
    assert refused_code(Codec.LZ4, bytes(frame), magic=1) is ErrorCode.CORRUPT_MESSAGE


@PROPERTY
@given(st.binary(max_size=40))
def test_lz4_headers_of_magic_0_never_fail_otherwise(tail: bytes) -> None:
    try:
        decompress(Codec.LZ4, b"\x04\x22\x4d\x18" + tail, max_size=1000, magic=0)
    except KafkaError as refusal:
        assert refusal.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_no_zstd(magic: int) -> None:
    assert refused_code(Codec.ZSTD, zstd_frame(SAMPLE), magic=magic) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(KafkaError) as refusal:
        compress(Codec.ZSTD, SAMPLE, magic=magic)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_frames_may_follow_each_other_and_nothing_else_may() -> None:
    frame = zstd_frame(SAMPLE)

    assert decompress(Codec.ZSTD, frame + frame, max_size=LIMIT) == SAMPLE * 2
    assert refused_code(Codec.ZSTD, frame + b"rest") is ErrorCode.CORRUPT_MESSAGE


def test_a_zstd_window_of_gigabytes_is_refused_before_it_is_allocated() -> None:
    empty_block = b"\x01\x00\x00"
    frame_of_2_gib = b"\x28\xb5\x2f\xfd\x00" + bytes(((31 - 10) << 3,)) + empty_block

    assert refused_code(Codec.ZSTD, frame_of_2_gib) is ErrorCode.CORRUPT_MESSAGE


def test_a_zstd_bomb_costs_no_more_than_the_limit() -> None:
    bomb = zstd_frame(bytes(1 << 27))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert len(bomb) < 1 << 16
    assert refused_code(Codec.ZSTD, bomb) is ErrorCode.MESSAGE_TOO_LARGE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_the_codec_is_in_the_low_three_bits() -> None:
    assert [codec_of(0x38 | number) for number in range(5)] == list(Codec)
    for number in (5, 6, 7):
        with pytest.raises(KafkaError) as refusal:
            codec_of(number)
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


def test_codecs_have_kafkas_names() -> None:
    assert [codec.kafka_name for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
