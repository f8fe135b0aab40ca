"""A student's program at work: any command, which reads lines, and prints a line for each thing that it has done."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from minibroker.process_groups import ProcessGroup

START_SECONDS = 120.0  # of a broker, on a busy machine
POLL_SECONDS = 0.02
END_SECONDS = 15.0
LINES_SHOWN = 8


class LabFailed(Exception):
    """The lab cannot go on; the message says what the program did instead."""


class Grade(NamedTuple):
    """One thing that a program was to do: whether it did, and what to think about if not."""

    is_reached: bool
    text: str
    hint: str


class Program:
    """One run of the program; `claims` are the lines that it has printed.

    It has a process group of its own, of which nothing outlives the lab, also if that is killed.
    """

    def __init__(self, command: Sequence[str], bootstrap_servers: str, errors: Path) -> None:
        """Start it. Raises LabFailed for a command that is not there."""
        self.claims: list[str] = []
        self._errors = errors
        self._group = ProcessGroup()
        with errors.open("ab") as stderr:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env={**os.environ, "BOOTSTRAP_SERVERS": bootstrap_servers, "PYTHONUNBUFFERED": "1"},
                    process_group=self._group.id,
                )
            except OSError as error:
                self._group.close()
                raise LabFailed(f"cannot run {command[0]}: {error.strerror}") from None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.claims.append(line.decode(errors="replace").strip())

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def give(self, lines: Sequence[str], *, pause_seconds: float = 0.03) -> None:
        """Write lines to its standard input, one after the other. Raises LabFailed if it does not read them."""
        assert self._process.stdin is not None
        for line in lines:
            try:
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()
            except OSError:
                raise LabFailed(f"the program has ended before it read {line!r}{self.last_errors()}") from None
            time.sleep(pause_seconds)

    def end_input(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            return  # it has ended

    def kill(self) -> None:
        """Kill it at once, with what it has started."""
        self._group.close()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.end_input()

    def ends(self, *, asked: bool = True) -> bool:
        """Ask it to end (SIGTERM); return whether it did in time. It is killed otherwise, and so is what it leaves."""
        if asked:
            self._group.signal(signal.SIGTERM)
        has_ended = waited(lambda: self.has_ended, END_SECONDS)
        self.kill()
        return has_ended

    def last_errors(self) -> str:
        """The last lines that it wrote to its standard error, to be appended to a message."""
        lines = self._errors.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        return "; the end of its standard error:\n" + "\n".join(f"    {each}" for each in lines) if lines else ""


def waited(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds, for at most that long; return whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def some_of(names: Sequence[str]) -> str:
    """The first few names, and how many more."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def more(names: list[str], what: str, count: int) -> list[str]:
    """Add so many names, `what` with its number from 1 on, and return the new ones."""
    new = [f"{what} {len(names) + number + 1}" for number in range(count)]
    names.extend(new)
    return new


def none_lost(done: Sequence[str], wanted: Sequence[str], what: str, hint: str) -> Grade:
    """The grade for that each wanted thing is done."""
    lost = [each for each in wanted if each not in done]
    return Grade(not lost, f"no {what} is lost" if not lost else f"lost: {some_of(lost)}", hint)


def none_twice(done: Sequence[str], wanted: Sequence[str], what: str, hint: str) -> Grade:
    """The grade for that no wanted thing is done more than once."""
    counts = Counter(done)
    twice = [each for each in wanted if counts[each] > 1]
    return Grade(not twice, f"no {what} is there twice" if not twice else f"twice: {some_of(twice)}", hint)
