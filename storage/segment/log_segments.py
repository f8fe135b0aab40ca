"""The segments of one log in its directory, in the order of their base offsets.

Every offset of the log is in the last segment whose base offset is not beyond it, or in no segment at all (a gap
that compaction or a transaction marker left), and then in the next one that has anything.

A segment that leaves the log is renamed `.deleted` and removed later, so that a reader can finish with it. A segment
that compaction puts in the place of others is named `.swap` until they are gone. A start completes such a
replacement, so anything else that takes a segment out removes the `.swap` first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from minibroker.storage.config import LogConfig
from minibroker.storage.files import disk
from minibroker.storage.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    segment_file,
)
from minibroker.storage.files.storage_errors import map_half_done_errors
from minibroker.storage.index.transaction_index import AbortedTxn
from minibroker.storage.segment.log_segment import LogSegment


class LogSegments:
    """Sorted by base offset. The last one is the active segment, the only one that is appended to."""

    __slots__ = ("_deleted", "_replacement", "active", "bases", "directory", "segments")

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bases: list[int] = []
        self.segments: list[LogSegment] = []
        self.active: LogSegment  # the last one; unset while there is none
        self._deleted: list[tuple[LogSegment, int]] = []  # with the time to remove its files
        self._replacement: tuple[LogSegment, tuple[LogSegment, ...]] | None = None  # the `.swap`, and what it replaces

    def __len__(self) -> int:
        return len(self.segments)

    def __iter__(self) -> Iterator[LogSegment]:
        """Iterate over a copy: segments may be added and removed meanwhile."""
        return iter(tuple(self.segments))

    def __contains__(self, segment: LogSegment) -> bool:
        return segment in self.segments

    @property
    def first(self) -> LogSegment:
        return self.segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    # -- looking up -------------------------------------------------------------------------------------------

    def floor_slot(self, offset: int) -> int:
        """Return the place of the last segment whose base offset is not beyond `offset`; -1 for none."""
        return bisect_right(self.bases, offset) - 1

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment that the offset belongs to; None below the first."""
        slot = bisect_right(self.bases, offset) - 1
        return self.segments[slot] if slot >= 0 else None

    def lower(self, offset: int) -> LogSegment | None:
        """Return the last segment whose base offset is below `offset`; None if there is none."""
        slot = bisect_left(self.bases, offset) - 1
        return self.segments[slot] if slot >= 0 else None

    def between(self, start: int, end: int) -> tuple[LogSegment, ...]:
        """Return the segments that may hold offsets from `start` up to, but not including, `end`."""
        return tuple(self.segments[max(0, self.floor_slot(start)) : bisect_left(self.bases, end)])

    def collect_aborted_txns(self, start_offset: int, upper_bound: int, slot: int) -> list[AbortedTxn]:
        """Return the aborted transactions of [start_offset, upper_bound), from the segment in `slot` on."""
        aborted: list[AbortedTxn] = []
        for segment in self.segments[slot:]:
            found, is_complete = segment.collect_aborted_txns(start_offset, upper_bound)
            aborted += found
            if is_complete:
                break
        return aborted

    # -- adding -----------------------------------------------------------------------------------------------

    def add(self, segment: LogSegment) -> None:
        """Put the segment in its place. Raises ValueError if the place is taken."""
        slot = bisect_left(self.bases, segment.base_offset)
        if slot < len(self.bases) and self.bases[slot] == segment.base_offset:
            raise ValueError(f"a second segment at offset {segment.base_offset}")
        self.bases.insert(slot, segment.base_offset)
        self.segments.insert(slot, segment)
        self.active = self.segments[-1]

    def create(self, base_offset: int, config: LogConfig, *, now_ms: int) -> None:
        """Add an empty segment, with new files. Raises OSError; nothing has changed then."""
        try:
            segment = LogSegment.open(
                self.directory, base_offset, config, now_ms=now_ms, preallocate=config.preallocate
            )
        except OSError:
            # A part of the files would be taken for a segment that begins inside the active one.
            self._remove_stray_files(base_offset)
            raise
        self.add(segment)

    def roll(self, base_offset: int, config: LogConfig, *, now_ms: int) -> None:
        """Finish the active segment and begin another. Raises OSError; the old one is still active then."""
        self._remove_stray_files(base_offset)
        self.active.on_become_inactive()
        self.create(base_offset, config, now_ms=now_ms)

    def _remove_stray_files(self, base_offset: int) -> None:
        for suffix in SEGMENT_SUFFIXES:
            disk.unlink(segment_file(self.directory, base_offset, suffix))

    # -- taking out -------------------------------------------------------------------------------------------

    def remove(self, segment: LogSegment) -> None:
        """Forget the segment, not its files. After the last one there is no active segment until one is added."""
        slot = self.segments.index(segment)
        del self.bases[slot], self.segments[slot]
        if self.segments:
            self.active = self.segments[-1]

    def take_out(self, segments: Sequence[LogSegment], *, delete_at_ms: int) -> None:
        """Remove segments and rename their files; `take_deleted` returns them when their time has come.

        Raises OSError; the segment whose files could not be renamed, and those after it, are still there then.
        """
        for segment in segments:
            self.abandon_replacement()
            self.remove(segment)  # before its files: a flush must not miss one that is still in the log
            try:
                self._rename_deleted(segment, delete_at_ms)
            except OSError:
                self.add(segment)
                raise

    def _rename_deleted(self, segment: LogSegment, delete_at_ms: int) -> None:
        segment.release_maps()
        segment.change_suffixes("", DELETED_SUFFIX)
        self._deleted.append((segment, delete_at_ms))

    def take_deleted(self, now_ms: int) -> list[LogSegment]:
        """Return the segments whose time has come: the caller removes their files, which may take long."""
        due = [segment for segment, delete_at_ms in self._deleted if delete_at_ms <= now_ms]
        self._deleted = [entry for entry in self._deleted if entry[1] > now_ms]
        return due

    def truncate_to(self, offset: int, *, now_ms: int, delete_at_ms: int) -> None:
        """Cut everything from the offset on, which must not be below the first segment. Raises OSError.

        The last segment goes first, so that an error, or a kill, leaves no gap.
        """
        self.take_out(self.segments[: self.floor_slot(offset) : -1], delete_at_ms=delete_at_ms)
        self.active.truncate_to(offset, now_ms=now_ms)

    # -- replacing --------------------------------------------------------------------------------------------

    def begin_replacement(self, new: LogSegment, old: Sequence[LogSegment]) -> None:
        """Name a finished `.cleaned` segment `.swap`, to replace neighbours that begin at its base offset.

        Readers see nothing of it yet, but a start would complete it. Raises OSError.
        """
        self._replacement = (new, tuple(old))
        new.change_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)

    def complete_replacement(self, *, delete_at_ms: int) -> bool:
        """Let the replacement take effect, once its `.swap` names are on disk; return False if it was abandoned.

        The old files are renamed in the order of their offsets, so that those a crash leaves are the last of them.
        Raises HalfDoneError.
        """
        replacement, self._replacement = self._replacement, None
        if replacement is None:
            return False
        new, old = replacement
        self.replace(old, new)
        with map_half_done_errors(f"replacing segments by {new.path}"):
            for segment in old:
                self._rename_deleted(segment, delete_at_ms)
            new.change_suffixes(SWAP_SUFFIX, "")
        return True

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Put one segment in the place of neighbours, which begin at its base offset. Raises ValueError."""
        slot = bisect_left(self.bases, new.base_offset)
        if self.segments[slot : slot + len(old)] != list(old):
            raise ValueError(f"{new} cannot replace {old}")
        self.bases[slot : slot + len(old)] = [new.base_offset]
        self.segments[slot : slot + len(old)] = [new]
        self.active = self.segments[-1]

    def abandon_replacement(self) -> None:
        """Remove the files of a replacement that has not taken effect. Raises OSError."""
        replacement, self._replacement = self._replacement, None
        if replacement is not None:
            replacement[0].delete_if_exists()

    # -- maps, names, closing ---------------------------------------------------------------------------------

    def release_idle_maps(self) -> None:
        """Close the maps of all segments but the active one; the next look-up opens them again."""
        for segment in self.segments[:-1]:
            segment.release_maps()

    def update_directory(self, directory: Path) -> None:
        """Follow the directory, which was renamed, and close all maps."""
        self.directory = directory
        self._replacement = None
        for segment in self:
            segment.update_directory(directory)
            segment.release_maps()

    def close(self) -> None:
        """Trim all files, as Kafka does at a clean stop. Raises OSError."""
        self.abandon_replacement()
        for segment in self:
            segment.close()

    def remove_deleted(self) -> None:
        """Remove the files of all segments that have left the log, whether their time has come or not."""
        for segment, _ in self._deleted:
            segment.delete_if_exists()
        self._deleted.clear()
