"""CreateTopics, DeleteTopics and DescribeConfigs at the handlers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.conftest import InMemoryBroker, MakeBroker, by_name

TOPIC, BROKER = 2, 4


async def create(
    broker: InMemoryBroker, name: str = "t", *, partitions: int = 1, replicas: int = 1, version: int = 4, **more: Any
) -> Any:
    assignments = more.get("assignments", [])
    configs = more.get("configs", [])
    answer = await broker.call(
        ApiKey.CREATE_TOPICS,
        version,
        topics=[(name, partitions, replicas, assignments, configs)],
        timeout_ms=1000,
        validate_only=more.get("validate_only", False),
    )
    return answer.topics[0]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b", "a\0b"])
async def test_illegal_names_are_refused(broker: InMemoryBroker, name: str) -> None:
    assert (await create(broker, name)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_the_longest_legal_name_is_taken(broker: InMemoryBroker) -> None:
    assert (await create(broker, "x" * 249)).error_code == ErrorCode.NONE


async def test_a_name_that_collides_in_metrics_is_refused(broker: InMemoryBroker) -> None:
    await create(broker, "a.b")

    row = await create(broker, "a_b")

    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "collides with existing topics: a.b" in row.error_message


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": -1, "version": 3}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": 2**31 - 1}, ErrorCode.INVALID_PARTITIONS),
        ({"replicas": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replicas": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": [("no.such.config", "1")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", "soon")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", None)]}, ErrorCode.INVALID_CONFIG),
        ({"assignments": [(0, [0])]}, ErrorCode.INVALID_REQUEST),
        ({"partitions": -1, "replicas": -1, "assignments": [(1, [0])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"partitions": -1, "replicas": -1, "assignments": [(0, [0, 0])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_a_request_that_cannot_be_met_creates_nothing(
    broker: InMemoryBroker, options: dict[str, Any], code: ErrorCode
) -> None:
    row = await create(broker, **options)

    assert row.error_code == code
    assert row.error_message
    answer = await broker.call(ApiKey.METADATA, 1, topics=None)
    assert list(answer.topics) == []


async def test_defaults_are_the_brokers_from_v4(make_broker: MakeBroker) -> None:
    broker = make_broker(num_partitions=3)

    assert (await create(broker, partitions=-1, replicas=-1)).error_code == ErrorCode.NONE

    answer = await broker.call(ApiKey.METADATA, 1, topics=by_name("t"))
    assert len(answer.topics[0].partitions) == 3


async def test_a_manual_assignment_gives_as_many_partitions(broker: InMemoryBroker) -> None:
    row = await create(broker, partitions=-1, replicas=-1, assignments=[(0, [0]), (1, [0])])

    assert row.error_code == ErrorCode.NONE
    answer = await broker.call(ApiKey.METADATA, 1, topics=by_name("t"))
    assert len(answer.topics[0].partitions) == 2


async def test_an_existing_topic_and_one_named_twice(broker: InMemoryBroker) -> None:
    await create(broker)
    again = await create(broker)
    twice = await broker.call(
        ApiKey.CREATE_TOPICS, 1, topics=[("u", 1, 1, [], []), ("u", 1, 1, [], [])], timeout_ms=1000
    )

    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert [row.error_code for row in twice.topics] == [ErrorCode.INVALID_REQUEST]


async def test_validate_only_creates_nothing(broker: InMemoryBroker) -> None:
    assert (await create(broker, validate_only=True)).error_code == ErrorCode.NONE
    assert (await create(broker)).error_code == ErrorCode.NONE


async def test_topics_records_and_configs_outlive_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "shared")
    await create(broker, partitions=2, configs=[("retention.ms", "12345")])
    await broker.produce("t", [b"kept"], partition=1)
    broker.close()

    broker = make_broker(tmp_path / "shared")
    answer = await broker.fetch(("t", 1, 0))
    configs = await described(broker, TOPIC, "t", ["retention.ms"])

    assert b"kept" in bytes(answer.topics[0].partitions[0].records)
    assert configs["retention.ms"].value == "12345"


async def test_a_deleted_topic_is_gone_and_its_name_free(broker: InMemoryBroker) -> None:
    await create(broker)
    await broker.produce("t", [b"old"])

    deleted = await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t", "nope"], timeout_ms=1000)
    row = await create(broker)
    answer = await broker.fetch(("t", 0, 0))

    assert [each.error_code for each in deleted.topics] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert row.error_code == ErrorCode.NONE
    assert bytes(answer.topics[0].partitions[0].records) == b""


async def test_a_deleted_topic_stays_deleted_after_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "shared")
    await create(broker)
    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)
    broker.close()

    broker = make_broker(tmp_path / "shared")
    answer = await broker.call(ApiKey.METADATA, 1, topics=None)

    assert list(answer.topics) == []


async def described(
    broker: InMemoryBroker, kind: int, name: str, keys: list[str] | None = None, version: int = 1, **more: Any
) -> dict[str, Any]:
    answer = await broker.call(ApiKey.DESCRIBE_CONFIGS, version, resources=[(kind, name, keys)], **more)
    result = answer.results[0]
    assert result.error_code == ErrorCode.NONE, result
    return {row.name: row for row in result.configs}


async def test_topic_configs_say_where_their_values_come_from(make_broker: MakeBroker) -> None:
    broker = make_broker(log_segment_bytes=123456)
    await create(broker, configs=[("retention.ms", "1000")])

    configs = await described(broker, TOPIC, "t", include_synonyms=True)

    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("123456", 4)
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)
    assert [row.name for row in configs["segment.bytes"].synonyms] == ["log.segment.bytes", "log.segment.bytes"]


async def test_describe_configs_of_what_is_not_there(broker: InMemoryBroker) -> None:
    answer = await broker.call(ApiKey.DESCRIBE_CONFIGS, 1, resources=[(TOPIC, "nope", None), (BROKER, "7", None)])

    assert [result.error_code for result in answer.results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]


async def test_a_resource_of_an_unknown_type_fails_the_whole_request(broker: InMemoryBroker) -> None:
    answer = await broker.call(ApiKey.DESCRIBE_CONFIGS, 1, resources=[(TOPIC, "nope", None), (99, "x", None)])

    assert [(result.error_code, result.resource_type) for result in answer.results] == [
        (ErrorCode.INVALID_REQUEST, TOPIC),
        (ErrorCode.INVALID_REQUEST, 0),
    ]


async def test_from_v5_a_created_topic_is_told_with_its_configs(make_broker: MakeBroker) -> None:
    broker = make_broker(num_partitions=3)

    row = await create(broker, partitions=-1, replicas=-1, version=5, configs=[("retention.ms", "12345")])

    assert (row.num_partitions, row.replication_factor) == (3, 1)
    told = {config.name: (config.value, config.config_source) for config in row.configs}
    assert told["retention.ms"] == ("12345", 1)
    assert told["cleanup.policy"] == ("delete", 5)


async def test_a_topic_that_was_not_created_has_no_counts(broker: InMemoryBroker) -> None:
    row = await create(broker, "bad name", version=7)

    assert (row.error_code, row.num_partitions, row.replication_factor) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1, -1)
    assert (list(row.configs), row.topic_id) == ([], ZERO_UUID)


async def test_a_topic_has_an_id_that_outlives_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "shared")
    topic_id = (await create(broker, version=7)).topic_id
    broker.close()

    broker = make_broker(tmp_path / "shared")
    answer = await broker.call(ApiKey.METADATA, 10, topics=by_name("t"))

    assert answer.topics[0].topic_id == topic_id != ZERO_UUID


async def test_a_topic_is_deleted_by_its_id(broker: InMemoryBroker) -> None:
    topic_id = (await create(broker, version=7)).topic_id

    answer = await broker.call(ApiKey.DELETE_TOPICS, 6, topics=[(None, topic_id)], timeout_ms=1000)

    assert [tuple(row) for row in answer.topics] == [("t", topic_id, ErrorCode.NONE, None)]
    assert (await create(broker)).error_code == ErrorCode.NONE


async def test_a_topic_made_again_has_another_id(broker: InMemoryBroker) -> None:
    first = (await create(broker, version=7)).topic_id
    await broker.call(ApiKey.DELETE_TOPICS, 6, topics=[("t", ZERO_UUID)], timeout_ms=1000)

    assert (await create(broker, version=7)).topic_id != first


async def test_an_unknown_id_and_name_are_told_apart(broker: InMemoryBroker) -> None:
    answer = await broker.call(
        ApiKey.DELETE_TOPICS, 6, topics=[(None, b"0123456789abcdef"), ("nope", ZERO_UUID)], timeout_ms=1000
    )

    assert [(row.name, row.error_code) for row in answer.topics] == [
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("topic", [("t", b"0123456789abcdef"), (None, ZERO_UUID)])
async def test_a_topic_to_delete_is_named_once(broker: InMemoryBroker, topic: tuple[str | None, bytes]) -> None:
    await create(broker)

    answer = await broker.call(ApiKey.DELETE_TOPICS, 6, topics=[topic], timeout_ms=1000)

    assert [row.error_code for row in answer.topics] == [ErrorCode.INVALID_REQUEST]
    assert (await create(broker)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_without_time_it_is_done_and_answered_as_too_late(broker: InMemoryBroker) -> None:
    made = await broker.call(ApiKey.CREATE_TOPICS, 3, topics=[("t", 1, 1, [], [])], timeout_ms=0)
    again = await create(broker)
    deleted = await broker.call(ApiKey.DELETE_TOPICS, 2, topic_names=["t"], timeout_ms=-1)

    assert [row.error_code for row in made.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert [row.error_code for row in deleted.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert (await create(broker)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_deletion_that_is_switched_off_is_refused(make_broker: MakeBroker, version: int, code: ErrorCode) -> None:
    broker = make_broker(delete_topic_enable="false")
    await create(broker)

    answer = await broker.call(ApiKey.DELETE_TOPICS, version, topic_names=["t"], timeout_ms=1000)

    assert [row.error_code for row in answer.topics] == [code]
    assert (await create(broker)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_the_first_of_several_faults_is_told_as_kafka_does(broker: InMemoryBroker) -> None:
    bad_config = [("no.such", "1")]

    assert (await create(broker, "a/b", partitions=0, configs=bad_config)).error_code == ErrorCode.INVALID_CONFIG
    assert (await create(broker, "a/b", partitions=0)).error_code == ErrorCode.INVALID_PARTITIONS
    assert (await create(broker, "a/b", replicas=5)).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert (await create(broker, "a/b")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_replicas_may_be_on_brokers_that_are_not_there(broker: InMemoryBroker) -> None:
    """As Apache Kafka 2.0.1 answered: created, too late to be told so, and seen where a replica is alive."""
    some = [(0, [0, 5]), (1, [5, 0]), (2, [5, 6])]

    row = await create(broker, "some", partitions=-1, replicas=-1, assignments=some)

    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    answer = await broker.call(ApiKey.METADATA, 6, topics=by_name("some"))
    seen = {
        partition.partition: (partition.leader_id, partition.replica_nodes, partition.isr_nodes)
        for partition in answer.topics[0].partitions
    }
    assert seen == {0: (0, [0, 5], [0]), 1: (0, [5, 0], [0])}
    fetched = await broker.fetch(("some", 2, 0))
    assert fetched.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_without_any_leader_is_there_but_not_seen(broker: InMemoryBroker) -> None:
    await create(broker, "none", partitions=-1, replicas=-1, assignments=[(0, [5])])

    assert (await create(broker, "none")).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    for may_create, code in ((False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (True, ErrorCode.LEADER_NOT_AVAILABLE)):
        answer = await broker.call(ApiKey.METADATA, 6, topics=by_name("none"), allow_auto_topic_creation=may_create)
        assert answer.topics[0].error_code == code
    deleted = await broker.call(ApiKey.DELETE_TOPICS, 2, topic_names=["none"], timeout_ms=1000)
    assert [row.error_code for row in deleted.topics] == [ErrorCode.NONE]


async def test_assigned_replicas_outlive_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "shared")
    await create(broker, "some", partitions=-1, replicas=-1, assignments=[(0, [5, 0]), (1, [5, 6])])
    broker.close()

    broker = make_broker(tmp_path / "shared")
    answer = await broker.call(ApiKey.METADATA, 6, topics=by_name("some"))

    assert [(row.partition, row.replica_nodes) for row in answer.topics[0].partitions] == [(0, [5, 0])]
