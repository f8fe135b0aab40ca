"""A full disk, without one: the kernel refuses files that grow beyond a limit, or a function fails."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_file_beyond(size_bytes: int) -> Iterator[None]:
    """Let writes up to this size pass, cut short the one that crosses it, and refuse (EFBIG) what is beyond."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def no_space_in(target: str) -> Iterator[None]:
    """Have the function raise ENOSPC; expect that the block raises it."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(target, full)
        yield
