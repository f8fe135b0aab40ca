"""The address of a Unix socket, whose path may be longer than the 107 bytes that the kernel takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minibroker.storage.files import disk

PATH_BYTES_MAX = 107


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """The address to bind or to connect to: a long path is reached by its open directory. Raises OSError."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield os.fspath(path)
        return
    directory = disk.open_file(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        disk.close(directory)
