"""Followers at the handlers: who is in sync, what acks=all makes of it, DeleteRecords that waits for them.

Rows 52 to 59 of the fetch path, time jumped; whole conversations are in
tests/golden/conversations/kafka-2.0.1/followers.txt.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import trio

from minibroker.broker.pending import Pending
from minibroker.broker.replica.isr import IsrChange, IsrChanges, IsrOutcomes
from minibroker.broker.replica.leading import ACKS_ALL, Leadership
from minibroker.broker.replica.replica import NEVER_MS, Replica
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files import disk
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from tests.broker.asking import LONG_MS, batch_of
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import FOLLOWER, answers, assign, consume, follow, in_sync, partition_of

pytestmark = pytest.mark.time_jumps

THREE = [b"a", b"b", b"c"]
T0 = TopicPartition("t", 0)


async def test_row_55_a_follower_joins_beyond_where_this_leader_began(make_broker: MakeBroker, tmp_path: Path) -> None:
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

    assert partition_of(second, "t").log.high_watermark == 0
    assert seen == [[0, 2], [0, 2], [0, 2, 1]]


async def test_row_55_a_fetch_stores_all_joins_once(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await assign(broker, "t", *[[0, 1]] * 20)
    monkeypatch.setattr(disk, "write", save := Mock(wraps=disk.write))

    await broker.fetch(*(("t", number, 0) for number in range(20)), replica_id=FOLLOWER)

    assert [await in_sync(broker, "t", number) for number in range(20)] == [[0, 1]] * 20
    save.assert_called_once()


@pytest.mark.parametrize("is_disk_failed", [False, True], ids=["stop", "disk"])
async def test_row_58_records_without_a_copy_are_not_acknowledged_when_the_broker_ends(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch, is_disk_failed: bool
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    waiting = await broker.park(broker.produce, "t", THREE, acks=ACKS_ALL)

    with monkeypatch.context() as failed:
        failed.setattr(broker.app._log_manager, "is_offline", is_disk_failed)
        broker.parts.replica_manager.complete_all_delayed()

    expected = ErrorCode.KAFKA_STORAGE_ERROR if is_disk_failed else ErrorCode.REQUEST_TIMED_OUT
    assert (await waiting.seen()).error_code == expected


LAG_MS = 10_000


def replica(last_caught_up_ms: int = NEVER_MS) -> Replica:
    return Replica(1, last_caught_up_ms=last_caught_up_ms)


def fetch(follower: Replica, offset: int, *, leader_end: int, now_ms: int) -> None:
    end = LogOffsetMetadata(offset, 0, offset * 10)
    follower.note_fetch(end, log_start_offset=0, leader_end_offset=leader_end, now_ms=now_ms)


@pytest.mark.parametrize(
    ("fetches", "caught_up_ms"),
    [
        pytest.param([(5, 5, 100)], 100, id="at the leader's end it is caught up now"),
        pytest.param([(5, 8, 100), (8, 11, 200), (11, 14, 300)], 200, id="one step behind: at the fetch before"),
        pytest.param([(5, 5, 100), (5, 50, 200), (20, 60, 300)], 100, id="falling behind: when it was not"),
    ],
)
def test_row_52_when_a_follower_was_caught_up(fetches: list[tuple[int, int, int]], caught_up_ms: int) -> None:
    """Fetches of (offset, the leader's end, time)."""
    follower = replica()

    for offset, leader_end, now_ms in fetches:
        fetch(follower, offset, leader_end=leader_end, now_ms=now_ms)

    assert follower.last_caught_up_ms == caught_up_ms
    assert follower.log_end_offset == LogOffsetMetadata(offset, 0, offset * 10)


def test_row_52_a_failed_fetch_leaves_no_end_and_the_time_as_it_was() -> None:
    follower = replica()
    assert (follower.log_end_offset.message_offset, follower.log_start_offset) == (-1, -1)
    assert not follower.is_caught_up(0, LAG_MS)
    fetch(follower, 5, leader_end=5, now_ms=100)

    follower.note_failed_fetch()
    fetch(follower, 0, leader_end=5, now_ms=200)

    assert follower.last_caught_up_ms == 100
    assert follower.log_end_offset.message_offset == 0


@pytest.mark.parametrize(("now_ms", "expected"), [(LAG_MS + 7, True), (LAG_MS + 8, False)])
def test_row_56_the_lag_may_be_as_long_as_is_allowed_and_no_longer(now_ms: int, expected: bool) -> None:
    assert replica(last_caught_up_ms=7).is_caught_up(now_ms, LAG_MS) is expected


async def test_row_52_a_fetch_that_waited_changes_nothing_when_it_wakes(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    waiting = await broker.park(follow, broker, "t", 0, max_wait_ms=LONG_MS)
    replica = partition_of(broker, "t").remote_replicas[FOLLOWER]
    asked_ms = replica.last_caught_up_ms
    await trio.sleep(5)

    await broker.produce("t", THREE)

    assert (await waiting.seen()).records
    assert (replica.log_end_offset.message_offset, replica.last_caught_up_ms) == (0, asked_ms)


async def test_row_54_a_follower_commits_nothing_before_flush_messages_has_it_on_disk(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1], flush_messages=1)
    replica_manager = broker.parts.replica_manager
    where = TopicPartition("t", 0)

    results = replica_manager.append({where: memoryview(batch_of())}, required_acks=1, timeout_ms=1000)
    await follow(broker, "t", 1)
    assert replica_manager.partitions.led(where).log.high_watermark == 0

    assert isinstance(results, Pending)
    await results.wait()
    assert replica_manager.partitions.led(where).log.high_watermark == 1


async def test_what_a_start_finds_is_committed_once_its_followers_have_it_without_another_append(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    patient = {"replica_lag_time_max_ms": 10**9}  # time jumps far while a thread flushes
    broker = make_broker(tmp_path / "one", **patient)
    await assign(broker, "t", [0, 1], flush_messages=1)
    await follow(broker, "t", 0)  # it is in sync
    await broker.write("t", batch_of())

    again = make_broker(shutil.copytree(tmp_path / "one", tmp_path / "crashed"), **patient)
    log = again.log_of("t")
    assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (1, 0, 0)
    await follow(again, "t", 1)
    assert (log.recovery_point, log.high_watermark) == (0, 1)

    waiting = again.parts.replica_manager.append(
        {TopicPartition("t", 0): memoryview(batch_of())}, required_acks=1, timeout_ms=1000
    )
    await follow(again, "t", 2)
    assert log.high_watermark == 1, "an append waits for its fsync"
    assert isinstance(waiting, Pending)
    await waiting.wait()
    assert log.high_watermark == 2


async def test_while_a_change_of_the_isr_is_saved_the_larger_set_counts(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    asked: list[IsrChanges] = []
    saving: Pending[IsrOutcomes] = Pending()

    def save(changes: IsrChanges) -> Pending[IsrOutcomes]:
        asked.append(changes)
        return saving

    broker.parts.replica_manager.followers._save_isr = save
    await follow(broker, "t", 0)
    leading = partition_of(broker, "t")
    await broker.produce("t", THREE)
    await trio.sleep(60)  # it would have left, and the records be committed
    await follow(broker, "t", 0)

    assert asked == [{T0: IsrChange((0, 1), leading.leader_epoch, 0)}]  # one request at a time
    assert leading.in_sync_replicas == (0,)
    assert leading.log.high_watermark == 0
    saving.resolve({T0: 1})
    assert leading.leadership == Leadership(leading.leader_epoch, (0, 1), 1)


async def test_a_leader_whose_state_is_stale_keeps_its_isr(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    followers = broker.parts.replica_manager.followers
    followers._save_isr = lambda changes: dict.fromkeys(changes)
    await follow(broker, "t", 0)

    assert partition_of(broker, "t").in_sync_replicas == (0,)
    assert (followers.failed_isr_updates, followers.isr_expansions) == (1, 0)


@pytest.mark.pure
async def test_a_failing_fetch_fails_no_producer(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("t", 2)
    waiting = await broker.park(broker.fetch, ("t", 0, 0), ("t", 1, 0), max_wait_ms=LONG_MS)

    def fail(*args: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("minibroker.broker.replica.fetch.read_rows", fail)
    topics = [("t", [(0, batch_of()), (1, batch_of())])]
    produced = await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=topics)

    assert [row.error_code for row in produced.topics[0].partitions] == [ErrorCode.NONE, ErrorCode.NONE]
    assert {each.error for each in answers(await waiting.seen())} == {ErrorCode.KAFKA_STORAGE_ERROR}


async def test_row_59_a_start_begins_at_the_checkpoints_watermark(make_broker: MakeBroker, tmp_path: Path) -> None:
    first = make_broker(tmp_path / "shared")
    await assign(first, "t", [0, 1])
    await follow(first, "t", 0)
    await first.produce("t", THREE)
    await follow(first, "t", 2)
    first.app._log_manager.write_high_watermarks(first.parts.replica_manager.high_watermarks())

    checkpoint = (tmp_path / "shared" / "replication-offset-checkpoint").read_text()
    first.close()
    second = make_broker(tmp_path / "shared")

    assert "t 0 2" in checkpoint
    assert (await consume(second, "t", 0)).high_watermark == 2
