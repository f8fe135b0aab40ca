"""Records for consumers that are older than the records: Fetch v0-v1 get magic 0, v2-v3 magic 1.

As kafka 2.0.1 (KIP-283) the answer has the size of what was read, or of the first converted batch if that is
larger: what conversion saves is filled with the head of a batch that is too long to be whole, which every
client drops as the usual partial batch at the end; what conversion adds beyond that is cut off, a partial batch too.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from minibroker.protocol.batches import BatchView, scan_batches
from minibroker.protocol.conversion import down_convert
from minibroker.protocol.record_batch import RECORD_BATCH_OVERHEAD
from minibroker.storage.config import LogConfig
from minibroker.storage.files import FileSlice

MAX_DECOMPRESSED_BATCH_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 128 * 1024  # converted at a time, and the longest filler
FILLER_HEAD = struct.Struct(">qi")  # an offset no record has, and the size that makes it partial


class WrittenFor(NamedTuple):
    """The newest format that clients of a Fetch version know."""

    last_fetch_version: int
    magic: int


CLIENT_FORMATS = (WrittenFor(1, 0), WrittenFor(3, 1))


def wanted_magic(fetch_version: int, config: LogConfig) -> int | None:
    """The format these records may have to be brought down to; None when there is nothing to look for."""
    for last_version, magic in CLIENT_FORMATS:
        if fetch_version <= last_version:
            return magic if config.magic > magic else None
    return None


def has_newer(records: FileSlice, magic: int) -> bool:
    """Whether there is a whole batch that must be converted for clients who know no magic above this."""
    buffer = records.read()
    return any(batch.magic > magic for batch in scan_batches(buffer, 0, len(buffer)))


def down_converted(records: FileSlice, to_magic: int, fetch_offset: int) -> bytes | FileSlice:
    """These records with nothing newer than `to_magic`. Raises KafkaError for a batch that cannot be read."""
    buffer = records.read()
    batches = list(scan_batches(buffer, 0, len(buffer)))
    if all(batch.magic <= to_magic for batch in batches):
        return records
    size_bytes, converted = 0, bytearray()
    for start, end in chunks(batches):
        converted += down_convert(
            buffer,
            start,
            end,
            to_magic=to_magic,
            first_offset=fetch_offset,
            max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES,
        )
        if not size_bytes and converted:
            size_bytes = max(len(buffer), len(converted))
        if size_bytes and len(converted) >= size_bytes:
            break
    while len(converted) < size_bytes:
        converted += filler(size_bytes - len(converted))
    return bytes(converted[:size_bytes])


def chunks(batches: list[BatchView]) -> list[tuple[int, int]]:
    """Stretches of whole batches: the first alone, as it decides the size, the others of `CHUNK_BYTES`."""
    stretches = [(batches[0].position, batches[0].end_position)]
    start = batches[0].end_position
    for batch in batches[1:]:
        if batch.end_position - start > CHUNK_BYTES and batch.position > start:
            stretches.append((start, batch.position))
            start = batch.position
    if start < batches[-1].end_position:
        stretches.append((start, batches[-1].end_position))
    return stretches


def filler(missing_bytes: int) -> bytes:
    """At most `missing_bytes` that every client takes for the beginning of a batch."""
    head = FILLER_HEAD.pack(-1, max(missing_bytes + 1, RECORD_BATCH_OVERHEAD))
    return head.ljust(min(missing_bytes, CHUNK_BYTES), b"\0")[:missing_bytes]
