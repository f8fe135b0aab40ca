"""Removes records from a batch, for compaction.

A batch is opened, its keys are read, a few hundred at a time, and a batch of the retained records is built. A batch
of magic 2 keeps its offsets, its producer, and every byte of the retained records: the base offset and timestamp that
they are relative to stay in the header. A wrapper of magic 0 or 1 is rebuilt around the retained messages, with the
offset of the last of them. The codec stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from minibroker.protocol.compression import corrupt
from minibroker.protocol.message_set import build_message_set, iter_message_records
from minibroker.protocol.record import SMALLEST_RECORD_BYTES, read_varint
from minibroker.protocol.record_batch import (
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    build_filtered_batch,
    read_header,
    read_records_section,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _typeshed import ReadableBuffer

    from minibroker.protocol.batches import BatchView

# Records that are read at a time: compaction yields to other threads in between.
RECORDS_PER_SLICE = 256

# offset, key, whether it has a value, timestamp in ms, and the record's start and end in its batch. A plain tuple, as
# one is created for every record of a log that is compacted.
KeyedRecord = tuple[int, bytes | None, bool, int, int, int]


class OpenBatch(Protocol):
    """A batch whose keys can be read."""

    def slices(self) -> Iterator[list[KeyedRecord]]:
        """Iterate over all records, `RECORDS_PER_SLICE` at a time. Raises KafkaError(CORRUPT_MESSAGE)."""

    def keep(self, records: Sequence[KeyedRecord]) -> bytearray:
        """Return the batch with only these of its records, at least one."""


def open_batch(buffer: ReadableBuffer, view: BatchView, *, max_decompressed_bytes: int) -> OpenBatch:
    """Open a batch of any format, but not a control batch; the caller checks its CRC.

    Raises KafkaError: CORRUPT_MESSAGE, or MESSAGE_TOO_LARGE over `max_decompressed_bytes`.
    """
    if view.magic < 2:
        return _OpenMessages(buffer, view, max_decompressed_bytes)
    return _OpenRecordBatch(buffer, view, max_decompressed_bytes)


class _OpenRecordBatch:
    """Magic 2. Of a record, only the fields up to the length of its value are read."""

    __slots__ = ("_header", "_section")

    def __init__(self, buffer: ReadableBuffer, view: BatchView, max_decompressed_bytes: int) -> None:
        self._header: BatchHeader = read_header(buffer, view.position)
        self._section = read_records_section(buffer, view.position, self._header, max_decompressed_bytes)
        if not 0 <= self._header.records_count * SMALLEST_RECORD_BYTES <= len(self._section):
            raise corrupt(f"{self._header.records_count} records cannot be in {len(self._section)} bytes")

    def slices(self) -> Iterator[list[KeyedRecord]]:
        left, position = self._header.records_count, 0
        while left > 0:
            count = min(left, RECORDS_PER_SLICE)
            records, position = _read_keyed(self._section, position, count, self._header)
            yield records
            left -= count
        if position != len(self._section):
            raise corrupt(f"{len(self._section) - position} bytes follow the records of a batch")

    def keep(self, records: Sequence[KeyedRecord]) -> bytearray:
        header, section = self._header, self._section
        return build_filtered_batch(
            header,
            b"".join([section[record[4] : record[5]] for record in records]),
            max_timestamp=(
                header.max_timestamp
                if header.attributes & LOG_APPEND_TIME_FLAG
                else max([record[3] for record in records])
            ),
            records_count=len(records),
        )


def _read_keyed(data: bytes, position: int, count: int, header: BatchHeader) -> tuple[list[KeyedRecord], int]:
    """Read `count` records from the position on; return them and the position of the next one.

    Compaction spends its time in this loop, so it decodes varints of one byte in place, and of two where those are
    usual.
    """
    base_offset, base_timestamp, last_delta = header.base_offset, header.base_timestamp, header.last_offset_delta
    records: list[KeyedRecord] = []
    try:
        for _ in range(count):
            start = position
            byte, next_byte = data[position], data[position + 1]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif next_byte < 0x80 and not byte & 1:
                length, position = (byte & 0x7F | next_byte << 7) >> 1, position + 2
            else:
                length, position = read_varint(data, position)
            end = position + length
            position += 1  # the attributes
            byte = data[position]
            if byte < 0x80:
                timestamp_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                timestamp_delta, position = read_varint(data, position)
            byte, next_byte = data[position], data[position + 1]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif next_byte < 0x80 and not byte & 1:
                offset_delta, position = (byte & 0x7F | next_byte << 7) >> 1, position + 2
            else:
                offset_delta, position = read_varint(data, position)
            byte = data[position]
            if byte < 0x80:
                key_length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                key_length, position = read_varint(data, position)
            key = None
            if key_length >= 0:
                key = data[position : position + key_length]
                position += key_length
            has_value = not data[position] & 1  # of the value's length the lowest bit is its sign
            if position >= end or end > len(data) or not 0 <= offset_delta <= last_delta:
                raise corrupt(
                    f"the record of {length} bytes at {start} of {len(data)} is invalid, offset delta {offset_delta}"
                )
            records.append((base_offset + offset_delta, key, has_value, base_timestamp + timestamp_delta, start, end))
            position = end
    except IndexError:
        raise corrupt("the records end within a number") from None
    return records, position


class _OpenMessages:
    """Magic 0 and 1: a message, or the messages in a wrapper."""

    __slots__ = ("_records", "_view")

    def __init__(self, buffer: ReadableBuffer, view: BatchView, max_decompressed_bytes: int) -> None:
        self._view = view
        self._records = list(iter_message_records(buffer, view.position, max_decompressed_bytes=max_decompressed_bytes))

    def slices(self) -> Iterator[list[KeyedRecord]]:
        for first in range(0, len(self._records), RECORDS_PER_SLICE):
            yield [
                (record.offset, record.key, record.value is not None, record.timestamp_ms, number, number + 1)
                for number, record in enumerate(self._records[first : first + RECORDS_PER_SLICE], first)
            ]

    def keep(self, records: Sequence[KeyedRecord]) -> bytearray:
        view = self._view
        return build_message_set(
            [self._records[record[4]] for record in records],
            magic=view.magic,
            codec=view.codec,
            timestamp_type=view.timestamp_type,
            log_append_time_ms=view.max_timestamp_ms,
        )
