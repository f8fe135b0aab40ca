"""CreateTopics, DeleteTopics, DeleteRecords and DescribeConfigs: what an administrator does with topics.

CreateTopics v0-v4. Version notes: v1 error messages, validate_only · v4 default partitions and replication.
DeleteTopics v0-v3. DeleteRecords v0-v1. DescribeConfigs v0-v2. Version notes: v1 synonyms and where a value comes from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from minibroker.broker.apis.describe_configs import describe_broker, describe_topic
from minibroker.broker.client import Client
from minibroker.broker.cluster.metadata_cache import MetadataCache, check_topic_name
from minibroker.broker.config import KafkaConfig
from minibroker.broker.controller import Controller
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.protocol.api import Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.topics import (
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
    DescribeConfigsResponse,
)
from minibroker.protocol.primitives import TopicPartition

FIRST_VERSION_WITH_DEFAULTS = 4
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_UNKNOWN = 0
RESOURCES = (RESOURCE_TOPIC, RESOURCE_BROKER)
NO_LOW_WATERMARK = -1

Body = Any


class TopicApis:
    """Handlers of topic administration."""

    def __init__(
        self,
        *,
        config: KafkaConfig,
        metadata_cache: MetadataCache,
        controller: Controller,
        replica_manager: ReplicaManager,
    ) -> None:
        self._replica_manager = replica_manager
        self._config = config
        self._metadata_cache = metadata_cache
        self._controller = controller

    # -- CreateTopics -----------------------------------------------------------------------------------------

    def create_topics(self, request: Request, client: Client) -> Body:
        times = Counter(topic.name for topic in request.body.topics)
        duplicates = duplicate_topics(request.client_id, [name for name, count in times.items() if count > 1])
        rows = []
        for topic in {topic.name: topic for topic in request.body.topics}.values():
            error = self._create(topic, request) if times[topic.name] == 1 else duplicates
            rows.append((topic.name, error.code, error.message) if error else (topic.name, ErrorCode.NONE, None))
        return CreateTopicsResponse(topics=rows)

    def _create(self, topic: Body, request: Request) -> KafkaError | None:
        partition_count, replication_factor = topic.num_partitions, topic.replication_factor
        if request.api_version >= FIRST_VERSION_WITH_DEFAULTS and not topic.assignments:
            if partition_count == -1:
                partition_count = self._config.num_partitions
            if replication_factor == -1:
                replication_factor = self._config.default_replication_factor
        try:
            self._controller.create_topic(
                topic.name,
                partition_count=partition_count,
                replication_factor=replication_factor,
                assignment={row.partition: row.broker_ids for row in topic.assignments},
                configs=checked_configs(topic.configs),
                validate_only=request.body.validate_only,
            )
        except KafkaError as error:
            return error
        return None

    # -- DeleteTopics -----------------------------------------------------------------------------------------

    def delete_topics(self, request: Request, client: Client) -> Body:
        rows = []
        for name in dict.fromkeys(request.body.topic_names):
            try:
                self._controller.delete_topic(name)
                rows.append((name, ErrorCode.NONE))
            except KafkaError as error:
                rows.append((name, error.code))
        return DeleteTopicsResponse(topics=rows)

    # -- DeleteRecords ----------------------------------------------------------------------------------------

    def delete_records(self, request: Request, client: Client) -> Body:
        # As Kafka's map: of a partition named twice the last offset counts, and it is answered once.
        offsets = {
            TopicPartition(topic.name, partition): offset
            for topic in request.body.topics
            for partition, offset in topic.partitions
        }
        topics: dict[str, list[Body]] = {}
        for topic_partition, offset in offsets.items():
            try:
                row = (topic_partition.partition, self._replica_manager.delete_records(topic_partition, offset), 0)
            except KafkaError as error:
                row = (topic_partition.partition, NO_LOW_WATERMARK, error.code)
            topics.setdefault(topic_partition.topic, []).append(row)
        return DeleteRecordsResponse(topics=list(topics.items()))

    # -- DescribeConfigs --------------------------------------------------------------------------------------

    def describe_configs(self, request: Request, client: Client) -> Body:
        # As Kafka's map: of a resource named twice the last wish counts, and it is answered once.
        resources = {
            (kind, resource.resource_name): resource._replace(resource_type=kind)
            for resource in request.body.resources
            for kind in (resource.resource_type if resource.resource_type in RESOURCES else RESOURCE_UNKNOWN,)
        }
        return DescribeConfigsResponse(
            results=[self._describe(resource, request.body.include_synonyms) for resource in resources.values()]
        )

    def _describe(self, resource: Body, with_synonyms: bool) -> Body:
        make_result = DescribeConfigsResponse.row("results")
        kind, name, keys = resource.resource_type, resource.resource_name, resource.configuration_keys
        try:
            configs = self._configs_of(kind, name, keys, with_synonyms)
        except KafkaError as error:
            return make_result(
                error_code=error.code,
                error_message=error.message,
                resource_type=kind,
                resource_name=name,
                configs=[],
            )
        return make_result(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=kind,
            resource_name=name,
            configs=configs,
        )

    def _configs_of(self, kind: int, name: str, keys: Sequence[str] | None, with_synonyms: bool) -> list[Body]:
        if kind == RESOURCE_TOPIC:
            check_topic_name(name)
            topic = self._metadata_cache.topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(topic.configs, self._config, keys, with_synonyms=with_synonyms)
        if kind == RESOURCE_BROKER:
            self._check_broker_id(name)
            if not name:
                return []  # what AlterConfigs has set for all brokers of the cluster
            return describe_broker(self._config, keys, with_synonyms=with_synonyms)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type UNKNOWN for resource {name}")

    def _check_broker_id(self, name: str) -> None:
        try:
            is_right = not name or int(name) == self._config.broker_id
        except ValueError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
        if not is_right:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._config.broker_id} or empty string, but received "
                f"ConfigResource(type=BROKER, name='{name}').name",
            )


def duplicate_topics(client_id: str | None, names: Sequence[str]) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"Create topics request from client `{client_id or ''}` contains multiple entries for the following topics: "
        + ",".join(names),
    )


def checked_configs(rows: Sequence[Body]) -> dict[str, str]:
    """Raises KafkaError(INVALID_CONFIG) for a null value, which Kafka cannot store either."""
    for row in rows:
        if row.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs : {row.name}")
    return {row.name: row.value for row in rows}
