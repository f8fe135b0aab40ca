"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources: the settings of topics, the broker,
groups and client metrics.

DescribeConfigs v0-v4. Version notes: v1 synonyms and sources · v3 types and documentation · v4 flexible. AlterConfigs
v0-v2 (v2 flexible): configs that are not named are unset. IncrementalAlterConfigs v0-v1 (v1 flexible), which came after
Kafka 2.0: sets, unsets, or adds to and removes from a list, and leaves the rest alone.

Groups (GROUP), client metrics (CLIENT_METRICS) and the loggers of a broker (BROKER_LOGGER), of which this broker has
none, are later Kafka's types of resources; a release that `--act-as` names knows none of them. An unknown type fails
the whole request in the versions of kafka 2.0.1, its row of AlterConfigs in later ones. The answer repeats the type;
releases up to 2.0.1 call it UNKNOWN, which no client can read.

ListConfigResources v0-v1: v0 lists client metrics, v1 the types that it names.

A change is stored before it is answered, and counts from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.apis.config_operations import (
    altered,
    broker_list,
    check_logger_operation,
    check_no_duplicates,
    check_no_nulls,
    no_list,
    replaced,
    topic_list,
)
from minibroker.broker.apis.describe_configs import (
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from minibroker.broker.apis.failures import answer_to_all
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.metadata_cache import MetadataCache, check_topic_name
from minibroker.broker.cluster.sections import Configs
from minibroker.broker.cluster.state import TopicState
from minibroker.broker.cluster.topic_admin import TopicAdmin
from minibroker.broker.config import client_metrics
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import Habit
from minibroker.broker.config.settings.changeable import InvalidDynamicConfig
from minibroker.broker.config.settings.types import INT, InvalidValueError
from minibroker.broker.group.group_configs import GroupConfigs
from minibroker.protocol.api import API_TABLE, ApiKey, Request
from minibroker.protocol.errors import MESSAGE_OF_INVALID_REQUEST, ErrorCode, KafkaError
from minibroker.protocol.messages.configs import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from minibroker.storage.config import LogConfig, check_names

RESOURCE_UNKNOWN = 0
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32
FIRST_VERSION_WITH_TYPES: int = ListConfigResourcesRequest.field("resource_types").first
RESOURCE_NAMES = {RESOURCE_TOPIC: "TOPIC", RESOURCE_BROKER: "BROKER"}

Body = Any
Change = Callable[[Configs, Sequence[Body]], Configs]  # from the present configs and the given ones


class ConfigApis:
    """Handlers of the settings of topics and of the broker."""

    def __init__(
        self,
        *,
        config: KafkaConfig,
        metadata_cache: MetadataCache,
        topic_admin: TopicAdmin,
        group_configs: GroupConfigs,
    ) -> None:
        self._config = config
        self._group_configs = group_configs
        self._metadata_cache = metadata_cache
        self._topic_admin = topic_admin
        self._known_types = (*RESOURCE_NAMES, *config.profile.resource_types)

    def routes(self) -> Routes:
        return {
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
            ApiKey.ALTER_CONFIGS: self.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
            ApiKey.LIST_CONFIG_RESOURCES: self.list_config_resources,
        }

    # -- DescribeConfigs --------------------------------------------------------------------------------------

    def describe_configs(self, request: Request, client: Client) -> Body:
        unknown = unknown_type(request.body.resources, self._known_types, " for resource {}")
        if unknown is not None:
            return self._refused(request, unknown)
        # As Kafka's map: if a resource is named twice, its last row counts, and it has one row in the answer.
        resources = {(each.resource_type, each.resource_name): each for each in request.body.resources}
        return DescribeConfigsResponse(
            results=[self._describe(resource, request.body) for resource in resources.values()]
        )

    def _refused(self, request: Request, unknown: KafkaError) -> Body:
        """The answer to a request with a resource of an unknown type. Raises KafkaError, and CloseConnectionError."""
        if Habit.HAS_COMMON_MESSAGES in self._config.profile.habits:
            raise KafkaError(unknown.code, MESSAGE_OF_INVALID_REQUEST)
        if Habit.HIDES_UNKNOWN_TYPES not in self._config.profile.habits:
            raise unknown
        answer = answer_to_all(request, unknown)
        *_, field = answer._fields
        rows = getattr(answer, field)
        shown = known_type
        if Habit.CLOSES_FOR_NEGATIVE_TYPES in self._config.profile.habits:
            shown = listed_type
        rows = [row._replace(resource_type=shown(row.resource_type)) for row in rows]
        once = {(row.resource_type, row.resource_name): row for row in rows}  # as in Kafka's map
        return answer._replace(**{field: list(once.values())})

    def _describe(self, resource: Body, wish: Body) -> Body:
        code, configs = ErrorCode.NONE, []
        message: str | None
        try:
            configs = self._configs_of(resource, wish.include_synonyms, wish.include_documentation)
            message = None if resource.resource_type in RESOURCE_NAMES else ""  # as kafka 4.4
        except KafkaError as error:
            code, message = error.code, error.message
        if message is None and Habit.DESCRIBES_WITH_MESSAGE in self._config.profile.habits:
            message = ""
        return DescribeConfigsResponse.row("results")(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=configs,
        )

    def _configs_of(self, resource: Body, with_synonyms: bool, with_documentation: bool) -> list[Body]:
        name, keys = resource.resource_name, resource.configuration_keys
        if resource.resource_type == RESOURCE_TOPIC:
            check_topic_name(name)
            topic = self._topic_admin.topic(name) if name in self._metadata_cache.topics else None
            if topic is None and Habit.DESCRIBES_MISSING_TOPICS not in self._config.profile.habits:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(
                {} if topic is None else topic.configs,
                self._config,
                keys,
                with_synonyms=with_synonyms,
                with_documentation=with_documentation,
            )
        if resource.resource_type == RESOURCE_BROKER_LOGGER:
            self._check_logger_broker_id(name)
            return []
        if resource.resource_type == RESOURCE_CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return describe_client_metrics(
                self._topic_admin.client_metrics.get(name, {}),
                keys,
                with_synonyms=with_synonyms,
                with_documentation=with_documentation,
            )
        if resource.resource_type == RESOURCE_GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return describe_group(
                name,
                self._group_configs,
                self._config,
                keys,
                with_synonyms=with_synonyms,
                with_documentation=with_documentation,
            )
        self._check_broker_id(name, "{} or empty string,")
        return describe_broker(
            self._config,
            keys,
            with_synonyms=with_synonyms,
            with_documentation=with_documentation,
            is_for_all_brokers=not name,
        )

    def _check_broker_id(self, name: str, expected: str) -> None:
        """Raises KafkaError(INVALID_REQUEST) for another broker's id; the empty name stands for all brokers."""
        may_be_every_broker = Habit.CHANGES_NO_BROKERS not in self._config.profile.habits
        try:
            is_right = (may_be_every_broker and not name) or INT.parse(name) == self._config.broker_id
        except InvalidValueError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
        if not is_right:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {expected.format(self._config.broker_id)} but received "
                f"ConfigResource(type=BROKER, name='{name}').name",
            )

    # -- AlterConfigs and IncrementalAlterConfigs -------------------------------------------------------------

    def alter_configs(self, request: Request, client: Client) -> Body:
        unknown = None if self._is_later(request) else unknown_type(request.body.resources, self._known_types)
        if unknown is not None:
            return self._refused(request, unknown)
        resources = {(each.resource_type, each.resource_name): each for each in request.body.resources}
        rows = [self._altered_row(resource, request, replaced) for resource in resources.values()]
        return AlterConfigsResponse(responses=rows)

    def _is_later(self, request: Request) -> bool:
        """Whether the request is answered as one of a version that kafka 2.0.1 lacks."""
        return request.api_version >= self._config.profile.first_of(API_TABLE[request.api_key].last_of_2_0 + 1)

    def incremental_alter_configs(self, request: Request, client: Client) -> Body:
        times = Counter((each.resource_type, each.resource_name) for each in request.body.resources)
        resources = {(each.resource_type, each.resource_name): each for each in request.body.resources}
        rows = []
        for key, resource in resources.items():
            if times[key] > 1:
                again = KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                rows.append((again.code, again.message, *key))
            else:
                change = partial(altered, default_list=DEFAULT_LISTS.get(resource.resource_type, broker_list))
                rows.append(self._altered_row(resource, request, change))
        return IncrementalAlterConfigsResponse(responses=rows)

    def _altered_row(self, resource: Body, request: Request, change: Change) -> Body:
        """Alter one resource by `change`; return its row of the answer."""
        kind, name = resource.resource_type, resource.resource_name
        code = ErrorCode.NONE
        message: str | None = None
        try:
            if kind == RESOURCE_BROKER_LOGGER and request.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
                self._alter_loggers(name, resource.configs)
                return (code, message, kind, name)
            if kind == RESOURCE_GROUP:
                self._alter_group(name, resource.configs, change, request.body.validate_only)
                return (code, message, kind, name)
            if kind == RESOURCE_CLIENT_METRICS:
                self._alter_client_metrics(name, resource.configs, change, request.body.validate_only)
                return (code, message, kind, name)
            if kind not in RESOURCE_NAMES:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
            alter = self._alter_topic if kind == RESOURCE_TOPIC else self._alter_broker
            alter(name, resource.configs, change, request.body.validate_only)
        except InvalidDynamicConfig as error:
            where = f"ConfigResource(type={RESOURCE_NAMES[kind]}, name='{name}')"
            refusal = KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid config value for resource {where}: {error}")
            code, message = refusal.code, refusal.message
        except KafkaError as error:
            code, message = error.code, error.message
        return (code, message, kind, name)

    def _alter_topic(self, name: str, given: Sequence[Body], change: Change, validate_only: bool) -> None:
        check_topic_name(name)
        topic = self._topic_admin.topic(name)
        if topic is None:
            hides = Habit.FAILS_FOR_MISSING_TOPICS in self._config.profile.habits
            code = ErrorCode.UNKNOWN_SERVER_ERROR if hides else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, f'Topic "{name}" does not exist.')
        check_no_nulls(given)
        self._set_topic_configs(topic, change(topic.configs, given), validate_only)

    def _alter_group(self, name: str, given: Sequence[Body], change: Change, validate_only: bool) -> None:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        check_no_nulls(given)
        configs = change(self._group_configs.of(name), given)
        self._group_configs.check(configs)
        if not validate_only:
            self._topic_admin.alter_group_configs(name, configs)

    def _alter_client_metrics(self, name: str, given: Sequence[Body], change: Change, validate_only: bool) -> None:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        check_no_nulls(given)
        configs = change(self._topic_admin.client_metrics.get(name, {}), given)
        client_metrics.check(configs)
        if not validate_only:
            self._topic_admin.alter_client_metrics(name, configs)

    # -- ListConfigResources ----------------------------------------------------------------------------------

    def list_config_resources(self, request: Request, client: Client) -> Body:
        """List the resources of these types, all if none is asked for. Raises KafkaError(UNSUPPORTED_VERSION)."""
        brokers = [str(each) for each in self._metadata_cache.brokers]
        names = {
            RESOURCE_TOPIC: self._metadata_cache.topics,
            RESOURCE_BROKER: brokers,
            RESOURCE_BROKER_LOGGER: brokers,
            RESOURCE_CLIENT_METRICS: self._topic_admin.client_metrics,
            RESOURCE_GROUP: self._group_configs.names(),
        }
        asked = request.body.resource_types or list(names)
        if request.api_version < FIRST_VERSION_WITH_TYPES:
            asked = [RESOURCE_CLIENT_METRICS]
        if not set(asked) <= names.keys():
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        rows = [(name, kind) for kind in dict.fromkeys(asked) for name in names[kind]]
        return ListConfigResourcesResponse(config_resources=rows)

    def _alter_loggers(self, name: str, given: Sequence[Body]) -> None:
        """As a broker without loggers of these names; the messages are those of kafka 3.9."""
        check_no_duplicates(given)
        check_no_nulls(given)
        self._check_logger_broker_id(name)
        for row in given:
            check_logger_operation(row)

    def _check_logger_broker_id(self, name: str) -> None:
        """Raises KafkaError(INVALID_REQUEST): loggers are those of one broker."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        self._check_broker_id(name, "{}")

    def _set_topic_configs(self, topic: TopicState, configs: Configs, validate_only: bool) -> None:
        """Raises KafkaError for an unknown config, InvalidDynamicConfig for an invalid value."""
        check_names(configs)
        try:
            LogConfig.from_props(configs, self._config.log_config)
        except KafkaError as error:
            raise InvalidDynamicConfig(str(error)) from error
        self._topic_admin.alter_topic_configs(topic.name, configs, validate_only=validate_only)

    def _alter_broker(self, name: str, given: Sequence[Body], change: Change, validate_only: bool) -> None:
        if Habit.CHANGES_NO_BROKERS in self._config.profile.habits:
            refusal = "AlterConfigs is only supported for topics, but resource type is BROKER"
            raise KafkaError(ErrorCode.INVALID_REQUEST, refusal)
        self._check_broker_id(name, "{},")
        check_no_nulls(given)
        current = self._config.of_broker if name else self._config.of_cluster
        broker = str(self._config.broker_id) if name else name
        self._topic_admin.alter_broker_configs(broker, change(current, given), validate_only=validate_only)


DEFAULT_LISTS = {RESOURCE_TOPIC: topic_list, RESOURCE_GROUP: no_list, RESOURCE_CLIENT_METRICS: no_list}


def unknown_type(resources: Sequence[Body], known: Container[int], suffix: str = "") -> KafkaError | None:
    """The error for the whole request if there is a resource of an unknown type (as kafka 2.0.1 KafkaApis)."""
    for resource in resources:
        if resource.resource_type not in known:
            where = suffix.format(resource.resource_name)
            return KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type UNKNOWN{where}")
    return None


def listed_type(resource_type: int) -> int:
    """The type of a resource in an answer of kafka 1.1. Raises CloseConnectionError for a negative one."""
    if resource_type < 0:
        raise CloseConnectionError(f"resource type {resource_type}")
    return resource_type if resource_type <= RESOURCE_BROKER else RESOURCE_UNKNOWN


def known_type(resource_type: int) -> int:
    """The type of a resource in an answer of kafka 2.0.1: UNKNOWN for an unknown one."""
    return resource_type if resource_type in RESOURCE_NAMES else RESOURCE_UNKNOWN
