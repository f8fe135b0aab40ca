"""Apache Kafka 2.0.1 itself, from its jars: the yardstick of benchmarks and tests.

with ApacheKafka(kafka_jars(), directory) as kafka:
    KafkaConsumer(bootstrap_servers=kafka.bootstrap)
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.frames import ask, metadata
from benchmarks.kafka_jars import KafkaUnavailable as KafkaUnavailable
from benchmarks.kafka_jars import class_path as class_path
from benchmarks.kafka_jars import kafka_folder as kafka_folder
from benchmarks.kafka_jars import kafka_jars as kafka_jars
from benchmarks.processes import BrokerServer, ProcessError, ServerProcess, free_port

START_SECONDS = 180.0  # a JVM on a machine that is busy with others
READY_POLL_SECONDS = 0.02
# What kafka-run-class.sh of 2.0.1 starts a broker with, unless JVM_VARIABLE says otherwise.
BROKER_JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
JVM_VARIABLE = "KAFKA_JVM_PERFORMANCE_OPTS"
TICK_MS = 1000  # a session may be of two ticks and more
ZOOKEEPER_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Besides warnings, the log has the configs of topics as they are applied: after their request is answered.
LOG4J = """log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.server.DynamicConfigManager=INFO
"""


def jvm_options(default: Sequence[str], variable: str = JVM_VARIABLE) -> Sequence[str]:
    """The options of a JVM, as the environment variable says if it is set."""
    given = os.environ.get(variable)
    return default if given is None else given.split()


class ApacheKafka(BrokerServer):
    """A broker and its ZooKeeper on free ports, all files in `directory`.

    `settings` are broker settings by Kafka's names; `heap` is the broker's, as the JVM spells it. A broker `beside`
    another one is in its cluster, and uses its ZooKeeper.
    """

    name = "Apache Kafka 2.0.1"

    def __init__(
        self,
        jars: Path,
        directory: Path,
        *,
        settings: Mapping[str, object] | None = None,
        heap: str = "1g",
        beside: ApacheKafka | None = None,
    ) -> None:
        self.data_dir = directory / "data"
        self.port = free_port()
        self._jars = jars
        self._directory = directory
        self._settings = dict(settings or {})
        self._heap = heap
        self._zookeeper: ServerProcess | None = None if beside is None else beside._zookeeper
        self._is_beside = beside is not None

    def start(self) -> ApacheKafka:
        """Start both and return when topics can be created. Raises ProcessError."""
        with ExitStack() as on_error:
            on_error.callback(self.kill)
            if not self._is_beside:
                self.start_zookeeper()
            self.spawn_broker()
            self.wait_until_ready()
            on_error.pop_all()
        return self

    def wait_until_ready(self) -> None:
        """Return when there is a controller: it answers before it can create topics. Raises ProcessError."""
        self.broker.wait_for_port(START_SECONDS).close()
        deadline = time.monotonic() + START_SECONDS
        while ask(self.host, self.port, metadata())[1].controller_id < 0:
            if time.monotonic() > deadline:
                raise ProcessError(f"Apache Kafka has no controller{self.broker.last_output()}")
            time.sleep(READY_POLL_SECONDS)

    def spawn_broker(self) -> ServerProcess:
        """Start the broker alone, without waiting; its ZooKeeper must run."""
        if self._zookeeper is None:
            raise ProcessError("the broker has no ZooKeeper: call `start_zookeeper` first")
        settings = {
            "broker.id": 0,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": self.data_dir,
            "zookeeper.connect": self._zookeeper.bootstrap,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **self._settings,
        }
        options = [f"-Xmx{self._heap}", *jvm_options(BROKER_JVM_OPTIONS)]
        self._broker = self._java("kafka", options, "kafka.Kafka", settings, port=self.port)
        return self._broker

    def start_zookeeper(self) -> None:
        """Start ZooKeeper alone and wait for it; a second time with its port and files."""
        port = free_port() if self._zookeeper is None else self._zookeeper.port
        settings = {
            "dataDir": self._directory / "zookeeper",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": TICK_MS,
        }
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        options = ["-Xmx128m", *jvm_options(ZOOKEEPER_JVM_OPTIONS)]
        self._zookeeper = self._java("zookeeper", options, main, settings, port=port)
        self._zookeeper.wait_for_port(START_SECONDS).close()

    @property
    def zookeeper_port(self) -> int:
        """Raises ProcessError before `start_zookeeper`."""
        if self._zookeeper is None:
            raise ProcessError("ZooKeeper was not started")
        return self._zookeeper.port

    def _java(
        self, name: str, options: list[str], main: str, settings: Mapping[str, object], *, port: int
    ) -> ServerProcess:
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "log4j.properties").write_text(LOG4J)
        properties = self._directory / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = ["java", *options, f"-Dlog4j.configuration=file:{self._directory}/log4j.properties"]
        command += ["-cp", class_path(self._jars), main, str(properties)]
        return ServerProcess(name, command, self._directory / f"{name}.log", port=port)

    def stop(self) -> None:
        """Stop the broker in order, as its `kafka-server-stop.sh` does, then ZooKeeper; the files stay."""
        try:
            if self.is_running:
                self.broker.terminate()
        finally:
            self.kill()

    def kill(self) -> None:
        """End both at once, as a crash would."""
        super().kill()
        if self._zookeeper is not None and not self._is_beside:
            self._zookeeper.kill()
