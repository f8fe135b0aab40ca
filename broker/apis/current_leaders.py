"""The leaders in answers of Fetch and Produce: a client learns there which broker it should have asked (KIP-951).

As kafka 3.9 KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.replica.follower import Follower
from minibroker.broker.replica.partitions import Partitions
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record_batch import NO_LEADER_EPOCH

UNKNOWN_LEADER = (NO_LEADER, NO_LEADER_EPOCH)


class CurrentLeaders:
    """The leaders that one answer names; `endpoints` are where they listen for this client."""

    def __init__(self, partitions: Partitions, metadata_cache: MetadataCache, client: Client) -> None:
        self._partitions = partitions
        self._metadata_cache = metadata_cache
        self._client = client
        self._endpoints: dict[int, tuple[int, str, int, str | None]] = {}

    def of(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """The leader and its epoch, -1 for what is not known."""
        leader, epoch = self._known(topic_partition)
        broker = self._metadata_cache.brokers.get(leader)
        address = None if broker is None else self._client.address_of(broker)
        if broker is not None and address is not None:
            self._endpoints[leader] = (leader, *address, broker.rack)
        return leader, epoch

    def _known(self, topic_partition: TopicPartition) -> tuple[int, int]:
        role = self._partitions.any(topic_partition)
        if isinstance(role, Follower):
            return role.leader_id, role.leader_epoch
        topic = self._metadata_cache.topics.get(topic_partition.topic)
        state = None if topic is None else topic.partitions.get(topic_partition.partition)
        return UNKNOWN_LEADER if state is None else (state.leader, state.leader_epoch)

    @property
    def endpoints(self) -> Sequence[Any]:
        return tuple(self._endpoints.values())
