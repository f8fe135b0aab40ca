"""The journal of a cluster's state: a file to which each of its brokers appends lines, and which all of them read.

The kernel orders the lines: an append (O_APPEND) is atomic on a local disk. So nobody holds a lock to write, and a
broker that is stopped in the middle of its work blocks no other. A line is one JSON object, fsynced before its append
returns. A line that was cut off, by a full disk or a power failure, is ended by the next one's first byte, and skipped.

A journal is never edited: a long one ends, and a new file continues it. A broker that has read the journal up to a
position writes a file that says the same, and appends a last line with its name and the position. The last line is
refused if another line came between; else the journal ends there, and later lines are void. Every broker that reads a
last line renames the file to the journal's path, unless another broker has done so, and reads on at that path. So a
broker that opens the path, whenever that is, comes to the one journal that has everything. A broker that is stopped or
killed meanwhile delays no other: before its last line its file counts for nothing, and after it the others rename. No
name is used twice, so a rename that comes late finds no file.
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


class SharedJournal:
    """`position` is the end of what was read; once that is the journal's end, `continued_by` names the next file.

    Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self.continued_by: str | None = None
        self._line_end = 0  # the position after the last line that was read
        self._fd = disk.open_file(path, disk.READ_WRITE | disk.APPEND | disk.CREATE, FILE_MODE)

    def append(self, line: Line) -> None:
        """Add a line; others may have added some before it. Raises OSError; whether the line is there is open then."""
        self._write(content_of([line]))

    def _write(self, content: bytes) -> None:
        if disk.write(self._fd, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        disk.sync_data(self._fd)

    def read(self) -> Iterator[tuple[int, Line]]:
        """Yield each line since the last one that was read, with the position where it ends."""
        while self.continued_by is None and (chunk := disk.pread(self._fd, READ_BYTES, self.position)):
            end = chunk.rfind(b"\n") + 1
            if not end and len(chunk) == READ_BYTES:  # a longer line
                chunk = disk.pread(self._fd, disk.fstat(self._fd).st_size - self.position, self.position)
                end = chunk.rfind(b"\n") + 1
            if not end:
                return
            for text in chunk[:end].split(b"\n")[:-1]:
                self.position += len(text) + 1
                line = parsed(text)
                if line is None:
                    continue
                if int(line.get("ends_after", -1)) >= self._line_end:
                    self.continued_by = str(line["continued_by"])
                    return
                self._line_end = self.position
                yield self.position, line

    def compact(self, name: str, lines: Sequence[Line]) -> None:
        """Have a new file of that name continue this journal, with lines that make the same as those that were read.

        Read on to see whether it does: not if another line came between, or the file would be longer than half of this.
        """
        content = content_of(lines)
        if 2 * len(content) > self.position:
            return
        new = SharedJournal(self.path.with_name(name))
        try:
            new._write(content)
        finally:
            new.close()
        disk.sync_directory(self.path.parent)
        self.append({"ends_after": self.position, "continued_by": name})

    def next(self) -> SharedJournal:
        """Open the file at the path, which continues this one, or one that does; close this one."""
        name = self.path.with_name(str(self.continued_by))
        with suppress(FileNotFoundError):  # another broker has renamed it
            disk.rename(name, self.path)
        following = SharedJournal(self.path)
        if disk.is_same_file(following._fd, self._fd):
            following.close()
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(name))
        self.close()
        return following

    def close(self) -> None:
        disk.close(self._fd)


def content_of(lines: Sequence[Line]) -> bytes:
    return b"".join(b"\n" + json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def parsed(text: bytes) -> Line | None:
    """The line; None for one that was cut off, or empty."""
    try:
        line = json.loads(text) if text else None
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
