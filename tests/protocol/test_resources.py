"""Which resources requests name, as their declarations show it."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.api import API_TABLE, Api, ApiKey
from minibroker.protocol.primitives import ZERO_UUID, Meaning
from minibroker.protocol.resources import CLUSTER_NAME, Resource, ResourceType, name_fields, resources_named
from minibroker.protocol.schema import Message

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID

NAMED = {
    "AddOffsetsToTxn FindCoordinator": {GROUP, TRANSACTIONAL_ID},
    "AddPartitionsToTxn Produce": {TOPIC, TRANSACTIONAL_ID},
    "AlterConfigs DescribeConfigs IncrementalAlterConfigs": {TOPIC, CLUSTER, GROUP},
    """
        AlterReplicaLogDirs CreatePartitions CreateTopics DeleteRecords DeleteTopics DescribeLogDirs
        DescribeProducers ElectLeaders Fetch LeaderAndIsr ListOffsets ListPartitionReassignments Metadata
        OffsetForLeaderEpoch StopReplica UpdateMetadata WriteTxnMarkers
    """: {TOPIC},
    "DeleteGroups DescribeGroups Heartbeat JoinGroup LeaveGroup SyncGroup": {GROUP},
    "DescribeTransactions EndTxn InitProducerId": {TRANSACTIONAL_ID},
    "OffsetCommit OffsetDelete OffsetFetch": {GROUP, TOPIC},
    "TxnOffsetCommit": {GROUP, TOPIC, TRANSACTIONAL_ID},
}


def named(key: ApiKey, version: int, /, **body: Any) -> list[Resource]:
    request = API_TABLE[key].request
    return list(resources_named(request, version, request(**body)))


def resource_types(message: Message) -> set[ResourceType]:
    """The types of resources that some version of a message can name."""
    versions = range(message.first_version, message.last_version + 1)
    return {each for version in versions for field in name_fields(message, version) for each in field.types.values()}


@pytest.mark.parametrize(("names", "types"), NAMED.items())
def test_the_types_that_an_api_names(names: str, types: set[ResourceType]) -> None:
    found = {api.name: resource_types(api.request) for api in API_TABLE.values()}

    assert {name: found[name] for name in names.split()} == dict.fromkeys(names.split(), types)


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_an_api_names_the_resources_of_its_rights(api: Api) -> None:
    subjects = {right.subject for right in api.rights if right.by_handler_since}

    assert subjects <= resource_types(api.request) | resource_types(api.response) | {CLUSTER}


def test_topics_are_named_in_rows_and_a_transactional_id_beside_them() -> None:
    found = named(ApiKey.PRODUCE, 3, transactional_id="t", topics=[("a", [(0, b"")]), ("b", [])])

    assert found == [(TRANSACTIONAL_ID, "t"), (TOPIC, "a"), (TOPIC, "b")]


def test_rows_may_be_deep_or_the_names_themselves() -> None:
    markers = [(1, 0, True, [("a", [0]), ("b", [1])], 0)]

    assert named(ApiKey.WRITE_TXN_MARKERS, 0, markers=markers) == [(TOPIC, "a"), (TOPIC, "b")]
    assert named(ApiKey.DELETE_GROUPS, 0, group_names=["g", "h"]) == [(GROUP, "g"), (GROUP, "h")]


def test_null_names_nothing() -> None:
    assert named(ApiKey.PRODUCE, 3, transactional_id=None, topics=[]) == []
    assert named(ApiKey.METADATA, 12, topics=None) == []
    assert named(ApiKey.METADATA, 12, topics=[(b"1" * 16, None), (ZERO_UUID, "a")]) == [(TOPIC, "a")]


def test_only_fields_of_the_version_count() -> None:
    assert named(ApiKey.DELETE_TOPICS, 5, topic_names=["a"], topics=[("b", ZERO_UUID)]) == [(TOPIC, "a")]
    assert named(ApiKey.DELETE_TOPICS, 6, topic_names=["a"], topics=[("b", ZERO_UUID)]) == [(TOPIC, "b")]


@pytest.mark.parametrize(("key_type", "resource_type"), [(0, GROUP), (1, TRANSACTIONAL_ID)])
def test_a_coordinator_key_is_of_the_type_beside_it(key_type: int, resource_type: ResourceType) -> None:
    one = named(ApiKey.FIND_COORDINATOR, 1, key="k", key_type=key_type)
    two = named(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["k", "l"], key_type=key_type)

    assert (one, two) == ([(resource_type, "k")], [(resource_type, "k"), (resource_type, "l")])


def test_a_config_resource_is_a_topic_or_the_cluster_or_not_known() -> None:
    resources = [(2, "a", None), (4, "0", None), (7, "other", None)]

    assert named(ApiKey.DESCRIBE_CONFIGS, 0, resources=resources) == [(TOPIC, "a"), (CLUSTER, CLUSTER_NAME)]


# The names that a meaning goes by: a field of one of them that is declared without it would be overlooked.
MEANINGS = {
    "api_key": Meaning.API_KEY, "error_code": Meaning.ERROR_CODE, "error_message": Meaning.ERROR_MESSAGE,
    "group_id": Meaning.GROUP, "isolation_level": Meaning.ISOLATION_LEVEL, "key_type": Meaning.COORDINATOR_TYPE,
    "partition": Meaning.PARTITION, "partitions": Meaning.PARTITION, "producer_id": Meaning.PRODUCER_ID,
    "resource_name": Meaning.RESOURCE_NAME, "resource_type": Meaning.RESOURCE_TYPE, "topic": Meaning.TOPIC,
    "topic_id": Meaning.TOPIC_ID, "transactional_id": Meaning.TRANSACTIONAL_ID,
}  # fmt: skip


# What a rule names need not be there, and a request that names it does nothing to it.
RULES = (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)


@pytest.mark.parametrize("api", [api for key, api in API_TABLE.items() if key not in RULES], ids=lambda api: api.name)
def test_fields_that_are_called_alike_mean_the_same(api: Any) -> None:
    for message in (api.request, api.response):
        for path, field in message.walk():
            if field.name in MEANINGS and not getattr(field.kind, "fields", ()):
                assert field.meaning is MEANINGS[field.name], f"{message.name} {path}"
            if path.endswith("topics.name"):
                assert field.meaning is Meaning.TOPIC, f"{message.name} {path}"
