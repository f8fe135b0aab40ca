"""ApiVersions and Metadata: the APIs of this broker, and the brokers, topics and leaders of the cluster.

ApiVersions v0-v5: the APIs and their versions. An unknown version gets UNSUPPORTED_VERSION in v0, with the versions of
ApiVersions alone (KIP-511); before kafka 2.4 without any. Version notes: v1 throttle time · v3 the client's software,
features · v5 which broker the client means to ask.
DescribeTopicPartitions v0 (KIP-966): topics in parts.
Metadata v0-v13. Version notes: v0 an empty list means all topics, only live replicas · v1 null means all topics, an
empty list none; racks and the controller · v2 cluster id · v4 may forbid automatic creation · v5 offline replicas ·
v6 LISTENER_NOT_FOUND · v7 leader epochs · v8 authorized operations · v10 topic ids · v11 without the cluster's
operations · v12 topics by id · v13 an error code of the whole answer.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from minibroker.broker.apis import authorized_operations
from minibroker.broker.apis.client import Client
from minibroker.broker.apis.known_errors import known_code
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.features import Features
from minibroker.broker.cluster.metadata_cache import INTERNAL_TOPICS, MetadataCache, check_topic_name
from minibroker.broker.cluster.sections import FeatureLevels
from minibroker.broker.cluster.state import TopicState
from minibroker.broker.cluster.topic_admin import TopicAdmin
from minibroker.broker.cluster.topic_changes import attempt
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import Habit
from minibroker.broker.replica.decisions import PartitionState, TopicMetadata
from minibroker.protocol.api import Api, ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from minibroker.protocol.primitives import ZERO_UUID, new
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation

SOFTWARE_NAMES_REMEMBERED = 32
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
FIRST_VERSION_WITH_NULL_TOPICS: int = MetadataRequest.field("topics").null_first
FIRST_VERSION_WITH_TOPICS_BY_ID = 12
FIRST_VERSION_OF_KRAFT: int = MetadataResponse.field("error_code").first
FIRST_VERSION_WITH_ABSENT_REPLICAS = 1
NO_BROKER = -1
FIRST_VERSION_WITH_SOFTWARE: int = ApiVersionsRequest.field("client_software_name").first
NO_CURSOR = DescribeTopicPartitionsRequest.row("cursor")("", 0)
MOST_PARTITIONS = 2000  # of an answer, as max.request.partition.size.limit
FIRST_VERSION_WITH_FEATURES_FROM_ZERO = 4
ROWS_KEPT = 1000  # besides two for each topic
PARTITION_ROW = MetadataResponse.row("topics.partitions")
DESCRIBED_PARTITION = DescribeTopicPartitionsResponse.row("topics.partitions")

Body = Any


class MetadataApis:
    """Handlers of ApiVersions and Metadata. `apis` are those that the broker serves."""

    def __init__(
        self,
        *,
        config: KafkaConfig,
        metadata_cache: MetadataCache,
        topic_admin: TopicAdmin,
        apis: Mapping[int, Api],
        features: Features,
    ) -> None:
        self._config = config
        self._metadata_cache = metadata_cache
        self._topic_admin = topic_admin
        self._apis = apis
        self._features = features
        # The same for all clients, made at the first request of versions that show the same features.
        self._offers: dict[bool, tuple[FeatureLevels, Body]] = {}
        # The rows of topics by listener, made at the first request for these values.
        self._rows: dict[tuple[str, str], tuple[TopicMetadata, object, Body]] = {}

    def routes(self) -> Routes:
        return {
            ApiKey.METADATA: self.metadata,
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions,
        }

    # -- ApiVersions ------------------------------------------------------------------------------------------

    def api_versions(self, request: Request, client: Client) -> Body:
        if request.body is None:  # an unknown version, of which only the header was decoded
            request.answer_in(0)
            own = [
                row
                for row in self._offered_rows()
                if row[0] == ApiKey.API_VERSIONS and row[2] >= FIRST_VERSION_WITH_SOFTWARE
            ]
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)
        refusal = self._refusal(request.body)
        if refusal is not ErrorCode.NONE:
            return ApiVersionsResponse(error_code=refusal, api_keys=[])
        client.introduce(request.body.client_software_name, request.body.client_software_version)
        shows_zero = request.api_version >= FIRST_VERSION_WITH_FEATURES_FROM_ZERO
        made = self._offers.get(shows_zero)
        if made is None or made[0] is not self._features.changed:
            made = self._offers[shows_zero] = self._features.changed, self._offer(shows_zero=shows_zero)
        return made[1]

    def _offer(self, *, shows_zero: bool) -> Body:
        supported = self._features.supported
        offer = ApiVersionsResponse(
            api_keys=self._offered_rows(),
            supported_features=[(name, *both) for name, both in supported.items() if both[0] or shows_zero],
            finalized_features_epoch=self._features.changed.epoch if supported else -1,
            finalized_features=[(name, level, level) for name, level in self._features.levels.items()],
        )
        ApiVersionsResponse.remember(offer)
        return offer

    def _offered_rows(self) -> list[tuple[int, int, int]]:
        return [(key, *api.versions) for key, api in sorted(self._apis.items()) if not api.is_unlisted]

    def _refusal(self, asked: Body) -> ErrorCode:
        if not (is_software_name(asked.client_software_name) and is_software_name(asked.client_software_version)):
            return ErrorCode.INVALID_REQUEST
        if (asked.cluster_id is None) != (asked.node_id == NO_BROKER):
            return ErrorCode.INVALID_REQUEST
        here = self._metadata_cache.cluster_id, self._config.broker_id
        is_here = asked.cluster_id is None or (asked.cluster_id, asked.node_id) == here
        return ErrorCode.NONE if is_here else ErrorCode.REBOOTSTRAP_REQUIRED

    # -- DescribeTopicPartitions ------------------------------------------------------------------------------

    def describe_topic_partitions(self, request: Request, client: Client) -> Body:
        """Describe topics in the order of their names, and as many partitions as are asked for. The next request goes
        on at the cursor of the answer. Raises KafkaError(INVALID_REQUEST)."""
        body, known = request.body, self._metadata_cache.topics
        asked = {topic.name for topic in body.topics}
        cursor = body.cursor or NO_CURSOR
        if cursor.partition_index < 0 or (asked and body.cursor and cursor.topic_name not in asked):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"no partition to go on from: {cursor}")
        names = sorted(name for name in asked or known if name >= cursor.topic_name)
        allowed = [name for name in names if client.may(Operation.DESCRIBE, ResourceType.TOPIC, name)]
        left = min(max(body.response_partition_limit, 1), MOST_PARTITIONS)
        rows, next_cursor = [], None
        for name in allowed:
            if not left:
                next_cursor = (name, 0)
                break
            row = self._with_operations(self._topic(name, client), client)
            first = cursor.partition_index if name == cursor.topic_name else 0
            rest = [each for each in row.partitions if each.partition >= first]
            rows.append(described(row, rest[:left]))
            if len(rest) > left:
                next_cursor = (name, rest[left].partition)
                break
            left -= len(rest)
        denied = [described(denied_row(name), ()) for name in names if asked and name not in allowed]
        return DescribeTopicPartitionsResponse(topics=[*rows, *denied], next_cursor=next_cursor)

    # -- Metadata ---------------------------------------------------------------------------------------------

    def metadata(self, request: Request, client: Client) -> Body:
        body = request.body
        topics = self._asked_topics(request, client)
        if body.include_topic_authorized_operations:
            topics = [self._with_operations(topic, client) for topic in topics]
        cache, make_broker = self._metadata_cache, MetadataResponse.row("brokers")
        brokers = {
            broker_id: make_broker(node_id=broker_id, host=address[0], port=address[1], rack=broker.rack)
            for broker_id, broker in cache.brokers.items()
            if (address := client.address_of(broker)) is not None
        }
        if len(brokers) < len(cache.brokers):
            topics = [with_known_errors(topic, request.api_version) for topic in topics]
        if request.api_version < FIRST_VERSION_WITH_ABSENT_REPLICAS:
            topics = [without_absent_replicas(topic, brokers) for topic in topics]
        return MetadataResponse(
            brokers=list(brokers.values()),
            cluster_id=cache.cluster_id,
            controller_id=cache.controller_id if cache.controller_id in brokers else NO_BROKER,
            topics=topics,
            cluster_authorized_operations=(
                authorized_operations.on_cluster(client)
                if body.include_cluster_authorized_operations
                else authorized_operations.NOT_REQUESTED
            ),
        )

    def _with_operations(self, topic: Body, client: Client) -> Body:
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return topic
        operations = authorized_operations.on_topic(client, topic.name or "")
        return topic._replace(topic_authorized_operations=operations)

    def _asked_topics(self, request: Request, client: Client) -> list[Body]:
        """Make the rows of the requested topics. Raises KafkaError(INVALID_REQUEST)."""
        asked, version = request.body.topics, request.api_version
        if asked is None or (version < FIRST_VERSION_WITH_NULL_TOPICS and not asked):
            every = self._metadata_cache.topics.values()
            return [
                self._known(topic, client)
                for topic in every
                if client.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
            ]
        topic_ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID)
        if topic_ids:
            if version < FIRST_VERSION_WITH_TOPICS_BY_ID:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in version {version}")
            return self._topics_by_id(topic_ids, client)
        if any(topic.name is None for topic in asked):
            knows_ids = version >= FIRST_VERSION_WITH_TOPICS_BY_ID
            fails = knows_ids and Habit.FAILS_WITHOUT_NAME in self._config.profile.habits
            code = ErrorCode.UNKNOWN_SERVER_ERROR if fails else ErrorCode.INVALID_REQUEST
            raise KafkaError(code, "a topic with neither a name nor an id")
        names = dict.fromkeys(topic.name for topic in asked)
        may_create = self._config.auto_create_topics_enable and request.body.allow_auto_topic_creation
        denied = [] if client.may_everything else self._denied(client, names, may_create=may_create)
        for name in denied:
            del names[name]
        known = self._metadata_cache.topics
        missing = [name for name in names if name not in known and (may_create or name in INTERNAL_TOPICS)]
        created = self._topic_admin.create_missing_topics(missing) if missing else {}
        rows = [
            self._created(name, created[name], version) if name in created else self._topic(name, client)
            for name in names
        ]
        return [*rows, *(denied_row(name) for name in denied)]

    def _denied(self, client: Client, names: Iterable[str], *, may_create: bool) -> list[str]:
        """Return the topics that the client may not describe, then the missing ones that it may not create."""
        undescribed = [name for name in names if not client.may(Operation.DESCRIBE, ResourceType.TOPIC, name)]
        if not may_create or client.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            return undescribed
        missing = dict.fromkeys(name for name in names if name not in self._metadata_cache.topics)
        for name in undescribed:
            missing.pop(name, None)
        return [*undescribed, *(name for name in missing if not client.may(Operation.CREATE, ResourceType.TOPIC, name))]

    def _topics_by_id(self, topic_ids: Iterable[bytes], client: Client) -> list[Body]:
        """Make the rows, of unknown ids first; names beside ids are ignored (as kafka 2.8)."""
        known = {topic.topic_id.bytes: topic for topic in self._metadata_cache.topics.values()}
        unknown = [each for each in topic_ids if each not in known]
        return [
            *(topic_row(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id=each) for each in unknown),
            *(self._known_by_id(known[each], client) for each in topic_ids if each in known),
        ]

    def _known_by_id(self, topic: TopicMetadata, client: Client) -> Body:
        if client.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            return self._known(topic, client)
        return topic_row(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id=topic.topic_id.bytes)

    def _topic(self, name: str, client: Client) -> Body:
        topic = self._metadata_cache.topics.get(name)
        if topic is not None:
            return self._known(topic, client)
        refused = attempt(check_topic_name, name) if Habit.CHECKS_NAMES in self._config.profile.habits else None
        return topic_row(name, refused.code if refused else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _created(self, name: str, created: TopicState | KafkaError, version: int) -> Body:
        """As kafka 2.0.1: LEADER_NOT_AVAILABLE lets the client that caused the creation retry; from the version on that
        kafka 4.0 brought UNKNOWN_TOPIC_OR_PARTITION, the only error with which kafka-ts retries."""
        if Habit.CREATES_BEHIND in self._config.profile.habits:
            refused = attempt(check_topic_name, name)  # what else keeps a topic from being created comes later
            return topic_row(name, refused.code if refused else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if isinstance(created, KafkaError) and created.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return topic_row(name, created.code)
        is_of_kraft = version >= FIRST_VERSION_OF_KRAFT
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_of_kraft else ErrorCode.LEADER_NOT_AVAILABLE
        return topic_row(name, code)

    def _known(self, topic: TopicMetadata, client: Client) -> Body:
        """The row of a topic for the clients of a listener."""
        brokers, key = self._metadata_cache.brokers, (topic.name, client.listener)
        made = self._rows.get(key)
        if made is not None and made[0] is topic and made[1] is brokers:
            return made[2]
        reached = {each for each, broker in brokers.items() if client.listener in broker.endpoints}
        offline = topic.offline_replicas
        partitions = [
            partition_row(number, state, brokers, reached, offline.get(number, ()))
            for number, state in topic.partitions.items()
        ]
        row = topic_row(topic.name, ErrorCode.NONE, partitions, topic_id=topic.topic_id.bytes)
        if len(self._rows) > ROWS_KEPT + 2 * len(self._metadata_cache.topics):
            self._rows.clear()  # also of topics that are gone
        self._rows[key] = topic, brokers, row
        return row


def partition_row(
    number: int,
    state: PartitionState,
    alive: Container[int],
    reached: Container[int],
    offline_replicas: Container[int] = (),
) -> Body:
    """The row for clients that reach these brokers; without a leader that they reach (as kafka 2.0.1 MetadataCache).

    `offline_replicas` are offline although their brokers are alive.
    """
    error, leader, in_sync = ErrorCode.NONE, state.leader, state.in_sync_replicas
    if leader not in reached:
        error = ErrorCode.LISTENER_NOT_FOUND if leader in alive else ErrorCode.LEADER_NOT_AVAILABLE
        leader, in_sync = NO_BROKER, ()
    offline = tuple(each for each in state.replicas if each not in alive or each in offline_replicas)
    return new(PARTITION_ROW, (error, number, leader, state.leader_epoch, state.replicas, in_sync, offline))


@lru_cache(maxsize=SOFTWARE_NAMES_REMEMBERED)
def is_software_name(name: str) -> bool:
    return SOFTWARE_NAME.fullmatch(name) is not None


def topic_row(
    name: str | None, error: ErrorCode, partitions: Sequence[Body] = (), *, topic_id: bytes = ZERO_UUID
) -> Body:
    return MetadataResponse.row("topics")(
        error_code=error,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=authorized_operations.NOT_REQUESTED,
    )


def described(topic: Body, partitions: Sequence[Body]) -> Body:
    """The row of DescribeTopicPartitions: that of Metadata, and an empty list of eligible leader replicas."""
    rows = [new(DESCRIBED_PARTITION, (*each[:-1], (), (), each.offline_replicas)) for each in partitions]
    return DescribeTopicPartitionsResponse.row("topics")(**{**topic._asdict(), "partitions": rows})


def with_known_errors(topic: Body, version: int) -> Body:
    """The topic with the errors that clients of a version know: before v6 not LISTENER_NOT_FOUND."""
    rows = [row._replace(error_code=known_code(ApiKey.METADATA, version, row.error_code)) for row in topic.partitions]
    return topic._replace(partitions=rows)


def denied_row(name: str) -> Body:
    """The row of a topic that may not be described: the same if it is not there."""
    return topic_row(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)._replace(is_internal=False)


def without_absent_replicas(topic: Body, reached: Container[int]) -> Body:
    """v0: leave out replicas that clients cannot reach, with REPLICA_NOT_AVAILABLE (as kafka 2.0.1 MetadataCache)."""
    return topic._replace(partitions=[partition_without_absent_replicas(row, reached) for row in topic.partitions])


def partition_without_absent_replicas(row: Body, reached: Container[int]) -> Body:
    replicas = [each for each in row.replica_nodes if each in reached]
    in_sync = [each for each in row.isr_nodes if each in reached]
    is_whole = len(replicas) == len(row.replica_nodes) and len(in_sync) == len(row.isr_nodes)
    error = row.error_code if is_whole or row.error_code else ErrorCode.REPLICA_NOT_AVAILABLE
    return row._replace(error_code=error, replica_nodes=replicas, isr_nodes=in_sync)
