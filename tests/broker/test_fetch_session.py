"""The cache of fetch sessions: fetch-path rows 45-48 of kafka 2.0.1. Each test names its row."""

from __future__ import annotations

from random import Random

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.replica.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    STALE_AFTER_MS,
    CachedPartition,
    FetchSession,
    FetchSessionCache,
)
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import MakeBroker
from tests.broker.fetcher import A0, A1, A2, B0, START_MS, Fetcher, row


def test_row_45_no_more_sessions_than_slots() -> None:
    fetcher = Fetcher(max_sessions=3)

    session_ids = [fetcher.begin(A0) for _ in range(5)]

    assert [session_id != NO_SESSION_ID for session_id in session_ids] == [True, True, True, False, False]


def test_row_45_no_slots_no_sessions() -> None:
    fetcher = Fetcher(max_sessions=0)

    assert [fetcher.begin(A0), fetcher.begin(A0, A1, is_from_follower=True)] == [NO_SESSION_ID, NO_SESSION_ID]


async def test_row_45_the_number_of_slots_is_a_setting(make_broker: MakeBroker) -> None:
    broker = make_broker(max_incremental_fetch_session_cache_slots=1)
    await broker.create_topic("a")

    answers = [await broker.fetch(("a", 0, 0), session_epoch=INITIAL_EPOCH) for _ in range(2)]

    assert [answer.session_id != NO_SESSION_ID for answer in answers] == [True, False]


def test_row_46_after_two_minutes_the_session_unused_for_longest_makes_room() -> None:
    fetcher = Fetcher(max_sessions=2)
    first = fetcher.begin(A0, A1, A2)
    fetcher.now_ms += 1000
    second = fetcher.begin(A0)
    fetcher.now_ms = START_MS + STALE_AFTER_MS

    assert fetcher.begin(A0, A1) == NO_SESSION_ID
    fetcher.now_ms += 1
    third = fetcher.begin(A0)

    assert fetcher.lives(first, second, third) == [False, True, True]
    assert fetcher.cache.statistics().evictions == 1


def test_row_46_a_session_is_as_old_as_its_last_use() -> None:
    cache = FetchSessionCache(1, Random(1))
    first = cache.create(cached(A0), is_privileged=True, now_ms=0)
    cache.touch(first, 1000)

    assert not cache.has_room_for(1, is_privileged=True, now_ms=STALE_AFTER_MS + 1)
    assert cache.has_room_for(1, is_privileged=True, now_ms=STALE_AFTER_MS + 1001)

    second = cache.create(cached(A0), is_privileged=True, now_ms=STALE_AFTER_MS + 1001)
    assert cache.has_room_for(1, is_privileged=True, now_ms=2 * STALE_AFTER_MS + 1002)
    assert [cache.get(first.id), cache.get(second.id)] == [None, None]


async def test_row_46_two_minutes_pass_while_the_broker_runs(
    make_broker: MakeBroker, autojump_clock: MockClock
) -> None:
    broker = make_broker(max_incremental_fetch_session_cache_slots=1)
    await broker.create_topic("a")

    first = await broker.fetch(("a", 0, 0), session_epoch=INITIAL_EPOCH)
    await trio.sleep(STALE_AFTER_MS / 1000 + 1)
    second = await broker.fetch(("a", 0, 0), session_epoch=INITIAL_EPOCH)

    assert NO_SESSION_ID not in (first.session_id, second.session_id)
    assert broker.parts.fetch_sessions.statistics().evictions == 1


def test_row_46_a_follower_takes_the_place_of_the_smallest_consumer() -> None:
    fetcher = Fetcher(max_sessions=3)
    large, small, middle = fetcher.begin(A0, A1, A2), fetcher.begin(A0), fetcher.begin(A0, A1)

    follower = fetcher.begin(A0, is_from_follower=True)

    assert fetcher.lives(large, small, middle, follower) == [True, False, True, True]


def test_row_46_of_consumers_of_one_size_the_smallest_id_makes_room() -> None:
    fetcher = Fetcher(max_sessions=4)
    session_ids = [fetcher.begin(A0) for _ in range(4)]

    fetcher.begin(A0, is_from_follower=True)

    assert fetcher.lives(*sorted(session_ids)) == [False, True, True, True]


def test_row_46_a_fresh_follower_makes_room_for_nobody() -> None:
    fetcher = Fetcher(max_sessions=1)
    follower = fetcher.begin(A0, is_from_follower=True)

    assert fetcher.begin(A0, A1, is_from_follower=True) == NO_SESSION_ID
    assert fetcher.begin(A0, A1) == NO_SESSION_ID
    assert fetcher.lives(follower) == [True]


def settled_cache() -> tuple[FetchSessionCache, FetchSession, FetchSession]:
    """A full cache: a consumer's session of two partitions and a follower's of one, both old and just used."""
    cache = FetchSessionCache(2, Random(1))
    consumer = cache.create(cached(A0, A1), is_privileged=False, now_ms=0)
    follower = cache.create(cached(A0), is_privileged=True, now_ms=0)
    for session in (consumer, follower):
        cache.touch(session, STALE_AFTER_MS + 1)
    return cache, consumer, follower


def cached(*topic_partitions: TopicPartition) -> dict[TopicPartition, CachedPartition]:
    return {each: CachedPartition(row(each), 0, 0) for each in topic_partitions}


@pytest.mark.parametrize(("size", "has_room"), [(1, False), (2, False), (3, True)])
def test_row_46_an_old_session_in_use_makes_room_for_a_larger_one(size: int, has_room: bool) -> None:
    cache, consumer, follower = settled_cache()

    assert cache.has_room_for(size, is_privileged=False, now_ms=STALE_AFTER_MS + 2) == has_room

    assert (cache.get(consumer.id) is None) == has_room
    assert cache.get(follower.id) is follower


def test_row_46_between_old_followers_the_larger_stays() -> None:
    cache, consumer, follower = settled_cache()
    now_ms = STALE_AFTER_MS + 2
    cache.remove(consumer.id)
    cache.create(cached(A0, A1), is_privileged=True, now_ms=now_ms)

    assert not cache.has_room_for(0, is_privileged=True, now_ms=now_ms)
    assert cache.has_room_for(2, is_privileged=True, now_ms=now_ms)

    assert cache.get(follower.id) is None


def test_row_47_ids_are_random_and_positive() -> None:
    fetchers = Fetcher(seed=1), Fetcher(seed=2)

    session_ids = [fetcher.begin(A0) for fetcher in fetchers for _ in range(200)]

    assert len(set(session_ids)) == 400
    assert 0 < min(session_ids) < 2**28 < 2**30 < max(session_ids) < 2**31 - 1


def test_row_47_an_id_in_use_is_not_given_again() -> None:
    class Repeating(Random):
        def __init__(self, *numbers: int) -> None:
            super().__init__(0)
            self._numbers = iter(numbers)

        def randrange(self, *bounds: int) -> int:  # type: ignore[override]
            assert bounds == (1, 2**31 - 1)
            return next(self._numbers)

    cache = FetchSessionCache(10, Repeating(5, 5, 5, 6))

    assert [cache.create({}, is_privileged=False, now_ms=0).id for _ in range(2)] == [5, 6]


def test_row_48_being_used_does_not_keep_a_session_from_getting_stale() -> None:
    fetcher = Fetcher(max_sessions=1)
    used = fetcher.begin(A0)
    for epoch in range(1, 4):
        fetcher.now_ms += STALE_AFTER_MS // 3 + 1
        fetcher.answer(fetcher.open(used, epoch))

    newcomer = fetcher.begin(A0)

    assert fetcher.lives(used, newcomer) == [False, True]


def test_row_48_another_size_is_noted_with_the_old_time() -> None:
    fetcher = Fetcher(max_sessions=2)
    grown, other = fetcher.begin(A0), fetcher.begin(A0, A1)
    fetcher.now_ms += 1000
    fetcher.answer(fetcher.open(grown, 1, A1, A2))

    follower = fetcher.begin(A0, is_from_follower=True)

    assert fetcher.session(grown).last_used_ms == START_MS
    assert fetcher.lives(grown, other, follower) == [True, False, True]


def test_statistics_count_sessions_partitions_and_evictions() -> None:
    fetcher = Fetcher(max_sessions=2)
    first = fetcher.begin(A0, A1)
    fetcher.begin(A0)
    fetcher.answer(fetcher.open(first, 1, A2, B0))
    assert astuple(fetcher) == (2, 5, 0)

    fetcher.begin(A0, A1, is_from_follower=True)
    assert astuple(fetcher) == (2, 6, 1)

    fetcher.open(first, FINAL_EPOCH)
    assert astuple(fetcher) == (1, 2, 1)


def astuple(fetcher: Fetcher) -> tuple[int, int, int]:
    statistics = fetcher.cache.statistics()
    return statistics.sessions, statistics.partitions, statistics.evictions
