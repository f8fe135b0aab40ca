"""Brokers as processes: `minibroker serve`, and Apache Kafka 2.0.1 to prove the tests right.

The tests run against minibroker; with MINIBROKER_TEST_KAFKA=<folder of Apache Kafka's jars> those that ask
nothing of minibroker's own process run against Apache Kafka instead, which must pass them all.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.processes import ROOT, ServerProcess
from benchmarks.processes import free_port as free_port

JARS_VARIABLE = "MINIBROKER_TEST_KAFKA"
START_SECONDS = 60.0
READY_POLL_SECONDS = 0.01


class Minibroker(ServerProcess):
    """`minibroker serve` on a free port and in a folder of its own, or as the arguments say.

    `flags=False` leaves --listen and --data-dir out, for what a file says of them.
    """

    def __init__(
        self, directory: Path, *arguments: str, settings: Mapping[str, object] | None = None, flags: bool = True
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = directory / "data"
        self.ready_file = directory / "ready"
        self.ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "minibroker", "serve", "--parent-pid", str(os.getpid())]
        command += ["--ready-file", str(self.ready_file), *arguments]
        if flags and "--listen" not in arguments:
            command += ["--listen", "127.0.0.1:0"]
        if flags and "--data-dir" not in arguments:
            command += ["--data-dir", str(self.data_dir)]
        for name, value in (settings or {}).items():
            command += ["--set", f"{name}={value}"]
        super().__init__("minibroker", self.command_of(command), directory / "broker.log", directory=ROOT)

    def command_of(self, command: list[str]) -> list[str]:
        """The command that starts it; a subclass may have another program."""
        return command

    def wait_until_ready(self) -> Minibroker:
        deadline = time.monotonic() + START_SECONDS
        while not self.ready_file.exists():
            self.check_starting(deadline)
            time.sleep(READY_POLL_SECONDS)
        first, *named = self.ready_file.read_text().splitlines()
        host, _, port = first.rpartition(":")
        self.host, self.port = host, int(port)
        self.ports = {line.partition("://")[0]: int(line.split()[0].rpartition(":")[2]) for line in named}
        return self


BrokerProcess = Minibroker | ApacheKafka


def apache_kafka_jars() -> Path | None:
    folder = os.environ.get(JARS_VARIABLE)
    return Path(folder).resolve() if folder else None
