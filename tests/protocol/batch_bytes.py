"""Batches as bytes: what is in them, lies in their headers, and the same bytes mapped."""

from __future__ import annotations

import mmap
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from minibroker.protocol.batches import BatchView, iter_all_records, scan_batches
from minibroker.protocol.checksums import crc32c
from minibroker.protocol.control_records import ControlType, build_end_txn_marker
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import BATCH_HEADER_FORMAT, CRC_COVERS_FROM, RECORD_BATCH_OVERHEAD, read_header

LIMIT = 1 << 26
# What damaged records may be refused with.
REFUSALS = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def views_of(data: bytes | bytearray) -> list[BatchView]:
    """Return the whole batches."""
    return list(scan_batches(data, 0, len(data)))


def records_in(data: bytes | bytearray, *, control: bool = True) -> list[Record]:
    """Return the records of the whole batches, of whatever format; on demand without those of control batches."""
    views = [view for view in views_of(data) if control or not view.is_control]
    return [record for view in views for record in iter_all_records(data, view, max_decompressed_bytes=LIMIT)]


def offsets_in(data: bytes | bytearray) -> list[int]:
    return [record.offset for record in records_in(data)]


def with_fields(batch: bytearray, **fields: int) -> bytearray:
    """Return the batch with header fields changed and its CRC made right again: a lie no checksum shows."""
    changed = bytearray(struct.pack(BATCH_HEADER_FORMAT, *read_header(batch)._replace(**fields)))
    changed += batch[RECORD_BATCH_OVERHEAD:]
    struct.pack_into(">I", changed, CRC_COVERS_FROM - 4, crc32c(changed[CRC_COVERS_FROM:], 0))
    return changed


def commit_marker(base_offset: int = 0, *, producer_id: int = 1, timestamp_ms: int = 5) -> bytearray:
    """Return the control batch that commits a transaction of the producer's first epoch."""
    of = {"producer_id": producer_id, "producer_epoch": 0, "coordinator_epoch": 0}
    return build_end_txn_marker(ControlType.COMMIT, **of, timestamp_ms=timestamp_ms, base_offset=base_offset)


@contextmanager
def mapped(data: bytes | bytearray) -> Iterator[mmap.mmap]:
    """Map a file of these bytes; expect that no view of it is left at the end of the block."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        mapping = mmap.mmap(file.fileno(), len(data), access=mmap.ACCESS_READ)
        yield mapping
        mapping.close()  # BufferError where there is a view
