"""The changes since `minibroker.json` was written: `minibroker.changes` beside it, one JSON object a line.

To write the file whole for the change of one topic takes longer the more topics there are; a line takes as long with
thousands of topics as with one. Each is fsynced before its change is answered. The first line names the file that was
written last, which has all changes of the journal before: so a journal that a crash has left behind is not read again.
A last line that was cut off was not answered, and is dropped.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from minibroker.storage.files.system import sync_data

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
            content = self.path.read_bytes()
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
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.ftruncate(fd, self.size_bytes)  # of a journal that was to be removed
            if os.pwrite(fd, content, self.size_bytes) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            sync_data(fd)
        except OSError:
            with suppress(OSError):  # else the next one that is added takes its place, or a start reads it
                os.ftruncate(fd, self.size_bytes)
            raise
        finally:
            os.close(fd)
        self.size_bytes += len(content)

    def remove(self) -> None:
        """Forget all changes: the file has been written with them."""
        self.size_bytes = 0
        with suppress(OSError):  # what is left names an older file, and is not read
            self.path.unlink(missing_ok=True)


def head_of(written: str) -> Change:
    return {"since": written}
