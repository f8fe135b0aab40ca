"""Keeps a data directory to one broker: a lock on its `.lock` file, as a Java broker takes it."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from minibroker.storage.files import disk
from minibroker.storage.files.file_names import LOCK_FILE
from minibroker.storage.files.storage_errors import LogDirectoryError, map_directory_errors

# struct flock: type, whence, start, length (0: all of the file), pid
_WRITE_LOCK = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class DirectoryLock:
    """A lock of the open file, not of the process: two brokers in one process exclude each other too."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd = -1

    def acquire(self) -> None:
        """Create the directory if it is missing, and lock it. Raises LogDirectoryError."""
        if self._fd >= 0:
            return
        with map_directory_errors("use", self._directory):
            disk.makedirs(self._directory, exist_ok=True)
            fd = disk.open_file(self._directory / LOCK_FILE, disk.READ_WRITE | disk.CREATE, 0o644)
        try:
            disk.control(fd, fcntl.F_OFD_SETLK, _WRITE_LOCK)
        except OSError as error:
            disk.close(fd)
            raise LogDirectoryError(
                f"data directory {self._directory} is in use by another broker ({LOCK_FILE} is locked)"
            ) from error
        self._fd = fd

    def release(self) -> None:
        """Unlock the directory."""
        if self._fd >= 0:
            disk.close(self._fd)
            self._fd = -1
