"""Scans batches of all message formats: where each begins and ends, and which offsets it covers.

All formats begin with `offset: int64 | size: int32` and have the magic in the 17th byte, so one loop scans a log with
several of them. The offset of a batch of magic 2 is that of its first record, of a message or wrapper of magic 0 or 1
that of its last. Only functions named so decode records or check a CRC.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from minibroker.protocol.compression import CODEC_MASK, Codec, codec_of, corrupt
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.message_set import (
    MESSAGE_OVERHEAD_V0,
    iter_message_records,
    message_crc_is_valid,
    read_message_header,
)
from minibroker.protocol.record import NO_SEQUENCE, Record, increment_sequence
from minibroker.protocol.record_batch import (
    BATCH_HEADER,
    CODEC_AT,
    CONTROL_FLAG,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_AT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    OFFSETS,
    RECORD_BATCH_OVERHEAD,
    SMALLEST_BATCH_LENGTH,
    TRANSACTIONAL_FLAG,
    TimestampType,
    crc_is_valid,
    iter_records,
    partial_format,
    read_header,
    size_at,
    unpack_header,
    unpack_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import ReadableBuffer

UNKNOWN_COUNT = -1
NEWEST_MAGIC = 2

_unpack_kind: Callable[..., tuple[int, int]] = struct.Struct(
    partial_format(BATCH_HEADER, "attributes", "producer_id")
).unpack_from
_unpack_epoch: Callable[..., tuple[int, int]] = struct.Struct(
    partial_format(BATCH_HEADER, "producer_epoch", "base_sequence")
).unpack_from
_unpack_offsets: Callable[..., tuple[int, int, int, int]] = OFFSETS.unpack_from


class BatchView(NamedTuple):
    """The header of a batch in a buffer; for magic 0 and 1 both offsets are the one in the header."""

    position: int
    size_bytes: int
    magic: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    partition_leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def codec(self) -> Codec:
        """The codec. Raises KafkaError(CORRUPT_MESSAGE) for an unknown one."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.CREATE_TIME
        return TimestampType((self.attributes & LOG_APPEND_TIME_FLAG) >> 3)

    @property
    def is_transactional(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & CONTROL_FLAG)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset - self.base_offset)


class BatchPosition(NamedTuple):
    """A batch in a buffer or a file; the offset is the one in its header."""

    base_offset: int
    position: int
    size_bytes: int


def scan_batches(buffer: ReadableBuffer, start: int, end: int) -> Iterator[BatchView]:
    """Iterate over the whole batches in `buffer[start:end]`, and ignore a partial one at the end.

    Raises KafkaError(CORRUPT_MESSAGE) at an impossible size or magic.
    """
    position = start
    while position + HEADER_SIZE_UP_TO_MAGIC <= end:
        offset, size, magic = unpack_prefix(buffer, position)
        _check(offset, size, magic, position)
        size += LOG_OVERHEAD
        if position + size > end:
            return
        yield _view_batch(buffer, position) if magic == 2 else _view_message(buffer, position)
        position += size


def view_batch(buffer: ReadableBuffer, position: int, end: int) -> BatchView | None:
    """Return the batch at `position`; None if it is not whole before `end`. Raises as `scan_batches`."""
    return next(scan_batches(buffer, position, end), None)


def view_header(header: ReadableBuffer, position: int) -> BatchView:
    """Return the batch that begins with `header`, at a position of its file; the rest of it is not needed.

    `header` has RECORD_BATCH_OVERHEAD bytes, or all of a shorter message. Raises as `scan_batches`.
    """
    offset, size, magic = unpack_prefix(header, 0)
    _check(offset, size, magic, position)
    view = _view_batch(header, 0) if magic == 2 else _view_message(header, 0)
    return view._replace(position=position)


def _check(offset: int, size: int, magic: int, position: int) -> None:
    if size < MESSAGE_OVERHEAD_V0 or (magic == 2 and size < SMALLEST_BATCH_LENGTH):
        raise corrupt(f"Record size {size} is less than the minimum record overhead, at {position}")
    if not 0 <= magic <= NEWEST_MAGIC:
        raise corrupt(f"Invalid magic found in record: {magic}, offset {offset}, at {position}")


def _view_batch(buffer: ReadableBuffer, position: int) -> BatchView:
    header = unpack_header(buffer, position)
    base_offset, length, leader_epoch, magic, _, attributes, last_delta, _, max_timestamp = header[:9]
    return BatchView(
        position,
        length + LOG_OVERHEAD,
        magic,
        base_offset,
        base_offset + last_delta,
        max_timestamp,
        leader_epoch,
        attributes,
        *header[9:],
    )


def _view_message(buffer: ReadableBuffer, position: int) -> BatchView:
    header = read_message_header(buffer, position)
    return BatchView(
        position,
        header.size_bytes,
        header.magic,
        header.offset,
        header.offset,
        header.timestamp,
        NO_LEADER_EPOCH,
        header.attributes,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        UNKNOWN_COUNT,
    )


def find_offset(buffer: ReadableBuffer, start: int, end: int, target_offset: int) -> BatchPosition | None:
    """Return the first whole batch that ends at `target_offset` or later.

    Returns None if `buffer[start:end]` has none. Raises as `scan_batches`.
    """
    position, readable = start, end - OFFSETS.size
    while position <= readable:
        offset, size, magic, last_delta = _unpack_offsets(buffer, position)
        if magic != 2 or size < SMALLEST_BATCH_LENGTH:
            _check(offset, size, magic, position)
            last_delta = 0
        if offset + last_delta >= target_offset:
            size += LOG_OVERHEAD
            return BatchPosition(offset, position, size) if position + size <= end else None
        position += size + LOG_OVERHEAD
    # A message of magic 0 without key and value is a byte smaller than the part of a header that is read above.
    if position <= end - MESSAGE_OVERHEAD_V0 - LOG_OVERHEAD:
        offset, size, magic = unpack_prefix(buffer, position)
        _check(offset, size, magic, position)
        if offset >= target_offset and position + size + LOG_OVERHEAD <= end:
            return BatchPosition(offset, position, size + LOG_OVERHEAD)
    return None


def batch_is_valid(buffer: ReadableBuffer, view: BatchView) -> bool:
    """Return whether the CRC of the batch is right."""
    if view.magic == 2:
        return crc_is_valid(buffer, view.position, read_header(buffer, view.position))
    return message_crc_is_valid(buffer, view.position, read_message_header(buffer, view.position))


def is_one_batch_of_magic_2(records: bytes | bytearray | memoryview | None) -> bool:
    """Return whether the records are what Produce v3 and later must carry: one whole batch of magic 2.

    As kafka 2.0.1, ignore a partial batch after it.
    """
    if records is None or len(records) < RECORD_BATCH_OVERHEAD or records[MAGIC_AT] != 2:
        return False
    end = size_at(records)
    if end == len(records):
        return True
    rest = len(records) - end
    if end < RECORD_BATCH_OVERHEAD or rest < 0:
        return False
    return rest < LOG_OVERHEAD or rest < size_at(records, end)


def kinds_of_producers(records: bytes | bytearray | memoryview) -> tuple[bool, bool]:
    """Return whether some batch is of a transaction, and whether some is of an idempotent producer without one."""
    if is_one_batch_of_magic_2(records):
        attributes, producer_id = _unpack_kind(records)
        is_transactional = bool(attributes & TRANSACTIONAL_FLAG)
        return is_transactional, producer_id > NO_PRODUCER_ID and not is_transactional
    is_transactional = is_idempotent = False
    try:
        for batch in scan_batches(records, 0, len(records)):
            is_transactional |= batch.is_transactional
            is_idempotent |= batch.has_producer_id and not batch.is_transactional
    except KafkaError:
        pass  # from here on no append reads them either
    return is_transactional, is_idempotent


def transactional_producer(records: bytes | bytearray | memoryview) -> tuple[int, int, int] | None:
    """Return id, epoch and first sequence of the producer of one batch of magic 2; None if it is of no transaction."""
    attributes, producer_id = _unpack_kind(records)
    if not attributes & TRANSACTIONAL_FLAG:
        return None
    epoch, first_sequence = _unpack_epoch(records)
    return producer_id, epoch, first_sequence


def is_zstd_batch(records: bytes | bytearray | memoryview) -> bool:
    """Return whether the first batch is of magic 2 and compressed with zstd, which no older format has."""
    return (
        len(records) >= RECORD_BATCH_OVERHEAD
        and records[MAGIC_AT] == 2
        and records[CODEC_AT] & CODEC_MASK == Codec.ZSTD
    )


def iter_all_records(
    buffer: ReadableBuffer, view: BatchView, *, max_decompressed_bytes: int, is_sent: bool = False
) -> Iterator[Record]:
    """Iterate over the records of a batch of any format; `is_sent` if it has no offset in a log yet.

    Raises as `iter_records` and `iter_message_records`.
    """
    if view.magic == 2:
        return iter_records(buffer, view.position, max_decompressed_bytes=max_decompressed_bytes)
    return iter_message_records(buffer, view.position, max_decompressed_bytes=max_decompressed_bytes, is_sent=is_sent)
