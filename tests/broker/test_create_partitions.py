"""CreatePartitions at the handlers: what tests/conformance/scripts/changing.py has not of Apache Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
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


@pytest.mark.parametrize("version", range(4))
async def test_added_partitions_take_records_at_once(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", 2, segment_bytes=1000)
    await broker.produce("t", [b"before"], partition=1)

    assert await add(broker, ("t", 4, None), version=version) == [("t", ErrorCode.NONE, None)]

    assert (await broker.produce("t", [b"new"], partition=3)).base_offset == 0
    assert (await broker.produce("t", [b"after"], partition=1)).base_offset == 1
    assert await count_partitions(broker, "t") == 4
    assert broker.log_of("t", 3).config.segment_bytes == 1000


async def test_added_partitions_outlive_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "shared")
    await broker.create_topic("t", retention_ms=-1)
    await add(broker, ("t", 3, None))
    await broker.produce("t", [b"kept"], partition=2)
    broker.close()

    broker = make_broker(tmp_path / "shared")
    answer = await broker.fetch(("t", 2, 0))

    assert b"kept" in bytes(answer.topics[0].partitions[0].records)
    assert await count_partitions(broker, "t") == 3


@pytest.mark.parametrize(
    ("count", "assignments", "code", "message"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partitions."),
        (2**31 - 1, None, ErrorCode.INVALID_PARTITIONS, "2147483647 partitions: a topic may have 10000 here at most."),
        (4, [[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Increasing the number of partitions by 2 but 1 assign"),
        (4, [[1], [2, 0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Unknown broker(s) in replica assignment: 1, 2."),
        (3, [[0, 0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Duplicate brokers not allowed in replica assignment"),
        (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Cannot have replication factor of 0 for partition id 2."),
        (3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Increasing the number of partitions by 1 but 0 assign"),
    ],
)
async def test_what_cannot_be_met_adds_nothing(
    broker: InMemoryBroker, count: int, assignments: list[list[int]] | None, code: ErrorCode, message: str
) -> None:
    await broker.create_topic("t", 2)

    ((_, told, why),) = await add(
        broker, ("t", count, None if assignments is None else [(each,) for each in assignments])
    )

    assert (told, why.startswith(message)) == (code, True), why
    assert await count_partitions(broker, "t") == 2


@pytest.mark.parametrize(
    ("assignments", "code"),
    [(None, ErrorCode.INVALID_REPLICATION_FACTOR), ([([0],)], ErrorCode.INVALID_REPLICA_ASSIGNMENT)],
)
async def test_more_replicas_than_live_brokers_are_refused(
    broker: InMemoryBroker, assignments: list[Any] | None, code: ErrorCode
) -> None:
    await broker.call(ApiKey.CREATE_TOPICS, 3, topics=[("t", -1, -1, [(0, [0, 5])], [])], timeout_ms=1000)

    assert [row[1] for row in await add(broker, ("t", 2, assignments))] == [code]


async def test_a_name_that_zookeeper_refuses_fails_the_request_and_adds_nothing(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    answer = await broker.call(ApiKey.CREATE_PARTITIONS, 1, topics=[("t", 2, None), (".", 2, None)], timeout_ms=1000)

    assert {row.error_code for row in answer.results} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert len((await broker.call(ApiKey.METADATA, 1, topics=by_name("t"))).topics[0].partitions) == 1


async def test_validation_alone_adds_nothing(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    assert await add(broker, ("t", 2, None), validate_only=True) == [("t", ErrorCode.NONE, None)]

    assert await count_partitions(broker, "t") == 1


async def test_partitions_that_cannot_be_written_down_are_not_added(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t")

    def fail() -> None:
        raise OSError("no space left")

    monkeypatch.setattr(broker.app._store, "save", fail)

    rows = await add(broker, ("t", 2, None))

    assert [row[1] for row in rows] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert await count_partitions(broker, "t") == 1
    monkeypatch.undo()
    assert await add(broker, ("t", 2, None)) == [("t", ErrorCode.NONE, None)]


async def test_a_topic_whose_partitions_have_gaps_gets_no_more(make_broker: MakeBroker, tmp_path: Path) -> None:
    """Read off a directory that another broker wrote in part."""
    (tmp_path / "data" / "t-3").mkdir(parents=True)
    broker = make_broker(tmp_path / "data")

    rows = await add(broker, ("t", 5, None))

    assert [row[1] for row in rows] == [ErrorCode.INVALID_PARTITIONS]
    assert list(json.loads((tmp_path / "data" / "minibroker.json").read_text())["topics"]["t"]["partitions"]) == ["3"]
