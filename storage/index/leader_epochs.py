"""Keeps the start offset of each leader epoch, so that a replica can find where its log diverges from the leader's.

`leader-epoch-checkpoint` has a line `epoch start_offset` for each epoch that wrote something; both numbers rise. The
file is replaced with each change: a new leader, or a truncation.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from minibroker.storage.files.checkpoints import read_checkpoint, write_checkpoint
from minibroker.storage.files.storage_errors import map_parse_errors

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1

logger = logging.getLogger(__name__)


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class LeaderEpochCache:
    """The epochs of one log, in memory and in its checkpoint file."""

    __slots__ = ("_entries", "path")

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one. Raises CorruptFileError."""
        self.path = path
        with map_parse_errors(path):
            self._entries = [EpochEntry(int(epoch), int(start)) for epoch, start in read_checkpoint(path, 2)]

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch; -1 if none is known."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that the epoch begins at this offset. Raises ValueError for a negative epoch, and OSError.

        Entries that contradict it are removed (as kafka 2.0.1 truncateAndAppend).
        """
        if epoch < 0:
            raise ValueError(f"{self.path}: a leader epoch cannot be negative: {epoch}")
        entries = self._entries
        if entries and epoch == entries[-1].epoch and start_offset >= entries[-1].start_offset:
            return
        kept = [entry for entry in entries if entry.epoch < epoch and entry.start_offset < start_offset]
        if len(kept) < len(entries):
            removed = entries[len(kept) :]
            # Every restart removes an older epoch that wrote nothing; anything else is unexpected.
            is_unexpected = any(entry.epoch >= epoch or entry.start_offset > start_offset for entry in removed)
            logger.log(
                logging.WARNING if is_unexpected else logging.DEBUG,
                "%s: epoch %d from offset %d removes %s",
                self.path,
                epoch,
                start_offset,
                removed,
            )
        self._write([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int, *, led_in: int = UNDEFINED_EPOCH) -> EpochEndOffset:
        """Return the newest known epoch up to the requested one, and its end offset.

        For an epoch before the first known one, return it and the start of the first known one; for an undefined
        epoch, or one after the latest, (-1, -1). The epoch that the log is `led_in` is known too, and begins at the
        log's end until something is written in it. As kafka 2.0.1 LeaderEpochFileCache.endOffsetFor.
        """
        latest = max(self.latest_epoch, led_in)
        if epoch == UNDEFINED_EPOCH or epoch > latest:
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
        if epoch == latest:
            return EpochEndOffset(epoch, log_end_offset)
        known = epoch
        for entry in self._entries:
            if entry.epoch > epoch:
                return EpochEndOffset(known, entry.start_offset)
            known = entry.epoch
        return EpochEndOffset(known, log_end_offset)

    def epoch_for(self, offset: int) -> int:
        """Return the epoch in which the offset was, or would be, written; -1 if none is known."""
        return next((entry.epoch for entry in reversed(self.entries) if entry.start_offset <= offset), -1)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs from the offset on: the log ends there now. Raises OSError."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if end_offset >= 0 and len(kept) < len(self._entries):
            self._write(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that ended before the offset; the epoch of the offset now begins there. Raises OSError."""
        before = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if not before or before == [EpochEntry(before[-1].epoch, start_offset)]:
            return
        self._write([EpochEntry(before[-1].epoch, start_offset), *self._entries[len(before) :]])

    def clear(self) -> None:
        """Forget all epochs."""
        self._write([])

    def _write(self, entries: list[EpochEntry]) -> None:
        write_checkpoint(self.path, (f"{entry.epoch} {entry.start_offset}" for entry in entries))
        self._entries = entries
