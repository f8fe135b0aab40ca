"""The log of one partition: what may be appended, what may be read, and how far it is committed.

    log start offset <= last stable offset <= high watermark <= log end offset

Everything here belongs to the one thread that owns the log, except `flush`, which may run in another at the
same time. Appending is `LogWriter`'s, the files are `LocalLog`'s; here is who may read how far, and what goes
by age and size.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.files.storage_errors import LogFlushError
from minibroker.storage.index.fetch_data import FetchDataInfo, LogOffsetMetadata
from minibroker.storage.index.indexes import TimestampOffset
from minibroker.storage.log import log_offsets
from minibroker.storage.log.log_retention import Retention
from minibroker.storage.log.log_writer import LogAppendInfo as LogAppendInfo
from minibroker.storage.log.log_writer import LogWriter
from minibroker.storage.segment.log_segment import LogSegment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from minibroker.protocol.primitives import TopicPartition
    from minibroker.storage.config import LogConfig
    from minibroker.storage.index.leader_epochs import LeaderEpochCache
    from minibroker.storage.log.local_log import LocalLog
    from minibroker.storage.producers.producer_state import ProducerStateManager
    from minibroker.storage.segment.log_segments import LogSegments

logger = logging.getLogger(__name__)

DELETE_TO_HIGH_WATERMARK = -1  # in place of an offset: everything that is committed


class Log:
    """Opened by `log_loader.load_log`. After `close` and `refuse`, appends and reads raise KafkaError.

    `append_as_leader` and `append_as_follower` are the writer's own methods: the way of every batch is short.
    """

    __slots__ = (
        "_local",
        "_writer",
        "append_as_follower",
        "append_as_leader",
        "cleaned_offset",
        "high_watermark",
        "is_being_cleaned",
        "last_flush_ms",
        "leader_epochs",
        "producer_state",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        local: LocalLog,
        *,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        now_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        self.high_watermark = local.start_offset
        self.last_flush_ms = now_ms
        self.cleaned_offset: int | None = None  # the log has been compacted up to here
        self.is_being_cleaned = False  # then retention waits
        self._local = local
        self._writer = LogWriter(topic_partition, local, leader_epochs, producer_state)
        self.append_as_leader = self._writer.append_as_leader
        self.append_as_follower = self._writer.append_as_follower

    # -- what it is -------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        return self._local.directory

    @property
    def config(self) -> LogConfig:
        return self._local.config

    @property
    def segments(self) -> LogSegments:
        return self._local.segments

    @property
    def size_bytes(self) -> int:
        return self._local.segments.size_bytes

    @property
    def log_start_offset(self) -> int:
        return self._local.start_offset

    @property
    def log_end_offset(self) -> int:
        return self._local.end_offset

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        return self._local.end_offset_metadata

    @property
    def recovery_point(self) -> int:
        return self._local.recovery_point

    @property
    def truncations(self) -> int:
        """How often something was cut off at the end since the log was opened."""
        return self._local.truncations

    @property
    def unflushed_messages(self) -> int:
        return self._local.end_offset - self._local.recovery_point

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether a segment that is no longer written waits for its fsync."""
        return self._local.recovery_point < self._local.segments.active.base_offset

    @property
    def is_refusing(self) -> bool:
        """Whether it was closed, deleted, or its disk failed."""
        return self._local.refusal is not None

    def update_config(self, config: LogConfig) -> None:
        """Take new settings: at once for appends and retention, with the next segment for its own."""
        self._local.config = config
        self._writer.update_config()

    def refuse(self, code: ErrorCode, message: str) -> None:
        """Answer appends and reads with this error from now on: the disk failed, or the log is gone."""
        self._local.refusal = (code, message)
        self._writer.update_config()

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Note that a new leader epoch begins at the log's end. Raises OSError."""
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

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
        """Return at most `max_length` bytes from the batch that holds the offset on, nothing from `max_offset` on.

        With `min_one_message` the first batch comes whole. At the log's end there is nothing, and no error.
        Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        local = self._local
        if start_offset == local.end_offset and local.refusal is None:
            return FetchDataInfo(local.end_offset_metadata, aborted_transactions=[] if include_aborted_txns else None)
        local.check_usable()
        if not local.start_offset <= start_offset <= local.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {start_offset} for partition {self.topic_partition}, but we only "
                f"have log segments in the range {local.start_offset} to {local.end_offset}.",
            )
        return local.read(
            start_offset,
            max_length,
            # The end of the log needs no search for its position.
            max_offset=None if max_offset is None or max_offset >= local.end_offset else max_offset,
            min_one_message=min_one_message,
            include_aborted_txns=include_aborted_txns,
        )

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Return where the offset lies. Raises KafkaError(OFFSET_OUT_OF_RANGE)."""
        return self.read(offset, 0).offset_metadata

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record at the timestamp or younger; -1 is the log's end, -2 its start.

        Raises KafkaError: UNSUPPORTED_FOR_MESSAGE_FORMAT, KAFKA_STORAGE_ERROR.
        """
        local = self._local
        local.check_usable()
        return log_offsets.offset_by_timestamp(
            local.segments,
            local.config,
            timestamp_ms,
            log_start_offset=local.start_offset,
            log_end_offset=local.end_offset,
        )

    def fetch_offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Return the first of the youngest records; None if there are none. Raises as `fetch_offset_by_timestamp`."""
        local = self._local
        local.check_usable()
        return log_offsets.offset_of_max_timestamp(local.segments, local.config, local.start_offset, local.end_offset)

    def legacy_fetch_offsets_before(self, timestamp_ms: int, max_offsets: int, *, now_ms: int) -> list[int]:
        """Return where segments begin that were last written before the time, newest first (ListOffsets v0)."""
        local = self._local
        local.check_usable()
        return log_offsets.segment_offsets_before(
            local.segments,
            timestamp_ms,
            max_offsets,
            log_start_offset=local.start_offset,
            log_end_offset=local.end_offset,
            now_ms=now_ms,
        )

    # -- how far it is committed ------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> bool:
        """Move the high watermark up to the offset, not beyond the log's end; return whether it moved."""
        offset = min(offset, self._local.end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producer_state.on_high_watermark_updated(offset)
        return True

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open, or whose end is not committed; None for none."""
        unstable = self.producer_state.first_unstable_offset
        return None if unstable is None else max(unstable.message_offset, self._local.start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed ends: at the first unstable offset, or the high watermark."""
        unstable = self.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    # -- rolling, flushing, truncating ------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Begin a new segment unless the active one is empty. Raises OSError."""
        self._writer.roll(now_ms)

    def flush(self, offset: int | None = None, *, now_ms: int | None = None) -> None:
        """Force everything below the offset (the log's end) to disk; may run in another thread.

        Raises LogFlushError, after which the log refuses everything: what the disk holds is unknown.
        """
        try:
            self._local.flush(self._local.end_offset if offset is None else offset)
        except LogFlushError as error:
            self.refuse(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            raise
        if now_ms is not None:
            self.last_flush_ms = now_ms

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Cut everything from the offset on; return whether there was anything. Raises OSError."""
        if offset >= self.log_end_offset:
            return False
        logger.info("%s: truncating to offset %d", self.topic_partition, offset)
        self._writer.truncate_to(offset, now_ms=now_ms)
        self.high_watermark = min(self.high_watermark, offset)
        self._limit_cleaned_offset(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Give up everything and begin anew at the offset. Raises OSError."""
        logger.info("%s: starting anew at offset %d", self.topic_partition, offset)
        self._writer.truncate_fully_and_start_at(offset, now_ms=now_ms)
        self.high_watermark = offset
        self._limit_cleaned_offset(offset)

    def _limit_cleaned_offset(self, offset: int) -> None:
        # What will be written behind the offset is not compacted.
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, offset)

    # -- deleting ---------------------------------------------------------------------------------------------

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Hide everything below the offset; return whether that changes anything. Raises OSError."""
        local = self._local
        if offset <= local.start_offset:
            return False
        logger.info("%s: log start offset %d", self.topic_partition, offset)
        self.leader_epochs.truncate_from_start(offset)
        local.start_offset = offset
        self.producer_state.update_map_end_offset(local.end_offset)
        self.producer_state.truncate_head(offset)
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
        """Take out what is too old, too much or below the start; return how many segments. Raises OSError."""
        if not self.config.is_deleted or self.is_being_cleaned:
            return 0
        segments = self.segments
        may_go = Retention(self.config, self.high_watermark, self.log_end_offset, now_ms)
        count = self._delete(may_go.by_time(segments), "their age", now_ms)
        count += self._delete(may_go.by_size(segments), "the log's size", now_ms)
        count += self._delete(may_go.by_start(segments, self.log_start_offset), "the log's start", now_ms)
        return count

    def _delete(self, segments: list[LogSegment], reason: str, now_ms: int) -> int:
        if not segments:
            return 0
        bases = ", ".join(str(segment.base_offset) for segment in segments)
        logger.info("%s: deleting segments %s because of %s", self.topic_partition, bases, reason)
        if len(segments) == len(self.segments):
            self.roll(now_ms)
        self._local.delete_segments(segments, now_ms=now_ms)
        self.maybe_increment_log_start_offset(self.segments.first.base_offset)
        return len(segments)

    def take_deleted(self, now_ms: int) -> list[LogSegment]:
        """Return the segments that left the log long enough ago: removing their files is the caller's now."""
        return self._local.take_deleted(now_ms)

    # -- compacting (LogCleaning's) ---------------------------------------------------------------------------

    def begin_replacement(self, new: LogSegment, old: Sequence[LogSegment]) -> None:
        """Prepare to have a compacted segment replace others: as `LocalLog.begin_replacement`."""
        self._local.begin_replacement(new, old)

    def complete_replacement(self, *, now_ms: int) -> bool:
        """Have it take effect; return False if it was abandoned: as `LocalLog.complete_replacement`."""
        return self._local.complete_replacement(now_ms=now_ms)

    def abandon_replacement(self) -> None:
        """Forget about one that has not taken effect. Raises OSError."""
        self._local.abandon_replacement()

    # -- maps, snapshots, closing -----------------------------------------------------------------------------

    def release_idle_maps(self) -> None:
        """Give back the maps of segments that are no longer written; the next look-up makes them again."""
        self._local.release_idle_maps()

    @property
    def oldest_snapshot_needed(self) -> int:
        """Below this no recovery needs a producer snapshot, once the recovery point has been written down."""
        return self._local.oldest_offset_to_recover

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
        self._local.close()
        self.refuse(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is closed")

    def rename_and_refuse(self, directory: Path) -> None:
        """Rename the directory, for deletion: from now on the partition is unknown. Raises OSError."""
        refusal = self._local.refusal
        # First: who works on the files in another thread must find out why they are gone.
        self.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted")
        try:
            os.rename(self._local.directory, directory)
        except OSError:
            self._local.refusal = refusal
            self._writer.update_config()
            raise
        self._local.update_directory(directory)
        self.producer_state.update_directory(directory)
