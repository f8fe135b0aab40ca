"""One broker to a data directory: a lock on its `.lock` file, which a Java broker takes in the same place."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from minibroker.storage.files.files import LOCK_FILE

# struct flock: type, whence, start, length (0: all of the file), pid
_WRITE_LOCK = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class LogDirectoryError(Exception):
    """A data directory that cannot be used; the message is one line for the operator."""


class DirectoryLock:
    """Belongs to its open file, not to the process: two brokers in one process exclude each other too."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd = -1

    def acquire(self) -> None:
        """Make the directory if need be, and lock it. Raises LogDirectoryError."""
        if self._fd >= 0:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LogDirectoryError(f"cannot use data directory {self._directory}: {error.strerror}") from error
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WRITE_LOCK)
        except OSError as error:
            os.close(fd)
            raise LogDirectoryError(
                f"data directory {self._directory} is in use by another broker ({LOCK_FILE} is locked)"
            ) from error
        self._fd = fd

    def release(self) -> None:
        """Let another broker have the directory."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
