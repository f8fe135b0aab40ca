"""The log of one partition: owns its segments, its offsets, its producers and its leader epochs.

    log start offset <= last stable offset <= high watermark <= log end offset
    everything below the recovery point has been fsynced

A log belongs to one thread, except `flush` and `delete_snapshots_before`, which may run in another at the same time.
A failed operation changes nothing: whatever refuses an append (the checks of `log_validator`, a producer's sequence
and epoch, the sizes) comes before the first byte is written. Then, in this order: a new segment if one is due, the
leader epoch, the batches in one write, and the producers' state.
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from minibroker.protocol.record import INT32_MAX, NO_OFFSET, NO_TIMESTAMP
from minibroker.storage import real_time
from minibroker.storage.files import disk
from minibroker.storage.files.storage_errors import LogFlushError, map_flush_errors, map_half_done_errors
from minibroker.storage.index.fetch_data import FetchDataInfo, LogOffsetMetadata
from minibroker.storage.index.indexes import TimestampOffset
from minibroker.storage.log.appending import AppendRules, LogAppendInfo, prepare_producers
from minibroker.storage.log.log_retention import Retention
from minibroker.storage.log.log_validator import AssignedRecords, Buffer, analyze_records
from minibroker.storage.log.producer_recovery import rebuild_producer_state
from minibroker.storage.log.reading import first_offset_at, offset_of_max_timestamp, offsets_before, read_segments

if TYPE_CHECKING:
    from pathlib import Path

    from minibroker.protocol.primitives import TopicPartition
    from minibroker.storage.config import LogConfig
    from minibroker.storage.index.leader_epochs import LeaderEpochCache
    from minibroker.storage.log.appending import ProducerChanges
    from minibroker.storage.log.flush_times import FlushTimes
    from minibroker.storage.producers.producer_append import BatchMetadata
    from minibroker.storage.producers.producer_state import ProducerStateManager
    from minibroker.storage.segment.log_segment import LogSegment
    from minibroker.storage.segment.log_segments import LogSegments

logger = logging.getLogger(__name__)

DELETE_TO_HIGH_WATERMARK = -1  # in place of an offset, as in DeleteRecords


class Log:
    """Opened by `log_loader.load_log`. After `close` and `refuse`, appends and reads raise KafkaError."""

    __slots__ = (
        "_cutting",
        "_end_metadata",
        "_flush_times",
        "_high_watermark",
        "_refusal",
        "_was_on_disk",
        "append_rules",
        "appended_bytes",
        "appends",
        "cleaned_offset",
        "config",
        "converted_records",
        "high_watermark",
        "is_being_cleaned",
        "last_flush_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "opened_at_offset",
        "producer_state",
        "recovery_point",
        "segments",
        "topic_partition",
        "truncations",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: LogSegments,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        now_ms: int,
        is_on_disk: bool = False,
    ) -> None:
        """`is_on_disk` says that all there is of it is, the indexes of the active segment too."""
        self.topic_partition = topic_partition
        self.config = config
        self.append_rules = AppendRules(config)
        self.segments = segments
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self._high_watermark = LogOffsetMetadata(log_start_offset)
        self.high_watermark = log_start_offset
        self.recovery_point = recovery_point
        self.last_flush_ms = now_ms
        self.cleaned_offset: int | None = None  # the log has been compacted up to here
        self.is_being_cleaned = False  # retention waits meanwhile
        # For metrics, since the log was opened here:
        self.opened_at_offset = log_end_offset
        self._was_on_disk = is_on_disk
        self.appends = 0
        self.appended_bytes = 0
        self.converted_records = 0  # between message formats
        self._flush_times: FlushTimes | None = None  # of all logs of a directory
        self.truncations = 0  # how often records were cut off at the end
        self._cutting = Lock()  # a flush, in its thread, must not count what is being cut off
        self._end_metadata: LogOffsetMetadata | None = None
        self._refusal: tuple[ErrorCode, str] | None = None

    @property
    def directory(self) -> Path:
        return self.segments.directory

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        metadata = self._end_metadata
        if metadata is None:
            active = self.segments.active
            metadata = LogOffsetMetadata(self.log_end_offset, active.base_offset, active.size_bytes)
            self._end_metadata = metadata
        return metadata

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    @property
    def is_flush_due(self) -> bool:
        """Whether flush.messages asks for an fsync before anything more is served or acknowledged."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def durable_end_metadata(self) -> LogOffsetMetadata:
        """The offset up to which flush.messages allows reads: the log's end, or the recovery point until a flush."""
        if self.is_flush_due:
            return LogOffsetMetadata(max(self.recovery_point, self.log_start_offset))
        return self.log_end_offset_metadata

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether a segment that is no longer written waits for its fsync."""
        return self.recovery_point < self.segments.active.base_offset

    # -- settings, refusing -----------------------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings: to appends and retention at once, to segments with the next one."""
        self.config = config
        self.append_rules = AppendRules(config)

    @property
    def is_refusing(self) -> bool:
        """Whether the log was closed or deleted, or its disk failed."""
        return self._refusal is not None

    def refuse(self, code: ErrorCode, message: str) -> None:
        """Answer appends and reads with this error from now on: the disk failed, or the log is gone."""
        self._refusal = (code, message)

    def check_usable(self) -> None:
        """Raise the KafkaError of a log that refuses."""
        if self._refusal is not None:
            raise KafkaError(*self._refusal)

    # -- reading ----------------------------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        max_length: int,
        *,
        max_offset: int | None = None,
        min_one_message: bool = False,
        include_aborted_txns: bool = False,
    ) -> FetchDataInfo:
        """Return at most `max_length` bytes from the batch that holds the offset on, and nothing from `max_offset` on.

        With `min_one_message` the first batch is returned whole. At the log's end there is nothing, and no error.
        Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        end_offset = self.log_end_offset
        if self._refusal is not None:
            self.check_usable()
        if start_offset == end_offset:
            return self._nothing_to_read(include_aborted_txns)
        segments = self.segments
        if not self.log_start_offset <= start_offset <= end_offset or start_offset < segments.bases[0]:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {start_offset} for partition {self.topic_partition}, but we only "
                f"have log segments in the range {self.log_start_offset} to {end_offset}.",
            )
        if max_offset is not None and max_offset >= end_offset:
            max_offset = None  # the end of the log needs no search for its position
        aborted_before = end_offset if include_aborted_txns else None
        fetched = read_segments(segments, start_offset, max_length, max_offset, min_one_message, aborted_before)
        return self._nothing_to_read(include_aborted_txns) if fetched is None else fetched

    def _nothing_to_read(self, include_aborted_txns: bool) -> FetchDataInfo:
        return FetchDataInfo(self.log_end_offset_metadata, aborted_transactions=[] if include_aborted_txns else None)

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Return where the offset lies. Raises OSError, and KafkaError as `read`."""
        return self.read(offset, 0).offset_metadata

    # -- offsets by time --------------------------------------------------------------------------------------

    def offset_at(self, segment_base_offset: int, position: int) -> int | None:
        """Return the offset of the batch that holds a position of a segment, at its end that of the next segment.

        None if the segment is gone, or may have been compacted: then its positions are others.
        """
        slot = self.segments.floor_slot(segment_base_offset)
        if slot < 0 or self.segments.bases[slot] != segment_base_offset:
            return None
        if self.cleaned_offset is not None and segment_base_offset < self.cleaned_offset:
            return None
        found = self.segments.segments[slot].offset_at(position)
        if found is not None:
            return found
        return self.log_end_offset if slot + 1 == len(self.segments) else self.segments.bases[slot + 1]

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record at the timestamp or younger, None if all are older; -1 is the end, -2 the start.

        Raises KafkaError: UNSUPPORTED_FOR_MESSAGE_FORMAT, KAFKA_STORAGE_ERROR.
        """
        self.check_usable()
        if timestamp_ms == EARLIEST_TIMESTAMP:
            return TimestampOffset(NO_TIMESTAMP, self.log_start_offset)
        if timestamp_ms == LATEST_TIMESTAMP:
            return TimestampOffset(NO_TIMESTAMP, self.log_end_offset)
        self._check_has_timestamps()
        return first_offset_at(
            self.segments, timestamp_ms, log_start_offset=self.log_start_offset, end_offset=self.log_end_offset
        )

    def fetch_offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Return the first of the youngest records that are left, or the first record if none has a time.

        None without records. Raises as `fetch_offset_by_timestamp`.
        """
        self.check_usable()
        self._check_has_timestamps()
        return offset_of_max_timestamp(
            self.segments, log_start_offset=self.log_start_offset, end_offset=self.log_end_offset
        )

    def _check_has_timestamps(self) -> None:
        if self.config.magic == 0:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"Cannot search offsets based on timestamp because message format version is "
                f"{self.config.message_format_version} which is earlier than the minimum required version 0.10.0-IV0",
            )

    def legacy_fetch_offsets_before(self, timestamp_ms: int, max_offsets: int, *, now_ms: int) -> list[int]:
        """Return the base offsets of segments last written at or before the time, newest first (ListOffsets v0)."""
        self.check_usable()
        return offsets_before(
            self.segments,
            timestamp_ms,
            max_offsets,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
        )

    # -- appending --------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        is_from_client: bool = True,
        remembers_producers: bool = False,
    ) -> LogAppendInfo:
        """Append batches and assign their offsets, in place: the buffer must be writable.

        With `remembers_producers` a producer is known after its records were deleted, as its client expects.
        Raises KafkaError (RECORD_LIST_TOO_LARGE, and those of `log_validator` and `producer_append`) or OSError.
        """
        if self._refusal is not None:
            self.check_usable()
        assigned = self.append_rules.assign(records, self.log_end_offset, leader_epoch, now_ms, is_from_client)
        if assigned is None:
            return self._nothing_appended()
        return self._append(assigned, now_ms, is_from_client, remembers_producers)

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> LogAppendInfo:
        """Append batches as the leader has them, offsets, epochs and sizes included.

        A leader may begin within a batch, as DeleteRecords leaves it, and answers the whole batch: an empty log then
        begins with that batch (as kafka 2.0.1 Partition.appendRecordsToFollower). Raises KafkaError, CORRUPT_MESSAGE
        also for offsets that do not rise from the log's end on; or OSError.
        """
        self.check_usable()
        analysis = analyze_records(records, max_message_bytes=INT32_MAX, is_from_client=False)
        if not analysis.batches:
            return self._nothing_appended()
        first_offset, end_offset = analysis.first_known_offset, self.log_end_offset
        if not analysis.are_offsets_rising or (
            first_offset < end_offset
            and not (self.log_start_offset == end_offset <= analysis.last_offset_of_first_batch)
        ):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self.topic_partition}: offsets {first_offset} to {analysis.last_offset} "
                f"cannot follow {end_offset - 1}",
            )
        if first_offset < end_offset:
            self.truncate_fully_and_start_at(first_offset, now_ms=now_ms)
        return self._append(analysis.as_they_are(records), now_ms, is_replicated=True)

    def _append(
        self,
        assigned: AssignedRecords,
        now_ms: int,
        is_from_client: bool = False,
        remembers_producers: bool = False,
        is_replicated: bool = False,
    ) -> LogAppendInfo:
        buffer, batches, last_offset, segments = assigned.buffer, assigned.batches, assigned.last_offset, self.segments
        size, max_timestamp_ms = len(buffer), assigned.max_timestamp_ms
        if size > self.config.segment_bytes and not is_replicated:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self.topic_partition}, which "
                f"exceeds the maximum configured segment size of {self.config.segment_bytes}.",
            )
        changes = prepare_producers(self.producer_state, assigned, is_from_client, remembers_producers, is_replicated)
        if changes.duplicate is not None:
            return self._duplicate_info(changes.duplicate)
        if segments.active.should_roll(size, max_timestamp_ms, last_offset, now_ms=now_ms):
            self.roll(now_ms, assigned.lowest_offset)
        for batch in batches:
            if batch.magic >= 2 and batch.partition_leader_epoch > self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        end_offset = self.log_end_offset
        segments.active.append(buffer, batches[-1], max_timestamp_ms, assigned.offset_of_max_timestamp)
        self.log_end_offset = last_offset + 1
        self._end_metadata = None
        if changes.producers:
            self._update_producers(changes, assigned, end_offset, now_ms)
        self.appends += 1
        self.appended_bytes += size
        self.converted_records += assigned.converted_records
        return LogAppendInfo(
            assigned.first_offset,
            last_offset,
            max_timestamp_ms,
            assigned.log_append_time_ms,
            self.log_start_offset,
            False,
        )

    def _update_producers(
        self, changes: ProducerChanges, assigned: AssignedRecords, end_offset: int, now_ms: int
    ) -> None:
        """Apply the changes, once the batches are written. Raises OSError; the log ends at `end_offset` again then."""
        segment, position = self.segments.active, self.segments.active.size_bytes - len(assigned.buffer)
        start = LogOffsetMetadata(assigned.lowest_offset, segment.base_offset, position)
        try:
            for producer in changes.producers:
                producer.note_first_offset(start)
                self.producer_state.update(producer)
            for txn in changes.completed:
                segment.update_txn_index(txn, self.producer_state.complete_txn(txn))
        except OSError:
            # Without its index entry the marker must not stay: readers would see what was aborted.
            with map_half_done_errors(f"an append to {self.topic_partition}"):
                self.truncate_to(end_offset, now_ms=now_ms)
            raise

    def _duplicate_info(self, first_time: BatchMetadata) -> LogAppendInfo:
        return LogAppendInfo(
            first_offset=first_time.first_offset,
            last_offset=first_time.last_offset,
            max_timestamp_ms=first_time.timestamp_ms,
            log_append_time_ms=first_time.timestamp_ms,  # as kafka 2.0.1, with CreateTime too
            log_start_offset=self.log_start_offset,
            is_duplicate=True,
        )

    def _nothing_appended(self) -> LogAppendInfo:
        return LogAppendInfo(NO_OFFSET, NO_OFFSET, NO_TIMESTAMP, NO_TIMESTAMP, self.log_start_offset, False)

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Note that a new leader epoch begins at the log's end. Raises OSError."""
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    # -- committing -------------------------------------------------------------------------------------------

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its segment and position, with which bytes are counted without reading.

        Raises as `convert_to_offset_metadata`, if the position has not been needed before.
        """
        metadata = self._high_watermark
        if metadata.segment_base_offset < 0:
            metadata = self._high_watermark = self.convert_to_offset_metadata(metadata.message_offset)
        return metadata

    def update_high_watermark(self, offset: int) -> bool:
        """Move the high watermark up to the offset, not beyond the log's end; return whether it moved."""
        if offset >= self.log_end_offset:
            return self.move_high_watermark(self.log_end_offset_metadata)
        return self.move_high_watermark(LogOffsetMetadata(offset))

    def move_high_watermark(self, offset: LogOffsetMetadata) -> bool:
        """Move the high watermark up to the offset, or to a newer segment after a roll; return whether it moved."""
        before = self._high_watermark
        if offset.message_offset > before.message_offset:
            self._set_high_watermark(offset)
            self.producer_state.on_high_watermark_updated(offset.message_offset)
            return True
        if offset.message_offset < before.message_offset or offset.segment_base_offset <= before.segment_base_offset:
            return False
        self._set_high_watermark(offset)
        return True

    def _set_high_watermark(self, offset: LogOffsetMetadata) -> None:
        self._high_watermark = offset
        self.high_watermark = offset.message_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the first transaction that is open, or whose end is not committed; None for none."""
        unstable = self.producer_state.first_unstable_offset
        return None if unstable is None else max(unstable.message_offset, self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed: the first unstable offset, or the high watermark."""
        unstable = self.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    # -- rolling, flushing ------------------------------------------------------------------------------------

    def roll(self, now_ms: int, new_offset: int = NO_OFFSET) -> None:
        """Begin a new segment at the log's end or beyond, unless the active one is empty.

        Raises OSError; the old segment is still active then.
        """
        new_offset = max(new_offset, self.log_end_offset)
        if new_offset == self.segments.active.base_offset:
            return
        # With a snapshot at its start, recovery of the new segment needs none of the old ones.
        self.producer_state.update_map_end_offset(new_offset)
        self.producer_state.take_snapshot()
        rolled = self.segments.active
        self.segments.roll(new_offset, self.config, now_ms=now_ms)
        # Its indexes are not on disk yet, whatever was flushed of it while it was active.
        self.recovery_point = min(self.recovery_point, rolled.base_offset)
        self._end_metadata = None
        logger.info("%s: rolled a new segment at offset %d", self.topic_partition, new_offset)

    def flush(self, offset: int | None = None, *, now_ms: int | None = None) -> None:
        """Force everything below the offset (the log's end) to disk; may run in another thread.

        The active segment's indexes are left out: a start after a crash rebuilds them. Raises LogFlushError, after
        which the log refuses everything, as what the disk holds is unknown; or OSError without a free descriptor.
        """
        try:
            self._flush_below(self.log_end_offset if offset is None else offset)
        except LogFlushError as error:
            self.refuse(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            raise
        if now_ms is not None:
            self.last_flush_ms = now_ms

    def _flush_below(self, offset: int) -> None:
        if offset <= self.recovery_point:
            return
        truncations, active, began = self.truncations, self.segments.active, real_time.perf_counter()
        with map_flush_errors(self.directory):
            self._flush_segments(self.recovery_point, offset, active)
        if self._flush_times is not None:
            self._flush_times.add(real_time.perf_counter() - began)
        # The owner went on meanwhile: what it cut off is not flushed, nor are the indexes of a rolled segment.
        with self._cutting:
            if truncations == self.truncations:
                reached = offset if active is self.segments.active else min(offset, active.base_offset)
                self.recovery_point = max(self.recovery_point, reached)

    def _flush_segments(self, start: int, end: int, active: LogSegment) -> None:
        has_new_files = False
        for segment in reversed(tuple(self.segments.segments)):
            has_new_files = has_new_files or segment.base_offset >= start
            if segment.base_offset >= end:
                continue
            try:
                if segment is active:
                    segment.records.flush()
                elif not segment.is_on_disk:  # a segment of compaction is, and may just be getting its names
                    segment.flush()
            except FileNotFoundError:
                if segment in self.segments and not self.is_refusing:
                    raise
            if segment.base_offset <= start:
                break
        if has_new_files:
            self._flush_new_files(start, end)

    def _flush_new_files(self, start: int, end: int) -> None:
        directory = self.directory
        try:
            self.producer_state.flush_snapshots(start, end)
            disk.sync_directory(directory)
        except FileNotFoundError:
            if not self.is_refusing:  # else it was renamed, for deletion
                raise
        disk.sync_directory(directory.parent)

    # -- truncating -------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Cut everything from the offset on; return whether there was anything. Raises OSError.

        An epoch in which nothing was written is forgotten even at the log's end (as later kafka Log.truncateTo): a
        follower would ask a leader that does not know it for ever.
        """
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        logger.info("%s: truncating to offset %d", self.topic_partition, offset)
        self.producer_state.update_map_end_offset(self.log_end_offset)
        self._begin_cutting()
        self.segments.truncate_to(offset, now_ms=now_ms, delete_at_ms=now_ms + self.config.file_delete_delay_ms)
        self._end_at(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        if offset < self.high_watermark:
            self._set_high_watermark(LogOffsetMetadata(offset))
        self.leader_epochs.truncate_from_end(offset)
        rebuild_producer_state(
            self.producer_state,
            self.segments,
            log_start_offset=self.log_start_offset,
            end_offset=offset,
            magic=self.config.magic,
            is_after_clean_stop=False,
            now_ms=now_ms,
        )
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Remove everything, and begin with an empty segment at the offset. Raises OSError."""
        logger.info("%s: starting anew at offset %d", self.topic_partition, offset)
        self._begin_cutting()
        self.segments.take_out(tuple(self.segments), delete_at_ms=now_ms + self.config.file_delete_delay_ms)
        self.segments.create(offset, self.config, now_ms=now_ms)
        self._end_at(offset)
        self.log_start_offset = offset
        self._set_high_watermark(LogOffsetMetadata(offset))
        self.leader_epochs.clear()
        self.producer_state.truncate()
        self.producer_state.update_map_end_offset(offset)

    def _begin_cutting(self) -> None:
        with self._cutting:
            self.truncations += 1

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._end_metadata = None
        if self.cleaned_offset is not None:  # records that will be written behind the offset are not compacted
            self.cleaned_offset = min(self.cleaned_offset, offset)

    def time_flushes(self, times: FlushTimes) -> None:
        """Add the time of each flush to these."""
        self._flush_times = times

    def note_cleaned(self, end_offset: int) -> None:
        """Note that the log is compacted up to here."""
        self.cleaned_offset = end_offset

    def begin_cleaning(self) -> None:
        """Let retention wait while the log is compacted."""
        self.is_being_cleaned = True

    def end_cleaning(self) -> None:
        self.is_being_cleaned = False

    # -- deleting ---------------------------------------------------------------------------------------------

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Hide everything below the offset; return whether that changes anything. Raises OSError."""
        if offset <= self.log_start_offset:
            return False
        logger.info("%s: log start offset %d", self.topic_partition, offset)
        self.leader_epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self.producer_state.update_map_end_offset(self.log_end_offset)
        self.producer_state.truncate_head(offset)
        # One at the start of the first segment is kept, where recovery begins.
        self.producer_state.delete_snapshots_before(self.segments.first.base_offset)
        return True

    def delete_records(self, offset: int) -> int:
        """Hide everything below the offset, -1 for all that is committed; return the log start offset.

        Raises KafkaError: POLICY_VIOLATION, OFFSET_OUT_OF_RANGE; or OSError.
        """
        if not self.config.is_deleted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {self.topic_partition} can not be deleted due to the configured policy",
            )
        if offset == DELETE_TO_HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The offset {offset} is beyond the high watermark {self.high_watermark} of partition "
                f"{self.topic_partition}",
            )
        self.maybe_increment_log_start_offset(offset)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int) -> int:
        """Take out segments by age, by size and below the log start offset; return how many. Raises OSError."""
        if not self.config.is_deleted or self.is_being_cleaned:
            return 0
        segments = self.segments
        retention = Retention(self.config, self.high_watermark, self.log_end_offset, now_ms)
        count = self._delete(retention.by_time(segments), "their age", now_ms)
        count += self._delete(retention.by_size(segments), "the log's size", now_ms)
        count += self._delete(retention.by_start(segments, self.log_start_offset), "the log's start", now_ms)
        return count

    def _delete(self, segments: list[LogSegment], reason: str, now_ms: int) -> int:
        if not segments:
            return 0
        bases = ", ".join(str(segment.base_offset) for segment in segments)
        logger.info("%s: deleting segments %s because of %s", self.topic_partition, bases, reason)
        if len(segments) == len(self.segments):
            self.roll(now_ms)
        # First the log start offset: it hides the segments of which the files cannot be renamed.
        self.maybe_increment_log_start_offset(self.segments.segments[len(segments)].base_offset)
        self.segments.take_out(segments, delete_at_ms=now_ms + self.config.file_delete_delay_ms)
        self.producer_state.delete_snapshots_before(self.segments.first.base_offset)
        return len(segments)

    # -- snapshots, closing -----------------------------------------------------------------------------------

    @property
    def oldest_snapshot_needed(self) -> int:
        """The offset below which no producer snapshot is needed, once the recovery point has been written down.

        Neither a recovery nor a truncation into the last two segments reads an older one.
        """
        segments = self.segments
        before_active = segments.lower(segments.active.base_offset) or segments.active
        flushed = segments.lower(self.recovery_point)
        recovered_from = self.recovery_point if flushed is None else flushed.base_offset
        return min(recovered_from, before_active.base_offset)

    def delete_snapshots_before(self, offset: int) -> None:
        """Remove producer snapshots; may run in another thread. Raises OSError."""
        try:
            self.producer_state.delete_snapshots_before(offset)
        except FileNotFoundError:
            if not self.is_refusing:  # else the directory was renamed, for deletion
                raise

    def close(self) -> None:
        """Leave all files as a clean stop does: trimmed, on disk, with a snapshot. Raises OSError."""
        self.producer_state.update_map_end_offset(self.log_end_offset)
        self.producer_state.take_snapshot()
        self.segments.close()
        if not self._is_as_opened:
            # Also where all records are flushed: the indexes of the active segment are not, and no start checks them.
            start = min(self.recovery_point, self.segments.active.base_offset)
            with map_flush_errors(self.directory):
                for segment in self.segments.between(start, self.log_end_offset):
                    segment.flush()
                self.producer_state.flush_snapshots(start, self.log_end_offset)
                disk.sync_directory(self.directory)
            self.recovery_point = self.log_end_offset
        self.segments.remove_deleted()
        self.refuse(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is closed")

    @property
    def _is_as_opened(self) -> bool:
        """Whether nothing has been written since a start after a clean stop, or ever."""
        return (
            self._was_on_disk
            and self.truncations == 0
            and self.opened_at_offset == self.recovery_point == self.log_end_offset
        )

    def rename_and_refuse(self, directory: Path) -> None:
        """Rename the directory, for deletion: from now on the partition is unknown. Raises OSError."""
        refusal = self._refusal
        # First: a thread that works on the files must find out why they are gone.
        self.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted")
        try:
            disk.rename(self.directory, directory)
        except OSError:
            self._refusal = refusal
            raise
        self.segments.update_directory(directory)
        self.producer_state.update_directory(directory)
