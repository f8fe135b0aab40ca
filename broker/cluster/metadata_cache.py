"""What this broker knows of the cluster: brokers, topics, who leads and replicates each partition.

Read by every API; written only by the controller. Topic names are checked here, in one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})
MAX_TOPIC_NAME_LENGTH = 249
LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(slots=True)
class PartitionState:
    """One partition as the cluster sees it. `leader` is -1 while there is none."""

    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]


@dataclass(slots=True)
class TopicState:
    """A topic: its partitions by number, and the configs set on it (Kafka's names and spellings)."""

    name: str
    partitions: dict[int, PartitionState]
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class MetadataCache:
    """Topics by name, in order of creation."""

    def __init__(self, broker_id: int, cluster_id: str) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.topics: dict[str, TopicState] = {}

    def partitions_of(self, topic: TopicState) -> Iterator[TopicPartition]:
        return (TopicPartition(topic.name, partition) for partition in topic.partitions)

    def colliding_topics(self, name: str) -> list[str]:
        """Topics whose metric names are the same: Kafka refuses `a.b` beside `a_b`."""
        collision_key = name.replace(".", "_")
        return [other for other in self.topics if other != name and other.replace(".", "_") == collision_key]

    def configs(self) -> Mapping[str, Mapping[str, str]]:
        return {topic.name: topic.configs for topic in self.topics.values()}


def check_topic_name(name: str) -> None:
    """Raises KafkaError(INVALID_TOPIC_EXCEPTION) with the reason (as kafka 2.0.1 Topic.validate)."""
    reason = None
    if not name:
        reason = "Topic name is illegal, it can't be empty"
    elif name in (".", ".."):
        reason = 'Topic name cannot be "." or ".."'
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
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
