"""The brokers of a round with Apache Kafka 2.0.1: all are of Kafka, or the last one beside minibrokers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.apache_kafka import kafka_jars
from benchmarks.frames import FrameError
from benchmarks.processes import ProcessError
from minibroker.administration import connected
from minibroker.broker.wings.zookeeper_nodes import nodes
from minibroker.client.errors import ClientError
from minibroker.control import Control
from minibroker.errors import BrokerError
from minibroker.faults import Faults
from minibroker.process import is_paused
from minibroker.protocol.api import ApiKey
from minibroker.protocol.primitives import TopicPartition
from minibroker.zookeeper.messages import CloseSession, Create, Delete, Operation, ZooKeeperError
from minibroker.zookeeper.session import ConnectionLost, SessionExpired, ZooKeeperClient
from tests.integration.brokers import Minibroker
from tests.integration.mixed_cluster import MixedCluster
from tests.nemesis.plan import MIXED, Fault, Plan


class BesideKafka:
    """Brokers in a ZooKeeper: moves and elections are asked for by its nodes, as by Kafka's own tools."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.broker_ids = list(range(1, plan.brokers + 1))
        self._settings = {
            **plan.settings,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 2,
        }
        self._ours = set(self.broker_ids[:-1]) if plan.kind == MIXED else set()
        self._directory = directory
        self._cluster = MixedCluster(kafka_jars(), directory)

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap()

    # -- processes --------------------------------------------------------------------------------------------

    def start(self) -> None:
        starting = [each for each in self.broker_ids if not self.is_running(each)]
        for broker_id in starting:
            self.launch(broker_id)
        for broker_id in starting:
            self.await_ready(broker_id)

    def launch(self, broker_id: int) -> None:
        """Start a broker. Its last session has expired, if not by itself: Kafka ends if it finds its id taken."""
        self._ask_zookeeper(Delete(nodes.broker_path(broker_id)), may_fail=True)
        if broker_id in self._ours:
            control = ("--control", str(self._control_of(broker_id)))
            self._cluster.launch_ours(broker_id, *control, **self._settings)
        else:
            self._cluster.launch_kafka(broker_id, **self._settings)

    def await_ready(self, broker_id: int) -> None:
        try:
            self._cluster.brokers[broker_id].wait_until_ready()
        except (OSError, FrameError) as error:
            raise BrokerError(f"broker {broker_id} does not become ready: {error}") from error

    def is_running(self, broker_id: int) -> bool:
        broker = self._cluster.brokers.get(broker_id)
        return broker is not None and broker.is_running

    def kill(self, broker_id: int) -> None:
        self._cluster.kill(broker_id)

    def stop(self, broker_id: int) -> None:
        self._cluster.stop(broker_id)

    def pause(self, broker_id: int) -> None:
        os.kill(self._cluster.brokers[broker_id].pid, signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        os.kill(self._cluster.brokers[broker_id].pid, signal.SIGCONT)

    def restore(self) -> None:
        for broker_id in self.broker_ids:
            if self.is_running(broker_id) and broker_id in self._ours:
                self.faults_of(broker_id).lift_all()
        self.start()

    def heal(self) -> None:
        """The network is never cut."""

    def close(self) -> None:
        self._cluster.close()

    # -- roles ------------------------------------------------------------------------------------------------

    @property
    def controller(self) -> int:
        with asked():
            found = self._cluster.controller
        if found is None:
            raise BrokerError("no broker controls")
        return found

    def leader_of(self, topic: str, partition: int) -> int:
        with asked():
            state = self._cluster.state(topic, partition)
        if state is None or state.leader < 0:
            raise BrokerError(f"{topic}-{partition} has no leader")
        return state.leader

    def stand_back(self) -> None:
        self._ask_zookeeper(Delete(nodes.CONTROLLER))

    def elect(self) -> None:
        with asked():
            client = self._cluster.client()
            topics = {name: client.data(nodes.topic_path(name)) for name in client.children(nodes.TOPICS)}
            client.close()
        every = [
            TopicPartition(name, number) for name, node in topics.items() for number in nodes.TOPIC.decode(node.data)
        ]
        self._ask_zookeeper(Create(nodes.PREFERRED_ELECTION, nodes.PARTITIONS.encode(every)))

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        if not replicas:
            raise BrokerError("Apache Kafka 2.0.1 does not cancel a move")
        node = nodes.MOVES.encode({TopicPartition(topic, partition): tuple(replicas)})
        self._ask_zookeeper(Create(nodes.REASSIGNMENT, node))

    def strike(self, fault: Fault, broker_id: int) -> Callable[[], None] | None:
        raise BrokerError(f"{fault.kind} takes minibrokers alone")

    def lengthen_journal(self, journal_bytes: int) -> None:
        """The state is in ZooKeeper."""

    def faults_of(self, broker_id: int) -> Faults:
        if broker_id not in self._ours:
            raise BrokerError(f"broker {broker_id} is of Apache Kafka, which makes no faults")
        return Faults(Control(self._control_of(broker_id)))

    def ask_controller(self, api_key: ApiKey, **body: Any) -> Any:
        broker = self._cluster.brokers[self.controller]
        if not broker.is_running or is_paused(broker.pid):
            raise BrokerError("the controller does not run")
        try:
            with connected(broker.bootstrap) as client:
                return client.at_controller(api_key, **body)
        except ClientError as error:
            raise BrokerError(f"the controller does not answer: {error}") from error

    # -- afterwards -------------------------------------------------------------------------------------------

    def wrong(self) -> list[str]:
        with asked():
            left = [each for each in (nodes.REASSIGNMENT, nodes.PREFERRED_ELECTION) if self._cluster.node(each)]
            client = self._cluster.client()
            left += [f"{nodes.DELETE_TOPICS}/{name}" for name in client.children(nodes.DELETE_TOPICS)]
            client.close()
            shown = self._cluster.metadata()
        wrong = [f"{path} is there" for path in left]
        topics = shown[0][2]
        for topic, partitions in topics.items():
            for number, (_, replicas, in_sync) in partitions.items():
                if sorted(replicas) != in_sync:
                    wrong.append(f"{topic}-{number}: ISR {in_sync} of {replicas}")
                logs = {each: self._cluster.log_of(each, topic, number) for each in replicas}
                if len(set(logs.values())) > 1:
                    wrong.append(
                        f"{topic}-{number}: the logs differ: { ({each: len(logs[each]) for each in logs}) } bytes"
                    )
        if any(each != shown[0] for each in shown):
            wrong.append(f"the brokers show different metadata: {shown}")
        return wrong

    def logs(self) -> list[Path]:
        started = self._cluster.brokers.values()
        return [each.log_path for each in started if isinstance(each, Minibroker)]

    def _control_of(self, broker_id: int) -> Path:
        return self._directory / f"{broker_id}.control"

    def _ask_zookeeper(self, operation: Operation, *, may_fail: bool = False) -> None:
        try:
            with asked():
                client: ZooKeeperClient = self._cluster.client()
                client.ask(operation)
                client.ask(CloseSession())
        except BrokerError:
            if not may_fail:
                raise


@contextmanager
def asked() -> Iterator[None]:
    """Raise BrokerError for a refusal of ZooKeeper or of a broker."""
    try:
        yield
    except (ZooKeeperError, ConnectionLost, SessionExpired, FrameError, ProcessError) as error:
        raise BrokerError(f"not now: {error!r}") from error
