"""Rows 92 to 95 of kafka 2.0.1's fetch path: what else a client of FETCH meets. Time is jumped."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.asking import LONG_MS, codes, fill, row_of
from tests.broker.conftest import InMemoryBroker, MakeBroker, by_name
from tests.broker.group_clients import GroupClient
from tests.storage.file_limits import failing

pytestmark = pytest.mark.time_jumps


async def topics_of(broker: InMemoryBroker, version: int, topics: Any) -> dict[str, tuple[ErrorCode, int]]:
    """Error and number of partitions of each topic."""
    answer = await broker.call(ApiKey.METADATA, version, topics=topics)
    return {topic.name: (ErrorCode(topic.error_code), len(topic.partitions)) for topic in answer.topics}


@pytest.mark.parametrize("version", [0, 1, 4, 6, 12])
async def test_row_92_a_topic_created_by_asking_has_no_leader_at_first(make_broker: MakeBroker, version: int) -> None:
    broker = make_broker(num_partitions=2)

    asked = [await topics_of(broker, version, by_name("t")) for _ in range(2)]

    assert asked == [{"t": (ErrorCode.LEADER_NOT_AVAILABLE, 0)}, {"t": (ErrorCode.NONE, 2)}]


@pytest.mark.parametrize(
    ("version", "error", "replicas"),
    [
        (0, ErrorCode.LEADER_NOT_AVAILABLE, []),
        (1, ErrorCode.LEADER_NOT_AVAILABLE, [0]),
        (5, ErrorCode.LEADER_NOT_AVAILABLE, [0]),
        (6, ErrorCode.LISTENER_NOT_FOUND, [0]),
        (12, ErrorCode.LISTENER_NOT_FOUND, [0]),
    ],
)
async def test_row_93_a_client_of_a_listener_that_is_not_advertised_finds_no_broker(
    make_broker: MakeBroker, version: int, error: ErrorCode, replicas: list[int]
) -> None:
    broker = make_broker(
        listeners="PLAINTEXT://:9092,OUT://:9093",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
        advertised_listeners="PLAINTEXT://here:9092",
    )
    await broker.create_topic("t")
    broker.client.listener = "OUT"

    answer = await broker.call(ApiKey.METADATA, version, topics=by_name("t"))
    coordinator = await broker.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)

    (partition,) = answer.topics[0].partitions
    assert (answer.brokers, answer.controller_id, answer.topics[0].error_code) == ([], -1, ErrorCode.NONE)
    assert (partition.error_code, partition.leader_id) == (error, -1)
    assert (list(partition.replica_nodes), list(partition.isr_nodes)) == (replicas, [])
    assert (coordinator.error_code, coordinator.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    broker.client.listener = "PLAINTEXT"
    assert [row.host for row in (await broker.call(ApiKey.METADATA, version, topics=[])).brokers] == ["here"]


@pytest.mark.parametrize(
    ("session_timeout_ms", "is_taken"), [(5999, False), (6000, True), (300_000, True), (300_001, False)]
)
async def test_row_94_sessions_last_from_six_seconds_to_five_minutes(
    make_broker: MakeBroker, session_timeout_ms: int, is_taken: bool
) -> None:
    broker = make_broker(offsets_topic_num_partitions=1)
    client = GroupClient(broker)
    await client.find()

    joined = await client.join(session_timeout_ms=session_timeout_ms)

    assert joined.error_code == (ErrorCode.NONE if is_taken else ErrorCode.INVALID_SESSION_TIMEOUT)


async def test_row_95_a_failed_directory_is_offline(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("t", 2)
    await broker.create_topic("u")
    await fill(broker, "u")
    parked = await broker.park(broker.fetch, ("t", 1, 0), max_wait_ms=LONG_MS)

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", failing(errno.EIO))
        failed = await broker.produce("t", [b"x"])
    later = [(await broker.produce("u", [b"x"])).error_code]
    later += codes(await broker.fetch(("t", 0, 0), ("t", 1, 0), ("u", 0, 0)))
    answer = await broker.call(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[("u", [(0, -1, -1, 1)])])
    later.append(row_of(answer).error_code)

    assert [failed.error_code, *later] == [ErrorCode.KAFKA_STORAGE_ERROR] * 6
    assert row_of(await parked.seen()).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_row_95_a_full_disk_is_a_passing_error(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("t")
    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", failing(errno.ENOSPC))
        failed = await broker.produce("t", [b"x"])

    assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await broker.produce("t", [b"x"])).error_code == ErrorCode.NONE


async def test_row_95_a_broker_without_its_directory_stops_in_order(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "shared")
    await broker.create_topic("t")
    await fill(broker, "t")
    broker.parts.replica_manager.log_manager.go_offline("a test")

    broker.close()

    again = make_broker(tmp_path / "shared")  # it is unlocked, and what was written is there
    assert row_of(await again.fetch(("t", 0, 0))).high_watermark == 1
