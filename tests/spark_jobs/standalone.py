"""A Spark cluster on this machine: a master, workers and a history server, each a process of pyspark's own programs.

    python -m tests.spark_jobs.standalone --workers 2

starts one until Ctrl-C, and prints its address for `--master`.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pyspark

from tests.jvm import QUICK_JVM

HOST = "127.0.0.1"
DAEMON_SECONDS = 120
LOOK_AGAIN_SECONDS = 0.05
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class StandaloneCluster:
    """One master and workers of `cores` each; `master_url` is for `--master`. A context manager."""

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._folder = folder
        self._worker_options = ["--cores", str(cores), "--memory", memory, "--work-dir", str(folder / "work")]
        self._worker_count = workers
        self._others: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.master_url = ""

    def __enter__(self) -> StandaloneCluster:
        try:
            master, log = self._start("deploy.master.Master", "--host", HOST, "--port", "0", "--webui-port", "0")
            self._others.append(master)
            self.master_url = _said(master, log, rf"Starting Spark master at (spark://{re.escape(HOST)}:\d+)")
            started = [self.start_worker() for _ in range(self._worker_count)]
            for worker, log in started:
                _said(worker, log, "(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start_worker(self) -> tuple[subprocess.Popen[bytes], Path]:
        """Start one more worker, which registers with the master; returns it and its log."""
        options = ["--host", HOST, "--webui-port", "0", *self._worker_options, self.master_url]
        worker, log = self._start("deploy.worker.Worker", *options)
        self.workers.append(worker)
        return worker, log

    def kill_worker(self) -> None:
        """Kill the oldest worker and its executors (SIGKILL), as the loss of its machine would."""
        worker = self.workers.pop(0)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def start_history_server(self, event_log: Path) -> str:
        """Start Spark's history server over what jobs wrote with `--event-log`; returns its address."""
        options = f"-Dspark.history.fs.logDirectory={event_log.as_uri()} -Dspark.history.ui.port=0"
        server, log = self._start("deploy.history.HistoryServer", SPARK_HISTORY_OPTS=options)
        self._others.append(server)
        return f"http://{HOST}:" + _said(
            server, log, r"HistoryServer: Bound HistoryServer to .* started at http://\S+?:(\d+)"
        )

    def stop(self) -> None:
        """End all that is left of it."""
        processes = [*self.workers, *self._others]
        for process in processes:
            _signal(process, signal.SIGTERM)
        for process in processes:
            process.wait(DAEMON_SECONDS)
            _signal(process, signal.SIGKILL)  # an executor that has not ended with its worker

    def _start(self, name: str, *arguments: str, **variables: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._folder / f"{name.rpartition('.')[2]}-{len(self.workers)}-{time.monotonic_ns()}.log"
        environment = {**os.environ, "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}
        environment |= {"SPARK_LOG_DIR": str(self._folder), "SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK_JVM), **variables}
        with log.open("w") as output:
            process = subprocess.Popen(
                [str(SPARK_CLASS), f"org.apache.spark.{name}", *arguments],
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self._folder,
                process_group=0,
            )
        return process, log


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _said(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Wait until the process logs this, and return its first group."""
    deadline = time.monotonic() + DAEMON_SECONDS
    while (found := re.search(pattern, log.read_text())) is None:
        assert process.poll() is None and time.monotonic() < deadline, f"{pattern} never came:\n{log.read_text()}"
        time.sleep(LOOK_AGAIN_SECONDS)
    return found[1]


def main() -> None:
    cli = argparse.ArgumentParser(prog="python -m tests.spark_jobs.standalone", description=__doc__.split("\n")[0])
    cli.add_argument("--workers", type=int, default=2)
    arguments = cli.parse_args()
    with tempfile.TemporaryDirectory() as folder, StandaloneCluster(Path(folder), workers=arguments.workers) as cluster:
        print(f"{cluster.master_url} with {arguments.workers} workers, until Ctrl-C", flush=True)
        with suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
