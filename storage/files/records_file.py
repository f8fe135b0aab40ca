"""The `.log` file of a segment, and slices of it that are sent to clients.

Written by `pwrite`, sent by `sendfile`. Mapped for scans only: never past its end, and never while it shrinks,
because touching a map beyond the end of its file kills the process.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from minibroker.storage.files import disk

_SCAN_BY_READ_BYTES = 16 * 1024  # below this a scan past the map reads; above it the map is renewed
_SCANS_BETWEEN_RELEASES = 64


class RecordsFile:
    """One open `.log`. Its descriptor closes with the last reference: the segment's, or a slice's."""

    __slots__ = ("_map", "_mapped_bytes", "_scans", "_view", "fd", "path", "size_bytes")

    def __init__(self, path: Path, *, preallocate_bytes: int = 0) -> None:
        """Open the file, or create it with `preallocate_bytes` of disk. Raises OSError."""
        self.fd = -1  # for __del__, should the open fail
        self.path = path
        self._map: mmap.mmap | None = None
        self._view: memoryview = memoryview(b"")
        self._mapped_bytes = 0
        self._scans = 0
        is_new = preallocate_bytes > 0 and not disk.exists(path)
        self.fd = disk.open_file(path, disk.READ_WRITE | disk.CREATE, 0o644)
        self.size_bytes = disk.fstat(self.fd).st_size
        if is_new:
            disk.allocate(self.fd, preallocate_bytes)

    def __del__(self) -> None:
        if self.fd >= 0:
            disk.close(self.fd)

    def append(self, buffer: bytes | bytearray | memoryview) -> None:
        """Write all of the buffer at the end, or nothing. Raises OSError; the file is as before then."""
        size = len(buffer)
        written = disk.pwrite(self.fd, buffer, self.size_bytes)
        if written != size:
            self._finish_append(memoryview(buffer), written)
        self.size_bytes += size

    def _finish_append(self, buffer: memoryview, written: int) -> None:
        # A full disk takes a part of the bytes first, and answers ENOSPC to the next write.
        try:
            while written < len(buffer):
                written += disk.pwrite(self.fd, buffer[written:], self.size_bytes + written)
        except OSError:
            disk.ftruncate(self.fd, self.size_bytes)
            raise

    def truncate(self, size_bytes: int) -> int:
        """Cut the file, a preallocated tail too; return how many bytes of records were cut.

        Raises BufferError while a scan buffer is in use, and OSError.
        """
        lost = self.size_bytes - size_bytes
        if lost < 0:
            raise ValueError(f"{self.path}: cannot truncate {self.size_bytes} bytes to {size_bytes}")
        if disk.fstat(self.fd).st_size > size_bytes:
            self.unmap()
            disk.ftruncate(self.fd, size_bytes)
        self.size_bytes = size_bytes
        return lost

    def flush(self) -> None:
        disk.sync_data(self.fd)

    def slice(self, position: int, size_bytes: int) -> FileSlice:
        return FileSlice(self, position, size_bytes)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return the bytes; fewer only where the file ends."""
        return disk.pread(self.fd, size_bytes, position)

    def scan_buffer(self, start: int, end: int) -> tuple[memoryview | bytes, int]:
        """Return a buffer with the bytes from start to end, and the file position of its first byte.

        Release the buffer before the next `truncate`. Near the end of a growing file it is read, elsewhere mapped.
        """
        if end > self._mapped_bytes:
            if end - start <= _SCAN_BY_READ_BYTES:
                return disk.pread(self.fd, end - start, start), start
            self._remap()
        self._scans += 1
        if self._scans >= _SCANS_BETWEEN_RELEASES:
            self.release_pages()
        return self._view, 0

    def _remap(self) -> None:
        # The old map is freed when the last scan releases it.
        self._map = disk.map_file(self.fd, self.size_bytes, access=mmap.ACCESS_READ)
        self._view = memoryview(self._map)
        self._mapped_bytes = self.size_bytes

    def release_pages(self) -> None:
        """Keep the map, but release its pages: they stay in the page cache, and leave this process's memory."""
        self._scans = 0
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def unmap(self) -> None:
        """Close the map and its descriptor until the next long scan. Raises BufferError while one is running."""
        if self._map is not None:
            self._view.release()
            self._map.close()
            self._map = None
            self._view = memoryview(b"")
            self._mapped_bytes = 0

    def rename(self, path: Path) -> None:
        disk.replace(self.path, path)
        self.path = path

    def follow(self, directory: Path) -> None:
        """Name the file in this directory, which was renamed."""
        self.path = directory / self.path.name

    def delete(self) -> None:
        """Remove the name, if it is there; slices stay readable."""
        self.unmap()
        disk.unlink(self.path)


class FileSlice:
    """A range of a `.log` to be sent; it stays readable after the file is deleted.

    `read_already` has the bytes of a small one that the search for it has read.
    """

    __slots__ = ("file", "position", "read_already", "size_bytes")

    def __init__(self, file: RecordsFile, position: int, size_bytes: int, read_already: bytes | None = None) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes
        self.read_already = read_already

    @property
    def fd(self) -> int:
        return self.file.fd

    def read(self) -> bytes:
        """Return all bytes of the slice. Raises EOFError if the file has been truncated within it."""
        if self.read_already is not None:
            return self.read_already
        data = disk.pread(self.file.fd, self.size_bytes, self.position)
        if len(data) != self.size_bytes:
            raise EOFError(f"{self.file.path}: read {len(data)} of {self.size_bytes} bytes at {self.position}")
        return data

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path.name}, {self.position}, {self.size_bytes})"
