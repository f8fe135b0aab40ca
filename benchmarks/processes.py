"""The processes of the benchmark: started, measured through /proc, and always ended.

CPU time is read from the process's own clock, in nanoseconds: /proc/<pid>/stat counts in hundredths of a second,
and a broker that serves a gigabyte for a tenth of one would be measured in ten steps.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
STOP_SECONDS = 60.0
LOG_SECONDS = 60.0
LOG_POLL_SECONDS = 0.01
PORTS_TO_GIVE = range(10_000, 20_000)
PORT_ATTEMPTS = 100
LOG_CHARACTERS_SHOWN = 2000
BYTES_PER_MB = 1_000_000
WHOLE_PROCESS_CLOCK = 2  # of clockid_t: the scheduler's count of a process, as clock_getcpuclockid(3) makes it
SYSTEM_TIME = 12  # its place in /proc/PID/stat, after the name, which may have spaces


class ProcessError(RuntimeError):
    """A process did not start, ended early or printed something unexpected; the message has its last output."""


class ServerProcess:
    """A server in a process of its own, with its output in a file. Its starter must call `kill`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log_path: Path,
        *,
        port: int = 0,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.host = "127.0.0.1"
        self.port = port
        self.log_path = log_path
        self.spawned_at = time.perf_counter()
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory or log_path.parent,
                env=None if environment is None else {**os.environ, **environment},
            )

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def cpu_seconds(self) -> float:
        """User and system time of all its threads since it started. Raises ProcessError when it has ended."""
        self._check_running()
        return time.clock_gettime((~self.pid << 3) | WHOLE_PROCESS_CLOCK)

    def kernel_seconds(self) -> float:
        """System time of all its threads since it started, to 10 ms. Raises ProcessError when it has ended."""
        self._check_running()
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return int(after_name[SYSTEM_TIME]) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Resident memory now. Raises ProcessError when it has ended."""
        self._check_running()
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def rss_mb(self) -> float:
        """Resident memory now, in 10^6 bytes. Raises ProcessError when it has ended."""
        return self.resident_bytes() / BYTES_PER_MB

    @property
    def log_text(self) -> str:
        """Its whole output."""
        return self.log_path.read_text(errors="replace")

    def wait_for_log(self, pattern: str, *, after: int = 0, seconds: float = LOG_SECONDS) -> str:
        """The first line printed with the pattern, from character `after` on. Raises ProcessError."""
        deadline = time.monotonic() + seconds
        while True:
            text = self.log_text[after:]
            for line in text.splitlines():
                if re.search(pattern, line):
                    return line
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.name} printed no line with {pattern!r}:\n{text}")
            time.sleep(LOG_POLL_SECONDS)

    def wait_for_port(self, seconds: float, *, pause_seconds: float = 0.001) -> socket.socket:
        """Return a connection to it as soon as it takes one. Raises ProcessError."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return socket.create_connection((self.host, self.port), timeout=seconds)
            except OSError:
                self.check_starting(deadline)
                time.sleep(pause_seconds)

    def terminate(self) -> int:
        """Ask it to end in order; its exit status. Raises ProcessError when it does not."""
        self.process.terminate()
        return self.wait_for_exit()

    def wait_for_exit(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for its end; return the exit status. Raises ProcessError if it goes on."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{self.name} did not end in {seconds:.0f} s{self.last_output()}") from None

    def kill(self) -> None:
        """End it at once; nothing happens when it has ended."""
        self.process.kill()
        self.process.wait()

    def last_output(self) -> str:
        return ":\n" + self.log_text[-LOG_CHARACTERS_SHOWN:]

    def _check_running(self) -> None:
        if not self.is_running:
            raise ProcessError(f"{self.name} ended with status {self.process.returncode}{self.last_output()}")

    def check_starting(self, deadline: float) -> None:
        """Raises ProcessError when it has ended, or at the deadline of the monotonic clock."""
        self._check_running()
        if time.monotonic() > deadline:
            raise ProcessError(f"{self.name} was not ready in time{self.last_output()}")


class BrokerServer:
    """A broker and the processes it needs beside it; used as a context manager, or started and `kill`ed.

    What starts it sets `_broker`, the process that answers.
    """

    name: str
    port: int
    _broker: ServerProcess | None = None

    def start(self) -> Self:
        """Start all of it and return when it can be used. Raises ProcessError."""
        raise NotImplementedError

    @property
    def broker(self) -> ServerProcess:
        """The process. Raises ProcessError before it is started."""
        if self._broker is None:
            raise ProcessError(f"{self.name} was not started")
        return self._broker

    @property
    def host(self) -> str:
        return self.broker.host

    @property
    def bootstrap(self) -> str:
        """host:port."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self.broker.pid

    @property
    def is_running(self) -> bool:
        return self._broker is not None and self._broker.is_running

    @property
    def log_text(self) -> str:
        return self.broker.log_text

    def wait_for_log(self, pattern: str, *, after: int = 0, seconds: float = LOG_SECONDS) -> str:
        """As `ServerProcess.wait_for_log`."""
        return self.broker.wait_for_log(pattern, after=after, seconds=seconds)

    def resident_bytes(self) -> int:
        return self.broker.resident_bytes()

    def rss_mb(self) -> float:
        """Resident memory of the broker alone, in 10^6 bytes."""
        return self.broker.rss_mb()

    def cpu_seconds(self) -> float:
        """CPU time of the broker alone since its start."""
        return self.broker.cpu_seconds()

    def kernel_seconds(self) -> float:
        """The part of it in the kernel."""
        return self.broker.kernel_seconds()

    def kill(self) -> None:
        """End it at once, as a crash would; nothing happens when it has ended."""
        if self._broker is not None:
            self._broker.kill()

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


def run_json(command: Sequence[str | Path], *, seconds: float) -> dict[str, float]:
    """Run a load client to its end and return the one line of JSON it prints. Raises ProcessError."""
    texts = [str(part) for part in command]
    try:
        done = subprocess.run(texts, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise ProcessError(f"not done in {seconds:.0f} s: {' '.join(texts)}") from None
    if done.returncode:
        raise ProcessError(f"status {done.returncode}: {' '.join(texts)}\n{done.stderr[-LOG_CHARACTERS_SHOWN:]}")
    return parse_json_line(done.stdout)


def parse_json_line(output: str) -> dict[str, float]:
    """The last line a load client printed."""
    lines = output.splitlines()
    if not lines:
        raise ProcessError("a load client ended without a result")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def module_command(module: str, *arguments: str | Path) -> list[str | Path]:
    """The command that runs a module of ours with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def free_port() -> int:
    """A port for a server that this process will start: until it ends, no other process gets it.

    It is outside the range that the kernel gives to clients. Otherwise a client that looks for a killed broker could
    get the broker's port for its own end of the connection, connect to itself, and keep the broker from listening
    again. It is none that `serve` takes when it may choose, either. A socket that never listens keeps it: servers,
    which reuse addresses, can bind to it all the same; another `free_port`, which does not, cannot.
    """
    for _ in range(PORT_ATTEMPTS):
        port = random.choice(PORTS_TO_GIVE)
        keeper = socket.socket()
        try:
            keeper.bind(("127.0.0.1", port))
        except OSError:
            keeper.close()
            continue
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.detach()
        return port
    raise ProcessError("no port is free")
