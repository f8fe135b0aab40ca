"""Creates and deletes topics: checks the request, writes it down, then acts on it.

The order makes a kill at any point harmless: a created topic is in the store before its first log exists (the
log is made again at the next start), a deleted one leaves the store before its directories go (directories of
a topic the store has dropped are renamed first, so they are not taken for a topic at the next start).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from minibroker.broker.cluster.metadata_cache import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    MetadataCache,
    PartitionState,
    TopicState,
    check_topic_name,
)
from minibroker.broker.cluster.topic_store import TopicStore
from minibroker.broker.config import KafkaConfig
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.config import LogConfig

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK = 1000
MAX_PARTITIONS_PER_TOPIC = 10_000


class Controller:
    """The one writer of topics. Its replicas are on this broker; other ids are accepted and stay offline."""

    def __init__(
        self,
        *,
        config: KafkaConfig,
        store: TopicStore,
        metadata_cache: MetadataCache,
        replica_manager: ReplicaManager,
    ) -> None:
        self._config = config
        self._store = store
        self._cache = metadata_cache
        self._replica_manager = replica_manager
        self._producer_ids = iter(range(0))
        self._internal_topics = internal_topics(config)

    def start(self) -> None:
        """Lead every partition, each under a new leader epoch: what an unclean stop lost is never mistaken."""
        for topic in self._store.topics.values():
            for number, partition in topic.partitions.items():
                log = self._replica_manager.log_manager.get_log(TopicPartition(topic.name, number))
                last_epoch = log.leader_epochs.latest_epoch if log is not None else -1
                partition.leader_epoch = max(partition.leader_epoch, last_epoch) + 1
                partition.leader = self._config.broker_id
        self._store.save()
        for topic in self._store.topics.values():
            self._publish(topic)

    def create_topic(
        self,
        name: str,
        *,
        partition_count: int,
        replication_factor: int,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicState:
        """Create a topic, or only check that it could be. Raises KafkaError; nothing is created then."""
        self._check_new_name(name)
        replicas = self._assign(partition_count, replication_factor, assignment)
        configs = dict(configs or {})
        LogConfig.from_props(configs, self._replica_manager.log_manager.default_config)
        partitions = {
            number: PartitionState(self._config.broker_id, 0, list(brokers), [self._config.broker_id])
            for number, brokers in enumerate(replicas)
        }
        topic = TopicState(name, partitions, configs)
        if validate_only:
            return topic
        self._store.topics[name] = topic
        try:
            self._store.save()
        except OSError as error:
            del self._store.topics[name]
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write the topic down: {error}") from error
        self._publish(topic)
        logger.info("created topic %s with %d partitions", name, len(partitions))
        return topic

    def create_topic_automatically(self, name: str) -> TopicState:
        """As kafka 2.0.1 KafkaApis.createTopic with the broker's defaults."""
        return self.create_topic(
            name,
            partition_count=self._config.num_partitions,
            replication_factor=self._config.default_replication_factor,
        )

    def ensure_internal_topic(self, name: str) -> TopicState:
        """The topic a coordinator keeps its state in, made when it is first wanted. Raises KafkaError.

        As kafka 2.0.1 KafkaApis.createInternalTopic; with one broker alive its replication factor is one.
        """
        topic = self._store.topics.get(name)
        if topic is not None:
            return topic
        partition_count, configs = self._internal_topics[name]
        return self.create_topic(name, partition_count=partition_count, replication_factor=1, configs=configs)

    def delete_topic(self, name: str) -> None:
        """Forget the topic and rename its directories away. Raises KafkaError."""
        if not self._config.delete_topic_enable:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        topic = self._store.topics.pop(name, None)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            self._store.save()
        except OSError as error:
            self._store.topics[name] = topic
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write the deletion down: {error}") from error
        del self._cache.topics[name]
        for topic_partition in self._cache.partitions_of(topic):
            self._replica_manager.stop_replica(topic_partition, delete=True)
        logger.info("deleted topic %s", name)

    def next_producer_id(self) -> int:
        """A producer id never given before, not even by an earlier run (blocks of 1000 are written down first)."""
        producer_id = next(self._producer_ids, None)
        if producer_id is not None:
            return producer_id
        first = self._store.next_producer_id
        self._store.next_producer_id = first + PRODUCER_ID_BLOCK
        try:
            self._store.save()
        except OSError as error:
            self._store.next_producer_id = first
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot reserve producer ids: {error}") from error
        self._producer_ids = iter(range(first, first + PRODUCER_ID_BLOCK))
        return next(self._producer_ids)

    def _publish(self, topic: TopicState) -> None:
        """Open the logs, lead them, and let clients see the topic."""
        log_manager = self._replica_manager.log_manager
        log_manager.set_topic_overrides(topic.name, topic.configs)
        for number, partition in topic.partitions.items():
            self._replica_manager.become_leader(
                TopicPartition(topic.name, number),
                leader_epoch=partition.leader_epoch,
                replicas=partition.replicas,
            )
        self._cache.topics[topic.name] = topic

    def _check_new_name(self, name: str) -> None:
        check_topic_name(name)
        if name in self._cache.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        colliding = self._cache.colliding_topics(name)
        if colliding:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topics: {', '.join(colliding)}",
            )

    def _assign(
        self, partition_count: int, replication_factor: int, assignment: Mapping[int, Sequence[int]] | None
    ) -> list[Sequence[int]]:
        """The replicas of each partition (as kafka 2.0.1 AdminManager.createTopics and AdminUtils)."""
        if assignment:
            return self._check_assignment(partition_count, replication_factor, assignment)
        if partition_count <= 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        if partition_count > MAX_PARTITIONS_PER_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"{partition_count} partitions: a topic may have {MAX_PARTITIONS_PER_TOPIC} here at most.",
            )
        if replication_factor <= 0:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
        if replication_factor > 1:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor: {replication_factor} larger than available brokers: 1.",
            )
        return [[self._config.broker_id]] * partition_count

    def _check_assignment(
        self, partition_count: int, replication_factor: int, assignment: Mapping[int, Sequence[int]]
    ) -> list[Sequence[int]]:
        if partition_count != -1 or replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        if sorted(assignment) != list(range(len(assignment))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be a consecutive 0-based integer sequence",
            )
        for brokers in assignment.values():
            if len(set(brokers)) != len(brokers):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Duplicate replica assignment found: {list(brokers)}",
                )
            if not brokers or len(brokers) != len(assignment[0]):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    "All partitions should have the same number of replicas",
                )
            if self._config.broker_id not in brokers:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"no replica of {list(brokers)} is on this broker ({self._config.broker_id})",
                )
        return [assignment[number] for number in range(len(assignment))]


def internal_topics(config: KafkaConfig) -> dict[str, tuple[int, dict[str, str]]]:
    """Partitions and configs of the coordinators' topics.

    As kafka 2.0.1 GroupMetadataManager.offsetsTopicConfigs and TransactionStateManager.transactionTopicConfigs.
    """
    return {
        GROUP_METADATA_TOPIC: (
            config.offsets_topic_num_partitions,
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
                "compression.type": "producer",
            },
        ),
        TRANSACTION_STATE_TOPIC: (
            config.transaction_state_log_num_partitions,
            {
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": "1",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        ),
    }
