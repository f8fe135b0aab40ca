"""The files of one log: its segments in order, appended to at the end, read anywhere, rolled, flushed, cut, deleted.

Knows batches only as bytes at offsets; who may append, and what a reader may see, is `Log`'s business. One thread
owns it, except for `flush`, which may run in another at the same time. A failed append or roll leaves the files
as they were. Segments that leave the log are renamed `.deleted` and removed after `file.delete.delay.ms`, so that
a reader in the middle of one gets to its end. What compaction puts in their place is `.swap` until they are gone:
a start completes that, so anything else that changes the log in between takes the `.swap` away first.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.config import LogConfig
from minibroker.storage.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    segment_file,
)
from minibroker.storage.files.storage_errors import map_flush_errors
from minibroker.storage.index.fetch_data import FetchDataInfo, LogOffsetMetadata
from minibroker.storage.index.transaction_index import AbortedTxn
from minibroker.storage.segment.log_segment import LogSegment
from minibroker.storage.segment.log_segments import LogSegments

logger = logging.getLogger(__name__)


def sync_directory(directory: Path) -> None:
    """Force the names in the directory to disk: a new file is only then sure to be found after a power loss."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class LocalLog:
    """Offsets from `start_offset` up to `end_offset`, the next to be written; fsynced below `recovery_point`."""

    __slots__ = (
        "_cutting",
        "_deleted",
        "_end_metadata",
        "_replacement",
        "config",
        "directory",
        "end_offset",
        "recovery_point",
        "refusal",
        "segments",
        "start_offset",
        "truncations",
    )

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        segments: LogSegments,
        *,
        start_offset: int,
        end_offset: int,
        recovery_point: int,
    ) -> None:
        self.directory = directory
        self.config = config
        self.segments = segments
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.recovery_point = recovery_point
        self.refusal: tuple[ErrorCode, str] | None = None
        self._end_metadata: LogOffsetMetadata | None = None
        self.truncations = 0  # how often something was cut off at the end
        self._cutting = Lock()  # a flush, in its thread, takes no offset as flushed that is being cut off
        self._deleted: list[tuple[LogSegment, int]] = []  # with the time to remove its files
        self._replacement: tuple[LogSegment, tuple[LogSegment, ...]] | None = None  # what is `.swap`, and for which

    def check_usable(self) -> None:
        """Raise the KafkaError of a log whose disk failed, or that was closed or deleted."""
        if self.refusal is not None:
            raise KafkaError(*self.refusal)

    @property
    def end_offset_metadata(self) -> LogOffsetMetadata:
        metadata = self._end_metadata
        if metadata is None:
            active = self.segments.active
            metadata = LogOffsetMetadata(self.end_offset, active.base_offset, active.size_bytes)
            self._end_metadata = metadata
        return metadata

    # -- reading ----------------------------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        max_length: int,
        *,
        max_offset: int | None,
        min_one_message: bool,
        include_aborted_txns: bool,
    ) -> FetchDataInfo:
        """Read from the batch that holds the offset on, or the next one after a gap. The end of the log is no error.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) outside the segments.
        """
        segments = self.segments
        slot = bisect_right(segments.bases, start_offset) - 1
        if slot < 0 or start_offset > self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {start_offset} is in no segment")
        while slot < len(segments.segments):
            segment = segments.segments[slot]
            fetched = segment.read(
                start_offset, max_size=max_length, max_offset=max_offset, min_one_message=min_one_message
            )
            if fetched is not None:
                if include_aborted_txns:
                    fetched.aborted_transactions = self._aborted_in(start_offset, slot, fetched)
                return fetched
            slot += 1
        # All batches from the start offset on were compacted away.
        return FetchDataInfo(self.end_offset_metadata, aborted_transactions=[] if include_aborted_txns else None)

    def _aborted_in(self, start_offset: int, slot: int, fetched: FetchDataInfo) -> list[AbortedTxn]:
        """Return the aborted transactions that may have records in the fetch (as kafka 2.0.1)."""
        segments = self.segments
        segment = segments.segments[slot]
        is_active = slot + 1 == len(segments.segments)
        if is_active and segment.transaction_index.size_bytes == 0:  # who reads along is told at once
            return []
        upper_bound = segment.fetch_upper_bound_offset(fetched.offset_metadata.relative_position, fetched.size_bytes)
        if upper_bound is None:
            upper_bound = self.end_offset if is_active else segments.bases[slot + 1]
        return self.collect_aborted_txns(start_offset, upper_bound, slot)

    def collect_aborted_txns(self, start_offset: int, upper_bound: int, slot: int) -> list[AbortedTxn]:
        """Return the aborted transactions of [start_offset, upper_bound), from the segment in `slot` on."""
        aborted: list[AbortedTxn] = []
        for segment in self.segments.segments[slot:]:
            found, is_complete = segment.collect_aborted_txns(start_offset, upper_bound)
            aborted += found
            if is_complete:
                break
        return aborted

    # -- appending --------------------------------------------------------------------------------------------

    def append(
        self,
        buffer: bytes | bytearray | memoryview,
        last_offset: int,
        max_timestamp_ms: int,
        offset_of_max_timestamp: int,
    ) -> None:
        """Append whole batches to the active segment, in one write. Raises OSError and changes nothing."""
        self.segments.active.append(last_offset, max_timestamp_ms, offset_of_max_timestamp, buffer)
        self.end_offset = last_offset + 1
        self._end_metadata = None

    def roll(self, new_offset: int, *, now_ms: int) -> LogSegment:
        """Begin a new active segment at the offset. Raises OSError; the old one is still active then."""
        old = self.segments.active
        self._delete_leftovers(new_offset)
        old.on_become_inactive()
        segment = self._create_segment(new_offset, now_ms)
        self.segments.add(segment)
        self._end_metadata = None
        logger.info("%s: rolled a new segment at offset %d", self.directory.name, new_offset)
        return segment

    def _create_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        try:
            return LogSegment.open(
                self.directory, base_offset, self.config, now_ms=now_ms, preallocate=self.config.preallocate
            )
        except OSError:
            # A part of the files would be taken for a segment that begins inside the active one.
            self._delete_leftovers(base_offset)
            raise

    def _delete_leftovers(self, base_offset: int) -> None:
        for suffix in SEGMENT_SUFFIXES:
            segment_file(self.directory, base_offset, suffix).unlink(missing_ok=True)

    # -- flushing ---------------------------------------------------------------------------------------------

    def flush(self, offset: int) -> None:
        """Force everything below the offset to disk. May run in another thread than the rest.

        Raises LogFlushError, or OSError without a free descriptor. The active segment's indexes are left out: after
        a crash they are made again.
        """
        if offset <= self.recovery_point:
            return
        truncations, active = self.truncations, self.segments.active
        with map_flush_errors(self.directory):
            self._flush_segments(self.recovery_point, offset, active)
        # The owner went on meanwhile: what it cut off is not flushed, nor are the indexes of a rolled segment.
        with self._cutting:
            if truncations == self.truncations:
                reached = offset if active is self.segments.active else min(offset, active.base_offset)
                self.recovery_point = max(self.recovery_point, reached)

    def _flush_segments(self, start: int, end: int, active: LogSegment) -> None:
        has_new_files = False
        for segment in reversed(tuple(self.segments.segments)):
            if segment.base_offset >= end:
                continue
            has_new_files = has_new_files or segment.base_offset >= start
            try:
                if segment is active:
                    segment.records.flush()
                elif not segment.is_on_disk:  # nor looked for: what compaction wrote may just get its names
                    segment.flush()
            except FileNotFoundError:
                if segment in self.segments and self.refusal is None:
                    raise
            if segment.base_offset <= start:
                break
        if has_new_files:
            self._sync_names()

    def _sync_names(self) -> None:
        directory = self.directory
        try:
            sync_directory(directory)
        except FileNotFoundError:
            if self.refusal is None:  # else it was renamed, for deletion
                raise
        sync_directory(directory.parent)

    @property
    def oldest_offset_to_recover(self) -> int:
        """Below this no snapshot is needed: not by a recovery, nor after truncation into the last two segments."""
        segments = self.segments
        before_active = segments.lower(segments.active.base_offset) or segments.active
        flushed = segments.lower(self.recovery_point)
        recovered_from = self.recovery_point if flushed is None else flushed.base_offset
        return min(recovered_from, before_active.base_offset)

    # -- truncating and deleting ------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Cut everything from the offset on; it must not be below the first segment."""
        self._begin_cutting()
        for segment in self.segments.segments[self.segments.floor_slot(offset) + 1 :]:
            self._take_out(segment, now_ms)
        self.segments.active.truncate_to(offset, now_ms=now_ms)
        self.end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._end_metadata = None

    def _begin_cutting(self) -> None:
        with self._cutting:
            self.truncations += 1

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Give up all segments and begin with an empty one at the offset."""
        self._begin_cutting()
        for segment in self.segments:
            self._take_out(segment, now_ms)
        self.segments.add(self._create_segment(offset, now_ms))
        self.end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._end_metadata = None

    def delete_segments(self, segments: Sequence[LogSegment], *, now_ms: int) -> None:
        """Take segments out, never the last one."""
        for segment in segments:
            self._take_out(segment, now_ms)

    def _take_out(self, segment: LogSegment, now_ms: int) -> None:
        self.abandon_replacement()
        self.segments.remove(segment)  # before its files: `flush` must not miss one that is still in the log
        self._give_up(segment, now_ms)

    def _give_up(self, segment: LogSegment, now_ms: int) -> None:
        segment.release_maps()
        segment.change_suffixes("", DELETED_SUFFIX)
        self._deleted.append((segment, now_ms + self.config.file_delete_delay_ms))

    def take_deleted(self, now_ms: int) -> list[LogSegment]:
        """Return the segments whose time has come: removing their files is the caller's now, and may take long."""
        due = [segment for segment, due_ms in self._deleted if due_ms <= now_ms]
        self._deleted = [entry for entry in self._deleted if entry[1] > now_ms]
        return due

    # -- replacing --------------------------------------------------------------------------------------------

    def begin_replacement(self, new: LogSegment, old: Sequence[LogSegment]) -> None:
        """Name a finished `.cleaned` segment `.swap`, to replace neighbours that begin at its base offset.

        Nothing of it shows yet, but a start would complete it. Raises OSError.
        """
        self._replacement = (new, tuple(old))
        new.change_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)

    def complete_replacement(self, *, now_ms: int) -> bool:
        """Have it take effect, its `.swap` names being on the disk; False if it was abandoned. Raises OSError.

        The old files go in the order of their offsets, so that those a crash leaves are the last of them.
        """
        replacement, self._replacement = self._replacement, None
        if replacement is None:
            return False
        new, old = replacement
        self.segments.replace(old, new)
        for segment in old:
            self._give_up(segment, now_ms)
        new.change_suffixes(SWAP_SUFFIX, "")
        return True

    def abandon_replacement(self) -> None:
        """Remove what was to replace something, if that has not taken effect. Raises OSError."""
        replacement, self._replacement = self._replacement, None
        if replacement is not None:
            replacement[0].delete_if_exists()

    # -- maps and names ---------------------------------------------------------------------------------------

    def release_idle_maps(self) -> None:
        """Give back the maps of all segments but the active one: a scan or a look-up may be long ago."""
        for segment in self.segments.segments[:-1]:
            segment.release_maps()

    def update_directory(self, directory: Path) -> None:
        """Follow the directory, which was renamed; maps and their descriptors are given back."""
        self.directory = directory
        self._replacement = None
        for segment in self.segments:
            segment.update_directory(directory)
            segment.release_maps()

    def close(self) -> None:
        """Leave all files as Kafka does at a clean stop, on disk. Raises LogFlushError, OSError."""
        self.abandon_replacement()
        for segment in self.segments:
            segment.close()
        if self.recovery_point < self.end_offset:
            with map_flush_errors(self.directory):
                for segment in self.segments.between(self.recovery_point, self.end_offset):
                    segment.flush()
                sync_directory(self.directory)
            self.recovery_point = self.end_offset
        for segment, _ in self._deleted:
            segment.delete_if_exists()
        self._deleted.clear()
