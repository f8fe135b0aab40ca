"""Segments that Apache Kafka 2.0.1 wrote, and the batches in them."""

from __future__ import annotations

import functools
import tarfile
from typing import NamedTuple

from minibroker.protocol.batches import BatchView, iter_all_records, scan_batches
from minibroker.protocol.record import Record
from tests.conftest import GOLDEN

ARCHIVE = GOLDEN / "kafka-2.0.1-logs.tar.gz"
MAX_DECOMPRESSED_BYTES = 1 << 20


class GoldenBatch(NamedTuple):
    segment: str  # topic-partition/file
    view: BatchView
    data: bytes  # of this batch alone
    records: tuple[Record, ...]


@functools.cache
def golden_segments() -> dict[str, bytes]:
    """Every .log of the archive by `topic-partition/file`."""
    segments = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if member.name.endswith(".log") and file is not None:
                segments[member.name.removeprefix("./")] = file.read()
    return segments


@functools.cache
def golden_batches() -> list[GoldenBatch]:
    batches = []
    for name, segment in golden_segments().items():
        for view in scan_batches(segment, 0, len(segment)):
            records = iter_all_records(segment, view, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
            data = segment[view.position : view.end_position]
            batches.append(GoldenBatch(name, view, data, tuple(records)))
    return batches
