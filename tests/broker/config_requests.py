"""Asking a broker to alter and to describe one resource's settings."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
OK = (ErrorCode.NONE, None)


async def alter(
    broker: InMemoryBroker,
    kind: int,
    name: str,
    configs: dict[str, Any],
    *,
    validate_only: bool = False,
    version: int = 1,
) -> tuple[int, str | None]:
    """Error code and message of the one resource."""
    answer = await broker.call(
        ApiKey.ALTER_CONFIGS, version, resources=[(kind, name, list(configs.items()))], validate_only=validate_only
    )
    return tuple(answer.responses[0][:2])


async def alter_some(
    broker: InMemoryBroker, kind: int, name: str, *rows: tuple[str, int, str | None], version: int = 0
) -> tuple[int, str | None]:
    """IncrementalAlterConfigs, likewise."""
    answer = await broker.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=[(kind, name, list(rows))], validate_only=False
    )
    return tuple(answer.responses[0][:2])


async def described(broker: InMemoryBroker, kind: int, name: str, *keys: str) -> dict[str, tuple[str | None, int]]:
    """Value and source by name."""
    answer = await broker.call(ApiKey.DESCRIBE_CONFIGS, 1, resources=[(kind, name, list(keys) or None)])
    assert answer.results[0].error_code == ErrorCode.NONE, answer
    return {row.name: (row.value, row.config_source) for row in answer.results[0].configs}
