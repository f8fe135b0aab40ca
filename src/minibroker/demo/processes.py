"""The demo's two processes: a broker of its own, and the Spark job, each started as a user would start it.

The rule: this module ends what it starts, the broker in order (SIGTERM, exit status 0), the job with all that it has
started; both also end by themselves when the demo is killed. When a process fails, its log file has the output.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minibroker.demo import guard
from minibroker.process import Broker

LINES_OF_LOG = 15
END_SECONDS = 2 * guard.GRACE_SECONDS
# Of a JVM that lives for half a minute: its compiler would take half of the CPU time.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


class ProcessFailed(RuntimeError):
    """A process failed; the message has the end of its log."""

    def __init__(self, what: str, log: Path) -> None:
        lines = log.read_text(errors="replace").splitlines()[-LINES_OF_LOG:] if log.exists() else []
        super().__init__("\n".join([f"{what}; its log is {log}", *lines]))


@contextmanager
def broker(data_dir: Path, *, log: Path) -> Iterator[str]:
    """Run a broker on a port of its own and give its `host:port`; stop it in order afterwards."""
    with Broker(data_dir=data_dir, log_file=log) as running:
        yield running.bootstrap_servers
        status = running.stop()
    if status:
        raise ProcessFailed(f"the broker ended with status {status}", log)


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
