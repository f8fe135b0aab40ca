"""Writes the segment that replaces compacted ones, in `.cleaned` files.

Batches come in the order of their offsets and are written in pieces of about an index interval, so that the indexes
are as dense as those of the replaced segments. A finished segment is on disk, and has the age of the youngest segment
it replaces, from which the age of tombstones is counted.

A segment must reach as far as those it replaces, because after a crash a start finds these by its offsets. If nothing
of the last one stays, a batch without records takes the place of its last batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from minibroker.protocol.batches import BatchView, view_batch
from minibroker.protocol.record import NO_SEQUENCE, NO_TIMESTAMP
from minibroker.protocol.record_batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    build_empty_batch,
)
from minibroker.storage.config import LogConfig
from minibroker.storage.files import disk
from minibroker.storage.files.file_names import (
    CLEANED_SUFFIX,
    SEGMENT_SUFFIXES,
    segment_file,
)
from minibroker.storage.segment.log_segment import LogSegment

_MOST_PIECE_BYTES = 256 * 1024
_UNBOUNDED_INDEX_BYTES = 2**31 - 1


class CleanedSegment:
    """Writes one segment in the place of `replaced`, which are neighbours and not empty."""

    __slots__ = (
        "_config",
        "_last_batch",
        "_max_timestamp_ms",
        "_offset_of_max_timestamp",
        "_piece",
        "replaced",
        "segment",
    )

    def __init__(self, directory: Path, replaced: Sequence[LogSegment], config: LogConfig, *, now_ms: int) -> None:
        """Create the files. Raises OSError."""
        base_offset = replaced[0].base_offset
        for suffix in SEGMENT_SUFFIXES:
            disk.unlink(segment_file(directory, base_offset, suffix, CLEANED_SUFFIX))
        # Smaller batches can need more index entries than before: a full index must not end the compaction.
        unbounded = replace(config, segment_index_bytes=_UNBOUNDED_INDEX_BYTES)
        self.replaced = tuple(replaced)
        self.segment = LogSegment.open(directory, base_offset, unbounded, now_ms=now_ms, extra=CLEANED_SUFFIX)
        self._config = config
        self._piece = bytearray()
        self._last_batch: BatchView | None = None  # at its place in the piece
        self._begin_piece()

    def _begin_piece(self) -> None:
        self._piece.clear()
        self._max_timestamp_ms, self._offset_of_max_timestamp = NO_TIMESTAMP, -1

    def add(self, batch: bytes | bytearray | memoryview) -> None:
        """Write one batch, at the offsets it has. Raises OSError."""
        view = view_batch(batch, 0, len(batch))
        if view is None:
            raise ValueError(f"{len(batch)} bytes are not a whole batch")
        self._last_batch = view._replace(position=len(self._piece))
        self._piece += batch
        if view.max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms, self._offset_of_max_timestamp = view.max_timestamp_ms, view.last_offset
        if len(self._piece) > min(self._config.index_interval_bytes, _MOST_PIECE_BYTES):
            self._write_piece()

    def _write_piece(self) -> None:
        if self._piece and self._last_batch is not None:
            self.segment.append(self._piece, self._last_batch, self._max_timestamp_ms, self._offset_of_max_timestamp)
            self._begin_piece()

    def finish(self, last_seen: BatchView | None) -> int:
        """Finish the files and force them to disk; return the segment's size in bytes. Raises OSError.

        `last_seen` is the last batch of the replaced segments, whether it stays or not.
        """
        if last_seen is not None and last_seen.magic >= 2 and not self._reaches(last_seen):
            self.add(_place_of(last_seen))
        self._write_piece()
        self.segment.finish_copy(self._config, self.replaced[-1].last_modified_ms)
        return self.segment.size_bytes

    def _reaches(self, last_seen: BatchView) -> bool:
        """Return whether there is a batch at or beyond the base offset of the last segment that had one."""
        bases = [each.base_offset for each in self.replaced if each.base_offset <= last_seen.last_offset]
        return len(bases) <= 1 or (self._last_batch is not None and self._last_batch.last_offset >= bases[-1])

    def discard(self) -> None:
        """Remove the files. Raises OSError."""
        self.segment.delete_if_exists()


def _place_of(batch: BatchView) -> bytearray:
    """Return a batch without records and producer, at the last offset of this one."""
    return build_empty_batch(
        BatchHeader(
            base_offset=batch.last_offset,
            batch_length=0,
            partition_leader_epoch=batch.partition_leader_epoch,
            magic=2,
            crc=0,
            attributes=0,
            last_offset_delta=0,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            records_count=0,
        )
    )
