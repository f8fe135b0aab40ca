"""Segments made of small batches, for the tests of segments and logs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from minibroker.protocol.batches import scan_batches
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.config import LogConfig
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.index.fetch_data import FetchDataInfo
from minibroker.storage.segment.log_segment import LogSegment

NOW_MS = 1_000_000


class Batch(NamedTuple):
    """A batch that a test appends and expects to read."""

    data: bytes
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


def batch_at(
    offset: int, count: int = 1, *, magic: int = 2, timestamp_ms: int | None = None, size_bytes: int = 10
) -> Batch:
    """Return a batch of records at consecutive offsets; without a timestamp each record's is its offset."""
    records = [
        Record(number, number if timestamp_ms is None else timestamp_ms, None, b"v" * size_bytes)
        for number in range(offset, offset + count)
    ]
    data = build_batch(records, base_offset=offset) if magic == 2 else build_message_set(records, magic=magic)
    return Batch(bytes(data), offset, records[-1].offset, -1 if magic == 0 else records[-1].timestamp_ms)


def open_segment(directory: Path, base_offset: int = 0, *, config: LogConfig | None = None) -> LogSegment:
    return LogSegment.open(directory, base_offset, config or LogConfig(), now_ms=NOW_MS)


def fill(segment: LogSegment, batches: Iterable[Batch]) -> None:
    for batch in batches:
        fill_at_once(segment, batch)


def fill_at_once(segment: LogSegment, *batches: Batch) -> None:
    """Append the batches in one write."""
    data, newest = b"".join(batch.data for batch in batches), batches[-1]
    *_, last_batch = scan_batches(data, 0, len(data))
    segment.append(data, last_batch, newest.max_timestamp_ms, newest.last_offset)


def batches_of_three(number: int, first: int = 0) -> list[Batch]:
    """Return batches of three records each, all of one size."""
    return [batch_at(offset, 3) for offset in range(first, first + 3 * number, 3)]


def data_of(found: FetchDataInfo | None) -> bytes:
    """Return the bytes of what was read; there must be something."""
    assert found is not None
    return found.records.read() if isinstance(found.records, FileSlice) else found.records


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}
