"""Creates, changes and deletes topics, and changes the broker's settings: checks a change, stores it, then applies it.

The order makes a kill at any point harmless. A new topic is in the store before its first log exists: the next start
creates the log. A deleted topic leaves the store before its directories go; the store notes that directories may be
left, so that the next start removes them instead of taking them for a topic. All topics of one request are stored
together, all or none: one fsync instead of a hundred.

Replicas may be assigned to unknown brokers. A partition without a replica on this broker has no leader, and as in Kafka
clients do not see a partition that never had one: it is in the store, but not in the metadata cache.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from minibroker.broker.cluster.assignment import added_partitions, assign_replicas, assignment_of_topic
from minibroker.broker.cluster.internal_topics import internal_topics
from minibroker.broker.cluster.metadata_cache import (
    NO_LEADER,
    MetadataCache,
    PartitionState,
    TopicState,
    check_topic_name,
    colliding_names,
)
from minibroker.broker.cluster.open_files import check_open_files
from minibroker.broker.cluster.topic_changes import NewPartitions, NewTopic, attempt, done, result_of
from minibroker.broker.cluster.topic_store import Changed, TopicStore
from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.decisions import Decision, LeaderAndIsr, PartitionDecision, StopReplica
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.text import counted
from minibroker.storage.config import LogConfig

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK = 1000
CONTROLLER_EPOCH = 1  # one broker: no controller replaces another

TopicDeletionListener = Callable[[Sequence[TopicPartition]], None]


class Controller:
    """The only writer of topics and of changed settings.

    Calls each of `on_topic_deleted` with the partitions of a deleted topic.
    """

    def __init__(
        self,
        *,
        config: KafkaConfig,
        dynamic_config: DynamicConfig,
        store: TopicStore,
        metadata_cache: MetadataCache,
        replica_manager: ReplicaManager,
    ) -> None:
        self._config = config
        self._dynamic_config = dynamic_config
        self._store = store
        self._cache = metadata_cache
        self._replica_manager = replica_manager
        self.on_topic_deleted: list[TopicDeletionListener] = []
        self._producer_ids = iter(range(0))
        self._to_be_opened = 0  # logs of the request in hand
        self._internal_topics = internal_topics(config)

    def start(self) -> None:
        """Lead every partition, each in a new leader epoch, so that no epoch of lost records is used again."""
        for topic in self._store.topics.values():
            for number, partition in topic.partitions.items():
                log = self._replica_manager.log_manager.get_log(TopicPartition(topic.name, number))
                last_epoch = log.leader_epochs.latest_epoch if log is not None else -1
                partition.leader_epoch = max(partition.leader_epoch, last_epoch) + 1
                partition.leader, partition.in_sync_replicas = self._elect(
                    partition.replicas, partition.in_sync_replicas
                )
        self._store.save()
        for topic in self._store.topics.values():
            self._publish(topic)

    # -- topics -----------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicState | None:
        """Return a topic with all its partitions, also those that clients do not see."""
        return self._store.topics.get(name)

    def topics(self) -> Iterable[TopicState]:
        """All topics, with all their partitions."""
        return self._store.topics.values()

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicState | None:
        return next((topic for topic in self.topics() if topic.topic_id == topic_id), None)

    def create_topics(
        self, wanted: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicState | KafkaError]:
        """Create topics, each name once, or only check; return by name the new topic or its error.

        They are stored together. Checks in the order of kafka 2.0.1 AdminManager.createTopics.
        """
        self._to_be_opened = 0
        if validate_only:
            return {each.name: attempt(self._checked_topic, each) for each in wanted}
        outcomes = {each.name: attempt(self._store_topic, each) for each in wanted}
        made = done(outcomes)

        def undo() -> None:
            for name in made:
                del self._store.topics[name]

        return outcomes | self._saved_then(made, "the topic", undo, self._open_topic)

    def create_missing_topics(self, names: Iterable[str]) -> dict[str, TopicState | KafkaError]:
        """Create topics that a client asked for, with the broker's defaults, or those of a coordinator's topic.

        As kafka 2.0.1 KafkaApis.createTopic and createInternalTopic.
        """
        return self.create_topics(self._missing_topic(name) for name in names)

    def ensure_internal_topic(self, name: str) -> TopicState:
        """Return a coordinator's topic; create it if it does not exist. Raises KafkaError."""
        return self._store.topics.get(name) or result_of(self.create_missing_topics([name])[name])

    def create_partitions(
        self, wanted: Iterable[NewPartitions], *, validate_only: bool = False
    ) -> dict[str, TopicState | KafkaError]:
        """Add partitions to topics, or only check; return by name the grown topic or its error.

        They are stored together. As kafka 2.0.1 AdminManager.createPartitions.
        """
        self._to_be_opened = 0
        added = {each.name: attempt(self._added_partitions, each) for each in wanted}
        growing = {} if validate_only else done(added)
        before = {name: self._store.topics[name].partitions for name in growing}
        for name, partitions in growing.items():
            self._store.topics[name].partitions = before[name] | partitions

        def undo() -> None:
            for name, partitions in before.items():
                self._store.topics[name].partitions = partitions

        outcomes = {
            name: each if isinstance(each, KafkaError) else self._store.topics[name] for name, each in added.items()
        }
        grown = {name: self._store.topics[name] for name in growing}
        return outcomes | self._saved_then(
            grown, "the partitions", undo, lambda topic: self._open_topic(topic, growing[topic.name])
        )

    def delete_topics(self, names: Iterable[str]) -> dict[str, TopicState | KafkaError]:
        """Delete topics, each name once, and rename their directories; return by name the deleted topic or its error.

        The deletions are stored together.
        """
        outcomes = {name: attempt(self._forget_topic, name) for name in names}
        gone = done(outcomes)
        self._store.being_deleted |= gone.keys()

        def undo() -> None:
            self._store.topics.update(gone)
            self._store.being_deleted -= gone.keys()

        outcomes |= self._saved_then(gone, "the deletion", undo, self._delete_logs)
        deleted = done(outcomes)
        if deleted:
            self._store.being_deleted -= deleted.keys()
            # Stored at once: before the next start, Apache Kafka may create directories of the same names.
            attempt(self._store.save_or_undo, "the end of a deletion", lambda: None, Changed())
        return outcomes

    # -- settings ---------------------------------------------------------------------------------------------

    def alter_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool) -> None:
        """Replace a topic's configs, in its open logs at once, or only check. Raises KafkaError.

        As kafka 2.0.1 AdminZkClient.changeTopicConfig.
        """
        topic = self._store.topics[name]
        self._check_topic_configs(configs)
        if validate_only:
            return
        before, topic.configs = topic.configs, dict(configs)
        self._store.save_or_undo("the configs", lambda: setattr(topic, "configs", before), Changed([name]))
        self._replica_manager.log_manager.set_topic_overrides(name, topic.configs)
        self._show(topic)
        logger.info("topic %s has the configs %s now", name, topic.configs)

    def _check_topic_configs(self, configs: Mapping[str, str]) -> None:
        """Raises KafkaError(INVALID_CONFIG), also for configs unknown to the release that this broker acts as."""
        LogConfig.from_props(configs, self._replica_manager.log_manager.default_config)
        for name, text in configs.items():
            problem = self._config.profile.problem_with_topic_config(name, text)
            if problem is not None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, problem)

    def alter_broker_configs(self, broker: str, configs: Mapping[str, str], *, validate_only: bool) -> None:
        """Replace the changed settings of this broker, or of all (the empty name), at once, or only check.

        Raises KafkaError, or InvalidDynamicConfig with Kafka's message. As kafka 2.0.1 DynamicBrokerConfig.
        """
        change = self._dynamic_config.changed(broker, configs)
        if validate_only:
            return
        change.check_storable()
        before = self._store.broker_configs
        self._store.broker_configs = before | {broker: dict(configs)}
        self._store.save_or_undo("the settings", lambda: setattr(self._store, "broker_configs", before))
        self._dynamic_config.apply(change)
        logger.info("settings of %s are %s now", f"broker {broker}" if broker else "all brokers", sorted(configs))

    # -- producer ids -----------------------------------------------------------------------------------------

    def next_producer_id(self) -> int:
        """Return a new producer id, never used by an earlier run either: blocks of 1000 are stored before their use."""
        producer_id = next(self._producer_ids, None)
        if producer_id is not None:
            return producer_id
        first = self._store.next_producer_id
        self._store.next_producer_id = first + PRODUCER_ID_BLOCK
        undo = partial(setattr, self._store, "next_producer_id", first)
        self._store.save_or_undo("a block of producer ids", undo, Changed())
        self._producer_ids = iter(range(first, first + PRODUCER_ID_BLOCK))
        return next(self._producer_ids)

    # -- steps ------------------------------------------------------------------------------------------------

    def _saved_then(
        self, topics: Mapping[str, TopicState], what: str, undo: Callable[[], object], act: Callable[[TopicState], None]
    ) -> dict[str, TopicState | KafkaError]:
        """Store the changes of these topics once, then apply each; undo all and return the error if storing fails."""
        saved = attempt(self._store.save_or_undo, what, undo, Changed(topics)) if topics else None
        if saved is not None:
            return dict.fromkeys(topics, saved)
        failures = {name: attempt(act, topic) for name, topic in topics.items()}
        return {name: topics[name] if failure is None else failure for name, failure in failures.items()}

    def _checked_topic(self, wanted: NewTopic) -> TopicState:
        configs = dict(wanted.configs)
        self._check_topic_configs(configs)
        if wanted.assignment:
            self._check_no_counts(wanted.partition_count, wanted.replication_factor)
            self._check_new_name(wanted.name)
            replicas = assignment_of_topic(wanted.assignment)
        else:
            replicas = assign_replicas(self._config.broker_id, wanted.partition_count, wanted.replication_factor)
            self._check_new_name(wanted.name)
        partitions = {number: self._new_partition(brokers) for number, brokers in enumerate(replicas)}
        self._check_open_files(partitions)
        return TopicState(wanted.name, partitions, configs)

    def _missing_topic(self, name: str) -> NewTopic:
        """Describe a topic to create: with one live broker, a coordinator's topic has one replica."""
        if name in self._internal_topics:
            partition_count, configs = self._internal_topics[name]
            return NewTopic(name, partition_count, 1, {}, configs)
        return NewTopic(name, self._config.num_partitions, self._config.default_replication_factor, {}, {})

    def _store_topic(self, wanted: NewTopic) -> TopicState:
        topic = self._store.topics[wanted.name] = self._checked_topic(wanted)
        self._store.being_deleted.discard(wanted.name)
        return topic

    def _open_topic(self, topic: TopicState, added: Iterable[int] | None = None) -> None:
        """Open the logs of a topic, or of its added partitions."""
        self._publish(topic, only=added)
        what = "created topic %s with %s" if added is None else "topic %s has %s now"
        logger.info(what, topic.name, counted(len(topic.partitions), "partition"))

    def _added_partitions(self, wanted: NewPartitions) -> dict[int, PartitionState]:
        topic = self._store.topics.get(wanted.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.name}' does not exist.")
        count = len(topic.partitions)
        if sorted(topic.partitions) != list(range(count)):
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"The partitions of topic '{wanted.name}' are not numbered 0, 1, 2 ..."
            )
        existing = [topic.partitions[number].replicas for number in range(count)]
        added = added_partitions(existing, wanted.total_count, wanted.assignment, self._config.broker_id)
        partitions = {number: self._new_partition(brokers) for number, brokers in enumerate(added, count)}
        self._check_open_files(partitions)
        return partitions

    def _forget_topic(self, name: str) -> TopicState:
        if not self._config.delete_topic_enable:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        topic = self._store.topics.pop(name, None)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def _delete_logs(self, topic: TopicState) -> None:
        self._cache.topics.pop(topic.name, None)
        stopped = [
            TopicPartition(topic.name, number) for number, each in topic.partitions.items() if each.leader != NO_LEADER
        ]
        self._obey(StopReplica(self._config.broker_id, CONTROLLER_EPOCH, True, stopped))
        logger.info("deleted topic %s", topic.name)
        partitions = list(self._cache.partitions_of(topic))
        for callback in self.on_topic_deleted:
            callback(partitions)

    def _elect(self, replicas: Sequence[int], last_in_sync: Sequence[int] = ()) -> tuple[int, list[int]]:
        """Return the leader and the in-sync replicas; only this broker is alive.

        Followers stay in sync across a restart. As kafka 2.0.1, whose controller leaves it to the leader to remove
        followers that do not fetch within replica.lag.time.max.ms (seen after kill -9).
        """
        me = self._config.broker_id
        if me not in replicas:
            return NO_LEADER, []
        in_sync = [broker_id for broker_id in last_in_sync if broker_id in replicas]
        return me, in_sync if me in in_sync else [me]

    def _new_partition(self, replicas: Sequence[int]) -> PartitionState:
        leader, in_sync_replicas = self._elect(replicas)
        return PartitionState(leader, 0, list(replicas), in_sync_replicas)

    def _publish(self, topic: TopicState, only: Iterable[int] | None = None) -> None:
        """Open the logs (of the partitions in `only`), lead them, and publish the topic to clients."""
        self._replica_manager.log_manager.set_topic_overrides(topic.name, topic.configs)
        decided = {
            TopicPartition(topic.name, number): decision_of(topic.partitions[number])
            for number in sorted(topic.partitions if only is None else only)
            if topic.partitions[number].leader != NO_LEADER
        }
        self._obey(LeaderAndIsr(self._config.broker_id, CONTROLLER_EPOCH, decided))
        self._show(topic)

    def _obey(self, decision: Decision) -> None:
        """Have this broker obey. Raises the first of its KafkaErrors, after all partitions."""
        for error in self._replica_manager.partitions.apply(decision).failures.values():
            raise error

    def _show(self, topic: TopicState) -> None:
        seen = topic.with_leaders()
        if seen is not None:
            self._cache.topics[topic.name] = seen

    def _check_new_name(self, name: str) -> None:
        check_topic_name(name)
        if name in self._store.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        colliding = colliding_names(name, self._store.topics)
        if colliding:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topics: {', '.join(colliding)}",
            )

    def _check_open_files(self, partitions: Mapping[int, PartitionState]) -> None:
        """Raises KafkaError(POLICY_VIOLATION) if logs of these, and of others of the request, need too many."""
        led = sum(partition.leader != NO_LEADER for partition in partitions.values())
        check_open_files(self._to_be_opened + led)
        self._to_be_opened += led

    def _check_no_counts(self, partition_count: int, replication_factor: int) -> None:
        if partition_count != -1 or replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )


def decision_of(partition: PartitionState) -> PartitionDecision:
    return PartitionDecision(
        partition.leader,
        partition.leader_epoch,
        tuple(partition.in_sync_replicas),
        tuple(partition.replicas),
        partition.state_version,
    )
