"""`serve --console`: the web page of a broker, or of a cluster, in a process of its own.

It starts and ends with this process, that of the broker or of `serve --brokers`. It connects as any client does. It
ends by itself when this one has ended in any way, and then removes what is left of the control socket; `close` does
both in order.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from minibroker.broker.network.listen import listen as listen_at

STOP_SECONDS = 5.0
LIBRARIES = ("hypercorn", "starlette")
FOLDER_PREFIX = "minibroker-console-"
LONGEST_FOLDER = 70  # bytes; a path of a socket has 107

logger = logging.getLogger(__name__)


def private_folder() -> Path:
    """A folder that only its owner can enter, with a path that is short enough for a socket in it."""
    long = len(os.fsencode(tempfile.gettempdir())) > LONGEST_FOLDER
    return Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir="/tmp" if long else None))


def end(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a child that was asked to end, and kill it after that time; return whether it ended by itself."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return False
    return True


class ConsoleError(Exception):
    """The console cannot be started; the message is one line with the next step."""


class ConsoleChild:
    """The console at `listen`; `controls` are the control sockets of its brokers, none to have one made for it."""

    def __init__(
        self, listen: str, *, controls: Sequence[Path], client_config: Path | None, schema_registry: str | None = None
    ) -> None:
        """Raises ConsoleError."""
        missing = [name for name in LIBRARIES if find_spec(name) is None]
        if missing:
            raise ConsoleError(f"--console needs {missing[0]}; run: pip install hypercorn starlette")
        host, _, port = listen.rpartition(":")
        try:
            listen_at(host.strip("[]"), int(port)).close()  # the child listens once the broker is ready
        except OSError as error:
            raise ConsoleError(f"{error.strerror}; choose another port with --console PORT") from error
        self._listen = listen
        self._client_config = client_config
        self._schema_registry = schema_registry
        self._folder = None if controls else private_folder()
        self.controls = controls if self._folder is None else [self._folder / "control"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap: str) -> None:
        """Start the process; it prints its address when it is ready."""
        self._process = subprocess.Popen(self._command(bootstrap), stdin=subprocess.DEVNULL)

    def ready_line(self, bootstrap: str) -> str:
        """Start the process, and wait for the line with its address; it is empty if the process fails to start."""
        command = self._command(bootstrap)
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        with self._process.stdout as printed:
            return printed.readline().decode().strip()

    def _command(self, bootstrap: str) -> Sequence[str]:
        command = [sys.executable, "-m", "minibroker", "console", "--bootstrap-server", bootstrap]
        command += ["--listen", self._listen, "--allow-changes"]
        for each in self.controls:
            command += ["--control", str(each)]
        command += ["--parent-pid", str(os.getpid())]
        if self._folder is not None:
            command += ["--owned-folder", str(self._folder)]
        if self._schema_registry is not None:
            command += ["--schema-registry", self._schema_registry]
        if self._client_config is not None:
            command += ["--command-config", str(self._client_config)]
        return command

    def stop(self) -> None:
        """Ask it to end, and do not wait: its connections would keep the broker from stopping."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def close(self) -> None:
        """Wait until it has ended, and remove the control socket that was made for it."""
        self.stop()
        if self._process is not None and not end(self._process, STOP_SECONDS):
            logger.warning("the console did not end within %.0f s and was killed", STOP_SECONDS)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
