"""Apache Kafka 3.9.1, 4.0.1 or 4.4.0 itself, from its jars and without ZooKeeper: for what 2.0.1 does not have."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.apache_kafka import BROKER_JVM_OPTIONS, START_SECONDS, kafka_jars
from benchmarks.processes import BrokerServer, ServerProcess, free_port

RELEASES = ("3.9.1", "4.4.0")
TOOLS = "org.apache.kafka:kafka-tools:{release}"
COORDINATES = ("org.apache.kafka:kafka_2.13:{release}", TOOLS, "org.slf4j:slf4j-reload4j:1.7.36")
# The tools of 4.0.1 want jars of Connect that were not published with it; its loggers are those of log4j.
INSTEAD_OF_TOOLS = {"4.0.1": "org.apache.logging.log4j:log4j-core:2.24.3"}
FOR_ONE_BROKER = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)
CLUSTER_ID = "A" * 22
FORMAT_SECONDS = 60.0


def later_jars(release: str) -> Path:
    """The folder of a release's jars, fetched if it is missing. Raises KafkaUnavailable."""
    tools = INSTEAD_OF_TOOLS.get(release, TOOLS)
    return kafka_jars(release=release, coordinates=[tools if each == TOOLS else each for each in COORDINATES])


class LaterKafka(BrokerServer):
    """One broker, which is its own controller, on free ports; all files are in `directory`.

    `settings` go before its own; `listeners` are those for clients.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        release: str = RELEASES[0],
        java_options: Sequence[str] = BROKER_JVM_OPTIONS,
        heap: str = "512m",
    ) -> None:
        self.name = f"Apache Kafka {release}"
        self.port = free_port()
        self.controller_port = free_port()
        self._release = release
        self._directory = directory
        self._jvm_options = (*java_options, f"-Xmx{heap}")
        self._settings = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", **(settings or {})}

    def join(self, voters: Mapping[int, int], broker_id: int) -> None:
        """Be a broker of a cluster, before the start: `voters` are the ports of its controllers by id."""
        quorum = ",".join(f"{each}@127.0.0.1:{port}" for each, port in voters.items())
        self._settings |= {"node.id": str(broker_id), "controller.quorum.voters": quorum}

    def start(self) -> LaterKafka:
        """Return when it answers. Raises KafkaUnavailable and ProcessError."""
        self.launch()
        return self.wait()

    def launch(self) -> None:
        """Start it, and do not wait: the first brokers of a cluster answer once most of them run."""
        java = self._java()
        self._directory.mkdir(parents=True, exist_ok=True)
        controller = self.controller_port
        settings = {
            "process.roles": "broker,controller",
            "node.id": 0,
            "controller.quorum.voters": f"0@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self._directory / "data",
            **dict.fromkeys(FOR_ONE_BROKER, 1),
            "group.initial.rebalance.delay.ms": 0,
            **self._settings,
            "listeners": f"{self._settings['listeners']},CONTROLLER://127.0.0.1:{controller}",
        }
        properties = self._properties
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)],
            capture_output=True,
            timeout=FORMAT_SECONDS,
            check=True,
        )
        self._spawn(java)

    def restart(self) -> LaterKafka:
        """Start it again on its directory, once it was killed; return when it answers. Raises ProcessError."""
        self._spawn(self._java())
        return self.wait()

    @property
    def _properties(self) -> Path:
        return self._directory / "kafka.properties"

    def _java(self) -> list[str]:
        return ["java", *self._jvm_options, "-cp", f"{later_jars(self._release)}/*"]

    def _spawn(self, java: list[str]) -> None:
        command = [*java, "kafka.Kafka", str(self._properties)]
        self._broker = ServerProcess("kafka", command, self._directory / "kafka.log", port=self.port)

    def wait(self) -> LaterKafka:
        """Return when it answers. Raises ProcessError."""
        for listener in self._settings["listeners"].split(","):  # they open one after the other
            self.broker.port = int(listener.rpartition(":")[2])
            self.broker.wait_for_port(START_SECONDS).close()
        return self
