"""The demo's two processes: a broker of its own, and the Spark job, each started as a user would start it.

The rule: this module stops what it starts, the broker in order (SIGTERM, exit status 0); when a process fails, its log
file has the output.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from minibroker.process import Broker

LINES_OF_LOG = 15


class ProcessFailed(RuntimeError):
    """A process failed; the message has the end of its log."""

    def __init__(self, what: str, log: Path) -> None:
        lines = log.read_text(errors="replace").splitlines()[-LINES_OF_LOG:] if log.exists() else []
        super().__init__("\n".join([f"{what}; its log is {log}", *lines]))


@contextmanager
def broker(data_dir: Path, *, log: Path) -> Iterator[str]:
    """Run a broker on a port of its own and give its `host:port`; stop it in order afterwards."""
    with Broker(data_dir=data_dir) as running:
        try:
            yield running.bootstrap_servers
            status = running.stop()
        finally:
            shutil.copyfile(running.log_file, log)
    if status:
        raise ProcessFailed(f"the broker ended with status {status}", log)


def spark_job(arguments: list[str], *, log: Path) -> Iterator[dict[str, Any]]:
    """Run the flight delay job with these arguments; yield its facts about each micro-batch."""
    command = [sys.executable, "-m", "minibroker.spark_jobs.flight_delays", "--json", *arguments]
    with (
        log.open("w") as errors,
        # Spark 4.0.0 leaves a folder `artifacts` in its working directory.
        TemporaryDirectory(prefix="minibroker-spark-", ignore_cleanup_errors=True) as here,
        subprocess.Popen(command, cwd=here, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "batch" in (facts := json.loads(line)):
                    yield facts
            status = process.wait()
        finally:
            process.terminate()
    if status:
        raise ProcessFailed(f"the Spark job ended with status {status}", log)
