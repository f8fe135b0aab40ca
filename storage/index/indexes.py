"""The two sparse indexes of a segment, as Kafka lays them out.

    .index      relative offset: int32 | position: int32       the batch ending with it starts there
    .timeindex  timestamp: int64 | relative offset: int32      no earlier record is younger than this one

Big-endian, relative to the base offset in the file name, sorted. The files are mapped, which has two traps: a store
to a page that the disk has no room for kills the process, and so does access beyond the end of the file. So room is
allocated before it is mapped, in steps that double (`ensure_room`, which raises OSError on a full disk), and a file
never shrinks while it is mapped. A trimmed file is exactly its entries. An index holds a map and a descriptor only
while it is in use.
"""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

from minibroker.protocol.record import INT32_MAX, NO_TIMESTAMP
from minibroker.storage.files import disk
from minibroker.storage.files.storage_errors import CorruptFileError

_FIRST_ALLOCATION_BYTES = 4096
_ENTRIES_PER_MARK = 8


class IndexEntry(NamedTuple):
    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int


class MappedIndex:
    """A file of equal entries: the first `entries` of them count, and allocated room may follow."""

    __slots__ = ("_buffer", "_map", "_room", "base_offset", "entries", "max_entries", "path")

    ENTRY: ClassVar[struct.Struct]

    def __init__(self, path: Path, base_offset: int, max_index_bytes: int) -> None:
        """Open the file, trimmed or with the room that a crash left in it, or create it. Raises OSError."""
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_index_bytes // self.ENTRY.size
        self._map: mmap.mmap | None = None
        self._buffer = memoryview(b"")
        fd = disk.open_file(path, disk.READ_WRITE | disk.CREATE, 0o644)
        try:
            self.entries = disk.fstat(fd).st_size // self.ENTRY.size
        finally:
            disk.close(fd)
        self._room = self.entries  # entries the file has space for

    @property
    def is_full(self) -> bool:
        return self.entries >= self.max_entries

    @property
    def size_bytes(self) -> int:
        return self.entries * self.ENTRY.size

    @property
    def is_mapped(self) -> bool:
        return self._map is not None

    def can_append_offset(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= INT32_MAX

    def resize(self, max_index_bytes: int) -> None:
        """Change the size at which the index is full; the entries stay."""
        self.max_entries = max_index_bytes // self.ENTRY.size

    def ensure_room(self) -> None:
        """Allocate and map room for one more entry. Raises OSError; nothing has changed then."""
        if self.entries < self._room:
            self._mapped()
            return
        size = self.ENTRY.size
        doubled = max(2 * self._room, _FIRST_ALLOCATION_BYTES // size)
        # One beyond full: a segment that is finished adds a last entry to its time index, full or not.
        room = max(min(doubled, self.max_entries + 1), self.entries + 1)
        fd = disk.open_file(self.path, disk.READ_WRITE)
        try:
            disk.allocate(fd, room * size)
            self._map_file(fd, room * size)
        except OSError:
            disk.ftruncate(fd, self._room * size)  # the map reaches no further than that
            raise
        finally:
            disk.close(fd)
        self._room = room

    def _mapped(self) -> memoryview:
        """Return the entries, at least one; map the file if it is not mapped."""
        if self._map is None:
            fd = disk.open_file(self.path, disk.READ_WRITE)
            try:
                disk.allocate(fd, self._room * self.ENTRY.size)  # Kafka leaves holes after a crash
                self._map_file(fd, self._room * self.ENTRY.size)
            finally:
                disk.close(fd)
        return self._buffer

    def _map_file(self, fd: int, size_bytes: int) -> None:
        new_map = disk.map_file(fd, size_bytes)
        self.unmap()
        self._map = new_map
        self._buffer = memoryview(new_map)

    def unmap(self) -> None:
        """Close the map and its descriptor; the next look-up or entry maps the file again."""
        if self._map is not None:
            self._buffer.release()
            self._map.close()
            self._map = None
            self._buffer = memoryview(b"")

    def trim(self) -> None:
        """Cut the file to its entries, as Kafka does when a segment is closed or no longer written."""
        self.unmap()
        disk.truncate(self.path, self.size_bytes)
        self._room = self.entries

    def reset(self) -> None:
        """Drop all entries, valid or not."""
        self.entries = 0
        self.trim()

    def flush(self) -> None:
        """Force the entries to disk, those written through the map included; may run in another thread."""
        if self.entries > 0:
            fd = disk.open_file(self.path, disk.READ_WRITE)
            try:
                disk.sync_data(fd)
            finally:
                disk.close(fd)

    def rename(self, path: Path) -> None:
        disk.replace(self.path, path)
        self.path = path

    def follow(self, directory: Path) -> None:
        """Name the file in this directory, which was renamed."""
        self.path = directory / self.path.name

    def delete(self) -> None:
        """Remove the file, if it is there."""
        self.unmap()
        disk.unlink(self.path)

    def _truncate_to_entries(self, entries: int) -> None:
        if entries >= self.entries:
            return
        size = self.ENTRY.size
        # Zeros in place of the dropped entries: a start after a crash then detects that they are not entries.
        self._mapped()[entries * size : self.entries * size] = bytes((self.entries - entries) * size)
        self.entries = entries

    def _read_entry(self, slot: int) -> tuple[int, int]:
        """Return the two fields of an entry, without mapping the file."""
        size = self.ENTRY.size
        if self._map is not None:
            first, second = self.ENTRY.unpack_from(self._buffer, slot * size)
            return first, second
        fd = disk.open_file(self.path, disk.READ_ONLY)
        try:
            first, second = self.ENTRY.unpack(disk.pread(fd, size, slot * size))
        finally:
            disk.close(fd)
        return first, second

    def _count_up_to(self, value: int, field: int) -> int:
        """Return the number of entries with at most this value in the field."""
        if self.entries == 0:
            return 0
        buffer, unpack, size = self._mapped(), self.ENTRY.unpack_from, self.ENTRY.size
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if unpack(buffer, middle * size)[field] <= value:
                low = middle + 1
            else:
                high = middle
        return low

    def _slot_from(self, value: int, field: int) -> int:
        """Return kafka 2.0.1's AbstractIndex.smallestUpperBoundSlotFor; `entries` where that is -1."""
        if self.entries == 0:
            return 0
        buffer, unpack, size = self._mapped(), self.ENTRY.unpack_from, self.ENTRY.size
        if unpack(buffer)[field] > value:
            return 0
        low, high = 0, self.entries - 1
        while low < high:
            middle = (low + high + 1) // 2
            found = unpack(buffer, middle * size)[field]
            if found == value:
                return middle
            if found > value:
                high = middle - 1
            else:
                low = middle
        return low + 1

    def _check_size(self) -> None:
        length = disk.stat(self.path).st_size
        if length % self.ENTRY.size != 0:
            raise CorruptFileError(f"{self.path}: its size {length} is not a multiple of {self.ENTRY.size}")


class OffsetIndex(MappedIndex):
    """relative offset: int32 | position: int32"""

    __slots__ = ("_last_offset", "_marks")

    ENTRY = struct.Struct(">ii")

    def __init__(self, path: Path, base_offset: int, max_index_bytes: int) -> None:
        super().__init__(path, base_offset, max_index_bytes)
        self._marks = array("I")  # the relative offset of every 8th entry, in native order, filled by look-ups
        self._last_offset = base_offset if self.entries == 0 else -1  # -1: not read yet

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset of an empty index."""
        if self._last_offset < 0:
            self._last_offset = self.base_offset + self._read_entry(self.entries - 1)[0]
        return self._last_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises ValueError if the index is full or the offset does not rise; OSError on a full disk."""
        if self.is_full:
            raise ValueError(f"{self.path}: the index is full, with {self.entries} entries")
        if self.entries > 0 and offset <= self.last_offset:
            raise ValueError(f"{self.path}: offset {offset} cannot follow {self.last_offset}")
        self.ensure_room()
        self.ENTRY.pack_into(self._buffer, self.entries * 8, offset - self.base_offset, position)
        self.entries += 1
        self._last_offset = offset

    def lookup(self, target_offset: int) -> IndexEntry:
        """Return the last entry not beyond the offset; the start of the segment if there is none."""
        slot = self._slot(target_offset - self.base_offset)
        if slot < 0:
            return IndexEntry(self.base_offset, 0)
        relative_offset, position = _ENTRY(self._buffer, slot * 8)
        return IndexEntry(self.base_offset + relative_offset, position)

    def position_before(self, target_offset: int) -> int:
        """Return the position from which to search for the offset."""
        slot = self._slot(target_offset - self.base_offset)
        return 0 if slot < 0 else _FIELD(self._buffer, slot * 8 + 4)[0]

    def slot_before(self, target_offset: int) -> int:
        """Return the place of the entry that `lookup` returns; -1 if there is none."""
        return self._slot(target_offset - self.base_offset)

    def entry(self, slot: int) -> IndexEntry:
        """Return the entry at a place from 0 on, without mapping the file."""
        relative_offset, position = self._read_entry(slot)
        return IndexEntry(self.base_offset + relative_offset, position)

    def _slot(self, target: int) -> int:
        """Return the slot of the last entry not beyond the relative offset, and have it mapped; -1 for none."""
        high = self.entries
        if high == 0 or target < 0:
            return -1
        buffer = self._buffer if self._map is not None else self._mapped()
        if _FIELD(buffer, high * 8 - 8)[0] <= target:  # most look-ups are near the end
            return high - 1
        marks = self._marks
        if len(marks) * _ENTRIES_PER_MARK < high:
            self._add_marks(buffer)
        low = (bisect_right(marks, target) - 1) * _ENTRIES_PER_MARK
        if low < 0:
            return -1
        high = min(low + _ENTRIES_PER_MARK, high)
        while low < high:
            middle = (low + high) >> 1
            if _FIELD(buffer, middle * 8)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _add_marks(self, buffer: memoryview) -> None:
        words = buffer[len(self._marks) * _ENTRIES_PER_MARK * 8 : self.entries * 8].cast("I")
        new = array("I", words[:: 2 * _ENTRIES_PER_MARK].tobytes())
        if sys.byteorder == "little":
            new.byteswap()
        self._marks.extend(new)

    def fetch_upper_bound_offset(self, position: int, fetch_size_bytes: int) -> int | None:
        """Return the offset of the first entry at or past the end of such a fetch; None for none.

        As kafka 2.0.1, whose search finds an entry right at the end only if it meets it.
        """
        slot = self._slot_from(position + fetch_size_bytes, 1)
        if slot == self.entries:
            return None
        return self.base_offset + self._read_entry(slot)[0]

    def indexed_position(self, position: int) -> int:
        """Return the last indexed position at or before this one; 0 if there is none."""
        slot = self._count_up_to(position, 1) - 1
        return 0 if slot < 0 else self._read_entry(slot)[1]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from the offset on."""
        self._truncate(self._count_up_to(offset - self.base_offset - 1, 0))

    def reset(self) -> None:
        super().reset()
        self._truncate(0)

    def _truncate(self, entries: int) -> None:
        self._truncate_to_entries(entries)
        del self._marks[-(-entries // _ENTRIES_PER_MARK) :]
        self._last_offset = self.base_offset if self.entries == 0 else -1

    def sanity_check(self) -> None:
        """Raise CorruptFileError if this cannot be the index of its segment."""
        if self.entries > 0 and self.last_offset <= self.base_offset:
            raise CorruptFileError(f"{self.path}: the last offset {self.last_offset} is not beyond the base offset")
        self._check_size()


class TimeIndex(MappedIndex):
    """timestamp: int64 | relative offset: int32"""

    __slots__ = ("_last",)

    ENTRY = struct.Struct(">qi")

    def __init__(self, path: Path, base_offset: int, max_index_bytes: int) -> None:
        super().__init__(path, base_offset, max_index_bytes)
        self._last: TimestampOffset | None = None

    @property
    def is_full(self) -> bool:
        """Whether all entries but one are used: the last one is for the end of the segment."""
        return self.entries >= self.max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) of an empty index."""
        if self._last is None:
            self._last = self._entry(self.entries - 1)
        return self._last

    def _entry(self, slot: int) -> TimestampOffset:
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp_ms, relative_offset = self._read_entry(slot)
        return TimestampOffset(timestamp_ms, self.base_offset + relative_offset)

    def maybe_append(self, timestamp_ms: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if it is younger than the last one.

        Raises ValueError if the index is full, or if time or offset decrease; OSError on a full disk.
        """
        if not skip_full_check and self.is_full:
            raise ValueError(f"{self.path}: the index is full, with {self.entries} entries")
        last = self.last_entry
        if self.entries > 0 and (offset < last.offset or timestamp_ms < last.timestamp_ms):
            raise ValueError(f"{self.path}: ({timestamp_ms}, {offset}) cannot follow {last}")
        if timestamp_ms <= last.timestamp_ms:
            return
        self.ensure_room()
        self.ENTRY.pack_into(self._buffer, self.entries * 12, timestamp_ms, offset - self.base_offset)
        self.entries += 1
        self._last = TimestampOffset(timestamp_ms, offset)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Return the last entry not younger than the timestamp; (-1, base offset) if there is none."""
        return self._entry(self._count_up_to(timestamp_ms, 0) - 1)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from the offset on."""
        self._truncate_to_entries(self._count_up_to(offset - self.base_offset - 1, 1))
        self._last = None

    def reset(self) -> None:
        super().reset()
        self._last = None

    def sanity_check(self) -> None:
        """Raise CorruptFileError if this cannot be the index of its segment."""
        if self.entries > 0:
            first, last = self._entry(0), self.last_entry
            rises = self.entries == 1 or first.timestamp_ms < last.timestamp_ms
            if not rises or last.offset < self.base_offset:
                raise CorruptFileError(f"{self.path}: the last entry {last} cannot follow the first, {first}")
        self._check_size()


_ENTRY: Callable[..., tuple[int, int]] = OffsetIndex.ENTRY.unpack_from
_FIELD: Callable[..., tuple[int]] = struct.Struct(">i").unpack_from
