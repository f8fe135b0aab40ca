"""Waits for changes of files, as the kernel shows them (inotify)."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

import trio

IN_MODIFY, IN_CLOSE_WRITE = 0x2, 0x8
EVENT = struct.Struct("iIII")  # struct inotify_event: watch, mask, cookie, length of the name
READ_BYTES = 64 * 1024


class DirectoryWatch:
    """The writes to files of some directories, and the ends of processes that had one open for writing.

    Raises OSError.
    """

    def __init__(self, *directories: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _checked(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        for directory in directories:
            _checked(libc.inotify_add_watch(self._fd, os.fsencode(directory), IN_MODIFY | IN_CLOSE_WRITE))

    async def changed(self) -> set[str]:
        """Wait for changes; return the names of files that a process has closed, perhaps by its end."""
        await trio.lowlevel.wait_readable(self._fd)
        data = os.read(self._fd, READ_BYTES)
        closed: set[str] = set()
        position = 0
        while position < len(data):
            _, mask, _, length = EVENT.unpack_from(data, position)
            position += EVENT.size + length
            if mask & IN_CLOSE_WRITE:
                closed.add(data[position - length : position].rstrip(b"\0").decode(errors="replace"))
        return closed

    def close(self) -> None:
        os.close(self._fd)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
