"""The cluster as clients see it: brokers, topics, the leader and the replicas of each partition.

All APIs read it; only the decisions of a controller change it. It also has the names of internal topics, and the check
of topic names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from minibroker.broker.replica.decisions import Broker, TopicMetadata, UpdateMetadata
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicById, TopicPartition
from minibroker.protocol.text import utf16_length

TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})
MAX_TOPIC_NAME_LENGTH = 249
LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class MetadataCache:
    """Live brokers by id, and topics by name in the order of creation, with the partitions that have had a leader; and
    the names of topics by their ids.

    The values are immutable: one that is the same object as before has not changed. So is `brokers`.
    """

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.brokers: Mapping[int, Broker] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.topics_by_id: dict[bytes, TopicById] = {}
        self.version = 0  # grows with each change
        self.version_of_names = 0  # the last one that brought a new topic

    def update(self, update: UpdateMetadata) -> list[TopicPartition]:
        """Take a controller's decision; return the partitions that are gone."""
        self.controller_id = update.controller_id
        self.version += 1
        if self.brokers != update.brokers:
            self.brokers = update.brokers
        deleted: list[TopicPartition] = []
        for name, topic in update.topics.items():
            self._note_id(name, topic)
            if topic is not None:
                if name not in self.topics:
                    self.version_of_names = self.version
                self.topics[name] = topic
            elif name in self.topics:
                deleted += [TopicPartition(name, number) for number in self.topics.pop(name).partitions]
        return deleted

    def _note_id(self, name: str, topic: TopicMetadata | None) -> None:
        known = self.topics.get(name)
        if known is not None and (topic is None or topic.topic_id != known.topic_id):
            self.topics_by_id.pop(known.topic_id.bytes, None)
        if topic is not None and topic.topic_id.int:  # one that no broker of the cluster knows is 0
            topic_id = topic.topic_id.bytes
            self.topics_by_id.setdefault(topic_id, TopicById(name, topic_id))

    def is_broker_alive(self, broker_id: int) -> bool:
        return broker_id in self.brokers

    def address_of(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Return where a live broker advertises a listener; None if it does not."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def is_known(self, topic_partition: TopicPartition) -> bool:
        """Whether there is a partition that has had a leader."""
        topic = self.topics.get(topic_partition.topic)
        return topic is not None and topic_partition.partition in topic.partitions

    def partition_count(self, topic: str) -> int | None:
        """Count the topic's partitions that have had a leader; return None if the topic does not exist."""
        known = self.topics.get(topic)
        return None if known is None else len(known.partitions)

    def leader_of(self, topic_partition: TopicPartition) -> int | None:
        """Return the leader, NO_LEADER for none at the moment; None for an unknown partition.

        A leader whose broker is not alive is none.
        """
        topic = self.topics.get(topic_partition.topic)
        state = None if topic is None else topic.partitions.get(topic_partition.partition)
        if state is None:
            return None
        return state.leader if state.leader in self.brokers else NO_LEADER


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
