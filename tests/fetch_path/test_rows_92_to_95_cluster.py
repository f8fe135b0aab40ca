"""Rows 92, 94 and 95 of kafka 2.0.1's fetch path: what else a client of FETCH meets. Time is jumped."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker, by_name
from tests.broker.group_clients import GroupClient
from tests.broker.scripted_follower import park
from tests.fetch_path.asking import LONG_MS, fill, row_of, rows

# -- row 92: metadata -----------------------------------------------------------------------------------------


async def topics_of(broker: InMemoryBroker, version: int, topics: Any) -> dict[str, tuple[ErrorCode, int]]:
    """Error and number of partitions of each topic."""
    answer = await broker.call(ApiKey.METADATA, version, topics=topics)
    return {topic.name: (ErrorCode(topic.error_code), len(topic.partitions)) for topic in answer.topics}


@pytest.mark.parametrize("version", [0, 1, 4, 6, 12])
async def test_row_92_a_topic_that_is_created_by_asking_has_no_leader_yet_in_the_first_answer(
    make_broker: MakeBroker, version: int
) -> None:
    broker = make_broker(num_partitions=2)

    asked = [await topics_of(broker, version, by_name("t")) for _ in range(2)]

    assert asked == [{"t": (ErrorCode.LEADER_NOT_AVAILABLE, 0)}, {"t": (ErrorCode.NONE, 2)}]


async def test_row_92_all_topics_are_an_empty_list_in_v0_and_null_from_v1_on(broker: InMemoryBroker) -> None:
    for name in ("a", "b"):
        await broker.create_topic(name)

    names = [sorted(await topics_of(broker, version, topics)) for version, topics in ((0, []), (1, None), (1, []))]

    assert names == [["a", "b"], ["a", "b"], []]


# -- row 94: groups -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session_timeout_ms", "is_taken"), [(5999, False), (6000, True), (300_000, True), (300_001, False)]
)
async def test_row_94_sessions_last_from_six_seconds_to_five_minutes(
    make_broker: MakeBroker, nursery: trio.Nursery, autojump_clock: MockClock, session_timeout_ms: int, is_taken: bool
) -> None:
    broker = make_broker(offsets_topic_num_partitions=1)
    client = GroupClient(broker, nursery)
    await client.find()

    joined = await client.join(session_timeout_ms=session_timeout_ms)

    assert joined.error_code == (ErrorCode.NONE if is_taken else ErrorCode.INVALID_SESSION_TIMEOUT)


async def test_row_94_the_first_rebalance_of_a_group_waits_three_seconds_for_more_members(
    make_broker: MakeBroker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    broker = make_broker(offsets_topic_num_partitions=1)
    client = GroupClient(broker, nursery)
    await client.find()
    began = trio.current_time()

    await client.join()

    assert trio.current_time() - began == pytest.approx(3, abs=0.01)


# -- row 95: the log directory fails --------------------------------------------------------------------------


def break_the_disk(*_: object) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_row_95_a_log_directory_that_fails_takes_all_its_partitions_offline(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t", 2)
    await broker.create_topic("u")
    await fill(broker, "u")
    parked = await park(nursery, broker.fetch, ("t", 1, 0), max_wait_ms=LONG_MS)

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", break_the_disk)
        failed = await broker.produce("t", [b"x"])
    later = [(await broker.produce("u", [b"x"])).error_code]
    later += [row.error_code for _, row in rows(await broker.fetch(("t", 0, 0), ("t", 1, 0), ("u", 0, 0)))]
    answer = await broker.call(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[("u", [(0, -1, -1, 1)])])
    later.append(row_of(answer).error_code)

    assert [failed.error_code, *later] == [ErrorCode.KAFKA_STORAGE_ERROR] * 6
    assert row_of(await parked.seen()).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_row_95_a_full_disk_is_an_error_that_passes(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    await broker.create_topic("t")
    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        failed = await broker.produce("t", [b"x"])

    assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await broker.produce("t", [b"x"])).error_code == ErrorCode.NONE


async def test_row_95_a_broker_without_its_directory_still_stops_in_order(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tmp_path / "shared")
    await broker.create_topic("t")
    await fill(broker, "t")
    broker.parts.replica_manager.log_manager.go_offline("a test")

    broker.close()

    again = make_broker(tmp_path / "shared")  # it is unlocked, and what was written is there
    assert row_of(await again.fetch(("t", 0, 0))).high_watermark == 1
