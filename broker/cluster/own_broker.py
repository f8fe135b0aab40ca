"""This broker, as it obeys a controller: its replicas, its coordinators, and what its clients see of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import trio

from minibroker.broker.cluster.controller import logs_of
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.cluster.sections import BEING_DELETED
from minibroker.broker.cluster.state import BrokerReturned, Change, ClusterState, News
from minibroker.broker.replica.decisions import Decision, Obeyed, StopReplica, TopicMetadata, UpdateMetadata
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition

logger = logging.getLogger(__name__)

# Called with a partition, and whether this broker leads it now, or no longer.
OnLeadership = Callable[[TopicPartition, bool], None]


class OwnBroker:
    """Performs decisions. Calls `on_leadership`, the first listener for all partitions before the second.

    `knows_cluster` is set by the first metadata,
    `has_roles` once a controller has shown all topics of the state, and decided on all replicas of this broker.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        state: ClusterState,
        *,
        broker_id: int,
        on_leadership: Sequence[OnLeadership] = (),
    ) -> None:
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._state = state
        self._broker_id = broker_id
        self._on_leadership = list(on_leadership)
        self._on_deleted: list[Callable[[Sequence[TopicPartition]], None]] = []
        self.knows_cluster = trio.Event()
        self.has_roles = trio.Event()
        self._decided: set[TopicPartition] = set()  # until `has_roles`
        self._controller_epoch = 0

    def when_leading(self, notice: OnLeadership) -> None:
        """Tell of the partitions that this broker begins or ends to lead, from now on."""
        self._on_leadership.append(notice)

    def when_deleted(self, call: Callable[[Sequence[TopicPartition]], None]) -> None:
        """Call with the partitions that are gone from the cluster, from now on."""
        self._on_deleted.append(call)

    def obey(self, decision: Decision) -> Obeyed:
        """Perform a decision. STALE_CONTROLLER_EPOCH for one of a controller that has been replaced: a later one has
        been obeyed, since this broker started."""
        if decision.controller_epoch < self._controller_epoch:
            return Obeyed(ErrorCode.STALE_CONTROLLER_EPOCH, {})
        self._controller_epoch = decision.controller_epoch
        if isinstance(decision, UpdateMetadata):
            topics = {name: topic and self._with_stored_id(topic) for name, topic in decision.topics.items()}
            deleted = self._metadata_cache.update(decision._replace(topics=topics))
            self.knows_cluster.set()
            self._note_decided(())
            for listener in self._on_deleted if deleted else ():
                listener(deleted)
            return Obeyed(ErrorCode.NONE, {})
        obeyed = self._replica_manager.partitions.apply(decision)
        self._note_decided(decision.partitions)
        for notice in self._on_leadership:
            for topic_partitions, is_leader in ((obeyed.lost, False), (obeyed.gained, True)):
                for topic_partition in topic_partitions:
                    notice(topic_partition, is_leader)
        return obeyed

    def _with_stored_id(self, topic: TopicMetadata) -> TopicMetadata:
        """A topic with its id in the state, which decisions of Kafka 2.0.1 do not have; with the id that it had, if the
        state has it no longer."""
        stored = self._state.topics.get(topic.name) or self._metadata_cache.topics.get(topic.name) or topic
        return topic if stored.topic_id == topic.topic_id else topic._replace(topic_id=stored.topic_id)

    def _note_decided(self, topic_partitions: Iterable[TopicPartition]) -> None:
        if self.has_roles.is_set():
            return
        self._decided.update(topic_partitions)
        shown = self._metadata_cache.topics
        if all(
            name in shown and (self._broker_id not in state.replicas or TopicPartition(name, number) in self._decided)
            for name, topic in self._state.topics.items()
            if name not in self._state.get(BEING_DELETED)
            for number, state in topic.partitions.items()
            if state.had_leader
        ):
            self.has_roles.set()
            self._decided.clear()

    def can_take_refused(self) -> bool:
        """Return whether this broker can take the roles now that it had to refuse. Raises KafkaError if it cannot."""

        def is_mine(where: TopicPartition) -> bool:
            topic = self._state.topics.get(where.topic)
            return (
                topic is not None
                and where.partition in topic.partitions
                and self._broker_id in logs_of(topic, where.partition)
            )

        return self._replica_manager.partitions.make_refused(is_mine)

    def drop_moved_in(self, news: News, *, is_deleted: bool) -> None:
        """Drop what news of the state shows as moved to other brokers: of this broker's return, or of topics."""
        match news:
            case BrokerReturned(broker_id) if broker_id == self._broker_id:
                self.drop_moved(is_deleted=is_deleted)
            case Change(topics=topics) if topics:
                self.drop_moved(topics.keys(), is_deleted=is_deleted)

    def drop_moved(self, names: Collection[str] | None = None, *, is_deleted: bool = True) -> None:
        """Stop the replicas of partitions that have moved to other brokers, of all topics without names, and delete
        their logs unless they are to stay.

        The controller sends StopReplica for them, but it may have ended before that arrived, and the next one does not
        know of a move that is over. The state is as new as any decision. A log of no known partition stays.
        """
        topics, manager = self._state.topics, self._replica_manager
        held: Iterable[TopicPartition] = manager.log_manager.logs
        if not is_deleted:
            held = [topic_partition for topic_partition, _ in manager.partitions.items()]
        moved = [
            each
            for each in held
            if (names is None or each.topic in names)
            and (topic := topics.get(each.topic)) is not None
            and each.partition in topic.partitions
            and self._broker_id not in logs_of(topic, each.partition)
        ]
        if moved:
            logger.info("%s: moved to other brokers", ", ".join(map(str, moved)))
            self.obey(StopReplica(self._broker_id, self._controller_epoch, is_deleted, moved))

    def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Apply a topic's configs, to its open logs at once. Raises KafkaError(INVALID_CONFIG)."""
        self._replica_manager.log_manager.set_topic_overrides(name, configs)
