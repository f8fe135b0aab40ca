"""Corrupts answers: wrong CRCs in records, or a cut frame. The log on the disk is never changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minibroker.broker.wings.testing.faults.rows import Place
from minibroker.protocol.batches import scan_batches
from minibroker.protocol.codegen import records_size
from minibroker.protocol.message_rows import changed
from minibroker.protocol.messages.fetch import FetchResponse

CRC_AT = {0: 12, 1: 12, 2: 17}  # by magic, in a message or a batch
CRC_BYTES = 4
PARTITION, RECORDS = map(FetchResponse.row("topics.partitions")._fields.index, ("partition", "records"))

Body = Any


def with_wrong_crc(body: Body, places: Iterable[Place]) -> Body:
    """Return a Fetch answer with copies of the records of `places`, in which every CRC is wrong."""
    chosen = set(places)
    topics = [
        (name, [with_wrong_records(row) if (name, row[PARTITION]) in chosen else row for row in rows])
        for name, rows in body.topics
    ]
    return body._replace(topics=topics)


def with_wrong_records(row: Any) -> Any:
    return changed(row, (RECORDS,), lambda records: wrong_crcs(bytes_of(records))) if has_records(row) else row


def places_with_records(body: Body) -> list[Place]:
    """The partitions with records in a Fetch answer."""
    return [(name, row[PARTITION]) for name, rows in body.topics for row in rows if has_records(row)]


def has_records(row: Any) -> bool:
    return row[RECORDS] is not None and records_size(row[RECORDS]) > 0


def bytes_of(chunk: Any) -> bytes:
    """The bytes of a chunk, which may be a slice of a log. Raises OSError."""
    return chunk.read() if hasattr(chunk, "read") else bytes(chunk)


def wrong_crcs(records: bytes) -> bytearray:
    """Return a copy with all bits of each CRC flipped; a last batch that is cut off stays as it is."""
    wrong = bytearray(records)
    for batch in scan_batches(records, 0, len(records)):
        crc_at = batch.position + CRC_AT[batch.magic]
        for index in range(crc_at, crc_at + CRC_BYTES):
            wrong[index] ^= 0xFF
    return wrong


def first_half(chunks: Iterable[Any]) -> bytes:
    """Return the first half of a frame, as a broker sends that dies in the middle of it."""
    frame = b"".join(map(bytes_of, chunks))
    return frame[: len(frame) // 2]
