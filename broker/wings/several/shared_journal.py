"""The journal of a cluster's state: a file to which each of its brokers appends lines, and which all of them read.

The kernel orders the lines: an append (O_APPEND) is atomic on a local disk. So nobody holds a lock to write, and a
broker that is stopped in the middle of its work blocks no other. A line that was cut off, by a full disk or a power
failure, is ended by the next one's first byte, and skipped.

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
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from minibroker.broker.cluster.journal import Journal, Line, content_of
from minibroker.storage.files import disk


class SharedJournal(Journal):
    """`position` is the end of the lines that were read; `continued_by` names the next file, once this one has ended.

    Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.continued_by: str | None = None
        self._line_end = 0  # the position after the last line that was read

    def append(self, *lines: Line) -> None:
        """Add lines; others may have added some before. Raises OSError; whether these are there is open then."""
        self._write(b"\n" + content_of(lines))

    def read(self) -> Iterator[tuple[int, Line]]:
        """Yield each line since the last one that was read, with the position where it ends."""
        for position, line in super().read() if self.continued_by is None else ():
            ends_after = line.get("ends_after")
            if isinstance(ends_after, int) and ends_after >= self._line_end:
                self.continued_by = str(line.get("continued_by"))
                return
            self._line_end = position
            yield position, line

    def _parsed(self, text: bytes) -> Line | None:
        """The line; None for one that was cut off, or empty."""
        try:
            return super()._parsed(text)
        except (ValueError, RecursionError):
            return None

    def compact(self, name: str, lines: Sequence[Line]) -> None:
        """Have a new file of that name continue this journal, with lines that make the same as all before them.

        Read on to see whether it does: not if another line came between, or the file would be longer than half of this.
        """
        if 2 * len(content_of(lines)) > self.position:
            return
        new = SharedJournal(self.path.with_name(name))
        try:
            new.append(*lines)
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
