"""The demo's processes: a broker of its own, the Spark job, and a console, each started as a user would start it.

The rule: this module ends what it starts, the broker in order (SIGTERM, exit status 0), the job with all that it has
started; both also end by themselves when the demo is killed. When a process fails, its log file has the output.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.demo import guard
from minibroker.process import Broker

LINES_OF_LOG = 15
CONSOLE_READY = re.compile(r"ready at (http://\S+)")
END_SECONDS = 2 * guard.GRACE_SECONDS
# Of a JVM that lives for half a minute: its compiler would take half of the CPU time.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


class ProcessFailed(RuntimeError):
    """A process failed; the message has the end of its log."""

    def __init__(self, what: str, log: Path) -> None:
        lines = log.read_text(errors="replace").splitlines()[-LINES_OF_LOG:] if log.exists() else []
        super().__init__("\n".join([f"{what}; its log is {log}", *lines]))


class RunningBroker(NamedTuple):
    """The address of a broker, and its control socket if it has one."""

    address: str
    control: Path | None = None


@contextmanager
def broker(data_dir: Path, *, log: Path, control: bool = False) -> Iterator[RunningBroker]:
    """Run a broker on a port of its own; stop it in order afterwards."""
    with Broker(data_dir=data_dir, log_file=log, control=control) as running:
        yield RunningBroker(running.bootstrap_servers, running.control_path)
        status = running.stop()
    if status:
        raise ProcessFailed(f"the broker ended with status {status}", log)


@contextmanager
def console(address: str, control: Path | None, *, listen: str, log: Path) -> Iterator[str]:
    """Run a console that may change things, and give the address that it prints. Raises ProcessFailed."""
    command = [sys.executable, "-m", "minibroker", "console", "-b", address, "--listen", listen, "--allow-changes"]
    command += ["--parent-pid", str(os.getpid())]
    if control is not None:
        command += ["--control", str(control)]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, process_group=0
        )
    assert process.stdout is not None
    try:
        found = CONSOLE_READY.search(process.stdout.readline())
        if found is None:
            raise ProcessFailed("the console did not start", log)
        yield found[1]
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class SparkJob:
    """The flight delay job with the given arguments; temporary files go into `work_dir`."""

    def __init__(self, arguments: list[str], *, log: Path, work_dir: Path) -> None:
        self._log = log
        self._work_dir = work_dir
        work_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "minibroker.demo.guard", str(os.getpid())]
        command += [sys.executable, "-m", "minibroker.spark_jobs.flight_delays", "--json", *arguments]
        with log.open("a") as errors:
            self._guard = subprocess.Popen(
                command,
                cwd=work_dir,
                env=os.environ | self._variables(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                process_group=0,
            )

    def _variables(self) -> dict[str, str]:
        options = os.environ.get("SPARK_SUBMIT_OPTS", QUICK_JVM)
        return {
            "TMPDIR": str(self._work_dir),
            "SPARK_LOCAL_DIRS": str(self._work_dir),
            "SPARK_SUBMIT_OPTS": f'{options} "-Djava.io.tmpdir={self._work_dir}"',
        }

    def facts(self) -> Iterator[dict[str, Any]]:
        """Yield its stages and its facts about each micro-batch, until it has ended. Raises ProcessFailed."""
        assert self._guard.stdout is not None
        for line in self._guard.stdout:
            yield json.loads(line)
        if status := self._guard.wait():
            raise ProcessFailed(f"the Spark job ended with status {status}", self._log)

    def kill(self) -> None:
        """Kill all of it without warning (SIGKILL), as a crash would."""
        os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()

    def end(self) -> None:
        """Have the guard end it, and remove its temporary files."""
        self._guard.terminate()
        try:
            self._guard.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        shutil.rmtree(self._work_dir, ignore_errors=True)


@contextmanager
def spark_job(arguments: list[str], *, log: Path, work_dir: Path) -> Iterator[SparkJob]:
    """Run the flight delay job with these arguments; nothing of it is left afterwards."""
    job = SparkJob(arguments, log=log, work_dir=work_dir)
    try:
        yield job
    finally:
        job.end()
