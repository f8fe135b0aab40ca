"""Compresses and decompresses records, framed as Kafka's Java clients frame them.

gzip: one or more gzip members.  lz4: a frame of independent 64 KiB blocks.  snappy: xerial's framing,
`\\x82SNAPPY\\0 | version: int32 | compatible: int32 | (size: int32 | raw snappy block)*`, or one raw block.
zstd: one or more frames, with windows of 128 MiB at most; in batches of magic 2 only.

`decompress` never holds more than `max_size` bytes of output: it checks the size that a stream claims before it
allocates memory. Errors of the libraries become KafkaError in `_map_errors` alone. The libraries are imported at
first use, as most brokers never decompress a batch.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from mmap import mmap

    from _typeshed import ReadableBuffer

CODEC_MASK = 0x07

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
# A block "size" of these four bytes is the header of a second stream behind the first, as `cat a b` makes it.
XERIAL_NEXT_STREAM = struct.unpack(">i", XERIAL_MAGIC[:4])[0]

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_INDEPENDENT_BLOCKS = 0x20
LZ4_BLOCK_CHECKSUMS = 0x10
LZ4_CONTENT_SIZE = 0x08
LZ4_CONTENT_CHECKSUM = 0x04
LZ4_HEADER = LZ4_MAGIC + b"\x60\x40"  # version 1, independent blocks, of 64 KiB at most; its checksum follows
LZ4_BLOCK_BYTES = 64 * 1024
LZ4_AS_IT_IS = 0x80000000  # in a block's size: it is not compressed
LZ4_END = bytes(4)
LZ4_RESERVED = 0x03  # a later version gave one of these bits to dictionaries, which Kafka never uses

# zlib copies what follows a member, so it gets its input in pieces: the cost of many tiny members stays linear.
GZIP_PIECE_BYTES = 16 * 1024
GZIP_WINDOW_BITS = 31
RAW_DEFLATE_WINDOW_BITS = -15
GZIP_MAGIC = b"\x1f\x8b"
# Deflate, no name, no time, no operating system: as Java writes it, so that bytes can be compared with Kafka's.
GZIP_HEADER = GZIP_MAGIC + b"\x08\x00\x00\x00\x00\x00\x00\xff"
# Many empty members cost time and yield nothing; no writer makes as many as this.
GZIP_MAX_MEMBERS = 10_000
GZIP_TRAILER_BYTES = 8
GZIP_TRAILER_ERRORS = ("incorrect data check", "incorrect length check")  # of zlib

ZSTD_LEVEL = 3  # the default of Kafka's producers
HAS_NO_ROOM = "failed to write whole buffer"  # cramjam's message for an output that is too small
FIRST_MAGIC_WITH_ZSTD = 2

_int32 = struct.Struct(">i")
_lz4_size = struct.Struct("<I")


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4  # came with Kafka 2.1


def codec_of(attributes: int) -> Codec:
    """Return the codec in a batch's attributes. Raises KafkaError(CORRUPT_MESSAGE) for an unknown one."""
    try:
        return Codec(attributes & CODEC_MASK)
    except ValueError:
        raise corrupt(f"Unknown compression type id: {attributes & CODEC_MASK}") from None


def compress(codec: Codec, data: bytes | bytearray, *, magic: int = 2) -> bytes:
    """Compress `data` for a batch of that magic. Raises KafkaError(UNSUPPORTED_COMPRESSION_TYPE) for zstd below 2."""
    return _COMPRESSORS[codec](data, magic)


def decompress(codec: Codec, data: bytes | bytearray | memoryview, *, max_size: int, magic: int = 2) -> bytes:
    """Return the decompressed bytes, `max_size` at most.

    Raises KafkaError: CORRUPT_MESSAGE if the stream is damaged or ends early, MESSAGE_TOO_LARGE if it holds more
    than `max_size` bytes, UNSUPPORTED_COMPRESSION_TYPE for zstd below magic 2.
    """
    return _DECOMPRESSORS[codec](data, max_size, magic)


class WrongTrailerError(KafkaError):
    """The stream decompresses to `data`, and its trailer has the checksum or the length of something else."""

    def __init__(self, message: str, data: bytes) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
        self.data = data


def corrupt(message: str) -> KafkaError:
    """Return the error for bytes that are not a valid batch."""
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


@contextmanager
def _map_errors(stream: str, *foreign: type[Exception]) -> Iterator[None]:
    """Turn the errors of a library into KafkaError(CORRUPT_MESSAGE)."""
    try:
        yield
    except foreign as error:
        raise corrupt(f"the {stream} is damaged: {error}") from None


def _too_large(max_size: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the decompressed records exceed {max_size} bytes")


def _check_may_have_zstd(magic: int) -> None:
    if magic < FIRST_MAGIC_WITH_ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"ZStandard compression is not supported for magic {magic}"
        )


def _keep(data: bytes | bytearray, magic: int) -> bytes:
    return bytes(data)


def _bounded_copy(data: bytes | bytearray | memoryview, max_size: int, magic: int) -> bytes:
    if len(data) > max_size:
        raise _too_large(max_size)
    return bytes(data)


def _gzip(data: bytes | bytearray, magic: int) -> bytes:
    import zlib

    stream = zlib.compressobj(6, zlib.DEFLATED, RAW_DEFLATE_WINDOW_BITS)
    trailer = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join((GZIP_HEADER, stream.compress(data), stream.flush(), trailer))


def _gunzip(data: bytes | bytearray | memoryview, max_size: int, magic: int) -> bytes:
    import zlib

    view = memoryview(data)
    position, left, output = 0, max_size, []
    with _map_errors("gzip stream", zlib.error):
        for _ in range(GZIP_MAX_MEMBERS):
            member, start, left_before = zlib.decompressobj(GZIP_WINDOW_BITS), position, left
            while not member.eof:
                piece = view[position : position + GZIP_PIECE_BYTES]
                if not piece:
                    raise corrupt("the gzip stream ends early")
                try:
                    text = member.decompress(piece, left + 1)
                except zlib.error as error:
                    if not str(error).endswith(GZIP_TRAILER_ERRORS):
                        raise
                    before = zlib.decompressobj(GZIP_WINDOW_BITS)
                    text = before.decompress(view[start:-GZIP_TRAILER_BYTES], left_before + 1)
                    raise WrongTrailerError(f"the gzip stream is damaged: {error}", text) from None
                if len(text) > left:
                    raise _too_large(max_size)
                output.append(text)
                left -= len(text)
                position += len(piece) - len(member.unconsumed_tail) - len(member.unused_data)
            # As java.util.zip.GZIPInputStream, ignore what follows the last member.
            if view[position : position + 2] != GZIP_MAGIC:
                return b"".join(output)
    raise corrupt(f"the gzip stream has over {GZIP_MAX_MEMBERS} members")


def _snap(data: bytes | bytearray, magic: int) -> bytes:
    from cramjam import snappy

    view, output = memoryview(data), [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        output += (_int32.pack(len(block)), block)
    return b"".join(output)


def _unsnap(data: bytes | bytearray | memoryview, max_size: int, magic: int) -> bytes:
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return bytes(_unsnap_block(view, max_size, max_size))
    position, left, output = len(XERIAL_HEADER), max_size, []
    while position != len(view):
        if len(view) - position < 4:
            raise corrupt("the snappy stream ends within its header or the size of a block")
        (size,) = _int32.unpack_from(view, position)
        if size == XERIAL_NEXT_STREAM and view[position : position + 8] == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            continue
        position += 4
        if not 0 < size <= len(view) - position:
            raise corrupt(f"the snappy stream has a block of {size} bytes where {len(view) - position} are left")
        output.append(_unsnap_block(view[position : position + size], left, max_size))
        left -= len(output[-1])
        position += size
    return b"".join(output)


def _unsnap_block(block: memoryview, left: int, max_size: int) -> bytearray:
    from cramjam import DecompressionError, snappy

    with _map_errors("snappy block", DecompressionError):
        claimed = snappy.decompress_raw_len(block)
        if claimed > left:
            raise _too_large(max_size)
        output = bytearray(claimed)
        written = snappy.decompress_raw_into(block, output) if len(block) else -1
    if written != claimed:
        raise corrupt(f"the snappy block claims {claimed} bytes and holds {written}")
    return output


def _lz4(data: bytes | bytearray, magic: int) -> bytes:
    from cramjam import lz4

    view = memoryview(data)
    # Kafka up to 0.9 included the magic number in the header's checksum, and still does for message format 0.
    checked = LZ4_HEADER if magic == 0 else LZ4_HEADER[len(LZ4_MAGIC) :]
    output: list[ReadableBuffer] = [LZ4_HEADER, _header_checksum(checked)]
    for start in range(0, len(view), LZ4_BLOCK_BYTES):
        block = view[start : start + LZ4_BLOCK_BYTES]
        packed = bytes(lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            output += (_lz4_size.pack(len(packed)), packed)
        else:
            output += (_lz4_size.pack(len(block) | LZ4_AS_IT_IS), block)
    output.append(LZ4_END)
    return b"".join(output)


def _unlz4(data: bytes | bytearray | memoryview, max_size: int, magic: int) -> bytes:
    from cramjam import lz4

    frame = bytes(data)
    if frame[:4] != LZ4_MAGIC or len(frame) < 7:
        raise corrupt("the lz4 frame has no magic number, or ends within its header")
    # Refuse what Kafka's own reader refuses: no Java client could read it in the log.
    if not frame[4] & LZ4_INDEPENDENT_BLOCKS or frame[4] & LZ4_RESERVED:
        raise corrupt("lz4 blocks that depend on each other or on a dictionary are not supported")
    end = _lz4_descriptor_end(frame)
    frame = frame[: _lz4_frame_end(frame, end + 1)]  # as Kafka's reader, ignore what follows the frame
    if magic == 0:
        frame = b"".join((frame[:end], _header_checksum(frame[4:end]), frame[end + 1 :]))
    return _decompressed_into_room(lz4.decompress_into, frame, max_size, "lz4 frame")


def _lz4_frame_end(frame: bytes, position: int) -> int:
    """Return where the frame ends whose first block is at that position. Raises KafkaError for one that does not."""
    after_block = 4 if frame[4] & LZ4_BLOCK_CHECKSUMS else 0
    while position + 4 <= len(frame):
        (size,) = _lz4_size.unpack_from(frame, position)
        position += 4
        if size == 0:
            return position + (4 if frame[4] & LZ4_CONTENT_CHECKSUM else 0)
        position += (size & ~LZ4_AS_IT_IS) + after_block
    raise corrupt("the lz4 frame ends early")


def _lz4_descriptor_end(frame: bytes) -> int:
    """Return the position of the header's checksum: after magic, flags, block size and an optional content size."""
    return 14 if frame[4] & LZ4_CONTENT_SIZE else 6


def _header_checksum(descriptor: bytes) -> bytes:
    return bytes((_xxh32_of_short(descriptor) >> 8 & 0xFF,))


def _xxh32_of_short(data: bytes) -> int:
    """Return XXH32 with seed 0 of fewer than 16 bytes, the only form that an lz4 descriptor needs."""
    mask = 0xFFFFFFFF
    value = (374761393 + len(data)) & mask
    whole = len(data) // 4 * 4
    for (lane,) in struct.iter_unpack("<I", data[:whole]):
        value = (value + lane * 3266489917) & mask
        value = ((value << 17 | value >> 15) & mask) * 668265263 & mask
    for byte in data[whole:]:
        value = (value + byte * 374761393) & mask
        value = ((value << 11 | value >> 21) & mask) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


def _zstd(data: bytes | bytearray, magic: int) -> bytes:
    from cramjam import zstd

    _check_may_have_zstd(magic)
    return bytes(zstd.compress(data, ZSTD_LEVEL))


def _unzstd(data: bytes | bytearray | memoryview, max_size: int, magic: int) -> bytes:
    from cramjam import zstd

    _check_may_have_zstd(magic)
    return _decompressed_into_room(zstd.decompress_into, data, max_size, "zstd frame")


def _decompressed_into_room(
    decompress_into: Callable[[bytes | bytearray | memoryview, mmap], int],
    data: bytes | bytearray | memoryview,
    max_size: int,
    what: str,
) -> bytes:
    """Decompress what does not tell its size in advance. A mapping costs only the pages that are written."""
    from mmap import MAP_PRIVATE, mmap

    from cramjam import DecompressionError

    with mmap(-1, max(1, max_size), flags=MAP_PRIVATE) as room, _map_errors(what, DecompressionError):
        try:
            written = decompress_into(data, room)
        except DecompressionError as error:
            if str(error) == HAS_NO_ROOM:
                raise _too_large(max_size) from None
            raise
        if written > max_size:
            raise _too_large(max_size)
        return room[:written]


_COMPRESSORS: dict[Codec, Callable[[bytes | bytearray, int], bytes]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snap,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESSORS: dict[Codec, Callable[[bytes | bytearray | memoryview, int, int], bytes]] = {
    Codec.NONE: _bounded_copy,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnap,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
