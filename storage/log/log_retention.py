"""Which segments of a log may go: too old, too many bytes, or below the log start offset.

Only a run of segments from the oldest on can go, none that holds an offset at or beyond the high watermark, and
never an empty active segment. Nothing here deletes: `Log.delete_old_segments` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minibroker.storage.config import LogConfig
from minibroker.storage.segment.log_segment import LogSegment
from minibroker.storage.segment.log_segments import LogSegments


class Retention(NamedTuple):
    """The rules of one log at one moment."""

    config: LogConfig
    committed_offset: int
    end_offset: int
    now_ms: int

    def by_time(self, segments: LogSegments) -> list[LogSegment]:
        """Return the segments whose youngest record is older than `retention.ms`."""
        retention_ms = self.config.retention_ms
        if retention_ms < 0:
            return []
        return self._oldest_while(
            segments, lambda segment, _: self.now_ms - segment.largest_timestamp_ms > retention_ms
        )

    def by_size(self, segments: LogSegments) -> list[LogSegment]:
        """Return the segments without which the log still has `retention.bytes`."""
        surplus_bytes = segments.size_bytes - self.config.retention_bytes
        if self.config.retention_bytes < 0 or surplus_bytes < 0:
            return []

        def is_surplus(segment: LogSegment, _: int | None) -> bool:
            nonlocal surplus_bytes
            surplus_bytes -= segment.size_bytes
            return surplus_bytes >= 0

        return self._oldest_while(segments, is_surplus)

    def by_start(self, segments: LogSegments, log_start_offset: int) -> list[LogSegment]:
        """Return the segments that hold only offsets before the log's first."""
        return self._oldest_while(
            segments, lambda _, next_base: next_base is not None and next_base <= log_start_offset
        )

    def _oldest_while(
        self, segments: LogSegments, may_go: Callable[[LogSegment, int | None], bool]
    ) -> list[LogSegment]:
        found: list[LogSegment] = []
        next_bases: list[int | None] = [*segments.bases[1:], None]
        for segment, next_base in zip(segments, next_bases, strict=True):
            upper_bound = self.end_offset if next_base is None else next_base
            is_empty_active = next_base is None and segment.size_bytes == 0
            if is_empty_active or self.committed_offset < upper_bound or not may_go(segment, next_base):
                break
            found.append(segment)
        return found
