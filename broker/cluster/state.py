"""The state of the cluster, which outlives its brokers: what Kafka keeps in ZooKeeper.

It is read at any time, and written by changes: each is stored whole, or not at all. Whoever decides on partitions reads
them first; so a change has the next version of each state that it replaces, and is refused if that is not the stored
one's (as a conditional setData of ZooKeeper).
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from minibroker.broker.replica.decisions import Broker, PartitionState
from minibroker.broker.wings.quotas.client_quotas import Quotas
from minibroker.broker.wings.quotas.entities import Entity
from minibroker.protocol.primitives import TopicPartition, topic_id_text
from minibroker.protocol.scram import ScramCredential

Configs = Mapping[str, str]  # Kafka's names and spellings
ScramCredentials = Mapping[str, Mapping[str, ScramCredential]]  # by user and mechanism
OldOffsets = Mapping[str, Mapping[TopicPartition, int]]  # of OffsetCommit v0: by group and partition


class Reassignment(NamedTuple):
    """A partition that moves: the replicas that it is to have, those it had before, and those that go in the end."""

    replicas: tuple[int, ...]
    original: tuple[int, ...]
    removing: tuple[int, ...]
    is_caught_up: bool = False  # the partition has its new replicas alone: what is left is to stop others

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.original)


Moves = Mapping[TopicPartition, tuple[int, ...]]  # the replicas that partitions are to have
NO_MOVES: Moves = {}
NO_REASSIGNMENTS: Mapping[int, Reassignment] = {}


class TopicState(NamedTuple):
    """A topic: its partitions by number, the configs set on it, its id (KIP-516), and the partitions that move."""

    name: str
    partitions: Mapping[int, PartitionState]
    configs: Configs
    topic_id: uuid.UUID
    reassignments: Mapping[int, Reassignment] = NO_REASSIGNMENTS


class FeatureLevels(NamedTuple):
    """The levels of features that were changed, and how often some were."""

    epoch: int = 0
    levels: Mapping[str, int] = {}


NO_FEATURES = FeatureLevels()
NO_CONTROLLER = -1
NO_TOPICS: Mapping[str, TopicState | None] = {}


class Change(NamedTuple):
    """The changes of one write. A section that is None stays as it is; others are replaced.

    Of the topics only those named here change; None is for one that is gone. With the epoch of a controller it is
    stale once a newer one has been elected.
    """

    topics: Mapping[str, TopicState | None] = NO_TOPICS
    being_deleted: frozenset[str] | None = None
    next_producer_id: int | None = None
    asked_elections: frozenset[TopicPartition] | None = None
    asked_moves: Moves | None = None
    old_offsets: OldOffsets | None = None
    broker_configs: Mapping[str, Configs] | None = None
    group_configs: Mapping[str, Configs] | None = None
    client_metrics: Mapping[str, Configs] | None = None
    client_quotas: Mapping[Entity, Quotas] | None = None
    acls: Sequence[Mapping[str, str]] | None = None
    scram_credentials: ScramCredentials | None = None
    scram_salt_key: bytes | None = None
    features: FeatureLevels | None = None
    controller_epoch: int | None = None

    def fits(self, topics: Mapping[str, TopicState]) -> bool:
        """Whether each topic is the stored one, and each state of a partition that one or the next version of it."""
        return all(
            topic.topic_id == stored.topic_id
            and all(
                state is (before := stored.partitions.get(number))
                or before is None
                or state.state_version == before.state_version + 1
                or state == before
                for number, state in topic.partitions.items()
            )
            for name, topic in self.topics.items()
            if topic is not None and (stored := topics.get(name)) is not None
        )


class BrokerReturned(NamedTuple):
    """A broker has begun a life."""

    broker_id: int


class BrokerGone(NamedTuple):
    """A broker's life has ended."""

    broker_id: int


class LogDirectoryFailed(NamedTuple):
    """A log directory of a broker has failed; the broker knows which of its replicas were there."""

    broker_id: int


class ControllerChanged(NamedTuple):
    """Another controller has been elected, NO_CONTROLLER for none."""

    controller_id: int


News = BrokerReturned | BrokerGone | LogDirectoryFailed | ControllerChanged | Change


class Sections:
    """The sections of a state that a broker keeps in memory, empty at first."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.next_producer_id = 0
        self.topics: dict[str, TopicState] = {}
        self.broker_configs: Mapping[str, Configs] = {}
        self.group_configs: Mapping[str, Configs] = {}
        self.client_metrics: Mapping[str, Configs] = {}
        self.client_quotas: Mapping[Entity, Quotas] = {}
        self.old_offsets: OldOffsets = {}
        self.acls: Sequence[Mapping[str, str]] = []
        self.scram_credentials: ScramCredentials = {}
        self.scram_salt_key = b""
        self.features = NO_FEATURES
        self.being_deleted: frozenset[str] = frozenset()
        self.asked_elections: frozenset[TopicPartition] = frozenset()
        self.asked_moves: Moves = NO_MOVES


class ClusterState(Protocol):
    """The stored sections, and the one way to change them; and who lives, and who controls."""

    @property
    def is_shared(self) -> bool:
        """Whether several brokers share it; a cluster of one has no other brokers, and never has."""

    @property
    def is_beside_kafka(self) -> bool:
        """Whether brokers of Apache Kafka 2.0.1 may share it, which read the coordinators' logs too."""

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""

    @property
    def controller_epoch(self) -> int: ...
    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The live brokers by id, of a shared state."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def topics(self) -> Mapping[str, TopicState]: ...
    @property
    def being_deleted(self) -> frozenset[str]:
        """The topics that are gone, but of which directories may be left; in a state that is shared also those that
        wait for a broker which has replicas of them."""

    @property
    def asked_elections(self) -> frozenset[TopicPartition]:
        """The partitions that their preferred replicas are to lead: Kafka's tools ask the controller in ZooKeeper."""

    @property
    def asked_moves(self) -> Moves:
        """The partitions that are to move, and those that do: as Kafka's tools ask for them in ZooKeeper."""

    @property
    def next_producer_id(self) -> int: ...
    @property
    def old_offsets(self) -> OldOffsets: ...
    @property
    def broker_configs(self) -> Mapping[str, Configs]:
        """By broker id; those of all brokers under the empty name."""

    @property
    def group_configs(self) -> Mapping[str, Configs]:
        """By group, those of groups that have some."""

    @property
    def client_metrics(self) -> Mapping[str, Configs]:
        """The configs of client metrics, by the name of the subscription."""

    @property
    def client_quotas(self) -> Mapping[Entity, Quotas]: ...
    @property
    def acls(self) -> Sequence[Mapping[str, str]]:
        """As `security/acls/acl_store.py` writes them."""

    @property
    def scram_credentials(self) -> ScramCredentials: ...
    @property
    def scram_salt_key(self) -> bytes:
        """Makes up the salts of unknown users."""

    @property
    def features(self) -> FeatureLevels: ...

    def look(self) -> None:
        """Read what other brokers have changed. Raises OSError."""

    def save(self, what: str, change: Change) -> bool:
        """Store a change; return False and store nothing if it is stale.

        Raises KafkaError(KAFKA_STORAGE_ERROR), which names `what`; nothing has changed then.
        """


def store(state: ClusterState, what: str, change_of: Callable[[], Change]) -> None:
    """Store a change of what the state is now, again if that has changed meanwhile. Raises as `ClusterState.save`."""
    while not state.save(what, change_of()):
        pass


def kafka_id_text(identity: uuid.UUID) -> str:
    """Write a cluster or topic id as Kafka does: 22 characters, base64url."""
    return topic_id_text(identity.bytes)


def parse_kafka_id(text: str) -> uuid.UUID:
    """Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
