"""Names and values as long as a string can be: the error message that quotes one is cut, and the answer leaves."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.protocol.api import API_TABLE, Api, ApiKey, encode_request
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from tests.broker.asking import BROKER, TOPIC
from tests.broker.conftest import InMemoryBroker
from tests.protocol.message_values import sample

LONG = "\U0001f408" * 8191  # of four bytes each
LONG_FOR_ZOOKEEPER = "\u00e9" * 16_383  # which takes no characters beyond U+FFFF
SET = 0
CASES: list[tuple[ApiKey, int, str, tuple[Any, ...]]] = [
    (ApiKey.CREATE_TOPICS, 1, "topics", (LONG, 1, 1, [], [])),
    (ApiKey.CREATE_TOPICS, 5, "topics", ("t", 1, 1, [], [("retention.ms", LONG)])),
    (ApiKey.CREATE_TOPICS, 1, "topics", ("t", 1, 1, [], [(LONG, "1")])),
    (ApiKey.CREATE_PARTITIONS, 0, "topics", (LONG_FOR_ZOOKEEPER, 2, None)),
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


LONGEST_THAT_GROWS = "~" * 10_922  # no longer than a string can be, once each byte is read as U+FFFD


# In the samples.
UNREADABLE_OTHERWISE = ("must hold one record batch", "unknown isolation level", "unknown key type", "selects rules")


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


@pytest.mark.usefixtures("in_cluster")
@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
async def test_texts_that_are_not_utf8_are_answered_in_every_version(
    broker: InMemoryBroker, api: Api, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    for version in range(api.versions[0], api.versions[1] + 1):
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
