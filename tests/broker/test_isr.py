"""Who is in sync, and what acks=all makes of it: rows 55, 56 and 58 of kafka 2.0.1's fetch path. Time is jumped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import (
    FOLLOWER,
    ask,
    assign,
    consume,
    follow,
    in_sync,
    park,
    partition_of,
    wanted,
)

THREE = [b"a", b"b", b"c"]
LAG_SECONDS = 10.0
CHECK_SECONDS = LAG_SECONDS / 2
PRODUCE_SECONDS = 1.0  # as long as the broker of these tests may wait for replicas
ACKS_ALL = -1


# -- row 55: joining --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [[0, 1], [1, 0]])
async def test_row_55_a_new_partition_has_the_live_broker_alone_in_sync(
    broker: InMemoryBroker, replicas: list[int]
) -> None:
    await assign(broker, "t", replicas)

    assert await in_sync(broker, "t") == [0]


@pytest.mark.parametrize(("version", "error", "replicas"), [(0, 9, [0]), (1, 0, [1, 0])])
async def test_row_55_who_is_not_up_is_named_from_metadata_v1_on(
    broker: InMemoryBroker, version: int, error: int, replicas: list[int]
) -> None:
    await assign(broker, "t", [1, 0])

    topics = [API_TABLE[ApiKey.METADATA].request.row("topics")(name="t")]
    row = (await broker.call(ApiKey.METADATA, version, topics=topics)).topics[0].partitions[0]

    assert (row.error_code, list(row.replica_nodes), list(row.isr_nodes)) == (error, replicas, [0])


async def test_row_55_a_follower_joins_when_it_has_what_is_committed(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)

    seen = []
    for offset in (0, 2, 3):
        await follow(broker, "t", offset)
        seen.append(await in_sync(broker, "t"))

    assert seen == [[0], [0], [0, 1]]


async def test_row_55_a_follower_joins_although_the_leaders_end_is_further(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1, 2])
    await follow(broker, "t", 0, replica=2)
    await broker.produce("t", THREE)

    await follow(broker, "t", 0, replica=1)

    assert await in_sync(broker, "t") == [0, 2, 1]


async def test_row_55_a_follower_joins_only_beyond_where_this_leader_began(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    first = make_broker(tmp_path / "first")
    await assign(first, "t", [0, 1, 2])
    await follow(first, "t", 0, replica=2)
    await first.produce("t", THREE)
    shutil.copytree(tmp_path / "first", tmp_path / "crashed")  # the high watermark is 0, the log ends at 3

    second = make_broker(tmp_path / "crashed")
    seen = []
    for offset in (0, 2, 3):
        await follow(second, "t", offset, replica=1)
        seen.append(await in_sync(second, "t"))

    assert partition_of(second, "t").high_watermark.message_offset == 0
    assert seen == [[0, 2], [0, 2], [0, 2, 1]]


async def test_row_55_all_partitions_of_one_fetch_are_written_down_together(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await assign(broker, "t", *[[0, 1]] * 20)
    store = broker.app._store
    saves: list[int] = []
    save = store.save

    def counted() -> None:
        saves.append(1)
        save()

    monkeypatch.setattr(store, "save", counted)

    await ask(broker, [("t", [wanted(number, 0) for number in range(20)])], replica_id=FOLLOWER)

    assert [await in_sync(broker, "t", number) for number in range(20)] == [[0, 1]] * 20
    assert len(saves) == 1


# -- row 56: leaving --------------------------------------------------------------------------------------------


async def test_row_56_who_does_not_fetch_leaves_after_the_lag_at_the_next_look(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)

    await trio.sleep(LAG_SECONDS)
    just_before = await in_sync(broker, "t")
    await trio.sleep(CHECK_SECONDS + 0.1)

    assert (just_before, await in_sync(broker, "t")) == ([0, 1], [0])


async def test_row_56_the_lag_is_the_brokers_setting(make_broker: MakeBroker, autojump_clock: MockClock) -> None:
    broker = make_broker(replica_lag_time_max_ms=1000)
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)

    await trio.sleep(1.6)

    assert await in_sync(broker, "t") == [0]


async def test_row_56_who_fetches_and_has_everything_stays(broker: InMemoryBroker, autojump_clock: MockClock) -> None:
    await assign(broker, "t", [0, 1])

    for _ in range(8):
        await follow(broker, "t", 0)
        await trio.sleep(LAG_SECONDS / 2)

    assert await in_sync(broker, "t") == [0, 1]


async def test_row_56_who_fetches_and_never_catches_up_leaves(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)

    for _ in range(8):
        await broker.produce("t", THREE)
        await follow(broker, "t", 1)
        await trio.sleep(LAG_SECONDS / 2)

    assert await in_sync(broker, "t") == [0]


async def test_row_56_the_high_watermark_moves_when_a_laggard_leaves(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    await broker.produce("t", THREE)
    waiting = await park(nursery, consume, broker, "t", 0, max_wait_ms=60_000)

    await trio.sleep(LAG_SECONDS + CHECK_SECONDS + 0.1)

    assert (await waiting.seen()).high_watermark == 3


async def test_row_56_who_left_comes_back_when_it_has_what_was_committed_meanwhile(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    await broker.produce("t", THREE)
    await trio.sleep(LAG_SECONDS + CHECK_SECONDS + 0.1)

    await follow(broker, "t", 0)
    behind = await in_sync(broker, "t")
    await follow(broker, "t", 3)

    assert (behind, await in_sync(broker, "t")) == ([0], [0, 1])


async def test_row_56_a_set_that_cannot_be_written_down_stays_as_it_is(
    broker: InMemoryBroker, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    await broker.produce("t", THREE)

    def full() -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(broker.app._store, "save", full)
        await trio.sleep(LAG_SECONDS + CHECK_SECONDS + 0.1)
        assert await in_sync(broker, "t") == [0, 1]
        assert (await consume(broker, "t", 0)).high_watermark == 0
    await trio.sleep(CHECK_SECONDS)

    assert await in_sync(broker, "t") == [0]
    assert (await consume(broker, "t", 0)).high_watermark == 3


async def test_row_56_after_a_restart_who_was_in_sync_still_is_and_has_the_lag_to_come_back(
    make_broker: MakeBroker, tmp_path: Path, autojump_clock: MockClock
) -> None:
    first = make_broker(tmp_path / "shared")
    await assign(first, "t", [0, 1], [0, 1])
    for partition in (0, 1):
        await follow(first, "t", 0, partition=partition)
    first.close()

    second = make_broker(tmp_path / "shared")
    at_start = [await in_sync(second, "t", partition) for partition in (0, 1)]
    await trio.sleep(LAG_SECONDS - 1)
    in_time = [await in_sync(second, "t", partition) for partition in (0, 1)]
    await follow(second, "t", 0, partition=1)
    await trio.sleep(CHECK_SECONDS + 2)

    assert at_start == in_time == [[0, 1], [0, 1]]
    assert [await in_sync(second, "t", partition) for partition in (0, 1)] == [[0], [0, 1]]


# -- row 58: acks=all -------------------------------------------------------------------------------------------


async def test_row_58_acks_all_waits_until_the_in_sync_replicas_have_it(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await assign(broker, "t", [0, 1, 2])
    for replica in (1, 2):
        await follow(broker, "t", 0, replica=replica)
    waiting = await park(nursery, broker.produce, "t", THREE, acks=ACKS_ALL)

    seen = []
    for replica, offset in ((1, 3), (2, 0), (2, 2), (2, 3)):
        await follow(broker, "t", offset, replica=replica)
        seen.append(await waiting.seen())

    assert seen[:3] == [None, None, None]
    assert (seen[3].error_code, seen[3].base_offset) == (ErrorCode.NONE, 0)


async def test_row_58_acks_all_does_not_wait_for_who_is_not_in_sync(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])

    with trio.fail_after(0):
        row = await broker.produce("t", THREE, acks=ACKS_ALL)

    assert row.error_code == ErrorCode.NONE


@pytest.mark.parametrize("acks", [0, 1])
async def test_row_58_other_acks_wait_for_nobody(broker: InMemoryBroker, acks: int) -> None:
    await assign(broker, "t", [0, 1], min_insync_replicas=2)
    await follow(broker, "t", 0)

    with trio.fail_after(0):
        await broker.produce("t", THREE, acks=acks)

    assert broker.log_of("t").log_end_offset == 3


async def test_row_58_too_few_in_sync_replicas_append_nothing(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1], min_insync_replicas=2)
    await broker.produce("t", THREE)

    row = await broker.produce("t", THREE, acks=ACKS_ALL)

    assert (row.error_code, row.base_offset, row.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1, 0)
    assert broker.log_of("t").log_end_offset == 3


async def test_row_58_too_few_when_it_is_committed_is_told_with_the_offset(
    make_broker: MakeBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker = make_broker(replica_lag_time_max_ms=500)
    await assign(broker, "t", [0, 1], min_insync_replicas=2)
    await follow(broker, "t", 0)

    row = await broker.produce("t", THREE, acks=ACKS_ALL)

    assert (row.error_code, row.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)
    assert (await consume(broker, "t", 0)).high_watermark == 3


@pytest.mark.parametrize("is_disk_failed", [False, True], ids=["stop", "disk"])
async def test_row_58_what_nobody_has_copied_is_not_acknowledged_when_the_broker_ends(
    broker: InMemoryBroker,
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    is_disk_failed: bool,
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    waiting = await park(nursery, broker.produce, "t", THREE, acks=ACKS_ALL)

    with monkeypatch.context() as disk:
        disk.setattr(broker.app._log_manager, "is_offline", is_disk_failed)
        broker.parts.replica_manager.complete_all_delayed()

    expected = ErrorCode.KAFKA_STORAGE_ERROR if is_disk_failed else ErrorCode.REQUEST_TIMED_OUT
    assert (await waiting.seen()).error_code == expected


async def test_row_58_a_timeout_is_told_with_the_offset_and_what_was_appended_stays(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    began = trio.current_time()

    row = await broker.produce("t", THREE, acks=ACKS_ALL)

    assert (row.error_code, row.base_offset, row.log_start_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0, 0)
    assert PRODUCE_SECONDS <= trio.current_time() - began <= PRODUCE_SECONDS + 0.1
    assert broker.log_of("t").log_end_offset == 3
