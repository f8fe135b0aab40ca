"""Runs `minibroker ...` as a process, as a user does, with nothing of this process's terminal; and pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

COMMAND_SECONDS = 60
# Plugins that the tests inside have no use for: importing them takes a third of the time of such a session.
WITHOUT = [word for plugin in ("cacheprovider", "hypothesispytest", "trio", "anyio") for word in ("-p", f"no:{plugin}")]


class Finished(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on standard error, of a command that ended badly and printed nothing else."""
        (line,) = self.err.splitlines()
        assert line.startswith("minibroker: ")
        assert self.status != 0
        assert self.out == ""
        return line

    @property
    def document(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)


def minibroker(*arguments: object, **environment: str) -> Finished:
    """Run the command to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "minibroker", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        env={**os.environ, **environment},
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


@contextmanager
def running(*arguments: object, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    """The command as it runs; killed at the end if it still does."""
    with subprocess.Popen(
        [sys.executable, "-m", "minibroker", *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run_pytest(session: pytest.Pytester, *arguments: str, xdist: bool = False) -> pytest.RunResult:
    """Run the tests of that folder, which may use the plugin of minibroker."""
    return session.runpytest_subprocess(*WITHOUT, *([] if xdist else ["-p", "no:xdist"]), *arguments)
