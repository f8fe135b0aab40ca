"""The answers to requests whose handlers fail."""

from __future__ import annotations

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.conftest import InMemoryBroker


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(5, "Input/output error"), ErrorCode.KAFKA_STORAGE_ERROR),
        (KafkaError(ErrorCode.INVALID_REQUEST), ErrorCode.INVALID_REQUEST),
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_handler_that_fails_is_answered_with_the_code_of_its_error(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch, error: Exception, code: ErrorCode
) -> None:
    def fail(request: object, client: object) -> None:
        raise error

    monkeypatch.setitem(broker.parts.handlers.by_key, ApiKey.LIST_GROUPS, fail)

    assert (await broker.call(ApiKey.LIST_GROUPS, 1)).error_code == code
