"""DescribeClientQuotas and AlterClientQuotas: what is refused, what is found, what is kept.

The errors are those of Apache Kafka 3.9.1, seen on it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.apis import client_quotas
from minibroker.broker.cluster.topic_store import FILE_NAME
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker

U, C = "user", "client-id"
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


async def alter(broker: InMemoryBroker, *entries: Any, version: int = 1, validate_only: bool = False) -> list[Any]:
    """Alter; an entry is an entity and its operations: a key with its value, None to remove it."""
    rows = [(entity, [(key, value or 0.0, value is None) for key, value in ops]) for entity, ops in entries]
    answer = await broker.call(ApiKey.ALTER_CLIENT_QUOTAS, version, entries=rows, validate_only=validate_only)
    return [(row.error_code, row.error_message, [tuple(each) for each in row.entity]) for row in answer.entries]


# -- what is kept ---------------------------------------------------------------------------------------------


async def test_the_names_of_all_entities_are_bounded(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_quotas, "NAMES_MAX_BYTES", 10_000)
    broker = make_broker(tmp_path / "data")
    assert (await alter(broker, ([(U, "x" * 9000)], [(PRODUCE, 1)])))[0][0] == ErrorCode.NONE

    ((code, _, _),) = await alter(broker, ([(C, "y" * 1001)], [(PRODUCE, 1)]))

    assert code == ErrorCode.INVALID_REQUEST
    stored = json.loads((tmp_path / "data" / FILE_NAME).read_text())["client_quotas"]
    assert [list(each["entity"]) for each in stored] == [[U]]
