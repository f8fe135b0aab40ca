"""Creates, changes and deletes topics, and changes the broker's settings: checks what clients ask of the controller.

Each topic of a request has an outcome; what passes its checks is stored together.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import chain

from minibroker.broker.cluster import controller
from minibroker.broker.cluster.assignment import (
    Draw,
    Racks,
    added_partitions,
    assign_replicas,
    assignment_of_topic,
    check_brokers,
)
from minibroker.broker.cluster.controller import Image, Plan, new_partition
from minibroker.broker.cluster.controller_loop import ControllerLoop, Failures
from minibroker.broker.cluster.metadata_cache import (
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    check_topic_name,
    colliding_names,
)
from minibroker.broker.cluster.open_files import check_open_files
from minibroker.broker.cluster.sections import BEING_DELETED, BROKER_CONFIGS, CLIENT_METRICS, GROUP_CONFIGS, Configs
from minibroker.broker.cluster.state import Change, ClusterState, TopicState, store
from minibroker.broker.cluster.topic_changes import NewPartitions, NewTopic, attempt, done, result_of
from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import Habit
from minibroker.broker.replica.decisions import PartitionState
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.text import counted
from minibroker.storage import chance
from minibroker.storage.config import LogConfig

logger = logging.getLogger(__name__)

CONFIGS_MAX_BYTES = 1 << 20  # of all groups, or of all client metrics: each change writes the file

Outcomes = dict[str, TopicState | KafkaError]


class TopicAdmin:
    """The only one that asks the controller to change topics, and that changes stored settings."""

    def __init__(
        self,
        *,
        config: KafkaConfig,
        dynamic_config: DynamicConfig,
        state: ClusterState,
        controller_loop: ControllerLoop,
        draw: Draw = chance.below,
    ) -> None:
        self._config = config
        self._dynamic_config = dynamic_config
        self._state = state
        self._controller = controller_loop
        self._draw = draw
        self._internal_topics = internal_topics(config, is_alone=not state.is_shared)

    def check_is_controller(self) -> None:
        """Raises KafkaError(NOT_CONTROLLER), as Kafka without a message: clients ask the controller then.

        Checks that follow are on what all brokers have written until now.
        """
        self._controller.look()
        if not self._controller.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

    def check_time(self, timeout_ms: int) -> None:
        """Raises KafkaError(REQUEST_TIMED_OUT) where the release does not begin a change that has no time."""
        if timeout_ms <= 0 and Habit.BEGINS_NOTHING_LATE in self._config.profile.habits:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    # -- topics -----------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicState | None:
        """Return a topic with all its partitions, also the ones that clients do not see."""
        return self._state.topics.get(name)

    @property
    def client_metrics(self) -> Mapping[str, Configs]:
        """The configs of client metrics, by name."""
        return self._state.get(CLIENT_METRICS)

    def topics(self) -> Iterable[TopicState]:
        """All topics that are not being deleted, with all their partitions."""
        return self._controller.image().kept_topics.values()

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicState | None:
        return next((topic for topic in self.topics() if topic.topic_id == topic_id), None)

    def create_topics(self, wanted: Iterable[NewTopic], *, validate_only: bool = False) -> Outcomes:
        """Create topics, each name once, or only check; return by name the new topic or its error.

        They are stored together. Checks in the order of kafka 2.0.1 AdminManager.createTopics.
        """
        request = TopicsRequest(self._controller.image(), self._config.broker_id)
        outcomes: Outcomes = {}
        for each in wanted:
            outcome = outcomes[each.name] = attempt(self._new_topic, each, request)
            if not validate_only and isinstance(outcome, TopicState):
                request.made[each.name] = outcome
        perform, create = self._controller.perform, controller.create_topics
        if not self._controller.is_active:
            perform, create = self._controller.enter, controller.enter_topics
        taken: Collection[str] = ()

        def event(image: Image) -> Plan:
            nonlocal taken
            taken = image.topics.keys() & request.made.keys()  # another broker was faster
            return create(image, request.made)

        made = self._performed("the topic", request.made, event, perform)
        made |= {name: already_exists(name) for name in taken if name in done(made)}
        for topic in done(made).values():
            logger.info("created topic %s with %s", topic.name, counted(len(topic.partitions), "partition"))
        return outcomes | made

    def create_missing_topics(self, names: Iterable[str]) -> Outcomes:
        """Create topics that a client asked for, with the broker's defaults, or those of a coordinator's topic.

        Any broker creates them. As kafka 2.0.1 KafkaApis.createTopic and createInternalTopic.
        """
        return self.create_topics(self._missing_topic(name) for name in names)

    def ensure_internal_topic(self, name: str) -> TopicState:
        """Return a coordinator's topic; create it if it does not exist. Raises KafkaError."""
        return self._state.topics.get(name) or result_of(self.create_missing_topics([name])[name])

    def create_partitions(self, wanted: Iterable[NewPartitions], *, validate_only: bool = False) -> Outcomes:
        """Add partitions to topics, or only check; return by name the grown topic or its error.

        They are stored together. As kafka 2.0.1 AdminManager.createPartitions.
        """
        request = TopicsRequest(self._controller.image(), self._config.broker_id)
        grown: Outcomes = {each.name: attempt(self._grown_topic, each, request) for each in wanted}
        if validate_only:
            return {
                name: each if isinstance(each, KafkaError) else self._state.topics[name] for name, each in grown.items()
            }
        made = done(grown)
        outcomes = self._performed("the partitions", made, lambda image: controller.create_topics(image, made))
        for topic in done(outcomes).values():
            logger.info("topic %s has %s now", topic.name, counted(len(topic.partitions), "partition"))
        return grown | outcomes

    def delete_topics(self, names: Iterable[str]) -> Outcomes:
        """Delete topics, each name once, and rename their directories; return by name the deleted topic or its error.

        The deletions are stored together.
        """
        outcomes: Outcomes = {name: attempt(self._deletable_topic, name) for name in names}
        gone = done(outcomes)
        deleted = self._performed("the deletion", gone, lambda image: controller.delete_topics(image, gone))
        for name in done(deleted):
            logger.info("deleted topic %s", name)
        if self._state.is_shared:
            self._controller.go_on()
        elif done(deleted):
            # Stored at once: before the next start, Apache Kafka may create directories of the same names.
            left = self._state.get(BEING_DELETED) - done(deleted).keys()
            attempt(self._state.save, "the end of a deletion", Change(sections={BEING_DELETED: left}))
        return outcomes | deleted

    # -- settings ---------------------------------------------------------------------------------------------

    def alter_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool) -> None:
        """Replace a topic's configs, in its open logs at once, or only check. Raises KafkaError.

        As kafka 2.0.1 AdminZkClient.changeTopicConfig.
        """
        self._check_topic_configs(configs)
        if not validate_only:
            self._controller.enter("the configs", partial(controller.change_configs, name=name, configs=dict(configs)))
            logger.info("topic %s has the configs %s now", name, configs)

    def _check_topic_configs(self, configs: Mapping[str, str]) -> None:
        """Raises KafkaError(INVALID_CONFIG), also for configs unknown to the release that this broker acts as."""
        LogConfig.from_props(configs, self._config.log_config)
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

        def settings() -> Change:
            before = self._state.get(BROKER_CONFIGS)
            return Change(sections={BROKER_CONFIGS: {**before, broker: dict(configs)}})

        store(self._state, "the settings", settings)
        self._dynamic_config.apply(change)
        if not self._state.is_shared:  # else each broker shows its own endpoints
            self._controller.perform("the brokers", controller.broker_altered)
        logger.info("settings of %s are %s now", f"broker {broker}" if broker else "all brokers", sorted(configs))

    def alter_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Replace the configs of a group. Raises KafkaError."""
        self._check_no_zookeeper("groups")
        self._store(
            f"group {group_id}",
            lambda: Change(sections={GROUP_CONFIGS: replaced(self._state.get(GROUP_CONFIGS), group_id, configs)}),
            configs,
        )

    def alter_client_metrics(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace the configs of client metrics. Raises KafkaError."""
        self._check_no_zookeeper("client metrics")
        self._store(
            f"client metrics {name}",
            lambda: Change(sections={CLIENT_METRICS: replaced(self._state.get(CLIENT_METRICS), name, configs)}),
            configs,
        )

    def _check_no_zookeeper(self, kind: str) -> None:
        if self._state.is_beside_kafka:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Apache Kafka 2.0.1 has no configs of {kind} in ZooKeeper.")

    def _store(self, owner: str, change: Callable[[], Change], configs: Mapping[str, str]) -> None:
        store(self._state, f"the configs of {owner}", change)
        logger.info("configs of %s are %s now", owner, dict(configs))

    # -- steps ------------------------------------------------------------------------------------------------

    def _performed(
        self,
        what: str,
        topics: Mapping[str, TopicState],
        event: Callable[[Image], Plan],
        perform: Callable[[str, Callable[[Image], Plan]], Failures] | None = None,
    ) -> Outcomes:
        """Have the controller change these topics, or `perform`; return each, or its error."""
        if not topics:
            return {}
        failures = attempt(perform or self._controller.perform, what, event)
        if isinstance(failures, KafkaError):
            return dict.fromkeys(topics, failures)
        failed: dict[str, KafkaError] = {}
        for topic_partition, error in failures.items():
            failed.setdefault(topic_partition.topic, error)
        stored = self._state.topics  # with the ids that it gives to topics
        return {name: failed.get(name) or stored.get(name, topic) for name, topic in topics.items()}

    def _new_topic(self, wanted: NewTopic, request: TopicsRequest) -> TopicState:
        configs = dict(wanted.configs)
        self._check_topic_configs(configs)
        if wanted.assignment:
            self._check_no_counts(wanted.partition_count, wanted.replication_factor)
            check_new_name(wanted.name, self._state.topics, request.made)
            replicas = assignment_of_topic(wanted.assignment)
            if Habit.KNOWS_BROKERS in self._config.profile.habits:
                check_brokers(replicas, request.racks)
        else:
            replicas = assign_replicas(request.racks, wanted.partition_count, wanted.replication_factor, self._draw)
            check_new_name(wanted.name, self._state.topics, request.made)
        partitions = {number: new_partition(request.image, brokers) for number, brokers in enumerate(replicas)}
        request.check_open_files(partitions.values())
        return TopicState(wanted.name, partitions, configs, chance.new_uuid())

    def _missing_topic(self, name: str) -> NewTopic:
        if name in self._internal_topics:
            return self._internal_topics[name]
        return NewTopic(name, self._config.num_partitions, self._config.default_replication_factor, {}, {})

    def _grown_topic(self, wanted: NewPartitions, request: TopicsRequest) -> TopicState:
        topic = self._state.topics.get(wanted.name)
        if topic is not None and wanted.name in self._state.get(BEING_DELETED):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        if any(each.reassignments for each in self.topics()):
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, "A partition reassignment is in progress.")
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.name}' does not exist.")
        count = len(topic.partitions)
        if sorted(topic.partitions) != list(range(count)):
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"The partitions of topic '{wanted.name}' are not numbered 0, 1, 2 ..."
            )
        existing = [topic.partitions[number].replicas for number in range(count)]
        added = added_partitions(existing, wanted.total_count, wanted.assignment, request.racks)
        partitions = {number: new_partition(request.image, brokers) for number, brokers in enumerate(added, count)}
        request.check_open_files(partitions.values())
        return topic._replace(partitions={**topic.partitions, **partitions})

    def _deletable_topic(self, name: str) -> TopicState:
        if not self._config.delete_topic_enable:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        topic = self._state.topics.get(name)
        if topic is None or name in self._state.get(BEING_DELETED):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def _check_no_counts(self, partition_count: int, replication_factor: int) -> None:
        if partition_count != -1 or replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )


class TopicsRequest:
    """The common state of the topics of one request: the cluster, those made before, and the open files they share."""

    def __init__(self, image: Image, broker_id: int) -> None:
        self.image = image
        self.racks: Racks = {each: broker.rack for each, broker in image.brokers.items()}
        self._broker_id = broker_id
        self.made: dict[str, TopicState] = {}
        self._logs = 0

    def check_open_files(self, partitions: Collection[PartitionState]) -> None:
        """Raises KafkaError(POLICY_VIOLATION) if logs of these, and of others of the request, need too many."""
        own = sum(self._broker_id in partition.replicas for partition in partitions)
        check_open_files(self._logs + own)
        self._logs += own


def check_new_name(name: str, *taken: Collection[str]) -> None:
    """Raises KafkaError."""
    check_topic_name(name)
    if any(name in each for each in taken):
        raise already_exists(name)
    colliding = colliding_names(name, chain(*taken))
    if colliding:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {', '.join(colliding)}",
        )


def already_exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def internal_topics(config: KafkaConfig, *, is_alone: bool) -> dict[str, NewTopic]:
    """The topics of coordinators by name. A broker that is the whole cluster has one replica of each.

    As kafka 2.0.1 GroupMetadataManager.offsetsTopicConfigs and TransactionStateManager.transactionTopicConfigs.
    """
    offsets = NewTopic(
        GROUP_METADATA_TOPIC,
        config.offsets_topic_num_partitions,
        1 if is_alone else config.offsets_topic_replication_factor,
        {},
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
            "compression.type": "producer",
        },
    )
    transactions = NewTopic(
        TRANSACTION_STATE_TOPIC,
        config.transaction_state_log_num_partitions,
        1 if is_alone else config.transaction_state_log_replication_factor,
        {},
        {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": "1" if is_alone else str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        },
    )
    shares = NewTopic(
        SHARE_STATE_TOPIC,
        config.share_coordinator_state_topic_num_partitions,
        1 if is_alone else config.share_coordinator_state_topic_replication_factor,
        {},
        {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "compression.type": "producer",
            "min.insync.replicas": "1" if is_alone else str(config.share_coordinator_state_topic_min_isr),
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
        },
    )
    return {each.name: each for each in (offsets, transactions, shares)}


def replaced(kept: Mapping[str, Configs], name: str, configs: Configs) -> dict[str, Configs]:
    """The configs by name with those of `name`, without it if there are none.

    Raises KafkaError(INVALID_REQUEST) for new ones if all of them have too many bytes.
    """
    others = {each: its_own for each, its_own in kept.items() if each != name}
    if not configs:
        return others
    after = {**others, name: dict(configs)}
    texts = (text for owner, its_own in after.items() for text in (owner, *its_own, *its_own.values()))
    if name not in kept and sum(len(text.encode()) for text in texts) > CONFIGS_MAX_BYTES:
        message = f"The configs of this kind, with all names, have more than {CONFIGS_MAX_BYTES} bytes; remove some."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    return after
