"""The journal of a cluster's state: a file to which each of its brokers appends lines, and which all of them read.

The kernel orders the lines: an append (O_APPEND) is atomic on a local disk. So nobody holds a lock to write, and a
broker that is stopped in the middle of its work blocks no other. A line is one JSON object, fsynced before its append
returns. A line that was cut off, by a full disk or a power failure, is ended by the next one's first byte, and skipped.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from minibroker.storage.files.disk import sync_data

FILE_MODE = 0o600  # of a state with the credentials of users
READ_BYTES = 1 << 20

Line = dict[str, Any]


class SharedJournal:
    """`position` is the end of what was read. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    def append(self, line: Line) -> None:
        """Add a line; others may have added some before it. Raises OSError; whether the line is there is open then."""
        content = b"\n" + json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if os.write(self._fd, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        sync_data(self._fd)

    def read(self) -> Iterator[tuple[int, Line]]:
        """Yield each line since the last one that was read, with the position where it ends."""
        while chunk := os.pread(self._fd, READ_BYTES, self.position):
            end = chunk.rfind(b"\n") + 1
            if not end and len(chunk) == READ_BYTES:  # a longer line
                chunk = os.pread(self._fd, os.fstat(self._fd).st_size - self.position, self.position)
                end = chunk.rfind(b"\n") + 1
            if not end:
                return
            for text in chunk[:end].split(b"\n")[:-1]:
                self.position += len(text) + 1
                line = parsed(text)
                if line is not None:
                    yield self.position, line

    def replace(self, lines: Iterable[Line]) -> None:
        """Write the journal anew, with these lines only, to be read again; no other broker may have it open."""
        new = self.path.with_suffix(".new")
        new.unlink(missing_ok=True)
        written = SharedJournal(new)
        for line in lines:
            written.append(line)
        os.rename(new, self.path)
        os.close(self._fd)
        self._fd, self.position = written._fd, 0

    def close(self) -> None:
        os.close(self._fd)


def parsed(text: bytes) -> Line | None:
    """The line; None for one that was cut off, or empty."""
    try:
        line = json.loads(text) if text else None
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
