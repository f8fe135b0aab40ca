"""CreateTopics, DeleteTopics and DescribeConfigs at the handlers."""

from __future__ import annotations

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode

TOPIC, BROKER = 2, 4


async def create(broker, name: str = "t", *, partitions: int = 1, replicas: int = 1, version: int = 4, **more):
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
async def test_illegal_names_are_refused(broker, name: str) -> None:
    assert (await create(broker, name)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_name_that_collides_in_metrics_is_refused(broker) -> None:
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
async def test_a_request_that_cannot_be_met_creates_nothing(broker, options, code) -> None:
    row = await create(broker, **options)

    assert row.error_code == code
    assert row.error_message
    answer = await broker.call(ApiKey.METADATA, 1, topics=None)
    assert list(answer.topics) == []


async def test_defaults_are_the_brokers_from_v4(make_broker) -> None:
    broker = make_broker(num_partitions=3)

    assert (await create(broker, partitions=-1, replicas=-1)).error_code == ErrorCode.NONE

    answer = await broker.call(ApiKey.METADATA, 1, topics=[("t",)])
    assert len(answer.topics[0].partitions) == 3


async def test_a_manual_assignment_gives_as_many_partitions(broker) -> None:
    row = await create(broker, partitions=-1, replicas=-1, assignments=[(0, [0]), (1, [0])])

    assert row.error_code == ErrorCode.NONE
    answer = await broker.call(ApiKey.METADATA, 1, topics=[("t",)])
    assert len(answer.topics[0].partitions) == 2


async def test_an_existing_topic_and_one_named_twice(broker) -> None:
    await create(broker)
    again = await create(broker)
    twice = await broker.call(
        ApiKey.CREATE_TOPICS, 1, topics=[("u", 1, 1, [], []), ("u", 1, 1, [], [])], timeout_ms=1000
    )

    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert [row.error_code for row in twice.topics] == [ErrorCode.INVALID_REQUEST]


async def test_validate_only_creates_nothing(broker) -> None:
    assert (await create(broker, validate_only=True)).error_code == ErrorCode.NONE
    assert (await create(broker)).error_code == ErrorCode.NONE


async def test_topics_records_and_configs_outlive_a_restart(make_broker, tmp_path) -> None:
    broker = make_broker(tmp_path / "shared")
    await create(broker, partitions=2, configs=[("retention.ms", "12345")])
    await broker.produce("t", [b"kept"], partition=1)
    broker.app.close()

    broker = make_broker(tmp_path / "shared")
    answer = await broker.fetch(("t", 1, 0))
    configs = await described(broker, TOPIC, "t", ["retention.ms"])

    assert b"kept" in bytes(answer.topics[0].partitions[0].records)
    assert configs["retention.ms"].value == "12345"


async def test_a_deleted_topic_is_gone_and_its_name_free(broker) -> None:
    await create(broker)
    await broker.produce("t", [b"old"])

    deleted = await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t", "nope"], timeout_ms=1000)
    row = await create(broker)
    answer = await broker.fetch(("t", 0, 0))

    assert [each.error_code for each in deleted.topics] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert row.error_code == ErrorCode.NONE
    assert bytes(answer.topics[0].partitions[0].records) == b""


async def test_a_deleted_topic_stays_deleted_after_a_restart(make_broker, tmp_path) -> None:
    broker = make_broker(tmp_path / "shared")
    await create(broker)
    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)
    broker.app.close()

    broker = make_broker(tmp_path / "shared")
    answer = await broker.call(ApiKey.METADATA, 1, topics=None)

    assert list(answer.topics) == []


async def described(broker, kind: int, name: str, keys=None, version: int = 1, **more):
    answer = await broker.call(ApiKey.DESCRIBE_CONFIGS, version, resources=[(kind, name, keys)], **more)
    result = answer.results[0]
    assert result.error_code == ErrorCode.NONE, result
    return {row.name: row for row in result.configs}


async def test_topic_configs_say_where_their_values_come_from(make_broker) -> None:
    broker = make_broker(log_segment_bytes=123456)
    await create(broker, configs=[("retention.ms", "1000")])

    configs = await described(broker, TOPIC, "t", include_synonyms=True)

    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("123456", 4)
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)
    assert [row.name for row in configs["segment.bytes"].synonyms] == ["log.segment.bytes", "log.segment.bytes"]


async def test_describe_configs_of_what_is_not_there(broker) -> None:
    answer = await broker.call(
        ApiKey.DESCRIBE_CONFIGS, 1, resources=[(TOPIC, "nope", None), (BROKER, "7", None), (99, "x", None)]
    )

    assert [result.error_code for result in answer.results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
