"""Apache Kafka 3.9.1 itself, from its jars and without ZooKeeper: for the APIs that 2.0.1 does not have."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.apache_kafka import START_SECONDS, kafka_jars
from benchmarks.processes import BrokerServer, ServerProcess, free_port
from tests.jvm import QUICK_JVM

RELEASE = "3.9.1"
COORDINATES = (
    "org.apache.kafka:kafka_2.13:{release}",
    "org.apache.kafka:kafka-tools:{release}",
    "org.slf4j:slf4j-reload4j:1.7.36",
)
CLUSTER_ID = "A" * 22
FORMAT_SECONDS = 60.0


class LaterKafka(BrokerServer):
    """One broker, which is its own controller, on free ports; all files are in `directory`.

    `settings` go before its own; `listeners` are those for clients.
    """

    name = f"Apache Kafka {RELEASE}"

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self._directory = directory
        self._settings = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", **(settings or {})}

    def start(self) -> LaterKafka:
        """Return when it answers. Raises KafkaUnavailable and ProcessError."""
        jars = kafka_jars(release=RELEASE, coordinates=COORDINATES)
        self._directory.mkdir(parents=True, exist_ok=True)
        controller = free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": 0,
            "controller.quorum.voters": f"0@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self._directory / "data",
            "offsets.topic.replication.factor": 1,
            **self._settings,
            "listeners": f"{self._settings['listeners']},CONTROLLER://127.0.0.1:{controller}",
        }
        properties = self._directory / "kafka.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        java = ["java", *QUICK_JVM, "-Xmx512m", "-cp", f"{jars}/*"]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)],
            capture_output=True,
            timeout=FORMAT_SECONDS,
            check=True,
        )
        command = [*java, "kafka.Kafka", str(properties)]
        self._broker = ServerProcess("kafka", command, self._directory / "kafka.log", port=self.port)
        for listener in self._settings["listeners"].split(","):  # they open one after the other
            self._broker.port = int(listener.rpartition(":")[2])
            self._broker.wait_for_port(START_SECONDS).close()
        return self
