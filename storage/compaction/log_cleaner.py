"""Compacts a log: of all records with the same key, it keeps the newest.

    clean section | dirty section | uncleanable section: from the first open transaction, the first segment that is
                                    too young, or the active segment on

As kafka 2.0.1 Cleaner: `OffsetMap` collects the newest offset of each key in the dirty section, as far as its memory
goes. Then both sections are copied without superseded records, small neighbours into one segment, and the copies
replace the originals. Offsets stay, readers see gaps. Tombstones, and the markers of transactions without records,
are removed once they are older than `delete.retention.ms`.

`LogCleaning.steps` runs on the thread that owns the log, and yields the work for another thread. That one only reads
segments that are no longer written, by `pread`, and writes files of its own. Before a copy takes effect, the owner
checks the log: if it was truncated or deleted, or has lost a segment, the copy is discarded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from minibroker.protocol.batch_filter import KeyedRecord, OpenBatch, open_batch
from minibroker.protocol.batches import BatchView, batch_is_valid, scan_batches
from minibroker.protocol.compression import corrupt
from minibroker.protocol.record import INT32_MAX
from minibroker.protocol.record_batch import HEADER_SIZE_UP_TO_MAGIC, build_empty_batch, read_header, size_at
from minibroker.storage import real_time
from minibroker.storage.compaction.cleaned_segment import CleanedSegment
from minibroker.storage.compaction.cleaner_offset_map import OffsetMap
from minibroker.storage.compaction.cleaner_pace import CleanerPace, LogCleaningAbortedError
from minibroker.storage.compaction.cleaner_transactions import CleanedTransactions
from minibroker.storage.files import disk
from minibroker.storage.log.log import Log
from minibroker.storage.log.log_validator import MAX_DECOMPRESSED_BYTES
from minibroker.storage.segment.log_segment import LogSegment

logger = logging.getLogger(__name__)

# A copy takes its place by a few renames for each segment that it replaces, and all clients wait for them.
MOST_SEGMENTS_IN_A_GROUP = 16


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """The broker's settings `log.cleaner.dedupe.buffer.size` and so on."""

    dedupe_buffer_size: int = 128 * 1024 * 1024
    io_buffer_size: int = 512 * 1024
    io_buffer_load_factor: float = 0.9


class LogToClean(NamedTuple):
    """A log and its cleanable part, which ends at the start of a segment."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool  # max.compaction.lag.ms has passed for one of its records

    @property
    def cleanable_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total > 0 else 0.0


@dataclass(slots=True)
class CleanerStats:
    """The statistics of one compaction."""

    keys: int = 0
    bytes_read: int = 0  # the dirty section counts twice
    bytes_written: int = 0
    records_read: int = 0  # when copying, without those of batches that stay or are removed as a whole
    records_kept: int = 0
    invalid_records: int = 0  # without a key
    seconds: float = 0.0


class LogCleaning:
    """One compaction of one log. Created, and closed, on the thread that owns the log."""

    def __init__(self, to_clean: LogToClean, config: CleanerConfig, pace: CleanerPace, *, now_ms: int) -> None:
        log, first_dirty_offset = to_clean.log, to_clean.first_dirty_offset
        self.log = log
        self.stats = CleanerStats()
        self._first_dirty_offset = first_dirty_offset
        self._first_uncleanable_offset = to_clean.first_uncleanable_offset
        self._config = config
        self._pace = pace
        self._now_ms = now_ms
        self._truncations = log.truncations
        self._segments = log.segments.between(0, to_clean.first_uncleanable_offset)
        self._dirty_segments = log.segments.between(first_dirty_offset, to_clean.first_uncleanable_offset)
        self._first_dirty_position = (
            self._dirty_segments[0].offset_index.position_before(first_dirty_offset) if self._dirty_segments else 0
        )
        self._delete_horizon_ms = self._find_delete_horizon_ms()
        # The last batch of each producer stays, even without records, until the producer writes another one.
        producers = log.producer_state.producers_and_remembered.values()
        start_offset = log.log_start_offset
        self._last_batches = {
            entry.producer_id: (entry.last_offset if entry.last_offset >= start_offset else -1, entry.epoch)
            for entry in producers
        }
        # Of all segments: the marker of a cleanable record may be in an uncleanable segment.
        self._transaction_indexes = [segment.transaction_index for segment in log.segments]
        self._offset_map = OffsetMap(config.dedupe_buffer_size, config.io_buffer_load_factor)
        self._transactions = CleanedTransactions((), 0)
        self._cleaned: CleanedSegment | None = None

    def _find_delete_horizon_ms(self) -> int:
        """Return the time before which tombstones are removed (as kafka 2.0.1 Cleaner.clean)."""
        clean = [segment for segment in self._segments if segment.base_offset < self._first_dirty_offset]
        return clean[-1].last_modified_ms - self.log.config.delete_retention_ms if clean else 0

    # -- on the log's thread ----------------------------------------------------------------------------------

    def steps(self) -> Iterator[Callable[[], None]]:
        """Iterate over the work for another thread, and apply its results.

        Raises LogCleaningAbortedError or OSError. So does the work, which also raises KafkaError: CORRUPT_MESSAGE,
        MESSAGE_TOO_LARGE. Call `close` at the end.
        """
        began = real_time.monotonic()
        self._pace.begin()
        yield self._fill_offset_map
        self.stats.keys = len(self._offset_map)
        end_offset = max(self._offset_map.latest_offset + 1, self._first_dirty_offset)
        config = self.log.config
        for group in group_segments(
            [segment for segment in self._segments if segment.base_offset < end_offset],
            max_bytes=config.segment_bytes,
            max_index_bytes=config.segment_index_bytes,
            end_offset=self._first_uncleanable_offset,
        ):
            yield partial(self._copy, group)
            self._begin_replacement(group)
            yield partial(disk.sync_directory, self.log.directory)
            if not self.log.segments.complete_replacement(
                delete_at_ms=self._now_ms + self.log.config.file_delete_delay_ms
            ):
                raise self._aborted()
            yield partial(disk.sync_directory, self.log.directory)
        self.log.note_cleaned(end_offset)
        yield partial(self._offset_map.clear, self._pace.yield_gil)
        self.stats.seconds = real_time.monotonic() - began

    def _begin_replacement(self, group: Sequence[LogSegment]) -> None:
        cleaned = self._cleaned
        if cleaned is None or self.is_log_changed or group[-1] is self.log.segments.active:
            raise self._aborted()
        self._cleaned = None
        self.log.segments.begin_replacement(cleaned.segment, group)

    @property
    def is_log_changed(self) -> bool:
        """Whether the log was closed, deleted or truncated, or is offline."""
        return self.log.is_refusing or self.log.truncations != self._truncations

    def _aborted(self) -> LogCleaningAbortedError:
        return LogCleaningAbortedError(f"{self.log.topic_partition} has changed while it was compacted")

    def close(self) -> None:
        """Discard a copy that has not taken effect. Raises OSError."""
        cleaned, self._cleaned = self._cleaned, None
        if cleaned is not None:
            cleaned.discard()
        self.log.segments.abandon_replacement()

    # -- on another thread --------------------------------------------------------------------------------------------

    def _fill_offset_map(self) -> None:
        """Collect the newest offset of each key in the dirty section (as kafka 2.0.1 Cleaner.buildOffsetMap)."""
        aborted = [txn for index in self._transaction_indexes for txn in index.entries()]
        self._transactions = CleanedTransactions(aborted, 0)
        transactions = CleanedTransactions(aborted, self._first_dirty_offset)
        offset_map, position = self._offset_map, self._first_dirty_position
        for segment in self._dirty_segments:
            for chunk, view in self._batches(segment, position):
                if view.last_offset < self._first_dirty_offset:
                    continue
                # A whole batch or none of it: a batch with more keys than there is room for must not stop progress.
                if offset_map.is_full:
                    return
                if view.is_control:
                    transactions.on_marker(view, chunk)
                elif not transactions.on_batch(view):
                    for records in self._slices(self._open(chunk, view)):
                        offset_map.put(records, self._first_dirty_offset)
                offset_map.note_read(view.last_offset)
            position = 0

    def _copy(self, group: Sequence[LogSegment]) -> None:
        """Copy what stays of several segments into one (as kafka 2.0.1 Cleaner.cleanSegments)."""
        if self.is_log_changed:
            raise self._aborted()
        self._cleaned = cleaned = CleanedSegment(self.log.directory, group, self.log.config, now_ms=self._now_ms)
        self._transactions.note_in(cleaned.segment.transaction_index)
        last_seen = None
        for segment in group:
            retains_deletes = segment.last_modified_ms > self._delete_horizon_ms
            for chunk, view in self._batches(segment):
                last_seen = view
                batch = self._retained(chunk, view, retains_deletes)
                if batch is not None:
                    cleaned.add(batch)
                    self._pace.on_bytes(len(batch))
        self.stats.bytes_written += cleaned.finish(last_seen)

    def _retained(self, chunk: bytes, view: BatchView, retains_deletes: bool) -> bytes | bytearray | None:
        """Return the batch whole, with some of its records, or its header alone; None if it is removed."""
        is_last = self._is_last_of_producer(view)
        if view.is_control:
            may_go = self._transactions.on_marker(view, chunk) and not retains_deletes and not is_last
            return None if may_go else chunk[view.position : view.end_position]
        is_aborted = self._transactions.on_batch(view)
        if not is_aborted:
            if view.last_offset > self._offset_map.latest_offset:
                return chunk[view.position : view.end_position]
            batch = self._compacted(chunk, view, retains_deletes)
            if batch is not None:
                return batch
        return build_empty_batch(read_header(chunk, view.position)) if is_last else None

    def _compacted(self, chunk: bytes, view: BatchView, retains_deletes: bool) -> bytes | bytearray | None:
        """Return the batch without superseded records; None if no record stays."""
        stats, opened, count = self.stats, self._open(chunk, view), 0
        kept: list[KeyedRecord] = []
        for records in self._slices(opened):
            count += len(records)
            staying = self._offset_map.without_superseded(records, retain_deletes=retains_deletes)
            if len(staying) < len(records):
                stats.invalid_records += sum(record[1] is None for record in records)
            kept += staying
        stats.records_read += count
        stats.records_kept += len(kept)
        if not kept:
            return None
        return chunk[view.position : view.end_position] if len(kept) == count else opened.keep(kept)

    def _is_last_of_producer(self, view: BatchView) -> bool:
        """Return whether the batch has the producer's last sequence number, or its epoch if there is none.

        As later Kafka's Cleaner; 2.0.1 compares the number alone, which an older epoch may have used too.
        """
        last_offset, epoch = self._last_batches.get(view.producer_id, (-1, None))
        if last_offset >= 0:
            return view.last_offset == last_offset
        return view.is_control and view.producer_epoch == epoch

    def _open(self, chunk: bytes, view: BatchView) -> OpenBatch:
        if not batch_is_valid(chunk, view):
            raise corrupt(f"{self.log.topic_partition}: the CRC is wrong at offset {view.base_offset}")
        return open_batch(chunk, view, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)

    def _slices(self, opened: OpenBatch) -> Iterator[list[KeyedRecord]]:
        for records in opened.slices():
            self._pace.yield_gil()
            yield records

    def _batches(self, segment: LogSegment, position: int = 0) -> Iterator[tuple[bytes, BatchView]]:
        """Iterate over the batches from a position on, each with the bytes its own position counts in.

        Raises KafkaError(CORRUPT_MESSAGE), LogCleaningAbortedError.
        """
        fd, end = segment.records.fd, segment.size_bytes
        size = usual_size = max(self._config.io_buffer_size // 2, HEADER_SIZE_UP_TO_MAGIC)
        while position < end:
            if self.is_log_changed:
                raise self._aborted()
            chunk = disk.pread(fd, min(size, end - position), position)
            self.stats.bytes_read += len(chunk)
            self._pace.on_bytes(len(chunk))
            read = 0
            for view in scan_batches(chunk, 0, len(chunk)):
                yield chunk, view
                read = view.end_position
                self._pace.yield_gil()
            position += read
            size = usual_size
            if read == 0:
                size = size_at(chunk) if len(chunk) >= HEADER_SIZE_UP_TO_MAGIC else 0
                if not len(chunk) < size <= end - position:
                    raise corrupt(f"{segment.path}: found no whole batch at byte {position}")


def group_segments(
    segments: Sequence[LogSegment], *, max_bytes: int, max_index_bytes: int, end_offset: int
) -> list[list[LogSegment]]:
    """Return groups of neighbours that fit into one segment (as kafka 2.0.1 Cleaner.groupSegmentsBySize).

    `end_offset` is an upper bound of the last segment's offsets.
    """
    groups: list[list[LogSegment]] = []
    next_offsets = [segment.base_offset for segment in segments[1:]] + [end_offset] * bool(segments)
    records_bytes = index_bytes = time_index_bytes = 0
    for segment, next_offset in zip(segments, next_offsets, strict=True):
        records_bytes += segment.size_bytes
        index_bytes += segment.offset_index.size_bytes
        time_index_bytes += segment.time_index.size_bytes
        if (
            groups
            and len(groups[-1]) < MOST_SEGMENTS_IN_A_GROUP
            and records_bytes <= max_bytes
            and index_bytes <= max_index_bytes
            and time_index_bytes <= max_index_bytes
            and next_offset - 1 - groups[-1][0].base_offset <= INT32_MAX
        ):
            groups[-1].append(segment)
            continue
        groups.append([segment])
        records_bytes, index_bytes = segment.size_bytes, segment.offset_index.size_bytes
        time_index_bytes = segment.time_index.size_bytes
    return groups
