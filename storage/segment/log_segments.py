"""The segments of one log, in the order of their base offsets: which one holds an offset, which comes next.

Every offset of the log is in the last segment whose base offset is not beyond it, or in no segment at all
(a gap that compaction or a transaction marker left), and then in the next one that has anything.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from minibroker.storage.segment.log_segment import LogSegment


class LogSegments:
    """Sorted and without gaps in its index; the last one is the active segment, the only one appended to."""

    __slots__ = ("active", "bases", "segments")

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.segments: list[LogSegment] = []
        self.active: LogSegment  # the last one; unset while there is none

    def __len__(self) -> int:
        return len(self.segments)

    def __iter__(self) -> Iterator[LogSegment]:
        """Iterate over the segments there are now; adding and removing does not disturb it."""
        return iter(tuple(self.segments))

    def __contains__(self, segment: LogSegment) -> bool:
        return segment in self.segments

    @property
    def first(self) -> LogSegment:
        return self.segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def add(self, segment: LogSegment) -> None:
        """Put the segment in its place, which must be free."""
        slot = bisect_left(self.bases, segment.base_offset)
        if slot < len(self.bases) and self.bases[slot] == segment.base_offset:
            raise ValueError(f"a second segment at offset {segment.base_offset}")
        self.bases.insert(slot, segment.base_offset)
        self.segments.insert(slot, segment)
        self.active = self.segments[-1]

    def remove(self, segment: LogSegment) -> None:
        """Take the segment out; after the last one there is no active segment until another is added."""
        slot = self.segments.index(segment)
        del self.bases[slot], self.segments[slot]
        if self.segments:
            self.active = self.segments[-1]

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Put one segment in the place of neighbours, which begin at its base offset. Raises ValueError."""
        slot = bisect_left(self.bases, new.base_offset)
        if self.segments[slot : slot + len(old)] != list(old):
            raise ValueError(f"{new} cannot replace {old}")
        self.bases[slot : slot + len(old)] = [new.base_offset]
        self.segments[slot : slot + len(old)] = [new]
        self.active = self.segments[-1]

    def floor_slot(self, offset: int) -> int:
        """Return the place of the last segment whose base offset is not beyond `offset`; -1 for none."""
        return bisect_right(self.bases, offset) - 1

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment the offset belongs to, None below the first."""
        slot = bisect_right(self.bases, offset) - 1
        return self.segments[slot] if slot >= 0 else None

    def lower(self, offset: int) -> LogSegment | None:
        """Return the last segment whose base offset is below `offset`, None where there is none."""
        slot = bisect_left(self.bases, offset) - 1
        return self.segments[slot] if slot >= 0 else None

    def between(self, start: int, end: int) -> tuple[LogSegment, ...]:
        """Return the segments that may hold offsets from `start` up to, not including, `end`."""
        return tuple(self.segments[max(0, self.floor_slot(start)) : bisect_left(self.bases, end)])
