"""Calls of Linux that other systems lack, macOS above all, and the next best there."""

from __future__ import annotations

import fcntl
import os

HAS_FDATASYNC = hasattr(os, "fdatasync")
HAS_FALLOCATE = hasattr(os, "posix_fallocate")
# Of macOS, whose fsync leaves the bytes in the disk's own cache.
FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def sync_data(fd: int) -> None:
    """Force a file's content to the disk, as java.nio.channels.FileChannel.force(false). Raises OSError."""
    if HAS_FDATASYNC:
        os.fdatasync(fd)
    elif FULL_FSYNC is not None:
        fcntl.fcntl(fd, FULL_FSYNC)
    else:
        os.fsync(fd)


def allocate(fd: int, size_bytes: int) -> None:
    """Give a file this size, and where the system can, the room on the disk. Raises OSError."""
    if HAS_FALLOCATE:
        os.posix_fallocate(fd, 0, size_bytes)
    elif os.fstat(fd).st_size < size_bytes:
        os.ftruncate(fd, size_bytes)
