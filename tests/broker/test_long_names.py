"""Names and values as long as a string can be: the error message that quotes one is cut, and the answer leaves."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.asking import BROKER, TOPIC
from tests.broker.conftest import InMemoryBroker

LONG = "\U0001f408" * 8191  # of four bytes each


SET = 0
CASES: list[tuple[ApiKey, int, str, tuple[Any, ...]]] = [
    (ApiKey.CREATE_TOPICS, 1, "topics", (LONG, 1, 1, [], [])),
    (ApiKey.CREATE_TOPICS, 5, "topics", ("t", 1, 1, [], [("retention.ms", LONG)])),
    (ApiKey.CREATE_TOPICS, 1, "topics", ("t", 1, 1, [], [(LONG, "1")])),
    (ApiKey.CREATE_PARTITIONS, 0, "topics", (LONG, 2, None)),
    (ApiKey.ALTER_CONFIGS, 0, "resources", (TOPIC, LONG, [])),
    (ApiKey.ALTER_CONFIGS, 0, "resources", (BROKER, LONG, [])),
    (ApiKey.ALTER_CONFIGS, 0, "resources", (BROKER, "0", [("message.max.bytes", LONG)])),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, "resources", (TOPIC, LONG, [("retention.ms", SET, "1")])),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "resources", (BROKER, "0", [("message.max.bytes", SET, LONG)])),
    (ApiKey.DESCRIBE_CONFIGS, 0, "resources", (TOPIC, LONG, None)),
    (ApiKey.DESCRIBE_CONFIGS, 0, "resources", (BROKER, LONG, None)),
]


@pytest.mark.parametrize(
    ("key", "version", "field", "row"), CASES, ids=[f"{key.name}-{at}" for at, (key, *_) in enumerate(CASES)]
)
async def test_a_refusal_that_quotes_a_name_as_long_as_it_can_be_is_answered(
    broker: InMemoryBroker, key: ApiKey, version: int, field: str, row: tuple[Any, ...]
) -> None:
    body: dict[str, Any] = {field: [row]}

    answer = await broker.call(key, version, **body)

    (refused,) = next(part for part in answer if isinstance(part, (list, tuple)))
    assert refused.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert len((refused.error_message or "").encode()) <= 32_767
