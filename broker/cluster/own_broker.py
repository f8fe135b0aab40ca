"""This broker, as it obeys a controller: its replicas, its coordinators, and what its clients see of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.replica.decisions import Decision, Obeyed, UpdateMetadata
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition

# Called with a partition, and whether this broker leads it now, or no longer.
OnLeadership = Callable[[TopicPartition, bool], None]


class OwnBroker:
    """Performs decisions. Calls `on_leadership`, the first listener for all partitions before the second.

    Calls `on_deleted` with the partitions that are gone from the cluster. `knows_cluster` is set by the first metadata.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        *,
        on_leadership: Sequence[OnLeadership] = (),
        on_deleted: Sequence[Callable[[Sequence[TopicPartition]], None]] = (),
    ) -> None:
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._on_leadership = on_leadership
        self._on_deleted = on_deleted
        self.knows_cluster = trio.Event()
        self._controller_epoch = 0

    def obey(self, decision: Decision) -> Obeyed:
        """Perform a decision. STALE_CONTROLLER_EPOCH for one of a controller that has been replaced: a later one has
        been obeyed, since this broker started."""
        if decision.controller_epoch < self._controller_epoch:
            return Obeyed(ErrorCode.STALE_CONTROLLER_EPOCH, {})
        self._controller_epoch = decision.controller_epoch
        if isinstance(decision, UpdateMetadata):
            deleted = self._metadata_cache.update(decision)
            self.knows_cluster.set()
            for listener in self._on_deleted if deleted else ():
                listener(deleted)
            return Obeyed(ErrorCode.NONE, {})
        obeyed = self._replica_manager.partitions.apply(decision)
        for notice in self._on_leadership:
            for topic_partitions, is_leader in ((obeyed.lost, False), (obeyed.gained, True)):
                for topic_partition in topic_partitions:
                    notice(topic_partition, is_leader)
        return obeyed

    def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Apply a topic's configs, to its open logs at once. Raises KafkaError(INVALID_CONFIG)."""
        self._replica_manager.log_manager.set_topic_overrides(name, configs)
