"""Followers at the handlers: who is in sync, what acks=all makes of it, DeleteRecords that waits for them.

Rows 52 to 59 of the fetch path, time jumped; whole conversations are in tests/conformance/scripts/followers.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from minibroker.broker.pending import Pending
from minibroker.broker.replica.replica import NEVER_MS, Replica
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from tests.broker.conftest import NOW_MS, At, InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import FOLLOWER, answers, assign, consume, follow, in_sync, partition_of

pytestmark = pytest.mark.time_jumps

THREE = [b"a", b"b", b"c"]
LAG_SECONDS = 10.0
CHECK_SECONDS = LAG_SECONDS / 2
ACKS_ALL = -1


async def test_row_55_a_follower_joins_when_it_has_what_is_committed(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)

    seen = []
    for offset in (0, 2, 3):
        await follow(broker, "t", offset)
        seen.append(await in_sync(broker, "t"))

    assert seen == [[0], [0], [0, 1]]


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

    await broker.fetch(*(("t", number, 0) for number in range(20)), replica_id=FOLLOWER)

    assert [await in_sync(broker, "t", number) for number in range(20)] == [[0, 1]] * 20
    assert len(saves) == 1


async def test_row_56_who_does_not_fetch_leaves_after_the_lag_at_the_next_look(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)

    await trio.sleep(LAG_SECONDS)
    just_before = await in_sync(broker, "t")
    await trio.sleep(CHECK_SECONDS + 0.1)

    assert (just_before, await in_sync(broker, "t")) == ([0, 1], [0])


async def test_row_56_who_fetches_and_never_catches_up_leaves(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)

    for _ in range(8):
        await broker.produce("t", THREE)
        await follow(broker, "t", 1)
        await trio.sleep(LAG_SECONDS / 2)

    assert await in_sync(broker, "t") == [0]


async def test_row_56_a_set_that_cannot_be_written_down_stays_as_it_is(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
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
    make_broker: MakeBroker, tmp_path: Path
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


async def test_row_58_acks_all_waits_until_the_in_sync_replicas_have_it(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1, 2])
    for replica in (1, 2):
        await follow(broker, "t", 0, replica=replica)
    waiting = await broker.park(broker.produce, "t", THREE, acks=ACKS_ALL)

    seen = []
    for replica, offset in ((1, 3), (2, 0), (2, 2), (2, 3)):
        await follow(broker, "t", offset, replica=replica)
        seen.append(await waiting.seen())

    assert seen[:3] == [None, None, None]
    assert (seen[3].error_code, seen[3].base_offset) == (ErrorCode.NONE, 0)


async def test_row_58_too_few_when_it_is_committed_is_told_with_the_offset(make_broker: MakeBroker) -> None:
    broker = make_broker(replica_lag_time_max_ms=500)
    await assign(broker, "t", [0, 1], min_insync_replicas=2)
    await follow(broker, "t", 0)

    row = await broker.produce("t", THREE, acks=ACKS_ALL)

    assert (row.error_code, row.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)
    assert (await consume(broker, "t", 0)).high_watermark == 3


@pytest.mark.parametrize("is_disk_failed", [False, True], ids=["stop", "disk"])
async def test_row_58_what_nobody_has_copied_is_not_acknowledged_when_the_broker_ends(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch, is_disk_failed: bool
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    waiting = await broker.park(broker.produce, "t", THREE, acks=ACKS_ALL)

    with monkeypatch.context() as disk:
        disk.setattr(broker.app._log_manager, "is_offline", is_disk_failed)
        broker.parts.replica_manager.complete_all_delayed()

    expected = ErrorCode.KAFKA_STORAGE_ERROR if is_disk_failed else ErrorCode.REQUEST_TIMED_OUT
    assert (await waiting.seen()).error_code == expected


LAG_MS = 10_000


def replica(last_caught_up_ms: int = NEVER_MS) -> Replica:
    return Replica(1, last_caught_up_ms=last_caught_up_ms)


def fetch(follower: Replica, offset: int, *, leader_end: int, now_ms: int) -> None:
    follower.note_fetch(
        LogOffsetMetadata(offset, 0, offset * 10), log_start_offset=0, leader_end_offset=leader_end, now_ms=now_ms
    )


def test_row_52_nothing_is_known_of_a_follower_before_its_first_fetch() -> None:
    follower = replica()

    assert (follower.log_end_offset.message_offset, follower.log_start_offset) == (-1, -1)
    assert not follower.is_caught_up(0, LAG_MS)


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
    fetch(follower, 5, leader_end=5, now_ms=100)

    follower.note_failed_fetch()
    fetch(follower, 0, leader_end=5, now_ms=200)

    assert follower.last_caught_up_ms == 100
    assert follower.log_end_offset.message_offset == 0


@pytest.mark.parametrize(("now_ms", "expected"), [(LAG_MS + 7, True), (LAG_MS + 8, False)])
def test_row_56_the_lag_may_be_as_long_as_is_allowed_and_no_longer(now_ms: int, expected: bool) -> None:
    assert replica(last_caught_up_ms=7).is_caught_up(now_ms, LAG_MS) is expected


LONG_MS = 60_000
FUTURE_REPLICA = -3


def one_batch() -> bytearray:
    return build_batch([Record(0, NOW_MS, None, b"v", ())])


async def test_row_52_a_fetch_says_where_the_followers_log_begins_and_ends(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)

    await follow(broker, "t", 2, log_start_offset=1)

    replica = partition_of(broker, "t").remote_replicas[FOLLOWER]
    assert (replica.log_start_offset, replica.log_end_offset.message_offset) == (1, 2)


async def test_row_52_a_fetch_out_of_range_leaves_the_followers_end_unknown(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)

    assert await follow(broker, "t", 4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, b"")
    assert partition_of(broker, "t").remote_replicas[FOLLOWER].log_end_offset.message_offset == -1
    assert (await follow(broker, "t", 9, replica=5)).error == ErrorCode.OFFSET_OUT_OF_RANGE  # broker 5 is not a replica


async def test_row_52_a_follower_whose_log_parts_from_the_leaders_says_nothing_until_it_is_cut(
    broker: InMemoryBroker,
) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)
    await follow(broker, "t", 2)

    body = await broker.fetch(At("t", 0, 5, last_epoch=0), version=12, replica_id=FOLLOWER)

    assert body.topics[0].partitions[0].diverging_epoch.end_offset == 3
    assert partition_of(broker, "t").remote_replicas[FOLLOWER].log_end_offset.message_offset == 2


async def test_row_52_a_fetch_that_waited_says_nothing_new_when_it_wakes(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    waiting = await broker.park(follow, broker, "t", 0, max_wait_ms=LONG_MS)
    replica = partition_of(broker, "t").remote_replicas[FOLLOWER]
    asked_ms = replica.last_caught_up_ms
    await trio.sleep(5)

    await broker.produce("t", THREE)

    assert (await waiting.seen()).records
    assert (replica.log_end_offset.message_offset, replica.last_caught_up_ms) == (0, asked_ms)


@pytest.mark.parametrize("replicas", [[0], [0, 1]])
async def test_row_53_who_is_no_replica_gets_nothing_at_once_and_all_after_a_wait(
    broker: InMemoryBroker, replicas: list[int]
) -> None:
    await assign(broker, "t", replicas)
    await broker.produce("t", THREE)

    at_once = await follow(broker, "t", 0, replica=5)
    began = trio.current_time()
    later = await follow(broker, "t", 0, replica=5, max_wait_ms=100)

    assert at_once == (ErrorCode.NONE, 3, b"")
    assert b"a" in later.records
    assert trio.current_time() - began >= 0.1
    assert await in_sync(broker, "t") == [0]


async def test_row_54_the_high_watermark_is_the_least_end_of_the_in_sync_replicas(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1, 2])
    await follow(broker, "t", 0, replica=1)
    await follow(broker, "t", 0, replica=2)
    await broker.produce("t", THREE)

    seen = []
    for replica, offset in ((1, 3), (2, 2), (2, 3)):
        await follow(broker, "t", offset, replica=replica)
        seen.append((await consume(broker, "t", 0)).high_watermark)

    assert seen == [0, 2, 3]


async def test_row_54_who_is_caught_up_and_cannot_be_written_down_as_in_sync_is_waited_for(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await assign(broker, "t", [0, 1])

    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(broker.app._store, "save", full)
    await follow(broker, "t", 0)
    await broker.produce("t", THREE)

    assert await in_sync(broker, "t") == [0]
    assert (await consume(broker, "t", 0)).high_watermark == 0
    await follow(broker, "t", 3)
    assert (await consume(broker, "t", 0)).high_watermark == 3


async def test_row_54_a_follower_commits_nothing_that_flush_messages_wants_on_the_disk_first(
    broker: InMemoryBroker,
) -> None:
    await assign(broker, "t", [0, 1], flush_messages=1)
    replica_manager = broker.parts.replica_manager
    where = TopicPartition("t", 0)

    results = replica_manager.append({where: memoryview(one_batch())}, required_acks=1, timeout_ms=1000)
    await follow(broker, "t", 1)
    assert replica_manager.partitions[where].high_watermark.message_offset == 0

    assert isinstance(results, Pending)
    await results.wait()
    assert replica_manager.partitions[where].high_watermark.message_offset == 1


async def test_row_54_a_high_watermark_moves_to_the_segment_that_was_rolled_behind_it(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1], segment_bytes=1000)
    await broker.produce("t", [b"x" * 800])
    await follow(broker, "t", 1)
    waiting = await broker.park(consume, broker, "t", 0, max_wait_ms=LONG_MS, min_bytes=10_000)
    await broker.produce("t", [b"y" * 800])
    assert await waiting.seen() is None  # the high watermark is still on the first segment

    await follow(broker, "t", 1)

    assert b"x" * 800 in (await waiting.seen()).records  # Case C: it is on the second now


async def test_a_read_that_fails_for_who_waits_does_not_fail_the_producer(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t", 2)
    waiting = await broker.park(broker.fetch, ("t", 0, 0), ("t", 1, 0), max_wait_ms=LONG_MS)

    def fail(*args: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("minibroker.broker.replica.fetch.read_rows", fail)
    topics = [("t", [(0, one_batch()), (1, one_batch())])]
    produced = await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=topics)

    assert [row.error_code for row in produced.topics[0].partitions] == [ErrorCode.NONE, ErrorCode.NONE]
    assert {each.error for each in answers(await waiting.seen())} == {ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize(
    ("replica", "is_read"),
    [(1, True), (-1, False), (-2, False), (-3, True), (-4, False)],
    ids=["follower", "consumer", "debugging", "future", "nobody"],
)
async def test_row_57_followers_read_to_the_end_and_consumers_to_the_high_watermark(
    broker: InMemoryBroker, replica: int, is_read: bool
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    await broker.produce("t", THREE)

    answer = await follow(broker, "t", 0, replica=replica)

    assert answer.high_watermark == 0
    assert bool(answer.records) is is_read


async def test_row_59_the_high_watermark_is_in_the_checkpoint_and_is_where_the_next_start_begins(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
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


async def test_row_59_a_leader_that_goes_answers_who_waits_for_it(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1, 2])
    await follow(broker, "t", 0)
    producing = await broker.park(broker.produce, "t", THREE, acks=-1)
    consuming = await broker.park(consume, broker, "t", 0, max_wait_ms=LONG_MS)
    following = await broker.park(follow, broker, "t", 3, replica=2, max_wait_ms=LONG_MS)

    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)

    row = await producing.seen()
    assert (row.error_code, row.base_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert (await consuming.seen()).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await following.seen()).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_row_52_every_partition_of_a_followers_session_is_fetched_with_each_request(
    broker: InMemoryBroker,
) -> None:
    await assign(broker, "t", [0, 1])
    session = {"replica_id": FOLLOWER}
    rows = [("t", 0, 0)]
    session["session_id"] = (await broker.fetch(*rows, session_epoch=0, **session)).session_id

    for epoch in range(1, 5):
        await trio.sleep(8)
        await broker.fetch(session_epoch=epoch, **session)

    assert await in_sync(broker, "t") == [0, 1]


pytestmark = pytest.mark.time_jumps

TIMEOUT_MS = 2000


async def delete(broker: InMemoryBroker, *offsets: tuple[str, int, int]) -> list[tuple[int, int]]:
    """Delete in (topic, partition) below an offset; each row's error and low watermark."""
    topics = [(topic, [(partition, offset)]) for topic, partition, offset in offsets]
    body: Any = await broker.call(ApiKey.DELETE_RECORDS, 1, topics=topics, timeout_ms=TIMEOUT_MS)
    return [(row.error_code, row.low_watermark) for topic in body.topics for row in topic.partitions]


@pytest.fixture
async def cluster(make_broker: MakeBroker) -> InMemoryBroker:
    """A broker that takes every other for alive, with three records that a follower has too."""
    broker = make_broker()
    broker.parts.replica_manager.is_alive = lambda broker_id: True
    await assign(broker, "t", [0, FOLLOWER])
    await broker.produce("t", THREE)
    await follow(broker, "t", 3)
    return broker


async def test_a_live_follower_is_waited_for_until_its_log_begins_there(cluster: InMemoryBroker) -> None:
    waiting = await cluster.park(delete, cluster, ("t", 0, 2))

    await follow(cluster, "t", 3, log_start_offset=1)
    not_yet = await waiting.seen()
    await follow(cluster, "t", 3, log_start_offset=2)

    assert not_yet is None
    assert await waiting.seen() == [(ErrorCode.NONE, 2)]
    assert cluster.log_of("t").log_start_offset == 2


async def test_the_timeout_tells_how_far_all_are(cluster: InMemoryBroker) -> None:
    await follow(cluster, "t", 3, log_start_offset=1)
    began = trio.current_time()

    rows = await delete(cluster, ("t", 0, -1))

    assert rows == [(ErrorCode.REQUEST_TIMED_OUT, 1)]
    assert TIMEOUT_MS <= (trio.current_time() - began) * 1000 <= TIMEOUT_MS + 100


async def test_one_partition_that_fails_does_not_cut_the_wait_for_another(cluster: InMemoryBroker) -> None:
    waiting = await cluster.park(delete, cluster, ("nope", 0, 0), ("t", 0, 3))

    await follow(cluster, "t", 3, log_start_offset=3)

    assert await waiting.seen() == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (ErrorCode.NONE, 3)]


async def test_a_topic_that_is_deleted_ends_the_wait(cluster: InMemoryBroker) -> None:
    waiting = await cluster.park(delete, cluster, ("t", 0, 2))

    await cluster.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)

    assert await waiting.seen() == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


async def test_which_records_are_not_deleted(broker: InMemoryBroker) -> None:
    await broker.create_topic("__consumer_offsets")
    await broker.create_topic("t", cleanup_policy="compact")

    assert await delete(broker, ("__consumer_offsets", 0, 0)) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]
    assert await delete(broker, ("t", 0, -2)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]  # whatever the policy
    assert await delete(broker, ("t", 0, 0)) == [(ErrorCode.POLICY_VIOLATION, -1)]


async def test_row_59_a_produce_waits_for_its_last_record(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", [b"a"])
    await follow(broker, "t", 1)
    producing = await broker.park(broker.produce, "t", [b"b"], acks=-1)

    await follow(broker, "t", 2)

    assert (await producing.seen()).error_code == ErrorCode.NONE
