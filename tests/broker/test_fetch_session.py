"""The cache of fetch sessions: fetch-path rows 45-48 of kafka 2.0.1. Each test names its row."""

from __future__ import annotations

from random import Random

import pytest

from minibroker.broker.replica.fetch_session import (
    FINAL_EPOCH,
    NO_SESSION_ID,
    STALE_AFTER_MS,
    CachedPartition,
    FetchSession,
    FetchSessionCache,
)
from minibroker.protocol.primitives import TopicPartition
from tests.broker.fetcher import A0, A1, A2, B0, START_MS, Fetcher, row


def test_row_46_a_session_is_as_old_as_its_last_use() -> None:
    cache = FetchSessionCache(1, Random(1))
    first = cache.create(cached(A0), is_privileged=True, now_ms=0)
    cache.touch(first, 1000)

    assert not cache.has_room_for(1, is_privileged=True, now_ms=STALE_AFTER_MS + 1)
    assert cache.has_room_for(1, is_privileged=True, now_ms=STALE_AFTER_MS + 1001)

    second = cache.create(cached(A0), is_privileged=True, now_ms=STALE_AFTER_MS + 1001)
    assert cache.has_room_for(1, is_privileged=True, now_ms=2 * STALE_AFTER_MS + 1002)
    assert [cache.get(first.id), cache.get(second.id)] == [None, None]


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
