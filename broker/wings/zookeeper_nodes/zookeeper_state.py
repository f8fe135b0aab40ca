"""The state of a cluster in ZooKeeper, as Apache Kafka 2.0.1 keeps it: so both kinds of broker are in one cluster.

A ClusterState. It knows all nodes and watches them, those of each partition too: `look` takes what the watches have
shown, and `take_news` has what that has changed, as the journal of a cluster on one machine. What is conditional on a
version here is so there, and the numbers are the same: the `state_version` of a partition is the version of its state
node, -1 for one that has none yet.

A change is one multi, all of it or nothing; one with thousands of partitions is several, as ZooKeeper takes a megabyte
at most. A controller's multi also checks that /controller_epoch is still its own, so one that was replaced while it
stood still changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from minibroker.broker.cluster.member import StateOfSeveral
from minibroker.broker.cluster.sections import ASKED_ELECTIONS, ASKED_MOVES, OLD_OFFSETS, Section
from minibroker.broker.cluster.state import (
    NO_CONTROLLER,
    BrokerGone,
    BrokerReturned,
    Change,
    ControllerChanged,
    LogDirectoryFailed,
    News,
    kafka_id_text,
)
from minibroker.broker.cluster.stored_state import Value
from minibroker.broker.replica.decisions import Broker
from minibroker.broker.starting import StartError
from minibroker.broker.wings.zookeeper_nodes import nodes
from minibroker.broker.wings.zookeeper_nodes.nodes import NO_NODE
from minibroker.broker.wings.zookeeper_nodes.old_offsets import OffsetNodes
from minibroker.broker.wings.zookeeper_nodes.setting_nodes import SettingNodes
from minibroker.broker.wings.zookeeper_nodes.topic_nodes import OF_TOPICS, StaleChangeError, TopicNodes
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage import chance, real_time
from minibroker.zookeeper.messages import (
    EPHEMERAL,
    SEQUENTIAL,
    Answer,
    Check,
    Create,
    Delete,
    Exists,
    Multi,
    ReplyCode,
    SetData,
    Write,
    ZooKeeperError,
    is_error,
)
from minibroker.zookeeper.session import ConnectionLost, Ensemble, SessionExpired, ZooKeeperClient

logger = logging.getLogger(__name__)

MULTI_BYTES_MAX: Final = 500_000  # half of what a server takes
WRITE_BYTES: Final = 60  # of a write besides its path and data
ISR_QUIET_SECONDS: Final = 5.0
ISRS_SHOWN_SECONDS: Final = 60.0
PLAINTEXT: Final = "PLAINTEXT"
STALE: Final = (ReplyCode.BAD_VERSION, ReplyCode.NO_NODE, ReplyCode.NODE_EXISTS, ReplyCode.NOT_EMPTY)
OPEN_NODES: Final = (
    "its nodes have ACLs, and this broker cannot log in: open them with zookeeper-security-migration.sh"
    " --zookeeper.acl=unsecure, and set zookeeper.set.acl=false at all brokers"
)
NOT_TRIED: Final = (0, -2)  # of a write of a multi beside the one that failed


class ZooKeeperStateError(StartError):
    """ZooKeeper cannot be used; the message names it and the next step."""


class ZooKeeperState(StateOfSeveral):
    """`load` it, `register` this broker, and `close` it. Its `client` has events when `look` is due."""

    is_beside_kafka = True
    brokers: Mapping[int, Broker] = {}

    def __init__(
        self,
        ensemble: Ensemble,
        broker_id: int,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        has_acls: bool,
        sections: Iterable[Section[Any]] = (),
    ) -> None:
        super().__init__((ASKED_ELECTIONS, ASKED_MOVES, *sections))
        self.ensemble = ensemble
        self.client = ZooKeeperClient(ensemble.root, session_timeout_ms=session_timeout_ms)
        self.changed_isrs: set[TopicPartition] = set()  # by leaders of this broker, not shown to the controller yet
        self._broker_id = broker_id
        self._connection_timeout_ms = connection_timeout_ms
        self._topics = TopicNodes(self.client, self, self._note, self._take)
        self._settings = SettingNodes(
            self.client,
            self._take_documents,
            broker_id=broker_id,
            has_acls=has_acls,
            read_topics=self._topics.read_known,
        )
        self._broker_lives: dict[int, int] = {}  # the node of each, by its creation
        self._epoch_version = NO_NODE
        self._registered_in = 0  # the session
        self._controls_in = 0
        self._isr_changed_at = self._isrs_shown_at = real_time.monotonic()

    def _note(self, news: News) -> None:
        self._news.append(news)

    def _take(self, sections: Mapping[Section[Any], Any]) -> None:
        """Take sections as they were read; what differs is news."""
        changed = Change(sections={each: value for each, value in sections.items() if value != self.get(each)})
        if changed.sections:
            self.install(changed)
            self._note(changed)

    def _take_documents(self, documents: Mapping[str, Any]) -> None:
        sections = {self.section_named(name): document for name, document in documents.items()}
        with nodes.reading():
            values = {section: section.from_json(document) for section, document in sections.items()}
        self._take(values)

    def get(self, section: Section[Value]) -> Value:
        """The value of a section. The offsets of OffsetCommit v0 are read when they are asked for.

        A section that Kafka 2.0.1 has no nodes for is known to this broker alone, as long as it runs.
        """
        if section is OLD_OFFSETS:
            offsets: Any = OffsetNodes(self.client)
            value: Value = offsets
            return value
        return super().get(section)

    # -- sessions ---------------------------------------------------------------------------------------------

    def load(self, partitions_on_disk: Collection[TopicPartition]) -> list[TopicPartition]:
        """Begin a session, and read the state; return no partition: as Kafka, one that the state lacks stays on disk.

        Raises ZooKeeperStateError.
        """
        try:
            self._make_root()
            self.client.connect(self.ensemble.servers, timeout_ms=self._connection_timeout_ms)
            self._make_persistent()
            self.reload()
        except (ConnectionLost, ZooKeeperError, SessionExpired, ValueError) as error:
            servers = ",".join(f"{host}:{port}" for host, port in self.ensemble.servers)
            is_closed = isinstance(error, ZooKeeperError) and error.code == ReplyCode.NO_AUTH
            next_step = OPEN_NODES if is_closed else "start it, or name another in zookeeper.connect"
            raise ZooKeeperStateError(f"cannot use ZooKeeper at {servers}: {error}; {next_step}") from error
        self._news.clear()
        return []

    def _make_root(self) -> None:
        """Create the path under which all nodes are."""
        if not self.ensemble.root:
            return
        client = ZooKeeperClient("", session_timeout_ms=self.client.session_timeout_ms)
        client.connect(self.ensemble.servers, timeout_ms=self._connection_timeout_ms)
        try:
            for path in (*nodes.parents(self.ensemble.root), self.ensemble.root):
                created(client.ask_all([Create(path)]))
        finally:
            client.close()

    def _make_persistent(self) -> None:
        paths = [*nodes.PERSISTENT, *self._settings.persistent_paths]
        above = dict.fromkeys(parent for path in (*paths, nodes.CLUSTER_ID) for parent in nodes.parents(path))
        created(self.client.ask_all([Create(path) for path in sorted(above, key=lambda path: path.count("/"))]))
        new_id = nodes.CLUSTER.encode(kafka_id_text(chance.new_uuid()))
        created(self.client.ask_all([*map(Create, paths), Create(nodes.CLUSTER_ID, new_id)]))
        self.cluster_id = nodes.CLUSTER.decode(self.client.data(nodes.CLUSTER_ID).data)

    def reload(self) -> None:
        """Read everything, and watch it, on a connection that is new. Raises ConnectionLost and ZooKeeperError."""
        self.client.take_events()  # of the connection before
        self._read_controller()
        self._read_brokers(anew=True)
        self._settings.read()
        self._topics.read()
        self._clear_notifications()

    def on_expired(self) -> None:
        """The session has ended: this broker controls no more, and is not registered."""
        self._registered_in = self._controls_in = 0
        if self.controller_id == self._broker_id:
            self._set_controller(NO_CONTROLLER)

    def close(self) -> None:
        """End the session, and so this broker's life."""
        self.client.close()

    # -- this broker and the others ---------------------------------------------------------------------------

    def register(self, broker: Broker) -> bool:
        """Show this broker to the cluster, or its new endpoints; return False while another session has its id.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        path = nodes.broker_path(self._broker_id)
        protocols = {name: broker.security_protocols.get(name, PLAINTEXT) for name in broker.endpoints}
        data = nodes.BROKER.encode(nodes.BrokerNode(broker.endpoints, protocols, wall_ms(), broker.rack))
        with failing("register this broker"):
            answer = self.client.ask_all([Create(path, data, EPHEMERAL)])[0]
            if is_error(answer, ReplyCode.NODE_EXISTS):
                before = self.client.data_if_any(path)
                if before is None or before.stat.ephemeral_owner != self.client.session_id:
                    self._read_brokers({self._broker_id})  # with a watch for its end
                    return False
                self.client.ask(SetData(path, data))
            elif isinstance(answer, ZooKeeperError):
                raise answer
            self._registered_in = self.client.session_id
            self._read_brokers({self._broker_id})
        return True

    def unregister(self) -> None:
        """Show this broker no more, until it registers. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        with failing("register this broker anew"):
            self.client.ask(Delete(nodes.broker_path(self._broker_id)))
            self._registered_in = 0

    @property
    def is_registered(self) -> bool:
        """Whether the others see this broker: in the session that goes on."""
        return self._registered_in == self.client.session_id != 0

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, and its session cannot have ended unseen."""
        return (
            self.controller_id == self._broker_id
            and self._controls_in == self.client.session_id != 0
            and not self.may_have_expired
        )

    @property
    def may_have_expired(self) -> bool:
        """Whether ZooKeeper has not answered for as long as a session lasts."""
        return self.client.silent_seconds * 1000 >= self.client.session_timeout_ms

    def claim_controller(self) -> bool:
        """Ask to be the controller, with the next epoch; return whether this broker is it now.

        Both are written at once, before anything is sent. Raises KafkaError(KAFKA_STORAGE_ERROR).
        As kafka 2.0.1 KafkaController.elect.
        """
        with failing("elect a controller"):
            self._read_epoch()
            epoch = str(self.controller_epoch + 1).encode()
            me = nodes.CONTROL.encode(nodes.ControllerNode(self._broker_id, wall_ms()))
            next_epoch = nodes.written(nodes.CONTROLLER_EPOCH, epoch, self._epoch_version)
            error = self._multi([Create(nodes.CONTROLLER, me, EPHEMERAL), next_epoch])
            if error is not None and error.code not in STALE:
                raise error
            self._read_controller()
            self._clear_notifications()
        return self.is_controller

    def resign_controller(self) -> None:
        """Have another broker elected, if this one is the controller. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        if self.is_controller:
            with failing("elect a controller"):
                self._multi([Check(nodes.CONTROLLER_EPOCH, self._epoch_version), Delete(nodes.CONTROLLER)])
                self._read_controller()

    # -- changes ----------------------------------------------------------------------------------------------

    def save(self, what: str, change: Change) -> bool:
        """Store a change; return False for a stale one. Raises KafkaError(KAFKA_STORAGE_ERROR), with `what`."""
        epoch = change.controller_epoch
        with failing(f"store {what}"):
            if epoch is not None and not (self.is_controller and epoch == self.controller_epoch):
                self._read_controller()
                return False
            try:
                error = self._write(change)
            except StaleChangeError:
                return False
            if error is None:
                self._install_stored(change)
                return True
            before = self._versions(change)
            self._read_controller()
            self._topics.read_again(change)
            self._settings.read_again()
            if self._versions(change) == before:
                raise error
            return False

    def _versions(self, change: Change) -> object:
        """The versions by which a change may be stale."""
        own = (self.controller_id, self._epoch_version)
        return own, self._topics.versions(change), self._settings.versions()

    def _write(self, change: Change) -> ZooKeeperError | None:
        writes = [*self._topics.writes(change), *self._settings.writes(change)]
        check = [] if change.controller_epoch is None else [Check(nodes.CONTROLLER_EPOCH, self._epoch_version)]
        for number, batch in enumerate(batches(writes)):
            error = self._multi([*check, *batch])
            if error is not None:
                if number:
                    logger.warning("a part of a large change is stored already; the rest cannot be")
                    raise error
                return error
        return None

    def _multi(self, writes: Sequence[Write]) -> ZooKeeperError | None:
        """Write all or none; return the reason of none."""
        answers = self.client.ask(Multi(writes))
        assert isinstance(answers, list)
        errors = [each for each in answers if isinstance(each, ZooKeeperError) and each.code not in NOT_TRIED]
        return errors[0] if errors else None

    def _install_stored(self, change: Change) -> None:
        """Take what was stored, and note it as news."""
        if change.controller_epoch is None:
            self.changed_isrs |= {
                TopicPartition(name, number)
                for name, topic in change.topics.items()
                if topic is not None and (before := self.topics.get(name)) is not None
                for number, state in topic.partitions.items()
                if state.in_sync_replicas != before.partitions.get(number, state).in_sync_replicas
            }
            self._isr_changed_at = real_time.monotonic()
        others = (OLD_OFFSETS, *OF_TOPICS)
        own = {section: value for section, value in change.sections.items() if section not in others}
        self.install(Change(sections=own))
        self._topics.install(change)
        self._settings.install(change)
        self._note(change._replace(topics={name: self.topics.get(name) for name in change.topics}))

    # -- what the watches show --------------------------------------------------------------------------------

    def look(self) -> None:
        """Take what was written until now. What cannot be read is read on another connection."""
        try:
            if self.client.is_connected:
                self.client.ask_all([Exists(nodes.CONTROLLER_EPOCH)])  # what was shown before comes before the answer
                self._take_events()
        except (ConnectionLost, ZooKeeperError, ValueError) as error:
            logger.error("cannot read the state of the cluster: %s", error)
            self.client.disconnect()

    def _take_events(self) -> None:
        while events := self.client.take_events():
            paths = dict.fromkeys(event.path for event in events)
            if nodes.CONTROLLER in paths:
                self._read_controller()
            changed = {int(path.rpartition("/")[2]) for path in paths if path.startswith(f"{nodes.BROKERS}/")}
            if changed or nodes.BROKERS in paths:
                self._read_brokers(changed)
            self._settings.refresh(paths)
            self._topics.refresh(paths)
            if nodes.ISR_CHANGES in paths or nodes.LOG_DIR_EVENTS in paths:
                self._clear_notifications()

    def _read_controller(self) -> None:
        node = self.client.watched(nodes.CONTROLLER)
        self._read_epoch()
        if node is None:
            self._set_controller(NO_CONTROLLER)
        elif node.stat.ephemeral_owner == self.client.session_id:
            self._controls_in = self.client.session_id
            self._set_controller(self._broker_id)
        else:
            self._set_controller(nodes.CONTROL.decode(node.data).broker_id)

    def _set_controller(self, controller_id: int) -> None:
        if controller_id != self.controller_id:
            self.controller_id = controller_id
            self._news.append(ControllerChanged(controller_id))

    def _read_epoch(self) -> None:
        node = self.client.data_if_any(nodes.CONTROLLER_EPOCH)
        if node is None:
            self.controller_epoch, self._epoch_version = 0, NO_NODE
        else:
            self.controller_epoch, self._epoch_version = nodes.number(node.data), node.stat.version

    def _read_brokers(self, changed: Collection[int] = (), *, anew: bool = False) -> None:
        live = {int(name) for name in self.client.children(nodes.BROKERS, watch=True)}
        for broker_id in self.brokers.keys() - live:
            self._lose_broker(broker_id)
        wanted = sorted(live if anew else live - self.brokers.keys() | live & set(changed))
        answers = self.client.data_of(map(nodes.broker_path, wanted), watch=True)
        for broker_id, answer in zip(wanted, answers, strict=True):
            if answer is None:
                self._lose_broker(broker_id)
                continue
            node = nodes.BROKER.decode(answer.data)
            protocols = {name: each for name, each in node.protocols.items() if each != PLAINTEXT}
            broker = Broker(node.endpoints, node.rack, protocols)
            if self._broker_lives.get(broker_id, answer.stat.czxid) != answer.stat.czxid:
                self._lose_broker(broker_id)
            self._broker_lives[broker_id] = answer.stat.czxid
            if self.brokers.get(broker_id) != broker:
                self.brokers = dict(sorted({**self.brokers, broker_id: broker}.items()))
                self._note(BrokerReturned(broker_id))

    def _lose_broker(self, broker_id: int) -> None:
        if broker_id in self.brokers:
            self.brokers = {each: broker for each, broker in self.brokers.items() if each != broker_id}
            del self._broker_lives[broker_id]
            self._note(BrokerGone(broker_id))

    def _clear_notifications(self) -> None:
        """As the controller, take the notifications: of log directories that have failed, and of changed in-sync
        replicas, which the watches have shown before."""
        if self.is_controller:
            for path in (nodes.ISR_CHANGES, nodes.LOG_DIR_EVENTS):
                paths = [f"{path}/{name}" for name in self.client.children(path, watch=True)]
                if path == nodes.LOG_DIR_EVENTS:
                    failed = {nodes.LOG_DIR_EVENT.decode(self.client.data(each).data) for each in paths}
                    self._news.extend(map(LogDirectoryFailed, failed))
                self.client.ask_all([Delete(each) for each in paths])

    def show_changed_isrs(self) -> None:
        """Show the controller which in-sync replicas leaders of this broker have changed.

        The last change is a while ago then, unless none was shown for long. Raises ConnectionLost and ZooKeeperError.
        As kafka 2.0.1 ReplicaManager.maybePropagateIsrChanges.
        """
        now = real_time.monotonic()
        if now - self._isr_changed_at < ISR_QUIET_SECONDS and now - self._isrs_shown_at < ISRS_SHOWN_SECONDS:
            return
        self._isrs_shown_at = now
        if self.changed_isrs and not self.is_controller:
            data = nodes.PARTITIONS.encode(sorted(self.changed_isrs))
            self.client.ask(Create(f"{nodes.ISR_CHANGES}/isr_change_", data, SEQUENTIAL))
        self.changed_isrs.clear()


@contextmanager
def failing(to: str) -> Iterator[None]:
    """Make errors of ZooKeeper a KafkaError(KAFKA_STORAGE_ERROR), which names what failed."""
    try:
        yield
    except (ConnectionLost, ZooKeeperError) as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {to}: {error}") from error


def created(answers: Iterable[Answer | ZooKeeperError]) -> None:
    """Check that each node was created, or is there. Raises ZooKeeperError."""
    for answer in answers:
        if isinstance(answer, ZooKeeperError) and answer.code != ReplyCode.NODE_EXISTS:
            raise answer


def batches(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """The writes in multis of a size that a server takes; one without any."""
    batch: list[Write] = []
    size = 0
    for write in writes:
        size += WRITE_BYTES + len(write.path) + len(getattr(write, "data", None) or b"")
        if size > MULTI_BYTES_MAX and batch:
            yield batch
            batch, size = [], 0
        batch.append(write)
    yield batch


def wall_ms() -> int:
    return int(real_time.time_of_day() * 1000)
