"""Clusters of three brokers under test: ours, and Apache Kafka 3.9.1 without ZooKeeper. Each broker can be killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from confluent_kafka.admin import AdminClient

from benchmarks.installed import Minibroker
from benchmarks.later_kafka import LaterKafka
from benchmarks.measurements import KAFKA_3
from benchmarks.processes import ProcessError
from benchmarks.topics import ANSWER_SECONDS, QUIET, RETRY_SECONDS

BROKERS = (1, 2, 3)
IN_SYNC_SECONDS = 60.0
REPLICATION = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "log.segment.delete.delay.ms": "100",
}


class Cluster:
    """A context manager; `restart` starts a broker again that was killed, on its directory."""

    def __init__(self, name: str, brokers: dict[int, Minibroker | LaterKafka], start: Callable[[], None]) -> None:
        self.name = name
        self.brokers = brokers
        self._start = start

    def __enter__(self) -> Cluster:
        with ExitStack() as on_error:
            on_error.callback(self.kill)
            self._start()
            on_error.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers.values())

    def cpu_seconds(self) -> float:
        """The CPU of all brokers since they started."""
        return sum(each.cpu_seconds() for each in self.brokers.values())

    def leader_of(self, topic: str) -> int:
        """The leader of the topic's first partition."""
        return int(self._admin().list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions[0].leader)

    def restart(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if isinstance(broker, LaterKafka):
            broker.restart()
        else:
            broker.start()

    def wait_until_in_sync(self, topic: str) -> None:
        """Wait until all brokers are in sync in each partition. Raises ProcessError."""
        deadline = time.monotonic() + IN_SYNC_SECONDS
        while True:
            partitions = self._admin().list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions.values()
            if partitions and all(len(each.isrs) == len(self.brokers) for each in partitions):
                return
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.name}: {topic} is not in sync on all brokers")
            time.sleep(RETRY_SECONDS)

    def kill(self) -> None:
        for each in self.brokers.values():
            each.kill()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})


def cluster_of_ours(name: str, python: Path, folder: Path) -> Cluster:
    """Three minibrokers, as `serve --brokers 3` starts them, with a process of ours for each."""
    brokers = {
        each: Minibroker(
            python,
            folder / str(each),
            name=name,
            settings={**REPLICATION, "broker.id": str(each)},
            options=["--cluster", str(folder / "cluster")],
        )
        for each in BROKERS
    }

    def start() -> None:
        for each in brokers.values():
            each.start()

    return Cluster(name, dict(brokers), start)


def cluster_of_kafka(folder: Path) -> Cluster:
    """Three of Apache Kafka 3.9.1, each a broker and a controller. Raises KafkaUnavailable when it starts."""
    release = KAFKA_3.rpartition(" ")[2]
    brokers = {each: LaterKafka(folder / str(each), REPLICATION, release=release) for each in BROKERS}
    voters = {each: broker.controller_port for each, broker in brokers.items()}

    def start() -> None:
        for broker_id, broker in brokers.items():
            broker.join(voters, broker_id)
            broker.launch()
        for broker in brokers.values():
            broker.wait()

    return Cluster(KAFKA_3, dict(brokers), start)
