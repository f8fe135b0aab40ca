"""Names and values as long as a string can be: the error message that quotes one is cut, and the answer leaves."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.protocol.api import API_TABLE, Api, ApiKey, encode_request
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from tests.broker.conftest import InMemoryBroker
from tests.protocol.message_values import sample

LONG = "\U0001f408" * 8191  # of four bytes each
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
    (ApiKey.CREATE_PARTITIONS, 0, {"topics": [row(ApiKey.CREATE_PARTITIONS, "topics", name=LONG, count=2)]}),
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


LONGEST_THAT_GROWS = "~" * 10_922  # no longer than a string can be, once each byte is read as U+FFFD


UNREADABLE_OTHERWISE = ("must hold one record batch", "unknown isolation level", "unknown key type")  # in the samples


def with_texts(value: Any, text: str) -> Any:
    """The value with this text in the place of each."""
    if isinstance(value, str):
        return text
    if isinstance(value, list):
        return [with_texts(each, text) for each in value]
    if isinstance(value, tuple):
        changed = [with_texts(each, text) for each in value]
        return value._make(changed) if hasattr(value, "_make") else tuple(changed)
    return value


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
async def test_texts_that_are_not_utf8_are_answered_in_every_version(
    broker: InMemoryBroker, api: Api, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    for version in range(api.versions[1] + 1):
        body = with_texts(sample(api.request, version), LONGEST_THAT_GROWS)
        frame = encode_request(api.key, version, 1, None, body).replace(LONGEST_THAT_GROWS.encode(), b"\xff" * 10_922)
        outcome = "waits"
        with trio.move_on_after(300):
            try:
                outcome = "answered" if await broker.answer(frame[4:]) else "not answered"
            except (KafkaProtocolError, CloseConnectionError) as refusal:
                outcome = str(refusal)

        assert outcome == "answered" or any(each in outcome for each in UNREADABLE_OTHERWISE), (version, outcome)
        assert "a defect of minibroker" not in caplog.text
        assert "cannot encode" not in caplog.text
