"""ApiVersions, Metadata and FindCoordinator: how a client finds its way.

ApiVersions v0-v3: what the handler table serves; a version that is not known is answered in v0 with
UNSUPPORTED_VERSION and no list (as kafka 2.0.1).
Metadata v0-v8. Version notes: v0 an empty list means all topics · v1 null does, an empty list means none, knows
racks and the controller · v2 cluster id · v4 may forbid automatic creation · v5 offline replicas · v6
LISTENER_NOT_FOUND · v7 leader epochs · v8 authorized operations.
FindCoordinator v0-v2: this broker has no group coordinator yet and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.broker.client import Client
from minibroker.broker.cluster.metadata_cache import INTERNAL_TOPICS, MetadataCache, TopicState
from minibroker.broker.config import KafkaConfig
from minibroker.broker.controller import Controller
from minibroker.protocol.api import API_TABLE, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import (
    ApiVersionsResponse,
    FindCoordinatorResponse,
    MetadataResponse,
)

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})
AUTHORIZED_OPERATIONS_UNKNOWN = -(2**31)
FIRST_VERSION_WITH_NULL_TOPICS = 1

Body = Any


class MetadataApis:
    """Handlers of ApiVersions, Metadata and FindCoordinator. `served` is filled by the registry."""

    def __init__(
        self,
        *,
        config: KafkaConfig,
        metadata_cache: MetadataCache,
        controller: Controller,
        listen_host: str,
        listen_port: int,
    ) -> None:
        self._config = config
        self._metadata_cache = metadata_cache
        self._controller = controller
        self._listen_host = listen_host
        self._listen_port = listen_port
        self.served: Sequence[int] = ()
        self._offer: Body | None = None  # the same for everyone, made when first asked for

    # -- ApiVersions ------------------------------------------------------------------------------------------

    def api_versions(self, request: Request, client: Client) -> Body:
        if request.body is None:  # a version we do not know: the framing could not read further
            request.api_version = 0
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
        if self._offer is None:
            rows = [(key, *API_TABLE[key].versions) for key in self.served]
            self._offer = ApiVersionsResponse(api_keys=rows)
        return self._offer

    # -- Metadata ---------------------------------------------------------------------------------------------

    def metadata(self, request: Request, client: Client) -> Body:
        body = request.body
        names = None if body.topics is None else [topic.name for topic in body.topics]
        if request.api_version < FIRST_VERSION_WITH_NULL_TOPICS and not names:
            names = None
        if names is None:
            topics = [self._known(topic) for topic in self._metadata_cache.topics.values()]
        else:
            topics = [self._topic(name, body.allow_auto_topic_creation) for name in dict.fromkeys(names)]
        host, port = self.address_for(client)
        broker = MetadataResponse.row("brokers")(
            node_id=self._config.broker_id, host=host, port=port, rack=self._config.broker_rack
        )
        return MetadataResponse(
            brokers=[broker],
            cluster_id=self._metadata_cache.cluster_id,
            controller_id=self._config.broker_id,
            topics=topics,
            cluster_authorized_operations=AUTHORIZED_OPERATIONS_UNKNOWN,
        )

    def address_for(self, client: Client) -> tuple[str, int]:
        """Where this client shall connect: advertised.listeners, else the address it reached us by.

        Kafka advertises the listener's own host; a wildcard listener is reached by many names, and the one that
        this client used is sure to work for it.
        """
        advertised = self._config.advertised_address
        if advertised is not None:
            return advertised[0], advertised[1] or self._listen_port
        if self._listen_host in WILDCARD_HOSTS:
            return client.local_host, client.local_port
        return self._listen_host, self._listen_port

    def _topic(self, name: str, may_create: bool) -> Body:
        topic = self._metadata_cache.topics.get(name)
        if topic is not None:
            return self._known(topic)
        if not (may_create and self._config.auto_create_topics_enable):
            return topic_row(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            self._controller.create_topic_automatically(name)
        except KafkaError as error:
            code = ErrorCode.LEADER_NOT_AVAILABLE if error.code is ErrorCode.TOPIC_ALREADY_EXISTS else error.code
            return topic_row(name, code)
        # As kafka 2.0.1: the client that caused the creation is told to ask again.
        return topic_row(name, ErrorCode.LEADER_NOT_AVAILABLE)

    def _known(self, topic: TopicState) -> Body:
        make_row = MetadataResponse.row("topics.partitions")
        me = self._config.broker_id
        partitions = [
            make_row(
                error_code=ErrorCode.NONE if state.leader == me else ErrorCode.LEADER_NOT_AVAILABLE,
                partition=number,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.in_sync_replicas,
                offline_replicas=[replica for replica in state.replicas if replica != me],
            )
            for number, state in topic.partitions.items()
        ]
        return topic_row(topic.name, ErrorCode.NONE, partitions)

    # -- FindCoordinator --------------------------------------------------------------------------------------

    def find_coordinator(self, request: Request, client: Client) -> Body:
        return FindCoordinatorResponse(
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            error_message=None,
            node_id=-1,
            host="",
            port=-1,
        )


def topic_row(name: str, error: ErrorCode, partitions: Sequence[Body] = ()) -> Body:
    return MetadataResponse.row("topics")(
        error_code=error,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=AUTHORIZED_OPERATIONS_UNKNOWN,
    )
