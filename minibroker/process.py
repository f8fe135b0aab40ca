"""A broker process of one's own: started, addressed, stopped, killed.

Never in this process: what a test does to its own interpreter (signals, forks, gevent) cannot hurt the broker, and
a broker killed with -9 is a broker killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

START_TIMEOUT_SECONDS = 30.0
STOP_TIMEOUT_SECONDS = 30.0
READY_POLL_SECONDS = 0.005
LOG_LINES_SHOWN = 20


class BrokerError(RuntimeError):
    """The broker's process did not start or has ended; the message holds its last log lines."""


class Broker:
    """A broker process. `data_dir=None` uses a temporary directory that goes when the broker is closed.

    `settings` are Kafka's broker settings by their names.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._temporary = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="minibroker-") if data_dir is None else data_dir)
        self._listen = listen
        self._settings = dict(settings or {})
        self._work_dir = Path(tempfile.mkdtemp(prefix="minibroker-run-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap_servers = ""
        self.log_file = self._work_dir / "broker.log"

    def start(self) -> Broker:
        """Start and wait until the first request would be answered. Raises BrokerError."""
        ready_file = self._work_dir / "ready"
        ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "minibroker", "serve"]
        command += [
            "--listen",
            self._listen,
            "--data-dir",
            str(self.data_dir),
            "--ready-file",
            str(ready_file),
        ]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not ready_file.exists():
            if self._process.poll() is not None:
                raise BrokerError(f"the broker ended with status {self._process.returncode}:\n{self.last_log_lines()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerError(
                    f"the broker was not ready in {START_TIMEOUT_SECONDS:.0f} s:\n{self.last_log_lines()}"
                )
            time.sleep(READY_POLL_SECONDS)
        self.bootstrap_servers = ready_file.read_text().strip()
        # Started again, it keeps its address, as clients that know it expect.
        self._listen = self.bootstrap_servers
        return self

    def stop(self) -> int:
        """Stop in order (SIGTERM); the process's exit status, 0 when all went well."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"the broker did not stop:\n{self.last_log_lines()}") from None

    def kill(self) -> None:
        """Kill without warning (SIGKILL), as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Stop, and remove what was temporary."""
        try:
            if self.is_running:
                self.stop()
        finally:
            shutil.rmtree(self._work_dir, ignore_errors=True)
            if self._temporary:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The broker's process. Raises BrokerError before `start`."""
        if self._process is None:
            raise BrokerError("the broker was not started")
        return self._process.pid

    def get_bootstrap_server(self) -> str:
        """`host:port`, by the name testcontainers gives it."""
        return self.bootstrap_servers

    def last_log_lines(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
        return "(no log)"

    def __enter__(self) -> Broker:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
