"""Selects the log that is compacted next, and the offsets between which it is.

As kafka 2.0.1 LogCleanerManager: of the logs with `cleanup.policy=compact`, the one with the greatest dirty ratio, if
that exceeds `min.cleanable.dirty.ratio`; with `max.compaction.lag.ms` (Kafka 2.3) also one that has waited that long.
Compaction ends before the first segment that is active, has an open transaction or uncommitted records, or is younger
than `min.compaction.lag.ms`. A log whose compaction fails is left alone until the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.compaction.log_cleaner import LogToClean
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.log.log import Log
from minibroker.storage.segment.log_segment import LogSegment

logger = logging.getLogger(__name__)


class LogCleanerManager:
    """Selects among the logs of a directory; belongs to the thread that owns them."""

    def __init__(self, log_manager: LogManager) -> None:
        self._logs = log_manager.logs
        self._uncleanable: dict[TopicPartition, Log] = {}
        self.max_dirty_ratio = 0.0  # of the compacted logs, at the last look
        self.looked_at_ms: int | None = None

    @property
    def uncleanable(self) -> list[TopicPartition]:
        """The partitions whose compaction failed."""
        return [key for key, log in self._uncleanable.items() if self._logs.get(key) is log]

    def grab_filthiest_log(self, now_ms: int) -> LogToClean | None:
        """Return the log with the greatest dirty ratio, and suspend its retention until `done`; None if none is due."""
        dirty = [log_to_clean(log, now_ms) for key, log in self._logs.items() if self._may_be_cleaned(key, log)]
        self.looked_at_ms = now_ms
        self.max_dirty_ratio = max((each.cleanable_ratio for each in dirty), default=0.0)
        due = [
            each
            for each in dirty
            if each.cleanable_ratio > each.log.config.min_cleanable_dirty_ratio
            or (each.is_overdue and each.cleanable_bytes > 0)
        ]
        if not due:
            return None
        filthiest = max(due, key=lambda each: each.cleanable_ratio)
        filthiest.log.begin_cleaning()
        return filthiest

    def _may_be_cleaned(self, key: TopicPartition, log: Log) -> bool:
        is_known_to_fail = self._uncleanable.get(key) is log
        return log.config.is_compacted and not log.is_being_cleaned and not log.is_refusing and not is_known_to_fail

    def done(self, log: Log) -> None:
        """Resume the retention of the log."""
        log.end_cleaning()

    def mark_uncleanable(self, log: Log, error: Exception) -> None:
        """Exclude the log until the next start: another attempt would fail again."""
        self._uncleanable[log.topic_partition] = log
        logger.error("%s cannot be compacted until the next start", log.topic_partition, exc_info=error)

    def compacted_and_deleted_logs(self) -> list[Log]:
        """Return the logs with `cleanup.policy=compact,delete`, which retention looks at after each compaction."""
        return [log for log in self._logs.values() if log.config.is_compacted and log.config.is_deleted]


def log_to_clean(log: Log, now_ms: int) -> LogToClean:
    """Return the clean and the cleanable part of the log (as kafka 2.0.1 LogToClean)."""
    segments = log.segments
    first_dirty_offset = _first_dirty_offset(log)
    dirty_segments = segments.between(first_dirty_offset, segments.active.base_offset)
    first_uncleanable_offset = _first_uncleanable_offset(log, dirty_segments, now_ms)
    return LogToClean(
        log,
        first_dirty_offset,
        first_uncleanable_offset,
        sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty_offset),
        sum(segment.size_bytes for segment in segments.between(first_dirty_offset, first_uncleanable_offset)),
        _is_overdue(dirty_segments, now_ms - log.config.max_compaction_lag_ms),
    )


def _first_dirty_offset(log: Log) -> int:
    first, cleaned = log.segments.first.base_offset, log.cleaned_offset
    if cleaned is None:
        return first
    if not first <= cleaned <= log.log_end_offset:
        if not log.config.is_deleted:  # else retention deletes at the start, compacted or not
            logger.warning(
                "%s: compacted up to %d, but begins at %d: starting anew", log.topic_partition, cleaned, first
            )
        log.note_cleaned(first)
        return first
    return cleaned


def _first_uncleanable_offset(log: Log, dirty_segments: Sequence[LogSegment], now_ms: int) -> int:
    """Return the base offset of the first segment that compaction must leave alone."""
    segments = log.segments
    stable = segments.floor(log.last_stable_offset)
    bounds = [segments.active.base_offset]
    if stable is not None:
        bounds.append(stable.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        bounds += [each.base_offset for each in dirty_segments if each.largest_timestamp_ms > now_ms - lag_ms]
    return min(bounds)


def _is_overdue(dirty_segments: Sequence[LogSegment], oldest_allowed_ms: int) -> bool:
    """Return whether a segment began before that time (as kafka 2.3 LogCleanerManager.maxCompactionDelay)."""
    if oldest_allowed_ms <= 0:
        return False
    times = (segment.first_batch_timestamp_ms() for segment in dirty_segments)
    return any(time is not None and 0 < time < oldest_allowed_ms for time in times)
