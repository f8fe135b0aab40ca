"""The state of the cluster, which outlives its brokers: what Kafka keeps in ZooKeeper.

It is topics and sections (`sections.py`). It is read at any time, and written by changes: each is stored whole, or not
at all. A change has the next version of each partition's state that it replaces, and is refused if that does not follow
the stored one (as a conditional setData of ZooKeeper).
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from minibroker.broker.cluster.sections import NO_SECTIONS, Configs, Section
from minibroker.broker.replica.decisions import Broker, PartitionState
from minibroker.protocol.primitives import TopicPartition, topic_id_text

Value = TypeVar("Value")


class Reassignment(NamedTuple):
    """A partition that moves: the replicas that it is to have, the earlier ones, and the ones that go in the end."""

    replicas: tuple[int, ...]
    original: tuple[int, ...]
    removing: tuple[int, ...]
    is_caught_up: bool = False  # the partition has its new replicas alone: what is left is to stop others

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.original)


NO_REASSIGNMENTS: Mapping[int, Reassignment] = {}


class TopicState(NamedTuple):
    """A topic: its partitions by number, the configs set on it, its id (KIP-516), and the partitions that move."""

    name: str
    partitions: Mapping[int, PartitionState]
    configs: Configs
    topic_id: uuid.UUID
    reassignments: Mapping[int, Reassignment] = NO_REASSIGNMENTS


NO_CONTROLLER = -1
NO_TOPICS: Mapping[str, TopicState | None] = {}


class Change(NamedTuple):
    """The changes of one write: of topics, None for one that is gone, and the new values of sections.

    With the epoch of a controller it is stale once a newer one has been elected.
    """

    topics: Mapping[str, TopicState | None] = NO_TOPICS
    sections: Mapping[Section[Any], Any] = NO_SECTIONS
    controller_epoch: int | None = None

    def get(self, section: Section[Value]) -> Value | None:
        """The new value of a section, None where it stays as it is."""
        return self.sections.get(section)

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


class ClusterState(Protocol):
    """The stored topics and sections, and the one way to change them; and who lives, and who controls."""

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
    def get(self, section: Section[Value]) -> Value:
        """The value of a section; another object after each change."""

    def load(self, partitions_on_disk: Collection[TopicPartition]) -> list[TopicPartition]:
        """Read the state; return the partitions on disk that are not of this broker any more. Raises StartError."""

    def close(self) -> None:
        """Leave the state in order. Raises OSError and KafkaError; what was stored is as it was."""

    def look(self) -> None:
        """Read what other brokers have changed. Raises OSError."""

    def save(self, what: str, change: Change) -> bool:
        """Store a change; return False and store nothing if it is stale.

        Raises KafkaError(KAFKA_STORAGE_ERROR), which names `what`; nothing has changed then.
        """


def store(state: ClusterState, what: str, change_of: Callable[[], Change]) -> None:
    """Store a change of the state as it is, again if the state has changed meanwhile. Raises as `ClusterState.save`."""
    while not state.save(what, change_of()):
        pass


def kafka_id_text(identity: uuid.UUID) -> str:
    """Write a cluster or topic id as Kafka does: 22 characters, base64url."""
    return topic_id_text(identity.bytes)


def parse_kafka_id(text: str) -> uuid.UUID:
    """Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
