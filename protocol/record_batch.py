"""Record batches of magic 2: their header, stamping it in place, and the records inside.

    base offset: int64 | batch length: int32 | leader epoch: int32 | magic: int8 | crc: uint32
    | attributes: int16 | last offset delta: int32 | base timestamp: int64 | max timestamp: int64
    | producer id: int64 | producer epoch: int16 | base sequence: int32 | records count: int32 | records

    attributes: bits 0-2 codec | 3 log append time | 4 transactional | 5 control

The CRC covers everything from the attributes on, so a leader assigns offsets and its epoch without changing it. The
header is declared once, in construct; its positions, and the `struct` formats that run for each batch, are derived
from that, and every module takes them from here. No function keeps a view of its buffer: a mapped file can be closed
or grown right after a call.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from construct import Int8sb, Int16sb, Int32sb, Int32ub, Int64sb, Struct

from minibroker.protocol.checksums import crc32c
from minibroker.protocol.compression import Codec, codec_of, compress, corrupt, decompress
from minibroker.protocol.errors import invalid
from minibroker.protocol.record import NO_SEQUENCE as NO_SEQUENCE
from minibroker.protocol.record import (
    NO_TIMESTAMP,
    SMALLEST_RECORD_BYTES,
    RecordOrigin,
    decode_record,
    encode_record,
    increment_sequence,
)
from minibroker.protocol.record import Record as Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from _typeshed import ReadableBuffer, WriteableBuffer

BATCH_HEADER = Struct(
    "base_offset" / Int64sb,
    "batch_length" / Int32sb,  # counted from after itself
    "partition_leader_epoch" / Int32sb,
    "magic" / Int8sb,
    "crc" / Int32ub,
    "attributes" / Int16sb,
    "last_offset_delta" / Int32sb,
    "base_timestamp" / Int64sb,
    "max_timestamp" / Int64sb,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "base_sequence" / Int32sb,
    "records_count" / Int32sb,
)


LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_LEADER_EPOCH = -1


def struct_format(header: Any) -> str:
    """Return the `struct` format of a construct Struct of plain big-endian numbers."""
    return partial_format(header, *(field.name for field in header.subcons))


def partial_format(header: Any, *names: str) -> str:
    """Return a `struct` format that has only these fields, in the header's order, and skips those in between."""
    formats, skipped_bytes = [">"], 0
    for field in header.subcons:
        if not field.subcon.fmtstr.startswith(">"):
            raise ValueError(f"{field.name} is not a big-endian number")
        if field.name not in names:
            skipped_bytes += field.sizeof()
            continue
        formats.append(f"{skipped_bytes}x" * bool(skipped_bytes) + field.subcon.fmtstr[1:])
        skipped_bytes = 0
    return "".join(formats)


def field_offset(header: Any, name: str) -> int:
    """Return where the named field of a construct Struct begins."""
    offset = 0
    for field in header.subcons:
        if field.name == name:
            return offset
        offset += field.sizeof()
    raise KeyError(name)


# Positions inside a batch. Up to its magic, a message of magic 0 and 1 has them too.
LOG_OVERHEAD = field_offset(BATCH_HEADER, "partition_leader_epoch")  # bytes that a size does not count
MAGIC_AT = field_offset(BATCH_HEADER, "magic")
HEADER_SIZE_UP_TO_MAGIC = MAGIC_AT + 1
CRC_COVERS_FROM = field_offset(BATCH_HEADER, "attributes")
CODEC_AT = CRC_COVERS_FROM + 1  # the low byte of the attributes
RECORD_BATCH_OVERHEAD: int = BATCH_HEADER.sizeof()
SMALLEST_BATCH_LENGTH = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD

# Parts of a header; called without a wrapper, for they run for each batch.
BATCH_HEADER_FORMAT = struct_format(BATCH_HEADER)
# The fields of BATCH_HEADER.
unpack_header: Callable[..., tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]] = struct.Struct(
    BATCH_HEADER_FORMAT
).unpack_from
_prefix = struct.Struct(partial_format(BATCH_HEADER, "base_offset", "batch_length", "magic"))
unpack_prefix: Callable[..., tuple[int, int, int]] = _prefix.unpack_from
OFFSETS = struct.Struct(partial_format(BATCH_HEADER, "base_offset", "batch_length", "magic", "last_offset_delta"))
OFFSET_AND_LENGTH = struct.Struct(partial_format(BATCH_HEADER, "base_offset", "batch_length"))
pack_place = struct.Struct(
    partial_format(BATCH_HEADER, "base_offset", "batch_length", "partition_leader_epoch")
).pack_into


class TimestampType(IntEnum):
    """The clock of a batch's timestamps: the producer's or the leader's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fields of `BATCH_HEADER`, in its order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The codec. Raises KafkaError(CORRUPT_MESSAGE) for an unknown one."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & LOG_APPEND_TIME_FLAG) >> 3)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


_CRC_AT = field_offset(BATCH_HEADER, "crc")
_MAX_TIMESTAMP_AT = field_offset(BATCH_HEADER, "max_timestamp")
_LEADER_EPOCH_AT = field_offset(BATCH_HEADER, "partition_leader_epoch")
_SMALLEST_COVERED = RECORD_BATCH_OVERHEAD - CRC_COVERS_FROM

_header = struct.Struct(BATCH_HEADER_FORMAT)
_to_header = BatchHeader._make
_unpack_length = struct.Struct(partial_format(BATCH_HEADER, "batch_length")).unpack_from
_pack_int64 = struct.Struct(">q").pack_into
_pack_int32 = struct.Struct(">i").pack_into
_pack_uint32 = struct.Struct(">I").pack_into
_pack_int16 = struct.Struct(">h").pack_into


def read_header(buffer: ReadableBuffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at `position`, unchecked. Raises KafkaError(CORRUPT_MESSAGE) if it is cut off."""
    try:
        return _to_header(unpack_header(buffer, position))
    except struct.error:
        raise corrupt(f"the header of the record batch at {position} is cut off") from None


def size_at(buffer: ReadableBuffer, position: int = 0) -> int:
    """Return the size of the batch or message at `position`, unchecked; `LOG_OVERHEAD` bytes of it must be there."""
    length: int = _unpack_length(buffer, position)[0]
    return length + LOG_OVERHEAD


def crc_is_valid(buffer: ReadableBuffer, position: int, header: BatchHeader) -> bool:
    """Return whether the CRC of the batch is right; False for a partial batch too."""
    size = header.batch_length + LOG_OVERHEAD - CRC_COVERS_FROM
    start = position + CRC_COVERS_FROM
    covered = memoryview(buffer)[start : start + size]
    return len(covered) == size >= _SMALLEST_COVERED and crc32c(covered, 0) == header.crc


def stamp(
    buffer: WriteableBuffer,
    position: int,
    *,
    base_offset: int,
    leader_epoch: int,
    max_timestamp_ms: int | None = None,
    log_append_time: bool = False,
) -> None:
    """Stamp the batch with its offset and leader epoch, in place.

    With `max_timestamp_ms`, stamp that and the timestamp type too; the CRC is computed again only if one of them
    changes.
    """
    _pack_int64(buffer, position, base_offset)
    _pack_int32(buffer, position + _LEADER_EPOCH_AT, leader_epoch)
    if max_timestamp_ms is None:
        return
    header = read_header(buffer, position)
    attributes = header.attributes & ~LOG_APPEND_TIME_FLAG | (LOG_APPEND_TIME_FLAG if log_append_time else 0)
    if attributes == header.attributes and max_timestamp_ms == header.max_timestamp:
        return
    _pack_int16(buffer, position + CRC_COVERS_FROM, attributes)
    _pack_int64(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp_ms)
    _write_crc(buffer, position, position + header.size_bytes)


def _write_crc(buffer: WriteableBuffer, position: int, end: int) -> None:
    crc = crc32c(memoryview(buffer)[position + CRC_COVERS_FROM : end], 0)
    _pack_uint32(buffer, position + _CRC_AT, crc)


def iter_records(buffer: ReadableBuffer, position: int = 0, *, max_decompressed_bytes: int) -> Iterator[Record]:
    """Iterate over the records of the batch at `position`; the caller checks its CRC.

    Raises KafkaError: CORRUPT_MESSAGE if lengths or counts disagree, MESSAGE_TOO_LARGE if the records exceed
    `max_decompressed_bytes`. Errors of the header and the codec are raised by the call, not by the iterator.
    """
    header = read_header(buffer, position)
    data = read_records_section(buffer, position, header, max_decompressed_bytes)
    count = header.records_count
    if not 0 <= count * SMALLEST_RECORD_BYTES <= len(data):
        raise invalid(f"Found invalid record count {count} in a batch with {len(data)} bytes of records")
    return _decode_records(data, count, _origin_of(header))


def read_records_section(
    buffer: ReadableBuffer, position: int, header: BatchHeader, max_decompressed_bytes: int
) -> bytes:
    """Return the bytes of all records, decompressed. Raises KafkaError as `iter_records`."""
    with memoryview(buffer) as view:
        end = position + header.size_bytes
        if header.magic != 2 or header.size_bytes < RECORD_BATCH_OVERHEAD or end > len(view):
            raise corrupt(f"magic {header.magic} and {header.size_bytes} bytes cannot be a record batch, at {position}")
        with view[position + RECORD_BATCH_OVERHEAD : end] as section:
            if header.codec is Codec.NONE:
                return bytes(section)
            if header.records_count == 0 and not section:
                return b""
            return decompress(header.codec, section, max_size=max_decompressed_bytes)


def _origin_of(header: BatchHeader) -> RecordOrigin:
    return RecordOrigin(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        base_timestamp=header.base_timestamp,
        log_append_time_ms=header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None,
        base_sequence=header.base_sequence,
    )


def _decode_records(data: bytes, count: int, origin: RecordOrigin) -> Iterator[Record]:
    position = 0
    for _ in range(count):
        record, position = decode_record(data, position, origin)
        yield record
    if position != len(data):
        raise invalid(f"Incorrect declared batch size, {len(data) - position} bytes follow its {count} records")


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time_ms: int | None = None,
    last_offset: int | None = None,
) -> bytearray:
    """Return a batch of these records, at the offsets they have, CRC included.

    `log_append_time_ms` is for `TimestampType.LOG_APPEND_TIME`. `last_offset` is for a batch whose last records were
    compacted away. Raises ValueError without records, or if their offsets do not rise from `base_offset`.
    """
    body, count, base_timestamp, max_timestamp, last_written = _encode_records(records, base_offset)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        if log_append_time_ms is None:
            raise ValueError("LOG_APPEND_TIME needs log_append_time_ms")
        max_timestamp = log_append_time_ms
    section = body if codec is Codec.NONE else compress(codec, body)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=SMALLEST_BATCH_LENGTH + len(section),
        partition_leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=codec
        | (LOG_APPEND_TIME_FLAG if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0),
        last_offset_delta=(last_written if last_offset is None else last_offset) - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=count,
    )
    return _assemble(header, section)


def build_empty_batch(header: BatchHeader) -> bytearray:
    """Return the batch without its records, as compaction leaves it: its offsets and its producer's state."""
    kept = header.attributes & (LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG)
    empty = header._replace(
        batch_length=SMALLEST_BATCH_LENGTH, attributes=kept, base_timestamp=NO_TIMESTAMP, records_count=0
    )
    return _assemble(empty, b"")


def build_filtered_batch(header: BatchHeader, records: bytes, *, max_timestamp: int, records_count: int) -> bytearray:
    """Return the batch with only these of its encoded records, as compaction leaves it."""
    section = records if header.codec is Codec.NONE else compress(header.codec, records)
    fewer = header._replace(
        batch_length=SMALLEST_BATCH_LENGTH + len(section),
        max_timestamp=max_timestamp,
        records_count=records_count,
    )
    return _assemble(fewer, section)


def _assemble(header: BatchHeader, section: bytes | bytearray) -> bytearray:
    batch = bytearray(_header.pack(*header))
    batch += section
    _write_crc(batch, 0, len(batch))
    return batch


def _encode_records(records: Iterable[Record], base_offset: int) -> tuple[bytearray, int, int, int, int]:
    """Encode the records; return their bytes, count, first and largest timestamp, and last offset."""
    body = bytearray()
    count, base_timestamp, max_timestamp, last = 0, NO_TIMESTAMP, NO_TIMESTAMP, base_offset - 1
    for record in records:
        if record.offset <= last:
            raise ValueError(f"offset {record.offset} cannot follow {last}")
        if count == 0:
            base_timestamp = record.timestamp_ms
        encode_record(
            body,
            record,
            offset_delta=record.offset - base_offset,
            timestamp_delta=record.timestamp_ms - base_timestamp,
        )
        max_timestamp = max(max_timestamp, record.timestamp_ms)
        last = record.offset
        count += 1
    if count == 0:
        raise ValueError("a batch needs a record")
    return body, count, base_timestamp, max_timestamp, last
