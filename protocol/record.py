"""A record, and its encoding in batches of magic 2.

    length: varint | attributes: int8 | timestamp delta: varlong | offset delta: varint
    | key length: varint | key | value length: varint | value | header count: varint | headers
    header: key length: varint | key | value length: varint | value

Varints are zigzag; a length of -1 is null. Every length is checked against its record, and the record against its
batch, before a byte of it is read. Older formats share only the `Record` type.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.protocol.errors import invalid

# length 1, attributes 1, timestamp 1, offset 1, key length 1, value length 1, header count 1
SMALLEST_RECORD_BYTES = 7
SMALLEST_HEADER_BYTES = 2

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# In place of a number that is not known, or does not exist.
NO_OFFSET = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_ONE_BYTE = [bytes((value << 1,)) for value in range(0x40)]
_NULL = b"\x01"  # -1
_NO_ATTRIBUTES = b"\0"  # none of them is in use

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A message of a producer, at its offset in the log."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    sequence: int = NO_SEQUENCE


class RecordOrigin(NamedTuple):
    """The fields of a batch's header that its records are relative to."""

    base_offset: int
    last_offset: int
    base_timestamp: int
    log_append_time_ms: int | None
    base_sequence: int


def increment_sequence(sequence: int, by: int) -> int:
    """Return the sequence number `by` further on; 0 follows 2^31 - 1."""
    return (sequence + by) & INT32_MAX


def decode_record(data: bytes, position: int, origin: RecordOrigin) -> tuple[Record, int]:
    """Decode the record at `position`; return it and the position of the next one.

    Raises KafkaError(CORRUPT_MESSAGE) if it does not fit its own length, its batch's bytes or its offsets.
    """
    length, position = read_varint(data, position)
    end = position + length
    if not SMALLEST_RECORD_BYTES - 1 <= length <= len(data) - position:
        raise invalid(f"a record of {length} bytes cannot be in the remaining {len(data) - position}")
    timestamp_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    headers: Headers = ()
    if position >= end or data[position] != 0:
        headers, position = _read_headers(data, position, end)
    else:
        position += 1
    if position != end:
        raise invalid(f"the fields of a record of {length} bytes end {end - position} bytes before its end")
    offset = origin.base_offset + offset_delta
    timestamp = origin.log_append_time_ms
    if timestamp is None:
        timestamp = origin.base_timestamp + timestamp_delta
        if not INT64_MIN <= timestamp <= INT64_MAX:
            timestamp = _wrapped(timestamp)
    if not origin.base_offset <= offset <= origin.last_offset:
        raise invalid(
            f"offset {offset} of a record is outside of its batch, {origin.base_offset} to {origin.last_offset}"
        )
    sequence = origin.base_sequence
    if sequence >= 0:
        sequence = (sequence + offset_delta) & INT32_MAX
    return Record(offset, timestamp, key, value, headers, sequence), end


def encode_record(output: bytearray, record: Record, *, offset_delta: int, timestamp_delta: int) -> None:
    """Append the record's bytes to `output`."""
    _, _, key, value, headers, _ = record
    parts = [
        _NO_ATTRIBUTES,
        varint(_wrapped(timestamp_delta) if timestamp_delta else 0),
        varint(offset_delta),
        _NULL if key is None else varint(len(key)),
        key or b"",
        _NULL if value is None else varint(len(value)),
        value or b"",
        varint(len(headers)),
    ]
    for name, content in headers:
        encoded_name = name.encode("utf-8", "surrogateescape")
        parts += (varint(len(encoded_name)), encoded_name)
        parts += (_NULL,) if content is None else (varint(len(content)), content)
    body = b"".join(parts)
    output += varint(len(body))
    output += body


def _wrapped(timestamp: int) -> int:
    """Return the low 64 bits, as Java's arithmetic does: a difference of two timestamps may need 65."""
    return ((timestamp - INT64_MIN) & (2**64 - 1)) + INT64_MIN


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag number of at most 64 bits. Raises KafkaError(CORRUPT_MESSAGE) at the end of `data`."""
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        value, shift = byte & 0x7F, 7
        while True:
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise invalid("a varint has more than ten bytes")
    except IndexError:
        raise invalid("the records end within a number") from None
    if value >> 64:
        raise invalid("a varint has more than 64 bits")
    return (value >> 1) ^ -(value & 1), position + 1


def varint(value: int) -> bytes:
    """Encode a number of at most 64 bits; lengths and deltas nearly always take a byte or two."""
    if 0 <= value < 0x40:
        return _ONE_BYTE[value]
    if 0 <= value < 0x2000:
        return bytes((value << 1 & 0x7F | 0x80, value >> 6))
    output = bytearray()
    write_varint(output, value)
    return bytes(output)


def write_varint(output: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if length > end - position:
        raise invalid(f"a field of {length} bytes cannot be in the {end - position} left of its record")
    return data[position : position + length], position + length


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if not 0 <= count * SMALLEST_HEADER_BYTES <= end - position:
        raise invalid(f"{count} headers cannot be in the {end - position} bytes left of their record")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise invalid("a record header has no key")
        value, position = _read_bytes(data, position, end)
        # Bytes that are not UTF-8 are preserved when the record is encoded again.
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position
