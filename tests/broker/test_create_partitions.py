"""CreatePartitions at the handlers: what tests/conformance/scripts/changing.py has not of Apache Kafka."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.cluster.assignment import MAX_PARTITIONS_PER_TOPIC, added_partitions, assign_replicas
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.conftest import InMemoryBroker, MakeBroker, by_name


async def add(broker: InMemoryBroker, *topics: Any, version: int = 1, validate_only: bool = False) -> list[Any]:
    """The rows (name, error code, message) of the answer."""
    answer = await broker.call(
        ApiKey.CREATE_PARTITIONS, version, topics=list(topics), timeout_ms=1000, validate_only=validate_only
    )
    return [tuple(row) for row in answer.results]


async def count_partitions(broker: InMemoryBroker, name: str) -> int:
    answer = await broker.call(ApiKey.METADATA, 6, topics=by_name(name))
    return len(answer.topics[0].partitions)


async def test_a_topic_has_no_more_partitions_than_it_may_have(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", 2)

    rows = await add(broker, ("t", 2**31 - 1, None))

    message = "2147483647 partitions: a topic may have 10000 here at most."
    assert [(code, told.startswith(message)) for _, code, told in rows] == [(ErrorCode.INVALID_PARTITIONS, True)]
    assert await count_partitions(broker, "t") == 2
    assert len(assign_replicas(0, MAX_PARTITIONS_PER_TOPIC, 1)) == 10_000
    assert len(added_partitions([[0]], MAX_PARTITIONS_PER_TOPIC, None, 0)) == 9_999
    too_many = MAX_PARTITIONS_PER_TOPIC + 1
    for ask in (partial(assign_replicas, 0, too_many, 1), partial(added_partitions, [[0]], too_many, None, 0)):
        with pytest.raises(KafkaError) as refused:
            ask()
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS


async def test_a_topic_whose_partitions_have_gaps_gets_no_more(make_broker: MakeBroker, tmp_path: Path) -> None:
    """Read off a directory that another broker wrote in part."""
    (tmp_path / "data" / "t-3").mkdir(parents=True)
    broker = make_broker(tmp_path / "data")

    rows = await add(broker, ("t", 5, None))

    assert [row[1] for row in rows] == [ErrorCode.INVALID_PARTITIONS]
    assert list(json.loads((tmp_path / "data" / "minibroker.json").read_text())["topics"]["t"]["partitions"]) == ["3"]
