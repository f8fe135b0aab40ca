"""Names and values as long as a string can be: the error message that quotes one is cut, and the answer leaves."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker

LONG = "\U0001f408" * 8191  # of four bytes each
LONG_FOR_ZOOKEEPER = "\u00e9" * 16_383  # which takes no characters beyond U+FFFF
TOPIC, BROKER = 2, 4


def row(key: ApiKey, path: str, **fields: Any) -> Any:
    return API_TABLE[key].request.row(path)(**fields)


def create(name: str, *configs: tuple[str, str]) -> Any:
    return row(ApiKey.CREATE_TOPICS, "topics", name=name, num_partitions=1, replication_factor=1, configs=configs)


def alter(kind: int, name: str, *configs: tuple[str, str]) -> Any:
    return row(ApiKey.ALTER_CONFIGS, "resources", resource_type=kind, resource_name=name, configs=configs)


def set_to(kind: int, name: str, *configs: tuple[str, str]) -> Any:
    make = API_TABLE[ApiKey.INCREMENTAL_ALTER_CONFIGS].request.row("resources.configs")
    rows = [make(name=config, operation=0, value=value) for config, value in configs]
    return row(ApiKey.INCREMENTAL_ALTER_CONFIGS, "resources", resource_type=kind, resource_name=name, configs=rows)


def describe(kind: int, name: str) -> Any:
    return row(ApiKey.DESCRIBE_CONFIGS, "resources", resource_type=kind, resource_name=name, configuration_keys=None)


CASES = [
    (ApiKey.CREATE_TOPICS, 1, {"topics": [create(LONG)]}),
    (ApiKey.CREATE_TOPICS, 5, {"topics": [create("t", ("retention.ms", LONG))]}),
    (ApiKey.CREATE_TOPICS, 1, {"topics": [create("t", (LONG, "1"))]}),
    (
        ApiKey.CREATE_PARTITIONS,
        0,
        {"topics": [row(ApiKey.CREATE_PARTITIONS, "topics", name=LONG_FOR_ZOOKEEPER, count=2)]},
    ),
    (ApiKey.ALTER_CONFIGS, 0, {"resources": [alter(TOPIC, LONG)]}),
    (ApiKey.ALTER_CONFIGS, 0, {"resources": [alter(BROKER, LONG)]}),
    (ApiKey.ALTER_CONFIGS, 0, {"resources": [alter(BROKER, "0", ("message.max.bytes", LONG))]}),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": [set_to(TOPIC, LONG, ("retention.ms", "1"))]}),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [set_to(BROKER, "0", ("message.max.bytes", LONG))]}),
    (ApiKey.DESCRIBE_CONFIGS, 0, {"resources": [describe(TOPIC, LONG)]}),
    (ApiKey.DESCRIBE_CONFIGS, 0, {"resources": [describe(BROKER, LONG)]}),
]


@pytest.mark.parametrize(
    ("key", "version", "body"), CASES, ids=[f"{key.name}-{at}" for at, (key, _, _) in enumerate(CASES)]
)
async def test_a_refusal_that_quotes_a_name_as_long_as_it_can_be_is_answered(
    broker: InMemoryBroker, key: ApiKey, version: int, body: dict[str, Any]
) -> None:
    answer = await broker.call(key, version, **body)

    (refused,) = next(part for part in answer if isinstance(part, (list, tuple)))
    assert refused.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert len((refused.error_message or "").encode()) <= 32_767
