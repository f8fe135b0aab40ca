"""The changes since `minibroker.json` was written: `minibroker.changes` beside it, one JSON object a line.

To write the file whole for the change of one topic takes longer the more topics there are; a line takes as long with
thousands of topics as with one. Each is fsynced before its change is answered. The first line names the file that was
written last, which has all changes of the journal before: so a journal that a crash has left behind is not read again.
A last line that was cut off was not answered, and is dropped. docs/log_format.md has the form of a line.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from minibroker.storage.files import disk

FILE_NAME = "minibroker.changes"
FILE_MODE = 0o644

Change = dict[str, Any]


class ChangeJournal:
    """`size_bytes` are those of the lines that count, 0 without a file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self.size_bytes = 0

    def read(self, written: str) -> list[Change]:
        """The changes since the file that is named so was written. Raises OSError; ValueError for what is no change."""
        self.size_bytes = 0
        try:
            content = disk.read_file(self.path)
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        first, *changes = [json.loads(line) for line in whole.splitlines()] or [{}]
        if first != head_of(written):
            return []
        self.size_bytes = len(whole)
        return changes

    def append(self, written: str, change: Change) -> None:
        """Add a change. Raises OSError; the journal is as before then."""
        lines = [change] if self.size_bytes else [head_of(written), change]
        content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        fd = disk.open_file(self.path, disk.WRITE_ONLY | disk.CREATE, FILE_MODE)
        try:
            disk.ftruncate(fd, self.size_bytes)  # of a journal that was to be removed
            if disk.pwrite(fd, content, self.size_bytes) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            disk.sync_data(fd)
        except OSError:
            with suppress(OSError):  # else the next one that is added takes its place, or a start reads it
                disk.ftruncate(fd, self.size_bytes)
            raise
        finally:
            disk.close(fd)
        self.size_bytes += len(content)

    def remove(self) -> None:
        """Forget all changes: the file has been written with them."""
        self.size_bytes = 0
        with suppress(OSError):  # what is left names an older file, and is not read
            disk.unlink(self.path)


def head_of(written: str) -> Change:
    return {"since": written}
