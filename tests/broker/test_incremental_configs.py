"""IncrementalAlterConfigs at the handlers: what is named changes, the rest stays."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.apis.config_operations import altered
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.broker.config_requests import APPEND, BROKER, DELETE, OK, SET, SUBTRACT, TOPIC, alter_some
from tests.broker.conftest import InMemoryBroker

make_row = IncrementalAlterConfigsRequest.row("resources.configs")


@pytest.mark.parametrize("version", range(2))
async def test_what_is_not_named_stays(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", segment_bytes=1000, retention_ms=7)

    outcome = await alter_some(
        broker, TOPIC, "t", ("retention.ms", DELETE, None), ("max.message.bytes", SET, "9"), version=version
    )

    assert outcome == OK
    config = broker.log_of("t").config
    assert (config.segment_bytes, config.retention_ms, config.max_message_bytes) == (1000, 604_800_000, 9)


async def test_lists_are_added_to_and_taken_from(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    assert await alter_some(broker, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == OK
    assert broker.log_of("t").config.cleanup_policy == ("delete", "compact")
    assert await alter_some(broker, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == OK
    assert broker.log_of("t").config.cleanup_policy == ("compact",)


async def test_a_brokers_settings_are_altered_one_by_one(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    await alter_some(broker, BROKER, "0", ("log.segment.bytes", SET, "5000"))
    await alter_some(broker, BROKER, "0", ("log.retention.bytes", SET, "9"))

    assert await alter_some(broker, BROKER, "0", ("log.segment.bytes", DELETE, None)) == OK

    config = broker.log_of("t").config
    assert (config.segment_bytes, config.retention_bytes) == (1024**3, 9)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            "Error due to duplicate config keys : retention.ms",
        ),
        ([("retention.ms", SET, None)], "Null value not supported for : retention.ms"),
        ([("retention.ms", APPEND, "1")], "Config value append is not allowed for config key: retention.ms"),
        ([("retention.ms", SUBTRACT, "1")], "Config value subtract is not allowed for config key: retention.ms"),
        ([("retention.ms", 9, "1")], "Unknown operation 9 on config retention.ms"),
        (
            [("retention.ms", SET, "x")],
            "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
    ],
)
async def test_wrong_operations_alter_nothing(
    broker: InMemoryBroker, rows: list[tuple[str, int, str | None]], message: str
) -> None:
    await broker.create_topic("t", retention_ms=7)

    assert await alter_some(broker, TOPIC, "t", *rows) == (ErrorCode.INVALID_REQUEST, message)

    assert broker.log_of("t").config.retention_ms == 7


async def test_a_resource_is_altered_once_in_a_request(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    answer = await broker.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        0,
        resources=[(TOPIC, "t", [("retention.ms", SET, "7")]), (TOPIC, "t", [("retention.bytes", SET, "8")])],
        validate_only=False,
    )

    assert [tuple(row) for row in answer.responses] == [
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.", TOPIC, "t")
    ]


@pytest.mark.parametrize(
    ("current", "operation", "value", "expected"),
    [
        ({"cleanup.policy": "compact"}, APPEND, "delete", "compact,delete"),
        ({"cleanup.policy": "compact"}, APPEND, "compact", "compact"),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "compact", "delete"),
        ({"cleanup.policy": "compact"}, SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "delete"}, APPEND, " compact , delete", "delete,compact"),
        ({}, APPEND, "compact", "delete,compact"),
    ],
)
def test_an_element_is_in_a_list_once(current: dict[str, Any], operation: int, value: str, expected: str) -> None:
    configs = altered(current, [make_row(name="cleanup.policy", operation=operation, value=value)], is_topic=True)

    assert configs == {"cleanup.policy": expected}
