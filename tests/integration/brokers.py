"""Brokers as processes: `minibroker serve`, and Apache Kafka 2.0.1 to prove the tests right.

The tests run against minibroker; with MINIBROKER_TEST_KAFKA=<folder of Apache Kafka's jars> those that ask
nothing of minibroker's own process run against Apache Kafka instead, which must pass them all.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.setup_clients import ROOT

JARS_VARIABLE = "MINIBROKER_TEST_KAFKA"
START_SECONDS = 30.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.01
JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOG4J = """log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class BrokerProcess:
    """A started broker. Whoever starts it calls `kill` in the end; it may be stopped or dead by then."""

    def __init__(self, command: list[str], log_path: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log_path = log_path
        self._log: IO[bytes] = log_path.open("ab")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=ROOT,
            env=None if environment is None else {**os.environ, **environment},
        )
        self.host = "127.0.0.1"
        self.port = 0

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def wait_for_log(self, pattern: str, *, after: int = 0, seconds: float = 10.0) -> str:
        """Return the first log line with the pattern, searching from character `after` of the log."""
        deadline = time.monotonic() + seconds
        while True:
            for line in self.log_text[after:].splitlines():
                if re.search(pattern, line):
                    return line
            if time.monotonic() > deadline:
                raise AssertionError(f"no line with {pattern!r} in the log:\n{self.log_text[after:]}")
            time.sleep(POLL_SECONDS)

    def wait_for_port(self) -> None:
        """Return once the broker accepts connections on its port."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
                return
            except OSError:
                self._check_starting(deadline)

    def wait_for_exit(self, seconds: float = STOP_SECONDS) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the broker did not end in {seconds} s:\n{self.log_text[-4000:]}") from None

    def terminate(self) -> int:
        """Ask for an orderly end and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait_for_exit()

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        self.process.kill()
        self.process.wait()
        self._log.close()

    def _check_starting(self, deadline: float) -> None:
        if not self.is_running:
            raise AssertionError(f"ended with {self.process.returncode} while starting:\n{self.log_text[-4000:]}")
        if time.monotonic() > deadline:
            raise AssertionError(f"not ready after {START_SECONDS} s:\n{self.log_text[-4000:]}")
        time.sleep(POLL_SECONDS)


class Minibroker(BrokerProcess):
    """`minibroker serve` on a free port and in a folder of its own, or as the arguments say.

    `flags=False` leaves --listen and --data-dir out, for what a file says of them.
    """

    def __init__(
        self, directory: Path, *arguments: str, settings: Mapping[str, str | int] | None = None, flags: bool = True
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = directory / "data"
        self.ready_file = directory / "ready"
        self.ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "minibroker", "serve", "--ready-file", str(self.ready_file), *arguments]
        if flags and "--listen" not in arguments:
            command += ["--listen", "127.0.0.1:0"]
        if flags and "--data-dir" not in arguments:
            command += ["--data-dir", str(self.data_dir)]
        for name, value in (settings or {}).items():
            command += ["--set", f"{name}={value}"]
        super().__init__(command, directory / "broker.log")

    def wait_until_ready(self) -> Minibroker:
        deadline = time.monotonic() + START_SECONDS
        while not self.ready_file.exists():
            self._check_starting(deadline)
        host, _, port = self.ready_file.read_text().strip().rpartition(":")
        self.host, self.port = host, int(port)
        return self


class ApacheKafka(BrokerProcess):
    """Apache Kafka 2.0.1 and its ZooKeeper, from a folder of jars."""

    def __init__(self, jars: Path, directory: Path, settings: Mapping[str, str | int]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "log4j.properties").write_text(LOG4J)
        class_path = f"{jars / 'zookeeper-3.5.10.jar'}:{jars / 'zookeeper-jute-3.5.10.jar'}:{jars}/*"
        options = [
            *JVM_OPTIONS,
            f"-Dlog4j.configuration=file:{directory}/log4j.properties",
            "-cp",
            class_path,
        ]
        zookeeper_port = free_port()
        write_properties(
            directory / "zookeeper.properties",
            {
                "dataDir": directory / "zookeeper",
                "clientPort": zookeeper_port,
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
            },
        )
        self._zookeeper = BrokerProcess(
            [
                "java",
                *options,
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                str(directory / "zookeeper.properties"),
            ],
            directory / "zookeeper.log",
        )
        self._zookeeper.port = zookeeper_port
        self._zookeeper.wait_for_port()
        port = free_port()
        write_properties(
            directory / "server.properties",
            {
                "broker.id": 0,
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.dirs": directory / "data",
                "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
                "offsets.topic.replication.factor": 1,
                "group.initial.rebalance.delay.ms": 0,
                **settings,
            },
        )
        super().__init__(
            ["java", *options, "kafka.Kafka", str(directory / "server.properties")], directory / "kafka.log"
        )
        self.port = port
        self.wait_for_port()

    def kill(self) -> None:
        super().kill()
        self._zookeeper.kill()


def write_properties(path: Path, settings: Mapping[str, object]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def apache_kafka_jars() -> Path | None:
    folder = os.environ.get(JARS_VARIABLE)
    return Path(folder) if folder else None
