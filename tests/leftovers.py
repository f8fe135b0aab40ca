"""Finds the processes that a test has left: all those that have a mark in their environment, whatever became of their
parents.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "MINIBROKER_TEST_MARK"
POLL_SECONDS = 0.02


class Leftovers:
    """The processes started with `environment`, and by those."""

    def __init__(self) -> None:
        self._mark = f"{VARIABLE}={uuid.uuid4()}"
        self.environment = os.environ | dict([self._mark.split("=")])

    def processes(self) -> dict[int, str]:
        """The command line of each process that runs, by its id."""
        found = {}
        for folder in Path("/proc").iterdir():
            # A process may end while it is looked at; a zombie has no environment.
            with suppress(OSError):
                if folder.name.isdecimal() and self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def wait_until_gone(self, seconds: float) -> None:
        """Fails with the processes that still run after that time."""
        deadline = time.monotonic() + seconds
        while left := self.processes():
            assert time.monotonic() < deadline, f"still there after {seconds:.0f} s: {left}"
            time.sleep(POLL_SECONDS)

    def wait_until(self, count: int, seconds: float) -> dict[int, str]:
        """Wait until so many processes run, and return them."""
        deadline = time.monotonic() + seconds
        while len(found := self.processes()) < count:
            assert time.monotonic() < deadline, f"{len(found)} instead of {count} after {seconds:.0f} s: {found}"
            time.sleep(POLL_SECONDS)
        return found


@contextmanager
def leftovers() -> Iterator[Leftovers]:
    """The processes of a test; none is left after it, also of a test that fails."""
    made = Leftovers()
    try:
        yield made
    finally:
        for pid in made.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
