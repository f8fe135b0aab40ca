"""Nodes of ZooKeeper as other brokers and operators write them, seen by the broker that controls the cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast
from unittest import mock

from minibroker.broker.app import BrokerApp
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wings.zookeeper_nodes import entities, nodes, zookeeper_state
from minibroker.broker.wings.zookeeper_nodes.zookeeper_state import ZooKeeperState
from minibroker.conformance.requests import frame
from minibroker.protocol.api import ApiKey
from minibroker.protocol.primitives import TopicPartition
from minibroker.simulation.memory_zookeeper import MemoryZooKeeper
from minibroker.zookeeper.messages import SEQUENTIAL, Create, Delete, SetData, encode_connect
from minibroker.zookeeper.session import ZooKeeperClient
from tests.fuzz.targets import NOW_MS, ODD_VALUES, SETTINGS, OfBroker, plausible_requests

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
# The nodes that an input may write, with what a broker of Kafka or a tool writes; its first byte chooses one.
WRITTEN: tuple[tuple[str, bytes], ...] = (
    (
        nodes.broker_path(2),
        nodes.BROKER.encode(nodes.BrokerNode({"PLAINTEXT": ("h", 9)}, {"PLAINTEXT": "PLAINTEXT"}, 5)),
    ),
    (nodes.broker_path(3), b'{"version":1,"host":"h","port":9,"jmx_port":-1,"rack":"r"}'),
    (nodes.CONTROLLER_EPOCH, b"5"),
    (nodes.topic_path("t"), nodes.TOPIC.encode({0: (1, 2), 1: (2, 1)})),
    (nodes.topic_path("u"), nodes.TOPIC.encode({0: (1, 2), 1: (2, 3), 2: (3,)})),
    (nodes.state_path(T0), nodes.STATE.encode(nodes.StateNode(1, 2, 5, (2, 1)))),
    (nodes.state_path(T1), nodes.STATE.encode(nodes.StateNode(1, 1, 5, (1,)))),
    (nodes.config_path("topics/t"), nodes.CONFIG.encode({"retention.ms": "5", "min.insync.replicas": "2"})),
    (nodes.config_path("brokers/1"), nodes.CONFIG.encode({"log.cleaner.threads": "2"})),
    (
        nodes.config_path("users/a"),
        nodes.CONFIG.encode({"SCRAM-SHA-256": "salt=c2Fs,stored_key=c3Q=,server_key=c2U=,iterations=4096"}),
    ),
    (nodes.config_path("clients/c"), nodes.CONFIG.encode({"producer_byte_rate": "5", "request_percentage": "12.5"})),
    (f"{nodes.ISR_CHANGES}/isr_change_", nodes.PARTITIONS.encode([T0, T1])),
    (f"{nodes.LOG_DIR_EVENTS}/log_dir_event_", nodes.LOG_DIR_EVENT.encode(2)),
    (nodes.PRODUCER_IDS, nodes.PRODUCERS.encode(nodes.ProducerIdsNode(2, 5000, 5999))),
    (nodes.PREFERRED_ELECTION, nodes.PARTITIONS.encode([T1])),
    (nodes.REASSIGNMENT, nodes.MOVES.encode({T0: (2, 3), T1: (1,)})),
    (f"{nodes.CONFIG_CHANGES}/config_change_", nodes.CONFIG_CHANGE.encode("topics/t")),
    (f"{nodes.CONFIG_CHANGES}/config_change_", b'{"version":1,"entity_type":"clients","entity_name":"c"}'),
    (
        entities.acls_path("LITERAL", "Topic", "t"),
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny","operation":"Read","host":"*"}]}',
    ),
    (
        entities.acls_path("PREFIXED", "Group", "g"),
        b'{"version":1,"acls":[{"principal":"User:*","permissionType":"Allow","operation":"All","host":"h"}]}',
    ),
)
# Notifications by which the nodes are read that are not watched.
NOTICES: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "/config/": (f"{nodes.CONFIG_CHANGES}/config_change_", lambda path: nodes.CONFIG_CHANGE.encode(path[8:])),
    entities.ACLS: (f"{nodes.ACL_CHANGES}/acl_changes_", lambda path: b"Topic:t"),
}
# A number, a text that is no name, or a list.
VALUE = re.compile(rb'\d+|"[^"]*"(?!:)|\[[^\[\]]*\]')
VALUES_OF_A_PLACE = 2


def first_and_last(key: ApiKey) -> list[bytes]:
    """Requests of the first and the last version; those between have no other field that comes from a node."""
    asked = [each for each in plausible_requests() if each.startswith(key.to_bytes(2, "big"))]
    return [asked[0], asked[-1]]


ASKED = [
    each
    for key in (ApiKey.METADATA, ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CONFIGS, ApiKey.FIND_COORDINATOR)
    for each in first_and_last(key)
]


class DirectClient(ZooKeeperClient):
    """Asks a ZooKeeper in memory, without a socket."""

    server: ClassVar[MemoryZooKeeper]

    def __init__(self, root: str, *, session_timeout_ms: int) -> None:
        super().__init__(root, session_timeout_ms=session_timeout_ms)
        self._frames: list[bytes] = []
        self._to: Any = None

    @property
    def is_connected(self) -> bool:
        return self._to is not None

    @property
    def silent_seconds(self) -> float:
        return 0.0

    def connect(self, servers: Sequence[tuple[str, int]] = (), *, timeout_ms: int = 0) -> None:
        self._to = self.server.connect(lambda data: None if data is None else self._frames.append(data[4:]))
        self._send(encode_connect(self._wanted_timeout_ms, self.session_id, self._password, self._last_zxid))
        self.accept()

    def _send(self, data: bytes) -> None:
        self._to.take(data)

    def _frame(self) -> bytes | None:
        return self._frames.pop(0) if self._frames else None

    def _fill(self) -> bool:
        return False

    def disconnect(self) -> None:
        if self._to is not None:
            to, self._to = self._to, None
            to.close()
            self._frames.clear()


class Nodes(OfBroker):
    """A node that is written, a look at it, and another look once it is as before."""

    name = "nodes"
    settings = SETTINGS | {
        "broker.id": 1,
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }

    def _new_app(self) -> BrokerApp:
        with mock.patch.object(zookeeper_state, "ZooKeeperClient", DirectClient):
            return BrokerApp(self._config, self._clock, ServeOptions(zookeeper="memory:2181"))

    def _begin(self) -> None:
        DirectClient.server = MemoryZooKeeper(lambda: NOW_MS)
        super()._begin()

    def _fill(self) -> None:
        self._operator = DirectClient("", session_timeout_ms=1000)
        self._operator.connect()
        assert self._app is not None
        member = self._app._member(self._parts, cast(Any, [None]))
        assert member is not None
        self._member = member
        state = self._parts.state
        assert isinstance(state, ZooKeeperState)
        self._state = state
        self._before: dict[str, bytes] = {}
        self._notices: list[str] = []
        path, data = WRITTEN[0]
        self._write(path, data)
        self._see()
        for path in ("users/a", "clients/c", "brokers/1"):
            self._operator.ask(Create(nodes.config_path(path), b"{}"))
        self.ask(frame(ApiKey.CREATE_TOPICS, 2, topics=[("t", 2, 2, [], [])], timeout_ms=1000)[4:])
        assert self._state.is_controller
        assert len(self._state.topics["t"].partitions) == 2

    def seeds(self) -> list[bytes]:
        found = []
        for number, (_, data) in enumerate(WRITTEN):
            changed = [
                data[: place.start()] + ODD_VALUES[(number + at + more) % len(ODD_VALUES)] + data[place.end() :]
                for at, place in enumerate(VALUE.finditer(data))
                for more in range(VALUES_OF_A_PLACE)
            ]
            found += [bytes((number,)) + each for each in (data, *changed)]
        return found

    def run(self, data: bytes) -> None:
        if not data:
            return
        self.ready()
        path = WRITTEN[data[0] % len(WRITTEN)][0]
        self._write(path, data[1:])
        self.check(self._see, is_slow_work=True)  # which may be to read all on a new connection
        for each in ASKED:
            self.check(lambda each=each: self.ask(each))  # type: ignore[misc]
        self._undo()
        self.check(self._see, is_slow_work=True)
        assert self._state.client.is_connected
        self.check(lambda: self.ask(ASKED[-1]))

    def _write(self, path: str, data: bytes) -> None:
        """Write as an operator, and remember what was there."""
        self._before = {}
        if path.endswith("_"):
            self._new = [self._operator.ask(Create(path, data, SEQUENTIAL))]
            return
        node = self._operator.data_if_any(path)
        self._before = {} if node is None else {path: node.data}
        self._new = [path] if node is None else []
        missing = [each for each in nodes.parents(path) if self._operator.missing([each])]
        self._operator.ask_all([*map(Create, missing), Create(path, data) if node is None else SetData(path, data)])
        self._notify(path)

    def _notify(self, path: str) -> None:
        """Notify of a path, in place of what was notified before: each look reads all notifications there are."""
        for beginning, (notice, data_of) in NOTICES.items():
            if path.startswith(beginning):
                self._operator.ask_all([Delete(each) for each in self._notices])
                self._notices = [cast(str, self._operator.ask(Create(notice, data_of(path), SEQUENTIAL)))]

    def _undo(self) -> None:
        self._operator.ask_all([Delete(cast(str, each)) for each in self._new])
        self._operator.ask_all([SetData(path, data) for path, data in self._before.items()])
        for path in (*self._before, *self._new):
            self._notify(cast(str, path))

    def _see(self) -> None:
        """As the member of the cluster does."""
        client = self._state.client
        if not client.is_connected:
            client.connect((), timeout_ms=0)
            try:
                self._state.reload()
            except ValueError:
                client.disconnect()
                return
            self._parts.controller_loop.catch_up()
        client.receive()
        self._member.look()
