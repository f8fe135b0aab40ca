"""A journal: a file of JSON objects, one a line, each fsynced before its append returns.

To write a state whole for the change of one topic takes longer the more topics there are; a line takes as long with
thousands of topics as with one. docs/log_format.md has the forms of the lines.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from minibroker.storage.files import disk

FILE_MODE = 0o600  # of a state with the credentials of users
READ_BYTES = 1 << 20

Line = dict[str, Any]


class Journal:
    """A journal of one broker, which has read it before it appends. `position` is the end of the lines that count.

    A last line that was cut off was not answered: the next one takes its place.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Raises OSError."""
        self.path = path
        self.position = 0
        self._fd = disk.open_file(path, disk.READ_WRITE | disk.APPEND | disk.CREATE, FILE_MODE)

    def append(self, *lines: Line) -> None:
        """Add lines. Raises OSError; the journal is as before then."""
        content = content_of(lines)
        disk.ftruncate(self._fd, self.position)
        try:
            self._write(content)
        except OSError:
            with suppress(OSError):  # else the next line takes its place, or a start reads it
                disk.ftruncate(self._fd, self.position)
            raise
        self.position += len(content)

    def _write(self, content: bytes) -> None:
        if disk.write(self._fd, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        disk.sync_data(self._fd)

    def read(self) -> Iterator[tuple[int, Line]]:
        """Yield each line since the last one that was read, with the position where it ends. Raises OSError, and
        ValueError for a line that is no JSON object."""
        while chunk := disk.pread(self._fd, READ_BYTES, self.position):
            end = chunk.rfind(b"\n") + 1
            if not end and len(chunk) == READ_BYTES:  # a longer line
                chunk = disk.pread(self._fd, disk.fstat(self._fd).st_size - self.position, self.position)
                end = chunk.rfind(b"\n") + 1
            if not end:
                return
            for text in chunk[:end].split(b"\n")[:-1]:
                self.position += len(text) + 1
                if (line := self._parsed(text)) is not None:
                    yield self.position, line

    def _parsed(self, text: bytes) -> Line | None:
        line = json.loads(text)
        if not isinstance(line, dict):
            raise ValueError("a line is no JSON object")
        return line

    def close(self) -> None:
        disk.close(self._fd)


def content_of(lines: Sequence[Line]) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
