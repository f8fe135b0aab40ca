"""Answers with something wrong in them: a CRC in records, or an end too early. The log on the disk is never touched."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from minibroker.broker.faults.rows import Place

# Of a record batch, and of the messages before there were any: the size lies behind the offset and counts what follows.
SIZE = struct.Struct(">i")
SIZE_AT = 8
LOG_OVERHEAD_BYTES = 12
MAGIC_AT = 16
CRC_AT_OF_MESSAGES = 12
CRC_AT_OF_BATCHES = 17
MAGIC_OF_BATCHES = 2
CRC_BYTES = 4

Body = Any


def with_wrong_crc(body: Body, places: Iterable[Place]) -> Body:
    """A Fetch answer, the records of `places` as copies in which no CRC is right."""
    chosen = set(places)
    topics = [
        (name, [with_wrong_records(row) if (name, row[0]) in chosen else row for row in rows])
        for name, rows in body.topics
    ]
    return body._replace(topics=topics)


def with_wrong_records(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(wrong_crcs(bytes_of(value)) if is_records(value) else value for value in row)


def places_with_records(body: Body) -> list[Place]:
    """Where a Fetch answer has records."""
    return [(name, row[0]) for name, rows in body.topics for row in rows if any(is_records(value) for value in row)]


def is_records(value: object) -> bool:
    """Whether a row's value is its records, and not none: bytes, or a slice of a log."""
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value) > 0
    return getattr(value, "size_bytes", 0) > 0


def bytes_of(chunk: Any) -> bytes:
    """Of what may be a slice of a log. Raises OSError."""
    return chunk.read() if hasattr(chunk, "read") else bytes(chunk)


def wrong_crcs(records: bytes) -> bytearray:
    """A copy with every bit of each CRC turned over; a last batch that is cut off is left as it is."""
    wrong = bytearray(records)
    position = 0
    while len(wrong) - position > CRC_AT_OF_BATCHES + CRC_BYTES:
        (size_bytes,) = SIZE.unpack_from(wrong, position + SIZE_AT)
        end = position + LOG_OVERHEAD_BYTES + size_bytes
        if end > len(wrong):
            break
        is_batch = wrong[position + MAGIC_AT] >= MAGIC_OF_BATCHES
        crc_at = position + (CRC_AT_OF_BATCHES if is_batch else CRC_AT_OF_MESSAGES)
        for index in range(crc_at, crc_at + CRC_BYTES):
            wrong[index] ^= 0xFF
        position = end
    return wrong


def first_half(chunks: Iterable[Any]) -> bytes:
    """Of a frame, as much as a broker has sent that dies in the middle of it."""
    frame = b"".join(map(bytes_of, chunks))
    return frame[: len(frame) // 2]
