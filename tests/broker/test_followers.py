"""Followers at the handlers: rows 52, 53, 54, 57 and 59 of kafka 2.0.1's fetch path, and their sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.pending import Pending
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import (
    FOLLOWER,
    answers,
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
LONG_MS = 60_000
FUTURE_REPLICA = -3


def one_batch() -> bytearray:
    return build_batch([Record(0, NOW_MS, None, b"v", ())])


# -- row 52: what a fetch says of the follower ----------------------------------------------------------------


async def test_row_52_a_fetch_says_where_the_followers_log_begins_and_ends(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)

    await follow(broker, "t", 2, log_start_offset=1)

    replica = partition_of(broker, "t").remote_replicas[FOLLOWER]
    assert (replica.log_start_offset, replica.log_end_offset.message_offset) == (1, 2)


async def test_row_52_a_fetch_out_of_range_leaves_the_followers_end_unknown(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)
    await follow(broker, "t", 3)

    answer = await follow(broker, "t", 4)

    assert answer == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, b"")
    assert partition_of(broker, "t").remote_replicas[FOLLOWER].log_end_offset.message_offset == -1
    assert await in_sync(broker, "t") == [0, 1]


async def test_row_52_a_follower_whose_log_parts_from_the_leaders_says_nothing_until_it_is_cut(
    broker: InMemoryBroker,
) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)
    await follow(broker, "t", 2)

    row = wanted(0, 5)._replace(last_fetched_epoch=0)
    body = await broker.call(
        ApiKey.FETCH, 12, topics=[("t", [row])], replica_id=FOLLOWER, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20
    )

    assert body.topics[0].partitions[0].diverging_epoch.end_offset == 3
    assert partition_of(broker, "t").remote_replicas[FOLLOWER].log_end_offset.message_offset == 2


async def test_row_52_a_fetch_that_waited_says_nothing_new_when_it_wakes(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await assign(broker, "t", [0, 1])
    waiting = await park(nursery, follow, broker, "t", 0, max_wait_ms=LONG_MS)
    replica = partition_of(broker, "t").remote_replicas[FOLLOWER]
    asked_ms = replica.last_caught_up_ms
    await trio.sleep(5)

    await broker.produce("t", THREE)

    assert (await waiting.seen()).records
    assert (replica.log_end_offset.message_offset, replica.last_caught_up_ms) == (0, asked_ms)


# -- row 53: who is no replica --------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [[0], [0, 1]])
async def test_row_53_who_is_no_replica_gets_nothing_at_once_and_all_after_a_wait(
    broker: InMemoryBroker, autojump_clock: MockClock, replicas: list[int]
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


async def test_row_53_what_is_written_does_not_wake_who_is_no_replica_and_waits_below_the_end(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)
    waiting = await park(nursery, follow, broker, "t", 3, replica=5, max_wait_ms=LONG_MS)

    await broker.produce("t", THREE)

    assert await waiting.seen() is None
    await trio.sleep(LONG_MS / 1000 + 1)
    assert (await waiting.seen()).high_watermark == 6


async def test_row_53_an_error_stays_an_error_for_who_is_no_replica(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])

    assert (await follow(broker, "t", 9, replica=5)).error == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_row_53_a_follower_with_the_leaders_own_id_is_refused_as_a_whole(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])

    body = await ask(broker, [("t", [wanted(0, 0)])], replica_id=0)

    assert body.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


# -- row 54: the high watermark -------------------------------------------------------------------------------


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


async def test_row_54_the_answer_has_the_high_watermark_of_before_the_fetch(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    await broker.produce("t", THREE)

    seen = [(await follow(broker, "t", offset)).high_watermark for offset in (0, 3, 3)]

    assert seen == [0, 0, 3]


async def test_row_54_a_consumer_that_waits_is_woken_by_the_follower_and_not_by_the_producer(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    waiting = await park(nursery, consume, broker, "t", 0, max_wait_ms=LONG_MS)

    await broker.produce("t", THREE)
    after_producing = await waiting.seen()
    await follow(broker, "t", 0)
    after_asking = await waiting.seen()
    await follow(broker, "t", 3)
    after_having = await waiting.seen()

    assert (after_producing, after_asking) == (None, None)
    assert after_having.high_watermark == 3
    assert b"c" in after_having.records


async def test_row_54_who_reads_to_the_end_is_woken_before_the_high_watermark_moves(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)
    waiting = await park(nursery, follow, broker, "t", 3, replica=FUTURE_REPLICA, max_wait_ms=LONG_MS)

    await broker.produce("t", THREE)

    answer = await waiting.seen()
    assert answer.high_watermark == 3
    assert answer.records
    assert (await consume(broker, "t", 0)).high_watermark == 6


async def test_row_54_who_lags_and_is_not_in_sync_holds_nothing_back(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", THREE)
    await follow(broker, "t", 1)

    await broker.produce("t", THREE)

    assert (await consume(broker, "t", 0)).high_watermark == 6


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


async def test_row_54_a_high_watermark_moves_to_the_segment_that_was_rolled_behind_it(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await assign(broker, "t", [0, 1], segment_bytes=1000)
    await broker.produce("t", [b"x" * 800])
    await follow(broker, "t", 1)
    waiting = await park(nursery, consume, broker, "t", 0, max_wait_ms=LONG_MS, min_bytes=10_000)
    await broker.produce("t", [b"y" * 800])
    assert await waiting.seen() is None  # the high watermark is still on the first segment

    await follow(broker, "t", 1)

    assert b"x" * 800 in (await waiting.seen()).records  # Case C: it is on the second now


async def test_a_produce_to_two_partitions_wakes_who_waits_after_the_first(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """As kafka 2.0.1 Partition.appendRecordsToLeader; which is the first is there up to a hash map."""
    await broker.create_topic("t", 2)
    waiting = await park(nursery, broker.fetch, ("t", 0, 0), ("t", 1, 0), max_wait_ms=LONG_MS)

    await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=[("t", [(0, one_batch()), (1, one_batch())])])

    assert [bool(each.records) for each in answers(await waiting.seen())] == [True, False]


async def test_a_read_that_fails_for_who_waits_does_not_fail_the_producer(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t", 2)
    waiting = await park(nursery, broker.fetch, ("t", 0, 0), ("t", 1, 0), max_wait_ms=LONG_MS)

    def fail(*args: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("minibroker.broker.replica.fetch.read_rows", fail)
    topics = [("t", [(0, one_batch()), (1, one_batch())])]
    produced = await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=topics)

    assert [row.error_code for row in produced.topics[0].partitions] == [ErrorCode.NONE, ErrorCode.NONE]
    assert {each.error for each in answers(await waiting.seen())} == {ErrorCode.KAFKA_STORAGE_ERROR}


# -- row 57: how far each reads -------------------------------------------------------------------------------


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


async def test_row_57_the_latest_offset_is_the_end_for_a_follower_and_the_high_watermark_for_a_consumer(
    broker: InMemoryBroker,
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    await broker.produce("t", THREE)

    offsets = []
    for replica in (1, -1):
        body = await broker.call(ApiKey.LIST_OFFSETS, 2, replica_id=replica, topics=[("t", [(0, -1, -1, 1)])])
        offsets.append(body.topics[0].partitions[0].offset)

    assert offsets == [3, 0]


# -- row 59: what is kept, and who is told when a leader goes ---------------------------------------------------


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


async def test_row_59_a_produce_waits_for_its_last_record(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", [b"a"])
    await follow(broker, "t", 1)
    producing = await park(nursery, broker.produce, "t", [b"b"], acks=-1)

    await follow(broker, "t", 2)

    assert (await producing.seen()).error_code == ErrorCode.NONE


async def test_row_59_a_leader_that_goes_answers_who_waits_for_it(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await assign(broker, "t", [0, 1, 2])
    await follow(broker, "t", 0)
    producing = await park(nursery, broker.produce, "t", THREE, acks=-1)
    consuming = await park(nursery, consume, broker, "t", 0, max_wait_ms=LONG_MS)
    following = await park(nursery, follow, broker, "t", 3, replica=2, max_wait_ms=LONG_MS)

    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)

    row = await producing.seen()
    assert (row.error_code, row.base_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert (await consuming.seen()).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await following.seen()).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- sessions (rows 42 to 46) -----------------------------------------------------------------------------------


async def test_row_46_a_followers_session_takes_a_consumers_place_and_not_the_other_way_round(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(max_incremental_fetch_session_cache_slots=1)
    await assign(broker, "t", [0, 1])
    topics = [("t", [wanted(0, 0)])]

    ids = [
        (await ask(broker, topics, replica_id=replica, session_id=0, session_epoch=0)).session_id
        for replica in (-1, FOLLOWER, -1)
    ]

    assert ids[0] != 0
    assert ids[1] not in (0, ids[0])
    assert ids[2] == 0


async def test_row_42_a_followers_session_tells_it_of_the_high_watermark_when_that_moves(
    broker: InMemoryBroker,
) -> None:
    await assign(broker, "t", [0, 1], [0, 1])
    topics = [("t", [wanted(0, 0), wanted(1, 0)])]
    session = {"replica_id": FOLLOWER}
    session["session_id"] = (await ask(broker, topics, session_epoch=0, **session)).session_id
    await broker.produce("t", THREE)

    told = []
    for epoch, changed in enumerate(([], [("t", [wanted(0, 3)])], [], []), 1):
        told.append(answers(await ask(broker, changed, session_epoch=epoch, **session)))

    assert [[each.high_watermark for each in each_answer] for each_answer in told] == [[0], [], [3], []]
    assert b"c" in told[0][0].records


async def test_row_52_every_partition_of_a_followers_session_is_fetched_with_each_request(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await assign(broker, "t", [0, 1])
    session = {"replica_id": FOLLOWER}
    topics = [("t", [wanted(0, 0)])]
    session["session_id"] = (await ask(broker, topics, session_epoch=0, **session)).session_id

    for epoch in range(1, 5):
        await trio.sleep(8)
        await ask(broker, [], session_epoch=epoch, **session)

    assert await in_sync(broker, "t") == [0, 1]
