"""The APIs of a controller, which leads the brokers of a cluster: LeaderAndIsr, StopReplica, UpdateMetadata; and
ControlledShutdown, with which a broker announces its end to the controller.

LeaderAndIsr v0-v1, StopReplica v0, UpdateMetadata v0-v4, ControlledShutdown v0-v1: only a broker of a cluster of
several serves them, and ApiVersions does not list them. A controller is obeyed as long as no later one was, from any
sender: with an authorizer, the sender needs ClusterAction. As kafka 2.0.1 KafkaApis and ReplicaManager.
Version notes: LeaderAndIsr v1 is_new · UpdateMetadata v1 several endpoints a broker, v2 racks, v3 the names of
listeners, v4 offline replicas · ControlledShutdown v0 has no client id in its header.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.controller_loop import ControllerLoop
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.cluster.own_broker import OwnBroker
from minibroker.broker.cluster.state import ClusterState
from minibroker.broker.replica.decisions import Obeyed
from minibroker.broker.wings.several.decision_messages import leader_and_isr_of, stop_replica_of, update_metadata_of
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.inter_broker import (
    ControlledShutdownResponse,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from minibroker.protocol.primitives import TopicPartition

logger = logging.getLogger(__name__)


Body = Any


class InterBrokerApis:
    """Handlers of the controller's APIs: `own` obeys, `controller_loop` acts if this broker is the controller."""

    def __init__(
        self, *, own: OwnBroker, metadata_cache: MetadataCache, state: ClusterState, controller_loop: ControllerLoop
    ) -> None:
        self._own = own
        self._metadata_cache = metadata_cache
        self._state = state
        self._controller = controller_loop

    def routes(self) -> Routes:
        return {
            ApiKey.LEADER_AND_ISR: self.leader_and_isr,
            ApiKey.STOP_REPLICA: self.stop_replica,
            ApiKey.UPDATE_METADATA: self.update_metadata,
            ApiKey.CONTROLLED_SHUTDOWN: self.controlled_shutdown,
        }

    def leader_and_isr(self, request: Request, client: Client) -> Body:
        """Lead or follow. Raises KafkaError(STALE_CONTROLLER_EPOCH) for the request and each of its partitions."""
        decision = leader_and_isr_of(request.body)
        self._state.look()  # it may be older than the decision
        for name in {topic_partition.topic for topic_partition in decision.partitions}:
            self._take_configs(name)
        obeyed = self._own.obey(decision)
        if obeyed.error is not ErrorCode.NONE:
            raise KafkaError(obeyed.error, f"the controller epoch {decision.controller_epoch} is over")
        return LeaderAndIsrResponse(partition_errors=error_rows(decision.partitions, obeyed))

    def _take_configs(self, name: str) -> None:
        """Apply a topic's configs in the state of the cluster, before its log is created."""
        topic = self._state.topics.get(name)
        try:
            if topic is not None:
                self._own.set_topic_configs(name, topic.configs)
        except KafkaError as error:  # of a broker that knows more of them; the topic is served all the same
            logger.error("topic %s keeps the configs it had: %s", name, error)

    def stop_replica(self, request: Request, client: Client) -> Body:
        """Stop serving replicas; the answer to a controller that was replaced names no partition."""
        decision = stop_replica_of(request.body)
        obeyed = self._own.obey(decision)
        rows = error_rows(decision.partitions, obeyed) if obeyed.error is ErrorCode.NONE else []
        return StopReplicaResponse(error_code=obeyed.error, partition_errors=rows)

    def update_metadata(self, request: Request, client: Client) -> Body:
        if request.body.partition_states:
            self._state.look()
        decision = update_metadata_of(request.body, self._metadata_cache.topics)
        return UpdateMetadataResponse(error_code=self._own.obey(decision).error)

    def controlled_shutdown(self, request: Request, client: Client) -> Body:
        """Have other brokers lead in place of one that is about to end; answer with the partitions that it leads still.

        Raises KafkaError as `ControllerLoop.shut_down`.
        """
        return ControlledShutdownResponse(remaining_partitions=self._controller.shut_down(request.body.broker_id))


def error_rows(topic_partitions: Iterable[TopicPartition], obeyed: Obeyed) -> list[tuple[str, int, ErrorCode]]:
    """The rows of an answer: each partition, once, with its error."""
    failures = obeyed.failures
    return [
        (*each, failures[each].code if each in failures else ErrorCode.NONE) for each in dict.fromkeys(topic_partitions)
    ]
