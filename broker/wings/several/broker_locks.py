"""The life of the brokers of a cluster on one machine: each holds a lock on a file of its own as long as it lives.

The kernel drops the lock when the broker's process ends, however it ends: so a lock that is free is a broker that is
gone. A broker that is only stopped (SIGSTOP) keeps its lock; its heartbeats, a counter in the file, stand still. Locks
are those of open files (F_OFD_SETLK): to ask for one does not take it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from pathlib import Path

from minibroker.storage.files import disk

LOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process
WHOLE_FILE = (os.SEEK_SET, 0, 0, 0)
COUNTER = struct.Struct("<Q")
FILE_MODE = 0o600


class BrokerLocks:
    """The files of a directory, by broker id. Raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd = -1
        self._counter: mmap.mmap | None = None

    def hold(self, broker_id: int) -> bool:
        """Begin this broker's life; return False if the broker of that id lives."""
        fd = disk.open_file(self._directory / str(broker_id), disk.READ_WRITE | disk.CREATE, FILE_MODE)
        try:
            disk.control(fd, fcntl.F_OFD_SETLK, LOCK.pack(fcntl.F_WRLCK, *WHOLE_FILE))
        except BlockingIOError:
            disk.close(fd)
            return False
        disk.allocate(fd, COUNTER.size)
        self._fd, self._counter = fd, disk.map_file(fd, COUNTER.size)
        return True

    def beat(self) -> None:
        """Count this broker's heartbeat."""
        if self._counter is not None:
            self._counter[:] = COUNTER.pack(COUNTER.unpack(self._counter[:])[0] + 1)

    def is_held(self, broker_id: int) -> bool:
        """Whether the broker lives."""
        fd = self._open(broker_id)
        if fd is None:
            return False
        try:
            answer = disk.control(fd, fcntl.F_OFD_GETLK, LOCK.pack(fcntl.F_WRLCK, *WHOLE_FILE))
        finally:
            disk.close(fd)
        return bool(LOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def beats_of(self, broker_id: int) -> int:
        """The heartbeats that the broker has counted."""
        fd = self._open(broker_id)
        if fd is None:
            return 0
        try:
            content = disk.pread(fd, COUNTER.size, 0)
        finally:
            disk.close(fd)
        return int(COUNTER.unpack(content)[0]) if len(content) == COUNTER.size else 0

    def release(self) -> None:
        """End this broker's life."""
        if self._counter is not None:
            self._counter.close()
            self._counter = None
            disk.close(self._fd)

    def _open(self, broker_id: int) -> int | None:
        try:
            return disk.open_file(self._directory / str(broker_id), disk.READ_ONLY)
        except FileNotFoundError:
            return None
