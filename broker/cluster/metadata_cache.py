"""The cluster as clients see it: brokers, topics, the leader and the replicas of each partition.

All APIs read it; only the controller writes it. It also has the check of topic names.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.text import utf16_length

TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})
MAX_TOPIC_NAME_LENGTH = 249
NO_LEADER = -1
LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(slots=True)
class PartitionState:
    """One partition in the cluster. `leader` is NO_LEADER if no replica is on a live broker."""

    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    state_version: int = 0  # larger by one with each change of the in-sync replicas; from 0 at each start


@dataclass(slots=True)
class TopicState:
    """A topic: its partitions by number, the configs set on it (Kafka's names and spellings), and its id (KIP-516)."""

    name: str
    partitions: dict[int, PartitionState]
    configs: dict[str, str] = field(default_factory=dict)
    topic_id: uuid.UUID = field(default_factory=uuid.uuid4)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def with_leaders(self) -> TopicState | None:
        """Return the topic with only the partitions that have leaders, as the same objects; None if there are none."""
        led = {number: state for number, state in self.partitions.items() if state.leader != NO_LEADER}
        if len(led) == len(self.partitions):
            return self
        return TopicState(self.name, led, self.configs, self.topic_id) if led else None


class MetadataCache:
    """Topics by name, in the order of creation, with the partitions that clients see: those with a leader."""

    def __init__(self, broker_id: int, cluster_id: str) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.topics: dict[str, TopicState] = {}

    def is_broker_alive(self, broker_id: int) -> bool:
        """Whether a broker is up: this broker is the whole cluster, others in an assignment are not up."""
        return broker_id == self.broker_id

    def partition_count(self, topic: str) -> int | None:
        """Count the topic's partitions that have leaders; return None if the topic does not exist."""
        known = self.topics.get(topic)
        return None if known is None else len(known.partitions)

    def partitions_of(self, topic: TopicState) -> Iterator[TopicPartition]:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition)


def colliding_names(name: str, others: Iterable[str]) -> list[str]:
    """The topics with the same metric name: Kafka refuses `a.b` beside `a_b`."""
    collision_key = name.replace(".", "_")
    return [other for other in others if other != name and other.replace(".", "_") == collision_key]


def check_topic_name(name: str) -> None:
    """Raises KafkaError(INVALID_TOPIC_EXCEPTION) with the reason (as kafka 2.0.1 Topic.validate)."""
    reason = None
    if not name:
        reason = "Topic name is illegal, it can't be empty"
    elif name in (".", ".."):
        reason = 'Topic name cannot be "." or ".."'
    elif utf16_length(name) > MAX_TOPIC_NAME_LENGTH:
        reason = (
            f"Topic name is illegal, it can't be longer than {MAX_TOPIC_NAME_LENGTH} characters, topic name: {name}"
        )
    elif not LEGAL_TOPIC_NAME.fullmatch(name):
        reason = (
            f'Topic name "{name}" is illegal, it contains a character other than '
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
