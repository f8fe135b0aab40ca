"""Selects the segments of a log that retention deletes: too old, too large, or below the log start offset.

They are always the oldest ones, without a gap; none of them has an offset at or beyond the high watermark, and none
is an empty active segment. `Log.delete_old_segments` deletes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minibroker.storage.config import LogConfig
from minibroker.storage.segment.log_segment import LogSegment
from minibroker.storage.segment.log_segments import LogSegments


class Retention(NamedTuple):
    """The settings and offsets of one log at one moment."""

    config: LogConfig
    committed_offset: int
    end_offset: int
    now_ms: int

    def by_time(self, segments: LogSegments) -> list[LogSegment]:
        """Return the segments whose youngest record is older than `retention.ms`."""
        retention_ms = self.config.retention_ms
        if retention_ms < 0:
            return []
        return self._oldest_that(segments, lambda segment, _: self.now_ms - segment.largest_timestamp_ms > retention_ms)

    def by_size(self, segments: LogSegments) -> list[LogSegment]:
        """Return the oldest segments that the log does not need for `retention.bytes`."""
        surplus_bytes = segments.size_bytes - self.config.retention_bytes
        if self.config.retention_bytes < 0 or surplus_bytes < 0:
            return []

        def is_surplus(segment: LogSegment, _: int | None) -> bool:
            nonlocal surplus_bytes
            surplus_bytes -= segment.size_bytes
            return surplus_bytes >= 0

        return self._oldest_that(segments, is_surplus)

    def by_start(self, segments: LogSegments, log_start_offset: int) -> list[LogSegment]:
        """Return the segments that are entirely below the log start offset."""
        return self._oldest_that(segments, lambda _, next_base: next_base is not None and next_base <= log_start_offset)

    def _oldest_that(self, segments: LogSegments, is_due: Callable[[LogSegment, int | None], bool]) -> list[LogSegment]:
        found: list[LogSegment] = []
        next_bases: list[int | None] = [*segments.bases[1:], None]
        for segment, next_base in zip(segments, next_bases, strict=True):
            upper_bound = self.end_offset if next_base is None else next_base
            is_empty_active = next_base is None and segment.size_bytes == 0
            if is_empty_active or self.committed_offset < upper_bound or not is_due(segment, next_base):
                break
            found.append(segment)
        return found
