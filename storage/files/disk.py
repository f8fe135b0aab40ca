"""The calls of the system that storage and the journals of the cluster make: nothing else in them touches a file
(tests/test_layering.py).

A test replaces a name of this module, as `disk.pwrite`, to have a call fail, or the process die at it. Each raises
OSError as the call that it is named after; `unlink` succeeds without the file too.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

READ_ONLY = os.O_RDONLY | os.O_CLOEXEC
WRITE_ONLY = os.O_WRONLY | os.O_CLOEXEC
READ_WRITE = os.O_RDWR | os.O_CLOEXEC
CREATE = os.O_CREAT
APPEND = os.O_APPEND  # each write goes to the file's end, at once
EMPTY = os.O_TRUNC

open_file = os.open
close = os.close
pread = os.pread
pwrite = os.pwrite
write = os.write
ftruncate = os.ftruncate
truncate = os.truncate
fstat = os.fstat
is_same_file = os.path.sameopenfile
fsync = os.fsync
utime = os.utime
stat = os.stat
exists = os.path.exists
listdir = os.listdir
rename = os.rename
replace = os.replace
mkdir = os.mkdir
makedirs = os.makedirs
rmdir = os.rmdir
remove = os.unlink
copy_file = shutil.copyfile
map_file = mmap.mmap
control = fcntl.fcntl

HAS_FDATASYNC = hasattr(os, "fdatasync")
HAS_FALLOCATE = hasattr(os, "posix_fallocate")
# Of macOS, whose fsync leaves the bytes in the disk's own cache.
FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
if HAS_FDATASYNC:
    fdatasync = os.fdatasync
if HAS_FALLOCATE:
    fallocate = os.posix_fallocate


def sync_data(fd: int) -> None:
    """Force a file's content to the disk, as java.nio.channels.FileChannel.force(false)."""
    if HAS_FDATASYNC:
        fdatasync(fd)
    elif FULL_FSYNC is not None:
        control(fd, FULL_FSYNC)
    else:
        fsync(fd)


def sync_directory(directory: Path) -> None:
    """Force the names in the directory to disk: only then is a new file sure to be found after a power loss."""
    fd = open_file(directory, READ_ONLY)
    try:
        fsync(fd)
    finally:
        close(fd)


def allocate(fd: int, size_bytes: int) -> None:
    """Give a file this size, and where the system can, the room on the disk."""
    if HAS_FALLOCATE:
        fallocate(fd, 0, size_bytes)
    elif fstat(fd).st_size < size_bytes:
        ftruncate(fd, size_bytes)


def unlink(path: Path) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        remove(path)


def read_file(path: Path) -> bytes:
    """Return the whole content."""
    fd = open_file(path, READ_ONLY)
    try:
        chunks: list[bytes] = []
        position = 0
        while chunk := pread(fd, fstat(fd).st_size - position + 1, position):
            chunks.append(chunk)
            position += len(chunk)
    finally:
        close(fd)
    return b"".join(chunks)


def write_file(path: Path, content: bytes, *, mode: int = 0o666, is_synced: bool = False) -> None:
    """Replace the content; after an error, the file may have a part of it. A new file has this mode, less the umask."""
    fd = open_file(path, WRITE_ONLY | CREATE | EMPTY, mode)
    try:
        written = 0
        while written < len(content):
            written += pwrite(fd, content[written:], written)
        if is_synced:
            fsync(fd)
    finally:
        close(fd)


def directories_in(directory: Path) -> Sequence[str]:
    """Return the names of the directories in it."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_dir()]


def remove_tree(directory: Path) -> None:
    """Remove a directory with all it has, as far as that can be removed. Raises the first OSError, at the end."""
    first: OSError | None = None
    for name in listdir(directory):
        path = directory / name
        try:
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                unlink(path)
        except OSError as error:
            first = first or error
    if first is not None:
        raise first
    rmdir(directory)
