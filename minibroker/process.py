"""A broker process of one's own: started, addressed, stopped, killed, started again.

Never in this process: what a test does to its own interpreter (signals, forks, gevent) cannot hurt the broker, and
a broker killed with -9 is a broker killed. It ends with the process that started it, even if that one is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
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
    """A broker process; `start` and `close` it, or use it in a `with`.

    `data_dir=None` uses a temporary directory that goes with `close`; any other is kept. `settings` are Kafka's
    broker settings by their names: `{"num.partitions": 3}`. Stopped or killed, it can be started again: on the
    same data and at the same address. One thread at a time.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._work_dir = Path(tempfile.mkdtemp(prefix="minibroker-"))
        self.data_dir = self._work_dir / "data" if data_dir is None else Path(data_dir)
        self.log_file = self._work_dir / "broker.log"
        self.bootstrap_servers = ""  # host:port, once started
        self._listen = listen
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = os.getpid()
        atexit.register(self.close)

    def start(self, *, timeout_seconds: float = START_TIMEOUT_SECONDS) -> Broker:
        """Start and wait until requests are answered. Raises BrokerError.

        Starting includes recovery: after `kill`, of what was written since the last checkpoint.
        """
        if self.is_running:
            raise BrokerError(f"the broker runs already, at {self.bootstrap_servers}")
        if not self._work_dir.exists():
            raise BrokerError("the broker was closed, and what was temporary is gone; make another Broker")
        ready_file = self._work_dir / "ready"
        ready_file.unlink(missing_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(ready_file), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self.bootstrap_servers = self._wait_until_ready(self._process, ready_file, timeout_seconds)
        except BaseException:
            self.kill()
            raise
        # Started again, it keeps its address, as clients that know it expect.
        self._listen = self.bootstrap_servers
        return self

    def stop(self) -> int:
        """Stop in order (SIGTERM); the exit status, 0 when all went well. Raises BrokerError if it does not stop."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(
                f"the broker did not stop in {STOP_TIMEOUT_SECONDS:.0f} s and was killed:\n{self.last_log_lines()}"
            ) from None

    def kill(self) -> None:
        """Kill without warning (SIGKILL), as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Stop, and remove what was temporary: the log, and the data if no directory was given.

        Done when the interpreter ends, too. In a fork of the process that started it, it does nothing.
        """
        if os.getpid() != self._owner_pid:
            return
        atexit.unregister(self.close)
        try:
            self.stop()
        finally:
            shutil.rmtree(self._work_dir, ignore_errors=True)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The broker's process. Raises BrokerError before `start`."""
        if self._process is None:
            raise BrokerError("the broker was not started; call start(), or use it in a `with`")
        return self._process.pid

    def get_bootstrap_server(self) -> str:
        """`host:port`, by the name testcontainers gives it."""
        return self.bootstrap_servers

    def last_log_lines(self) -> str:
        """The end of the broker's log, of all its runs until `close`."""
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
        return "(no log)"

    def __enter__(self) -> Broker:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _command(self, ready_file: Path) -> list[str]:
        # -P: a `minibroker` or `json.py` in the current directory is not ours.
        command = [sys.executable, "-P", "-m", "minibroker", "serve", "--parent-pid", str(os.getpid())]
        command += ["--listen", self._listen, "--data-dir", str(self.data_dir), "--ready-file", str(ready_file)]
        for name, value in self._settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--set", f"{name}={text}"]
        return command

    def _wait_until_ready(self, process: subprocess.Popen[bytes], ready_file: Path, timeout_seconds: float) -> str:
        """The address. Raises BrokerError."""
        deadline = time.monotonic() + timeout_seconds
        while not ready_file.exists():
            if process.poll() is not None:
                raise BrokerError(f"the broker ended with status {process.returncode}:\n{self.last_log_lines()}")
            if time.monotonic() > deadline:
                raise BrokerError(f"the broker was not ready in {timeout_seconds:.0f} s:\n{self.last_log_lines()}")
            time.sleep(READY_POLL_SECONDS)
        return ready_file.read_text().strip()
