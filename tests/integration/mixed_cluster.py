"""A cluster of minibrokers and Apache Kafka 2.0.1 brokers in one ZooKeeper, and what tests ask of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.frames import FrameError, ask, frame_of, metadata
from minibroker.broker.wings.zookeeper_nodes import nodes
from minibroker.protocol.api import ApiKey
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.primitives import TopicPartition
from minibroker.zookeeper.messages import Create, NodeData
from minibroker.zookeeper.session import ZooKeeperClient
from tests.integration.brokers import BrokerProcess, Minibroker
from tests.integration.zookeeper_log import written

SETTINGS: Mapping[str, str | int] = {
    "zookeeper.session.timeout.ms": 6000,
    "replica.lag.time.max.ms": 4000,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.leader.rebalance.enable": "false",
    "log.flush.scheduler.interval.ms": 1000,
}
# A follower that has heard of a new topic before its leader; a controller's thread for a broker that ends; an election
# that another broker has won.
USUAL_ERRORS = ("Error for partition", "fails to send a request to broker", "creating ephemeral at /controller")
EVERYTHING = frame_of(ApiKey.METADATA, 4, MetadataRequest(topics=None))
WAIT_SECONDS = 20.0
POLL_SECONDS = 0.05

Value = TypeVar("Value")


class MixedCluster:
    """`start` its brokers by id, and `close` it. Everything is in `directory`."""

    def __init__(self, jars: Path, directory: Path) -> None:
        self._jars = jars
        self._directory = directory
        self._ensemble = ApacheKafka(jars, directory / "zookeeper")
        self._ensemble.start_zookeeper()
        self.zookeeper = f"127.0.0.1:{self._ensemble.zookeeper_port}"
        self.brokers: dict[int, BrokerProcess] = {}

    def start_kafka(self, broker_id: int, jars: Path | None = None, /, **settings: object) -> None:
        """Start an Apache Kafka broker and wait for it; a second time with the files of the first."""
        self.launch_kafka(broker_id, jars, **settings).wait_until_ready()

    def launch_kafka(self, broker_id: int, jars: Path | None = None, /, **settings: object) -> ApacheKafka:
        """Start an Apache Kafka broker, and do not wait for it."""
        kafka = ApacheKafka(
            jars or self._jars,
            self._directory / str(broker_id),
            settings={**SETTINGS, **settings, "broker.id": broker_id},
            heap="384m",
            beside=self._ensemble,
        )
        self._keep_port(broker_id, kafka)
        self.brokers[broker_id] = kafka
        kafka.spawn_broker()
        return kafka

    def start_ours(self, broker_id: int, *arguments: str, **settings: object) -> None:
        """Start a minibroker and wait for it; a second time with the files of the first."""
        self.launch_ours(broker_id, *arguments, **settings).wait_until_ready()

    def launch_ours(self, broker_id: int, *arguments: str, **settings: object) -> Minibroker:
        """Start a minibroker, and do not wait for it."""
        before = self.brokers.get(broker_id)
        listen = f"127.0.0.1:{before.port if before else 0}"
        ours = Minibroker(
            self._directory / str(broker_id),
            "--zookeeper",
            self.zookeeper,
            "--listen",
            listen,
            *arguments,
            settings={**SETTINGS, **settings, "broker.id": broker_id},
        )
        self._keep_port(broker_id, ours)
        self.brokers[broker_id] = ours
        return ours

    def _keep_port(self, broker_id: int, broker: BrokerProcess) -> None:
        before = self.brokers.get(broker_id)
        if before is not None:
            broker.port = before.port

    def bootstrap(self, *broker_ids: int) -> str:
        return ",".join(f"127.0.0.1:{self.brokers[each].port}" for each in broker_ids or self.brokers)

    def stop(self, broker_id: int) -> None:
        """Stop a broker in order, and wait for its end."""
        broker = self.brokers[broker_id]
        if isinstance(broker, ApacheKafka):
            broker.stop()
        else:
            broker.terminate()

    def kill(self, broker_id: int) -> None:
        """End a broker as a crash would."""
        self.brokers[broker_id].kill()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self._ensemble.kill()

    def stop_zookeeper(self) -> None:
        self._ensemble.kill()

    def start_zookeeper(self) -> None:
        """Start ZooKeeper again, with its files."""
        self._ensemble.start_zookeeper()

    # -- ZooKeeper --------------------------------------------------------------------------------------------

    def client(self) -> ZooKeeperClient:
        """A session of the test's own; it does not live long without pings."""
        client = ZooKeeperClient("", session_timeout_ms=30_000)
        client.connect([("127.0.0.1", self._ensemble.zookeeper_port)], timeout_ms=20_000)
        return client

    def node(self, path: str) -> NodeData | None:
        client = self.client()
        try:
            return client.data_if_any(path)
        finally:
            client.close()

    def create_topic(self, name: str, *replicas: Sequence[int], **configs: str) -> None:
        """Create a topic as Kafka's tool does, with these replicas of its partitions; wait for its leaders."""
        client = self.client()
        config = {key.replace("_", "."): value for key, value in configs.items()}
        client.ask(Create(nodes.config_path(f"topics/{name}"), nodes.CONFIG.encode(config)))
        client.ask(Create(nodes.topic_path(name), nodes.TOPIC.encode(dict(enumerate(map(tuple, replicas))))))
        client.close()
        for number in range(len(replicas)):
            self.await_state(name, number, lambda state: state.leader >= 0)

    def state(self, topic: str, number: int = 0) -> nodes.StateNode | None:
        node = self.node(nodes.state_path(TopicPartition(topic, number)))
        return None if node is None else nodes.STATE.decode(node.data)

    def await_state(self, topic: str, number: int, is_so: Callable[[nodes.StateNode], bool]) -> nodes.StateNode:
        """Wait for a state of the partition; return it."""

        def state_if_so() -> nodes.StateNode | None:
            state = self.state(topic, number)
            return state if state is not None and is_so(state) else None

        return self.eventually(state_if_so, lambda: f"{topic}-{number} is {self.state(topic, number)}")

    def await_isr(self, topic: str, *in_sync: int, number: int = 0) -> nodes.StateNode:
        return self.await_state(topic, number, lambda state: state.in_sync_replicas == in_sync)

    def chain_of(self, topic: str, number: int = 0) -> list[nodes.StateNode]:
        """All states of a partition there have been, in their order."""
        path = nodes.state_path(TopicPartition(topic, number))
        folder = self._ensemble.data_dir.parent / "zookeeper" / "version-2"
        logs = sorted(folder.glob("log.*"), key=lambda log: int(log.suffix[1:], 16))
        return [nodes.STATE.decode(data) for each in written(logs) if (data := each[1]) and each[0] == path]

    def await_gone(self, broker_id: int) -> None:
        """Wait until the session of a broker that was killed has expired: Kafka ends if it finds its id taken."""
        path = nodes.broker_path(broker_id)
        self.eventually(lambda: self.node(path) is None, lambda: f"{path} is there")

    def await_unseen(self, broker_id: int, *, by: int) -> None:
        """Wait until a broker knows of the end of another one."""

        def is_unseen() -> bool:
            brokers = ask("127.0.0.1", self.brokers[by].port, metadata())[1].brokers
            return broker_id not in {each.node_id for each in brokers}

        self.eventually(is_unseen, lambda: f"broker {by} shows broker {broker_id}")

    @property
    def controller(self) -> int | None:
        node = self.node(nodes.CONTROLLER)
        return None if node is None else nodes.CONTROL.decode(node.data).broker_id

    def await_controller(self, broker_id: int) -> None:
        self.eventually(lambda: self.controller == broker_id, lambda: f"the controller is {self.controller}")

    # -- logs -------------------------------------------------------------------------------------------------

    def log_of(self, broker_id: int, topic: str, number: int = 0) -> bytes:
        """The records of a partition in a broker's directory, with all that is stored of them."""
        folder = self.brokers[broker_id].data_dir / f"{topic}-{number}"
        return b"".join(path.read_bytes().rstrip(b"\0") for path in sorted(folder.glob("*.log")))

    def await_same_logs(self, topic: str, *broker_ids: int, number: int = 0) -> bytes:
        """Wait until the logs of a partition are equal to the byte; return them."""

        def same() -> bytes | None:
            logs = {self.log_of(each, topic, number) for each in broker_ids}
            return logs.pop() if len(logs) == 1 else None

        return self.eventually(
            same, lambda: f"the logs have {[len(self.log_of(each, topic, number)) for each in broker_ids]} bytes"
        )

    def await_same_metadata(self) -> Any:
        """Wait until all brokers show the same to clients, with all replicas in sync; return it by partition.

        In Kafka a controller hears seconds later of the in-sync replicas that leaders have changed.
        """

        def same() -> Any:
            with suppress(FrameError):  # a partition without a leader
                first, *others = self.metadata()
                rows = [row for topic in first[2].values() for row in topic.values()]
                is_whole = all(sorted(replicas) == in_sync for _, replicas, in_sync in rows)
                return first[2] if is_whole and all(each == first for each in others) else None
            return None

        return self.eventually(same, lambda: str(self.metadata()))

    def metadata(self) -> list[tuple[int, list[Any], dict[str, dict[int, tuple[int, list[int], list[int]]]]]]:
        """The controller, the brokers, and leader, replicas and ISR of each partition, as each broker shows them.

        Raises FrameError while a partition has no leader.
        """
        shown = []
        for broker in self.brokers.values():
            body = ask("127.0.0.1", broker.port, EVERYTHING)[1]
            brokers = sorted((each.node_id, each.host, each.port) for each in body.brokers)
            topics = {
                topic.name: {
                    each.partition: (each.leader_id, list(each.replica_nodes), sorted(each.isr_nodes))
                    for each in sorted(topic.partitions, key=lambda each: each.partition)
                }
                for topic in sorted(body.topics, key=lambda topic: topic.name)
            }
            shown.append((body.controller_id, brokers, topics))
        return shown

    def errors_of(self, broker_id: int) -> list[str]:
        """The lines of a broker's log that are errors, but those that Kafka's brokers have of each other, too."""
        lines = self.brokers[broker_id].log_text.splitlines()
        return [line for line in lines if " ERROR " in line and not any(each in line for each in USUAL_ERRORS)]

    def eventually(self, value: Callable[[], Value | None], otherwise: Callable[[], str]) -> Value:
        """Wait for something that is true; return it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := value()):
            assert time.monotonic() < deadline, otherwise()
            time.sleep(POLL_SECONDS)
        return found


def produce(bootstrap: str, topic: str, values: Sequence[str], *, number: int = 0, **settings: str | int) -> list[int]:
    """Send records with acks=all unless the settings differ; return their offsets. Raises for one that fails."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0, **settings})
    offsets: list[int] = []
    errors: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            errors.append(str(error))
        else:
            offsets.append(message.offset())  # type: ignore[attr-defined]

    for value in values:
        producer.produce(topic, value, partition=number, on_delivery=delivered)
    producer.flush(60)
    assert not errors, errors[:3]
    assert len(offsets) == len(values)
    return sorted(offsets)


def read(bootstrap: str, topic: str, count: int, *, number: int = 0, isolation: str = "read_uncommitted") -> list[str]:
    """Read so many records from the beginning."""
    own = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "isolation.level": isolation, **own})
    consumer.assign([ClientPartition(topic, number, 0)])
    found: list[str] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append((message.value() or b"").decode())
    consumer.close()
    return found
