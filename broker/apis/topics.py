"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords: topic administration.

CreateTopics v0-v7. Version notes: v1 error messages, validate_only · v5 flexible, answers partitions, replication and
configs of the new topic · v7 topic ids.
DeleteTopics v0-v6. Version notes: v4 flexible · v5 error messages · v6 by id.
CreatePartitions v0-v3, DeleteRecords v0-v2: flexible from v2.

A change is complete before it is answered. A timeout of zero or less is still answered REQUEST_TIMED_OUT, as by kafka
2.0.1 AdminManager; so is the creation of partitions without a leader, but without the wait.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.describe_configs import describe_topic
from minibroker.broker.apis.known_errors import known_code
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.metadata_cache import INTERNAL_TOPICS, check_topic_name
from minibroker.broker.cluster.state import TopicState
from minibroker.broker.cluster.topic_admin import TopicAdmin, already_exists
from minibroker.broker.cluster.topic_changes import NewPartitions, NewTopic, attempt, done, result_of
from minibroker.broker.cluster.zookeeper import check_topic_path
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import Habit
from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.delete_records import DeleteRecordsResults, failed_deletion
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import BROKERS_DEFAULT, NO_LEADER
from minibroker.protocol.messages.topics import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
)
from minibroker.protocol.primitives import ZERO_UUID, TopicPartition
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation

FIRST_VERSION_WITH_CONFIGS: int = CreateTopicsResponse.field("topics.configs").first
NO_TOPIC_ID = ZERO_UUID

Body = Any


class TopicApis:
    """Handlers of topic administration."""

    def __init__(
        self,
        *,
        config: KafkaConfig,
        topic_admin: TopicAdmin,
        replica_manager: ReplicaManager,
    ) -> None:
        self._replica_manager = replica_manager
        self._config = config
        self._topic_admin = topic_admin

    def routes(self) -> Routes:
        return {
            ApiKey.CREATE_TOPICS: self.create_topics,
            ApiKey.DELETE_TOPICS: self.delete_topics,
            ApiKey.DELETE_RECORDS: self.delete_records,
            ApiKey.CREATE_PARTITIONS: self.create_partitions,
        }

    # -- CreateTopics -----------------------------------------------------------------------------------------

    def create_topics(self, request: Request, client: Client) -> Body:
        self._topic_admin.check_is_controller()
        times = Counter(topic.name for topic in request.body.topics)
        duplicates = duplicate_topics(request.client_id, [name for name, count in times.items() if count > 1])
        wanted = {
            topic.name: attempt(self._wanted_topic, topic, request) if times[topic.name] == 1 else duplicates
            for topic in request.body.topics
        }
        outcomes = self._topic_admin.create_topics(done(wanted).values(), validate_only=request.body.validate_only)
        outcomes |= {name: refused for name, refused in wanted.items() if isinstance(refused, KafkaError)}
        return CreateTopicsResponse(topics=[self._topic_row(name, outcomes[name], request, client) for name in wanted])

    def _wanted_topic(self, topic: Body, request: Request) -> NewTopic:
        self._topic_admin.check_time(request.body.timeout_ms)
        if Habit.CHECKS_NAMES in self._config.profile.habits:
            check_topic_name(topic.name)
            if self._topic_admin.topic(topic.name) is not None:
                raise already_exists(topic.name)
        partition_count, replication_factor = topic.num_partitions, topic.replication_factor
        if Habit.HAS_NO_DEFAULT_COUNTS not in self._config.profile.habits and not topic.assignments:
            if partition_count == BROKERS_DEFAULT:
                partition_count = self._config.num_partitions
            if replication_factor == BROKERS_DEFAULT:
                replication_factor = self._config.default_replication_factor
        assignment = {row.partition: row.broker_ids for row in topic.assignments}
        return NewTopic(topic.name, partition_count, replication_factor, assignment, checked_configs(topic.configs))

    def _topic_row(self, name: str, made: TopicState | KafkaError, request: Request, client: Client) -> Body:
        try:
            topic = result_of(made)
            if not request.body.validate_only:
                check_in_time(request, (state.leader for state in topic.partitions.values()))
            return self._created_row(topic, request, client)
        except KafkaError as error:
            return CreateTopicsResponse.row("topics")(
                name=name, topic_id=NO_TOPIC_ID, error_code=error.code, error_message=error.message
            )

    def _created_row(self, topic: TopicState, request: Request, client: Client) -> Body:
        topic_id = NO_TOPIC_ID if request.body.validate_only else topic.topic_id.bytes
        if request.api_version >= FIRST_VERSION_WITH_CONFIGS and not client.may(
            Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name
        ):
            return CreateTopicsResponse.row("topics")(
                name=topic.name,
                topic_id=topic_id,
                error_code=ErrorCode.NONE,
                configs=None,
                topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        make_config = CreateTopicsResponse.row("topics.configs")
        configs = [
            make_config(
                name=row.name,
                value=row.value,
                read_only=row.read_only,
                config_source=row.config_source,
                is_sensitive=row.is_sensitive,
            )
            for row in describe_topic(topic.configs, self._config, None, with_synonyms=False)
        ]
        return CreateTopicsResponse.row("topics")(
            name=topic.name,
            topic_id=topic_id,
            error_code=ErrorCode.NONE,
            num_partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
            configs=configs,
        )

    # -- CreatePartitions -------------------------------------------------------------------------------------

    def create_partitions(self, request: Request, client: Client) -> Body:
        self._topic_admin.check_is_controller()
        times = Counter(topic.name for topic in request.body.topics)
        for name, count in times.items():
            if count == 1:
                check_topic_path(name)  # as Kafka, which looks for the topic in ZooKeeper
        wanted = {
            topic.name: attempt(self._wanted_partitions, topic, request)
            for topic in request.body.topics
            if times[topic.name] == 1
        }
        outcomes = self._topic_admin.create_partitions(done(wanted).values(), validate_only=request.body.validate_only)
        outcomes |= {name: refused for name, refused in wanted.items() if isinstance(refused, KafkaError)}
        twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        rows = [grown_row(name, outcomes.get(name, twice), request) for name in times]
        return CreatePartitionsResponse(results=rows)

    def _wanted_partitions(self, topic: Body, request: Request) -> NewPartitions:
        self._topic_admin.check_time(request.body.timeout_ms)
        return NewPartitions(topic.name, topic.count, assignment_of_partitions(topic))

    # -- DeleteTopics -----------------------------------------------------------------------------------------

    def delete_topics(self, request: Request, client: Client) -> Body:
        self._topic_admin.check_is_controller()
        make_row = DeleteTopicsResponse.row("topics")
        asked = self._to_delete(request)
        denied = {
            topic_id
            for name, topic_id in asked
            if name is not None and not client.may(Operation.DELETE, ResourceType.TOPIC, name)
        }
        twice: set[str | None] = set()
        if Habit.DELETES_ONCE in self._config.profile.habits:
            twice = {name for name, count in Counter(request.body.topic_names).items() if count > 1}
        refused = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        late = attempt(self._topic_admin.check_time, request.body.timeout_ms)
        named = [name for name, topic_id in asked if not (name is None or topic_id in denied or name in twice)]
        outcomes: dict[str, TopicState | KafkaError] = {name: refused for name in twice if name is not None}
        if isinstance(late, KafkaError):
            outcomes |= dict.fromkeys(named, late)
        else:
            outcomes |= self._topic_admin.delete_topics(named)
        rows = []
        for name, topic_id in asked:
            code, message = ErrorCode.NONE, None
            if topic_id in denied:
                code, message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
                shown = name if client.may(Operation.DESCRIBE, ResourceType.TOPIC, name or "") else None
                rows.append(make_row(name=shown, topic_id=topic_id, error_code=code, error_message=message))
                continue
            try:
                self._check_deleted(name, outcomes, request)
            except KafkaError as error:
                code, message = error.code, error.message
            rows.append(make_row(name=name, topic_id=topic_id, error_code=code, error_message=message))
        return DeleteTopicsResponse(topics=rows)

    def _check_deleted(
        self, name: str | None, outcomes: Mapping[str, TopicState | KafkaError], request: Request
    ) -> None:
        if name is None:
            self._topic_admin.check_time(request.body.timeout_ms)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        try:
            result_of(outcomes[name])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_DELETION_DISABLED:
                raise
            raise self._deletion_disabled(name, request.api_version, error) from error
        check_in_time(request)

    def _deletion_disabled(self, name: str, version: int, error: KafkaError) -> KafkaError:
        """As kafka 2.1; or as the release that this broker acts as, which waits in vain for the deletion."""
        if Habit.DELETION_TIMES_OUT in self._config.profile.habits:
            is_there = self._topic_admin.topic(name) is not None
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return KafkaError(known_code(ApiKey.DELETE_TOPICS, version, error.code), error.message)

    def _to_delete(self, request: Request) -> list[tuple[str | None, bytes]]:
        """Return name and id of each topic, once; no name for an unknown id.

        Raises KafkaError(INVALID_REQUEST) for a topic with both or neither.
        """
        asked: dict[tuple[str | None, bytes], None] = {(name, NO_TOPIC_ID): None for name in request.body.topic_names}
        for name, topic_id in request.body.topics:
            if (name is None) == (topic_id == NO_TOPIC_ID):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is deleted by its name or its id, one of the two.")
            if name is None:
                known = self._topic_admin.topic_by_id(uuid.UUID(bytes=bytes(topic_id)))
                asked[known.name if known is not None else None, topic_id] = None
            else:
                known = self._topic_admin.topic(name)
                asked[name, NO_TOPIC_ID if known is None else known.topic_id.bytes] = None
        return list(asked)

    # -- DeleteRecords ----------------------------------------------------------------------------------------

    def delete_records(self, request: Request, client: Client) -> Body | Pending[Body]:
        # As Kafka's map: if a partition is named twice, its last offset counts, and it has one row.
        offsets = {
            TopicPartition(topic.name, partition): offset
            for topic in request.body.topics
            for partition, offset in topic.partitions
        }
        refused = {each: failed_deletion(ErrorCode.INVALID_TOPIC_EXCEPTION) for each in offsets if self._is_kept(each)}
        outcome = self._replica_manager.delete_records(
            {each: offset for each, offset in offsets.items() if each not in refused}, request.body.timeout_ms
        )

        def answer(results: DeleteRecordsResults) -> Body:
            all_results = results | refused
            return delete_records_answer({each: all_results[each] for each in offsets})

        return then(outcome, answer)

    def _is_kept(self, topic_partition: TopicPartition) -> bool:
        is_here = self._replica_manager.partitions.any(topic_partition) is not None
        return is_here and topic_partition.topic in INTERNAL_TOPICS


def grown_row(name: str, grown: TopicState | KafkaError, request: Request) -> Body:
    try:
        topic = result_of(grown)
        if not request.body.validate_only:
            check_in_time(request, (state.leader for state in topic.partitions.values()))
    except KafkaError as error:
        return name, error.code, error.message
    return name, ErrorCode.NONE, None


def assignment_of_partitions(topic: Body) -> list[list[int]] | None:
    return None if topic.assignments is None else [row.broker_ids for row in topic.assignments]


def check_in_time(request: Request, leaders: Iterable[int] = ()) -> None:
    """Raises KafkaError(REQUEST_TIMED_OUT), as Kafka without a message."""
    if request.body.timeout_ms <= 0 or NO_LEADER in leaders:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def duplicate_topics(client_id: str | None, names: Sequence[str]) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"Create topics request from client `{client_id or ''}` contains multiple entries for the following topics: "
        + ",".join(names),
    )


def checked_configs(rows: Sequence[Body]) -> dict[str, str]:
    """Return the configs. Raises KafkaError(INVALID_CONFIG) for a null value, which Kafka cannot store either."""
    for row in rows:
        if row.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs : {row.name}")
    return {row.name: row.value for row in rows}


def delete_records_answer(results: DeleteRecordsResults) -> Body:
    topics: dict[str, list[Body]] = {}
    for (topic, partition), result in results.items():
        topics.setdefault(topic, []).append((partition, result.low_watermark, result.error))
    return DeleteRecordsResponse(topics=list(topics.items()))
