"""A process that is killed amid what it does to its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from minibroker.storage.files import disk

CHANGES = "replace rename remove rmdir mkdir truncate ftruncate pwrite fallocate fdatasync fsync utime write".split()


class CrashError(BaseException):
    """Not to be caught by anything that handles errors: a killed process handles nothing."""


@contextmanager
def crash_before(number: int) -> Iterator[None]:
    """Raise CrashError in place of the change `number`, counted from 0, and of all that come after it."""
    changes = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def change(*arguments: object, **options: object) -> object:
            nonlocal changes
            changes += 1
            if changes > number:
                raise CrashError
            return real(*arguments, **options)

        return change

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(disk, name, counted(getattr(disk, name)))
        yield


def crashes(action: Callable[[], object], number: int) -> bool:
    """Do it, and return whether that took more than `number` changes."""
    try:
        with crash_before(number):
            action()
    except CrashError:
        return True
    return False
