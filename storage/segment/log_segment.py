"""A segment of a log: a `.log` of record batches and its indexes, named by the first offset it may hold.

Batches are appended as they come, in one write. About every `index.interval.bytes` the offset index gets the
position of a batch, and the time index the youngest timestamp so far. A look-up starts at the index entry before
the offset and goes from header to header. Reading returns a `FileSlice`, never bytes.

A failed append leaves all files as they were: room in the indexes is allocated first, and the records are written
whole or not at all. Only the newest segment of a log is written; `on_become_inactive` trims it. After a crash
`recover` reads the segment from its first byte, and rebuilds everything else from the records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from minibroker.protocol.batches import (
    BatchPosition,
    BatchView,
    batch_is_valid,
    find_offset,
    iter_all_records,
    scan_batches,
)
from minibroker.protocol.compression import corrupt
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import INT32_MAX, NO_TIMESTAMP
from minibroker.storage import chance
from minibroker.storage.config import LogConfig
from minibroker.storage.files import disk
from minibroker.storage.files.file_names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    segment_file,
)
from minibroker.storage.files.records_file import FileSlice, RecordsFile
from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.fetch_data import FetchDataInfo as FetchDataInfo
from minibroker.storage.index.fetch_data import LogOffsetMetadata as LogOffsetMetadata
from minibroker.storage.index.indexes import OffsetIndex, TimeIndex
from minibroker.storage.index.indexes import TimestampOffset as TimestampOffset
from minibroker.storage.index.leader_epochs import LeaderEpochCache
from minibroker.storage.index.transaction_index import CompletedTxn, TransactionIndex, TxnSearchResult
from minibroker.storage.producers.producer_state import ProducerStateManager

_LOOKUP_BYTES = 6 * 1024
_MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024  # of a batch that is searched for a timestamp
_RELEASE_EVERY_BYTES = 16 * 1024 * 1024  # of a segment that is being recovered

logger = logging.getLogger(__name__)


class SegmentOffsetOverflowError(Exception):
    """An offset is too far from the segment's base offset for its indexes."""


class Found(NamedTuple):
    """The batch that holds an offset, or the first one after it; and what was read to find it, from `read_from` on."""

    base_offset: int
    position: int
    size_bytes: int
    read: bytes = b""
    read_from: int = 0


class LogSegment:
    """A `.log` with its indexes. Holds one descriptor, and two more while the indexes are in use."""

    __slots__ = (
        "_bytes_since_last_index_entry",
        "_index_interval_bytes",
        "_last_batch",
        "_last_offset",
        "_max_segment_bytes",
        "_max_segment_ms",
        "_missing_index",
        "base_offset",
        "created_ms",
        "is_on_disk",
        "max_timestamp_so_far",
        "offset_index",
        "offset_of_max_timestamp",
        "records",
        "rolling_based_timestamp",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        preallocate: bool,
        extra: str,
    ) -> None:
        index_paths = [segment_file(directory, base_offset, suffix, extra) for suffix in INDEX_SUFFIXES]
        self._missing_index = next((path for path in index_paths[:2] if not disk.exists(path)), None)
        self.records = RecordsFile(
            segment_file(directory, base_offset, LOG_SUFFIX, extra),
            preallocate_bytes=config.segment_bytes if preallocate else 0,
        )
        self.offset_index = OffsetIndex(index_paths[0], base_offset, config.segment_index_bytes)
        self.time_index = TimeIndex(index_paths[1], base_offset, config.segment_index_bytes)
        self.transaction_index = TransactionIndex(index_paths[2], base_offset)
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.is_on_disk = False  # whether records and indexes were forced there when it was written, as a whole
        self.rolling_based_timestamp: int | None = None  # of the first batch, once it was read
        self.max_timestamp_so_far, self.offset_of_max_timestamp = self.time_index.last_entry
        self._bytes_since_last_index_entry = 0
        # If known: most look-ups are for it.
        self._last_batch: Found | None = None
        self._last_offset = -1
        self._index_interval_bytes = config.index_interval_bytes
        self._max_segment_bytes = config.segment_bytes
        # The jitter keeps logs that began together from rolling together.
        max_segment_ms = config.max_segment_ms
        self._max_segment_ms = max_segment_ms - chance.below(min(config.segment_jitter_ms, max_segment_ms) + 1)

    @classmethod
    def open(
        cls,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        preallocate: bool = False,
        extra: str = "",
    ) -> LogSegment:
        """Open the files of the segment, and create the missing ones. Raises OSError.

        `extra` follows the names, such as ".cleaned". With `preallocate` a new segment allocates `segment_bytes` of
        disk at once.
        """
        return cls(directory, base_offset, config, now_ms=now_ms, preallocate=preallocate, extra=extra)

    @property
    def size_bytes(self) -> int:
        return self.records.size_bytes

    @property
    def path(self) -> Path:
        return self.records.path

    @property
    def last_modified_ms(self) -> int:
        return disk.fstat(self.records.fd).st_mtime_ns // 1_000_000

    @last_modified_ms.setter
    def last_modified_ms(self, time_ms: int) -> None:
        for path in (self.records.path, self.offset_index.path, self.time_index.path):
            disk.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    @property
    def largest_timestamp_ms(self) -> int:
        """The timestamp of the youngest record; the time of the last write if the records have none."""
        return self.max_timestamp_so_far if self.max_timestamp_so_far >= 0 else self.last_modified_ms

    def append(
        self,
        buffer: bytes | bytearray | memoryview,
        last_batch: BatchView,
        largest_timestamp_ms: int,
        offset_of_max_timestamp: int,
    ) -> None:
        """Append whole batches, in one write. Raises SegmentOffsetOverflowError or OSError, and changes nothing."""
        size, largest_offset = len(buffer), last_batch.last_offset
        if not 0 <= largest_offset - self.base_offset <= INT32_MAX:
            raise SegmentOffsetOverflowError(f"{self.path}: offset {largest_offset}")
        position = self.records.size_bytes
        is_entry_due = self._bytes_since_last_index_entry > self._index_interval_bytes
        if is_entry_due:
            self.offset_index.ensure_room()
            self.time_index.ensure_room()
        self.records.append(buffer)
        self._last_batch = Found(last_batch.base_offset, position + last_batch.position, last_batch.size_bytes, b"", 0)
        self._last_offset = largest_offset
        if position == 0:
            self.rolling_based_timestamp = largest_timestamp_ms
        if largest_timestamp_ms > self.max_timestamp_so_far:
            self.max_timestamp_so_far = largest_timestamp_ms
            self.offset_of_max_timestamp = offset_of_max_timestamp
        if is_entry_due:
            self.offset_index.append(largest_offset, position)
            self.time_index.maybe_append(self.max_timestamp_so_far, self.offset_of_max_timestamp)
            self._bytes_since_last_index_entry = 0
        self._bytes_since_last_index_entry += size

    def should_roll(self, messages_size: int, max_timestamp_ms: int, max_offset: int, *, now_ms: int) -> bool:
        """Return whether such an append needs a new segment."""
        size = self.records.size_bytes
        return (
            size > self._max_segment_bytes - messages_size
            or (size > 0 and self.time_waited_for_roll(now_ms, max_timestamp_ms) > self._max_segment_ms)
            or self.offset_index.is_full
            or self.time_index.is_full
            or not 0 <= max_offset - self.base_offset <= INT32_MAX
        )

    def time_waited_for_roll(self, now_ms: int, message_timestamp_ms: int) -> int:
        """Return the age that counts for rolling: in record time, or since the creation of the segment without any."""
        first = self.rolling_based_timestamp
        if first is None:
            first = self.first_batch_timestamp_ms()
        return message_timestamp_ms - first if first is not None and first >= 0 else now_ms - self.created_ms

    def first_batch_timestamp_ms(self) -> int | None:
        """Return the largest timestamp of the first batch; None for an empty segment."""
        if self.rolling_based_timestamp is None and self.records.size_bytes > 0:
            first = next(self._batches(0), None)
            self.records.unmap()
            self.rolling_based_timestamp = None if first is None else first.max_timestamp_ms
        return self.rolling_based_timestamp

    def _batches(self, start: int) -> Iterator[BatchView]:
        """Iterate over the batches from a position on; positions in the views are those of the file."""
        end = self.records.size_bytes
        buffer, origin = self.records.scan_buffer(start, end)
        for view in scan_batches(buffer, start - origin, end - origin):
            yield view if origin == 0 else view._replace(position=view.position + origin)

    def translate_offset(self, offset: int, starting_position: int = 0) -> BatchPosition | None:
        """Return the first batch that ends at the offset or beyond; None past the end of the segment."""
        found = self._find(offset, starting_position)
        return None if found is None else BatchPosition(found.base_offset, found.position, found.size_bytes)

    def _find(self, offset: int, starting_position: int = 0) -> Found | None:
        # Small batches: one read of the bytes between two index entries is cheaper than a page fault, and keeps
        # their pages out of this process's memory. Large batches: the headers are far apart, and read in the map.
        last = self._last_batch
        if last is not None and last.base_offset <= offset <= self._last_offset and starting_position <= last.position:
            return last
        records = self.records
        size = records.size_bytes
        start = self.offset_index.position_before(offset)
        if start < starting_position:
            start = starting_position
        end = start + _LOOKUP_BYTES
        if end > size:
            end = size
        if start >= end:
            return None
        read = disk.pread(records.fd, end - start, start)
        found = find_offset(read, 0, end - start, offset)
        if found is not None:
            return Found(found.base_offset, found.position + start, found.size_bytes, read, start)
        if end == size:
            return None
        buffer, origin = records.scan_buffer(start, size)
        found = find_offset(buffer, start - origin, size - origin, offset)
        return None if found is None else Found(found.base_offset, found.position + origin, found.size_bytes)

    def read(
        self,
        start_offset: int,
        *,
        max_size: int,
        max_position: int | None = None,
        max_offset: int | None = None,
        min_one_message: bool = False,
    ) -> FetchDataInfo | None:
        """Return the records from the batch that holds the offset on; None past the end of the segment.

        Returns at most `max_size` bytes, cut anywhere, but the first batch whole with `min_one_message`; nothing from
        `max_position` on, nor from the batch on that holds `max_offset`.
        """
        if max_size < 0:
            raise ValueError(f"{self.path}: cannot read {max_size} bytes")
        found = self._find(start_offset)
        if found is None:
            return None
        start, batch_size = found.position, found.size_bytes
        metadata = LogOffsetMetadata(start_offset, self.base_offset, start)
        if min_one_message and max_size < batch_size:
            max_size = batch_size
        if max_size == 0:
            return FetchDataInfo(metadata)
        end = self.records.size_bytes
        if max_offset is not None:
            # A new leader's high watermark may for a moment be behind the reader.
            if max_offset < start_offset:
                return FetchDataInfo(metadata)
            limit = self._find(max_offset, start)
            if limit is not None:
                end = limit.position
        if max_position is not None and max_position < end:
            end = max_position
        size = min(max(end - start, 0), max_size)
        first = start - found.read_from
        read_already = found.read[first : first + size] if first + size <= len(found.read) else None
        records = FileSlice(self.records, start, size, read_already)
        return FetchDataInfo(metadata, records, first_entry_incomplete=max_size < batch_size)

    def offset_at(self, position: int) -> int | None:
        """Return the base offset of the batch that holds a position; None from the end of the segment on."""
        for view in self._batches(self.offset_index.indexed_position(position)):
            if view.end_position > position:
                return view.base_offset
        return None

    def fetch_upper_bound_offset(self, start_position: int, fetch_size_bytes: int) -> int | None:
        """Return an offset at or past the end of such a fetch; None if the index has none."""
        return self.offset_index.fetch_upper_bound_offset(start_position, fetch_size_bytes)

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int | None = None) -> TimestampOffset | None:
        """Return the first record at the timestamp or younger, from the starting offset on; None if all are older."""
        first_offset = self.base_offset if starting_offset is None else starting_offset
        indexed = self.time_index.lookup(timestamp_ms)
        start = self.offset_index.position_before(max(indexed.offset, first_offset))
        buffer, origin = self.records.scan_buffer(start, self.records.size_bytes)
        for view in scan_batches(buffer, start - origin, self.records.size_bytes - origin):
            if view.max_timestamp_ms < timestamp_ms:
                continue
            for record in iter_all_records(buffer, view, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
                if record.timestamp_ms >= timestamp_ms and record.offset >= first_offset:
                    return TimestampOffset(record.timestamp_ms, record.offset)
        return None

    def max_timestamp_from(self, starting_offset: int) -> int:
        """Return the largest timestamp of the records from an offset on; NO_TIMESTAMP without any."""
        largest_ms = NO_TIMESTAMP
        start = self.offset_index.position_before(starting_offset)
        buffer, origin = self.records.scan_buffer(start, self.records.size_bytes)
        for view in scan_batches(buffer, start - origin, self.records.size_bytes - origin):
            if view.base_offset >= starting_offset:
                largest_ms = max(largest_ms, view.max_timestamp_ms)
            elif view.last_offset >= starting_offset:
                records = iter_all_records(buffer, view, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES)
                times_ms = [record.timestamp_ms for record in records if record.offset >= starting_offset]
                largest_ms = max([largest_ms, *times_ms])
        return largest_ms

    def next_offset(self) -> int:
        """Return the offset after the last record; the base offset of an empty segment."""
        next_offset = self.base_offset
        for view in self._batches(self.offset_index.position_before(self.offset_index.last_offset)):
            next_offset = view.last_offset + 1
        return next_offset

    def recover(self, producer_state: ProducerStateManager, leader_epochs: LeaderEpochCache | None) -> int:
        """Rebuild the indexes from the records, and truncate at the first invalid batch; return the bytes lost.

        A batch is valid if it is complete, its CRC is right and its offsets rise. The producer state must stand at
        the base offset; the valid batches are replayed to it and to the epochs. Raises SegmentOffsetOverflowError,
        OSError.
        """
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.reset()
        self.max_timestamp_so_far, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        valid_bytes = self._replay_valid_batches(producer_state, leader_epochs)
        lost = self.records.truncate(valid_bytes)
        self._last_batch = None
        self.on_become_inactive()
        self.records.unmap()
        self._missing_index = None
        return lost

    def _replay_valid_batches(
        self, producer_state: ProducerStateManager, leader_epochs: LeaderEpochCache | None
    ) -> int:
        """Index and replay the valid batches, as when they were appended; return how many bytes they have."""
        records, offset_index = self.records, self.offset_index
        position = last_indexed = last_released = 0
        next_offset = self.base_offset
        buffer, _ = records.scan_buffer(0, records.size_bytes)
        try:
            for view in scan_batches(buffer, 0, records.size_bytes):
                if not batch_is_valid(buffer, view):
                    raise corrupt(f"the CRC is wrong at offset {view.base_offset}")
                if view.base_offset < next_offset:  # the CRC does not cover it
                    raise corrupt(f"offset {view.base_offset} follows {next_offset - 1}")
                if not offset_index.can_append_offset(view.last_offset):
                    raise SegmentOffsetOverflowError(f"{self.path}: offset {view.last_offset}")
                if view.max_timestamp_ms > self.max_timestamp_so_far:
                    self.max_timestamp_so_far = view.max_timestamp_ms
                    self.offset_of_max_timestamp = view.last_offset
                if position - last_indexed > self._index_interval_bytes:
                    offset_index.append(view.last_offset, position)
                    self.time_index.maybe_append(self.max_timestamp_so_far, self.offset_of_max_timestamp)
                    last_indexed = position
                if view.magic >= 2:
                    if leader_epochs is not None and view.partition_leader_epoch > leader_epochs.latest_epoch:
                        leader_epochs.assign(view.partition_leader_epoch, view.base_offset)
                    producer_state.replay(view, buffer, self.transaction_index)
                position += view.size_bytes
                next_offset = view.last_offset + 1
                if position - last_released > _RELEASE_EVERY_BYTES:
                    records.release_pages()
                    last_released = position
        except KafkaError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            logger.warning("%s: found no valid batch at byte %d: %s", self.path, position, error)
        return position

    def update_txn_index(self, completed: CompletedTxn, last_stable_offset: int) -> None:
        """Note a completed transaction if it was aborted. Raises OSError; nothing is written then."""
        self.transaction_index.note(completed, last_stable_offset)

    def collect_aborted_txns(self, fetch_offset: int, upper_bound_offset: int) -> TxnSearchResult:
        """Return the transactions aborted here with records in [fetch_offset, upper_bound_offset)."""
        return self.transaction_index.collect(fetch_offset, upper_bound_offset)

    def truncate_to(self, offset: int, *, now_ms: int) -> int:
        """Drop the batch that holds the offset and all after it; return the bytes lost. Raises OSError."""
        found = self.translate_offset(offset)
        self._last_batch = None
        self.is_on_disk = False
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        lost = self.records.truncate(found.position) if found is not None else 0
        if self.records.size_bytes == 0:
            self.created_ms = now_ms
            self.rolling_based_timestamp = None
        self._bytes_since_last_index_entry = 0
        if self.max_timestamp_so_far >= 0:
            self._load_largest_timestamp()
        return lost

    def _load_largest_timestamp(self) -> None:
        self.max_timestamp_so_far, self.offset_of_max_timestamp = self.time_index.last_entry
        for view in self._batches(self.offset_index.position_before(self.offset_of_max_timestamp)):
            if view.max_timestamp_ms > self.max_timestamp_so_far:
                self.max_timestamp_so_far = view.max_timestamp_ms
                self.offset_of_max_timestamp = view.last_offset

    def sanity_check(self) -> None:
        """Raise CorruptFileError if an index is missing or has impossible content."""
        if self._missing_index is not None and self.records.size_bytes > 0:
            raise CorruptFileError(f"{self._missing_index} does not exist")
        self.offset_index.sanity_check()
        self.time_index.sanity_check()
        self.transaction_index.sanity_check()

    def on_become_inactive(self) -> None:
        """Finish the segment: add a last time index entry, and trim the files to their content."""
        self.time_index.maybe_append(self.max_timestamp_so_far, self.offset_of_max_timestamp, skip_full_check=True)
        self.offset_index.trim()
        self.time_index.trim()
        self.records.truncate(self.records.size_bytes)

    def finish_copy(self, config: LogConfig, last_modified_ms: int) -> None:
        """Finish a segment that was written as a copy: force it to disk, with the time of the last write before.

        Raises OSError.
        """
        self.on_become_inactive()
        self.offset_index.resize(config.segment_index_bytes)
        self.time_index.resize(config.segment_index_bytes)
        self.rolling_based_timestamp = None
        self.flush()
        self.is_on_disk = True
        self.last_modified_ms = last_modified_ms
        self.release_maps()

    def release_maps(self) -> None:
        """Close the maps and their descriptors; the next look-up opens them again."""
        self.records.unmap()
        self.offset_index.unmap()
        self.time_index.unmap()

    def flush(self) -> None:
        """Force records and indexes to disk. Raises OSError."""
        self.records.flush()
        self.offset_index.flush()
        self.time_index.flush()
        self.transaction_index.flush()

    def close(self) -> None:
        """Trim the files, as Kafka does. The descriptor of the `.log` closes with the last slice of it."""
        self.on_become_inactive()
        self.records.unmap()

    def change_suffixes(self, old: str, new: str) -> None:
        """Rename the files: replace `old` by `new` at the end of each name.

        Raises OSError; the files have their old names then.
        """
        renamed: list[tuple[Callable[[Path], None], Path]] = []
        try:
            for file in (self.records, self.offset_index, self.time_index, self.transaction_index):
                before = file.path
                file.rename(before.with_name(before.name.removesuffix(old) + new))
                renamed.append((file.rename, before))
        except OSError:
            for rename, before in renamed:
                with suppress(OSError):
                    rename(before)
            raise

    def update_directory(self, directory: Path) -> None:
        """Follow the directory, which was renamed."""
        for file in (self.records, self.offset_index, self.time_index, self.transaction_index):
            file.follow(directory)

    def delete_if_exists(self) -> None:
        """Remove the files. Slices of the `.log` stay readable."""
        self.records.unmap()
        for file in (self.records, self.offset_index, self.time_index, self.transaction_index):
            file.delete()

    def __repr__(self) -> str:
        return f"LogSegment({self.base_offset}, {self.size_bytes} bytes)"
