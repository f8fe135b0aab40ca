"""A full disk, without one: the kernel refuses files that grow beyond a limit, or a function fails."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

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


def failing(number: int) -> Callable[..., NoReturn]:
    """Return what stands in for a function of the system that fails with this errno."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


@contextmanager
def no_space_in(target: str) -> Iterator[None]:
    """Have the function raise ENOSPC; expect that the block raises it."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(target, failing(errno.ENOSPC))
        yield
