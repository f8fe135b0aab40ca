"""Message sets: the formats of magic 0 (before 0.10) and magic 1 (0.10), in which each message is its own batch.

    offset: int64 | size: int32 | crc: uint32 | magic: int8 | attributes: int8 | timestamp: int64 (magic 1)
    | key size: int32 | key | value size: int32 | value

    attributes: bits 0-2 codec | 3 log append time (magic 1)

A size of -1 is null. The CRC (zlib's) covers everything from the magic on. A compressed set is the value of one
wrapper message, whose offset is that of the last message inside. The offsets inside are those of the log in magic 0,
and relative to the first one in magic 1. A wrapper inside a wrapper is refused. A message that is cut off at the end of
a wrapper does not count.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from construct import Int8sb, Int32sb, Int32ub, Int64sb, Struct

from minibroker.protocol.compression import (
    CODEC_MASK,
    Codec,
    WrongTrailerError,
    codec_of,
    compress,
    corrupt,
    decompress,
)
from minibroker.protocol.errors import ErrorCode, KafkaError, invalid
from minibroker.protocol.record import NO_TIMESTAMP, Record
from minibroker.protocol.record_batch import (
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    TimestampType,
    field_offset,
    struct_format,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from _typeshed import ReadableBuffer, WriteableBuffer

MESSAGE_HEADER_V0 = Struct(
    "offset" / Int64sb,
    "size" / Int32sb,  # counted from after itself
    "crc" / Int32ub,
    "magic" / Int8sb,
    "attributes" / Int8sb,
)
MESSAGE_HEADER_V1 = Struct(*MESSAGE_HEADER_V0.subcons, "timestamp" / Int64sb)

# With two sizes of -1, for null key and value; without the offset and size in front.
MESSAGE_OVERHEAD_V0: int = MESSAGE_HEADER_V0.sizeof() - LOG_OVERHEAD + 8
MESSAGE_OVERHEAD_V1: int = MESSAGE_HEADER_V1.sizeof() - LOG_OVERHEAD + 8

_SIZE_AT = field_offset(MESSAGE_HEADER_V0, "size")
_CRC_AT = field_offset(MESSAGE_HEADER_V0, "crc")
_MAGIC_AT = field_offset(MESSAGE_HEADER_V0, "magic")
_ATTRIBUTES_AT = field_offset(MESSAGE_HEADER_V0, "attributes")

_header_v0 = struct.Struct(struct_format(MESSAGE_HEADER_V0))
_header_v1 = struct.Struct(struct_format(MESSAGE_HEADER_V1))
# A message is written in two parts: the one before the bytes that its CRC covers, and these.
_frame = struct.Struct(_header_v0.format[: _header_v0.format.index("b")])
_body_v0 = struct.Struct(">" + _header_v0.format[_header_v0.format.index("b") :])
_body_v1 = struct.Struct(">" + _header_v1.format[_header_v1.format.index("b") :])
_int64 = struct.Struct(">q")
_int32 = struct.Struct(">i")
_uint32 = struct.Struct(">I")


class MessageHeader(NamedTuple):
    """The fields of `MESSAGE_HEADER_V1`, in its order."""

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int = NO_TIMESTAMP

    @property
    def size_bytes(self) -> int:
        return self.size + LOG_OVERHEAD

    @property
    def codec(self) -> Codec:
        """The codec. Raises KafkaError(CORRUPT_MESSAGE) for an unknown one."""
        return codec_of(self.attributes)

    @property
    def is_compressed(self) -> bool:
        return bool(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.CREATE_TIME
        return TimestampType((self.attributes & LOG_APPEND_TIME_FLAG) >> 3)


class Message(NamedTuple):
    header: MessageHeader
    key: bytes | None
    value: bytes | None


def read_message_header(buffer: ReadableBuffer, position: int = 0) -> MessageHeader:
    """Read the header of the message at `position`. Raises KafkaError(CORRUPT_MESSAGE) if it is cut off or invalid."""
    try:
        fields = _header_v0.unpack_from(buffer, position)
        header = MessageHeader(*(_header_v1.unpack_from(buffer, position) if fields[3] == 1 else fields))
    except struct.error:
        raise corrupt(f"the header of the message at {position} is cut off") from None
    smallest = MESSAGE_OVERHEAD_V1 if header.magic == 1 else MESSAGE_OVERHEAD_V0
    if header.magic not in (0, 1) or header.size < smallest:
        raise corrupt(f"magic {header.magic} and {header.size} bytes cannot be a message, at {position}")
    return header


def message_crc_is_valid(buffer: ReadableBuffer, position: int, header: MessageHeader) -> bool:
    """Return whether the CRC of the message is right; False for a partial message too."""
    size = header.size_bytes - _MAGIC_AT
    start = position + _MAGIC_AT
    covered = memoryview(buffer)[start : start + size]
    return len(covered) == size and zlib.crc32(covered) == header.crc


def stamp_message(
    buffer: WriteableBuffer,
    position: int,
    *,
    offset: int,
    timestamp_ms: int | None = None,
    log_append_time: bool = False,
) -> None:
    """Stamp the message, or the wrapper for all messages inside, with its offset, in place.

    With `timestamp_ms`, stamp that and the timestamp type too (magic 1 only); the CRC is computed again only if one of
    them changes. Raises ValueError for a timestamp on magic 0.
    """
    _int64.pack_into(buffer, position, offset)
    if timestamp_ms is None:
        return
    header = read_message_header(buffer, position)
    if header.magic == 0:
        raise ValueError("a message of magic 0 has no timestamp")
    attributes = header.attributes & ~LOG_APPEND_TIME_FLAG | (LOG_APPEND_TIME_FLAG if log_append_time else 0)
    if attributes == header.attributes and timestamp_ms == header.timestamp:
        return
    struct.pack_into(">bq", buffer, position + _ATTRIBUTES_AT, attributes, timestamp_ms)
    with memoryview(buffer) as view, view[position + _MAGIC_AT : position + header.size_bytes] as covered:
        crc = zlib.crc32(covered)
    _uint32.pack_into(buffer, position + _CRC_AT, crc)


class DamagedStreamError(KafkaError):
    """A codec cannot read the compressed bytes of a wrapper."""


def iter_message_records(
    buffer: ReadableBuffer, position: int = 0, *, max_decompressed_bytes: int, is_sent: bool = False
) -> Iterator[Record]:
    """Iterate over the record of the message at `position`, or the records inside a wrapper.

    The caller checks the outer CRC; those inside a wrapper are checked here. `is_sent` is for a wrapper that has no
    offset in a log yet. Raises KafkaError: CORRUPT_MESSAGE if sizes, offsets or an inner CRC are wrong,
    DamagedStreamError, MESSAGE_TOO_LARGE if the records exceed `max_decompressed_bytes`.
    """
    header = read_message_header(buffer, position)
    with memoryview(buffer) as view:
        if position + header.size_bytes > len(view):
            raise corrupt(f"a message of {header.size_bytes} bytes cannot be in the remaining {len(view) - position}")
        with view[position : position + header.size_bytes] as message_bytes:
            outer = _read_message(bytes(message_bytes), 0)
    if not header.is_compressed:
        return iter((Record(header.offset, header.timestamp, outer.key, outer.value),))
    if outer.value is None:
        raise invalid(f"Found invalid compressed record set with null value (magic = {header.magic})")
    try:
        data = decompress(header.codec, outer.value, max_size=max_decompressed_bytes, magic=header.magic)
    except KafkaError as error:
        if isinstance(error, WrongTrailerError):  # kafka reads the messages before the trailer
            for inner in _whole_messages(error.data):
                _check_inner_magic(read_message_header(error.data, inner), header)
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            raise DamagedStreamError(error.code, error.message) from None
        raise
    messages = list(_whole_messages(data))
    if not messages:
        raise invalid("Found invalid compressed record set with no inner records")
    # A wrapper at 0 with more inside comes from producers (librdkafka's) that leave offsets to the broker.
    if header.magic == 0 or (header.offset == 0 and (is_sent or len(messages) > 1)):
        return _iter_wrapped(data, messages, header, 0)
    last_inner = read_message_header(data, messages[-1]).offset
    # In a log the offset outside is right; earlier versions of minibroker stored greater ones inside.
    if is_sent and header.offset < last_inner:
        raise invalid(f"a wrapper at offset {header.offset} of a message at {last_inner}")
    return _iter_wrapped(data, messages, header, header.offset - last_inner)


def _read_message(data: bytes, position: int) -> Message:
    header = read_message_header(data, position)
    end = position + header.size_bytes
    if end > len(data):
        raise corrupt(f"a message of {header.size_bytes} bytes cannot be in the remaining {len(data) - position}")
    key_at = position + (_header_v0.size if header.magic == 0 else _header_v1.size)
    key, value_at = _read_sized(data, key_at, end)
    value, after = _read_sized(data, value_at, end)
    if after != end:
        raise corrupt(f"the fields of a message of {header.size_bytes} bytes end {end - after} bytes before its end")
    return Message(header, key, value)


def _read_sized(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if end - position < 4:
        raise corrupt("the message ends within a size")
    (size,) = _int32.unpack_from(data, position)
    position += 4
    if size < 0:
        return None, position
    if size > end - position:
        raise corrupt(f"a field of {size} bytes cannot be in the {end - position} left of its message")
    return data[position : position + size], position + size


def _whole_messages(data: bytes) -> Iterator[int]:
    """Iterate over the positions of the messages inside a wrapper, without one that is cut off at the end.

    Raises KafkaError(CORRUPT_MESSAGE) at an impossible size.
    """
    position, end = 0, len(data)
    while end - position >= LOG_OVERHEAD:
        (size,) = _int32.unpack_from(data, position + _SIZE_AT)
        if size < MESSAGE_OVERHEAD_V0:
            raise corrupt(f"Record size is less than the minimum record overhead ({MESSAGE_OVERHEAD_V0})")
        after = position + LOG_OVERHEAD + size
        if after > end:
            return
        yield position
        position = after


def _iter_wrapped(data: bytes, positions: Sequence[int], wrapper: MessageHeader, base_offset: int) -> Iterator[Record]:
    takes_wrappers_time = wrapper.magic == 1 and wrapper.attributes & LOG_APPEND_TIME_FLAG
    for position in positions:
        header, key, value = _read_message(data, position)
        _check_inner_magic(header, wrapper)
        if header.is_compressed:
            raise invalid("Inner messages must not be compressed")
        if not message_crc_is_valid(data, position, header):
            raise corrupt(f"Record is corrupt (stored crc = {header.crc}), inside the wrapper at {wrapper.offset}")
        timestamp = wrapper.timestamp if takes_wrappers_time else header.timestamp
        yield Record(base_offset + header.offset, timestamp, key, value)


def _check_inner_magic(header: MessageHeader, wrapper: MessageHeader) -> None:
    if header.magic != wrapper.magic:
        raise invalid(f"Compressed message magic {header.magic} does not match wrapper magic {wrapper.magic}")


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """Return these records as messages with the offsets they have, in one wrapper if there is a codec.

    Record headers are dropped, as these formats have none. `log_append_time_ms` is for
    `TimestampType.LOG_APPEND_TIME`. Raises ValueError without records.
    """
    if magic not in (0, 1):
        raise ValueError(f"a message set cannot have magic {magic}")
    records = list(records)
    if not records:
        raise ValueError("a message set needs a record")
    attributes, append_time_ms = 0, None
    if timestamp_type is TimestampType.LOG_APPEND_TIME and magic == 1:
        if log_append_time_ms is None:
            raise ValueError("LOG_APPEND_TIME needs log_append_time_ms")
        attributes, append_time_ms = LOG_APPEND_TIME_FLAG, log_append_time_ms
    first_inner = records[0].offset if magic == 1 and codec is not Codec.NONE else 0
    messages = bytearray()
    for offset, timestamp_ms, key, value, _, _ in records:
        if append_time_ms is not None:
            timestamp_ms = append_time_ms
        messages += _encode_message(offset - first_inner, magic, attributes, timestamp_ms, key, value)
    if codec is Codec.NONE:
        return messages
    latest_ms = append_time_ms
    if latest_ms is None:
        latest_ms = max(record.timestamp_ms for record in records)
    value = compress(codec, messages, magic=magic)
    return bytearray(_encode_message(records[-1].offset, magic, attributes | codec, latest_ms, None, value))


def _encode_message(
    offset: int, magic: int, attributes: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> bytes:
    body = b"".join(
        (
            _body_v0.pack(0, attributes) if magic == 0 else _body_v1.pack(1, attributes, timestamp_ms),
            _int32.pack(-1 if key is None else len(key)),
            key or b"",
            _int32.pack(-1 if value is None else len(value)),
            value or b"",
        )
    )
    return _frame.pack(offset, len(body) + 4, zlib.crc32(body)) + body
