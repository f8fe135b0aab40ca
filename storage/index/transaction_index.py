"""The aborted transactions of a segment, for consumers that read committed records only.

    version: int16 = 0 | producer id: int64 | first offset: int64 | last offset: int64 | last stable: int64

Entries are in the order of their last offset, that of the abort marker, which is in this segment; the first offset
may be in an earlier one. The last stable offset is the log's after the marker: a search can stop at the first entry
whose last stable offset is beyond the end of the fetch. The file exists only after something was aborted, and is
open only while it is read or written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from minibroker.storage.files import disk
from minibroker.storage.files.storage_errors import CorruptFileError

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class CompletedTxn(NamedTuple):
    """A transaction whose marker is written; its last offset is that of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class TxnSearchResult(NamedTuple):
    aborted: list[AbortedTxn]
    is_complete: bool  # no later segment has another one


class TransactionIndex:
    """One `.txnindex`. Holds no descriptor."""

    __slots__ = ("_last_offset", "base_offset", "path", "size_bytes")

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        # A part of an entry, left by a crash, does not count, and the next one overwrites it.
        self.size_bytes = disk.stat(path).st_size // _ENTRY.size * _ENTRY.size if disk.exists(path) else 0
        self._last_offset: int | None = None  # of the last entry appended here

    def append(self, aborted: AbortedTxn) -> None:
        """Add an entry, and create the file for the first. Raises ValueError if it is out of order.

        Raises OSError; nothing is written then.
        """
        if self._last_offset is not None and aborted.last_offset <= self._last_offset:
            raise ValueError(f"{self.path}: last offset {aborted.last_offset} cannot follow {self._last_offset}")
        entry = _ENTRY.pack(_VERSION, *aborted)
        fd = disk.open_file(self.path, disk.WRITE_ONLY | disk.CREATE, 0o644)
        try:
            if disk.pwrite(fd, entry, self.size_bytes) != len(entry):
                disk.ftruncate(fd, self.size_bytes)
                raise OSError(f"{self.path}: only a part of an entry could be written")
        finally:
            disk.close(fd)
        self.size_bytes += len(entry)
        self._last_offset = aborted.last_offset

    def note(self, completed: CompletedTxn, last_stable_offset: int) -> None:
        """Add the transaction if it was aborted. Raises as `append`."""
        if completed.is_aborted:
            producer_id, first_offset, last_offset, _ = completed
            self.append(AbortedTxn(producer_id, first_offset, last_offset, last_stable_offset))

    def entries(self) -> Iterator[AbortedTxn]:
        """Iterate over all entries. Raises CorruptFileError."""
        if self.size_bytes == 0:
            return
        for version, *fields in _ENTRY.iter_unpack(disk.read_file(self.path)[: self.size_bytes]):
            if version > _VERSION:
                raise CorruptFileError(f"{self.path}: unexpected entry version {version}")
            yield AbortedTxn(*fields)

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> TxnSearchResult:
        """Return the transactions with records in [fetch_offset, upper_bound_offset)."""
        found: list[AbortedTxn] = []
        for aborted in self.entries():
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound_offset:
                return TxnSearchResult(found, is_complete=True)
        return TxnSearchResult(found, is_complete=False)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions with a marker from the offset on."""
        kept = 0
        for aborted in self.entries():
            if aborted.last_offset >= offset:
                break
            kept += 1
            self._last_offset = aborted.last_offset
        self._cut(kept * _ENTRY.size)
        if kept == 0:
            self._last_offset = None

    def reset(self) -> None:
        """Drop all entries."""
        self._cut(0)
        self._last_offset = None

    def _cut(self, size_bytes: int) -> None:
        if self.size_bytes > size_bytes:
            disk.truncate(self.path, size_bytes)
            self.size_bytes = size_bytes

    def sanity_check(self) -> None:
        """Raise CorruptFileError if this cannot be the index of its segment."""
        for aborted in self.entries():
            if aborted.last_offset < self.base_offset:
                raise CorruptFileError(f"{self.path}: last offset {aborted.last_offset} is before the base offset")

    def flush(self) -> None:
        """Force the entries to disk."""
        if self.size_bytes > 0:
            fd = disk.open_file(self.path, disk.WRITE_ONLY)
            try:
                disk.sync_data(fd)
            finally:
                disk.close(fd)

    def rename(self, path: Path) -> None:
        """Rename the file, if there is one."""
        if disk.exists(self.path):
            disk.replace(self.path, path)
        self.path = path

    def follow(self, directory: Path) -> None:
        """Name the file in this directory, which was renamed."""
        self.path = directory / self.path.name

    def delete(self) -> None:
        """Remove the file, if there is one."""
        disk.unlink(self.path)
