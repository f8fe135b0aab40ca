"""Runs many `minibroker ...` in a short time: each is a fork of one process that has imported everything already.

A start costs more than the whole rest of most commands, and is not what such a test looks at.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.minibroker.commands import COMMAND_SECONDS, Finished

PARTS = ("minibroker.cli", "minibroker.any_cluster", "minibroker.metrics")


class ForkedCommands:
    """The commands behind a socket. Threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def run(self, *arguments: str) -> Finished:
        """Run the command to its end."""
        with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rwb") as lines:
            connection.settimeout(COMMAND_SECONDS)
            connection.connect(str(self._path))
            lines.write(json.dumps(arguments).encode() + b"\n")
            lines.flush()
            return Finished(*json.loads(lines.readline()))


@contextmanager
def forked_commands() -> Iterator[ForkedCommands]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "commands"
        with subprocess.Popen(
            [sys.executable, "-m", __name__, path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                yield ForkedCommands(path)
            finally:
                process.kill()


def serve(path: str) -> None:
    """Fork for each connection, until this process is killed."""
    for part in map(importlib.import_module, PARTS):
        for module in pkgutil.iter_modules(part.__path__, f"{part.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                answer(connection)
            connection.close()


def answer(connection: socket.socket) -> None:
    """Run the command that is named there in this process, answer with what it printed, and end."""
    from minibroker.cli.app import main

    with connection.makefile("rwb") as lines, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        words = json.loads(lines.readline())
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        status = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
        texts = [os.pread(each.fileno(), os.fstat(each.fileno()).st_size, 0).decode() for each in (out, err)]
        lines.write(json.dumps([status, *texts]).encode() + b"\n")
        lines.flush()
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
