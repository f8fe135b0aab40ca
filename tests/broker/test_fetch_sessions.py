"""Fetch requests and their sessions, and the cache of these: rows 36-48 of kafka 2.0.1's fetch path.

A client of fetch sessions asks without a broker. The rows at the wire are in tests/fetch_path; what Apache Kafka
answered to whole conversations is in tests/golden/conversations/kafka-2.0.1/sessions.txt.
"""

from __future__ import annotations

from random import Random

import pytest

from minibroker.broker.replica.fetch_context import FetchAnswer, FetchContext, FetchManager
from minibroker.broker.replica.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    STALE_AFTER_MS,
    CachedPartition,
    FetchSession,
    FetchSessionCache,
    next_epoch,
)
from minibroker.broker.replica.fetched_partition import FetchedPartition
from minibroker.broker.replica.partition_read import FetchRow
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files.records_file import FileSlice

A0, A1, A2, B0 = (TopicPartition(*each) for each in (("a", 0), ("a", 1), ("a", 2), ("b", 0)))
START_MS = 1_000_000


def row(topic_partition: TopicPartition, offset: int = 0) -> FetchRow:
    return FetchRow(topic_partition, offset, -1, 1 << 20)


def read(
    topic_partition: TopicPartition, *, high_watermark: int = 0, log_start_offset: int = 0, size_bytes: int = 0
) -> FetchedPartition:
    """A partition as the log gave it."""
    records = FileSlice(None, 0, size_bytes) if size_bytes else b""  # type: ignore[arg-type]
    return FetchedPartition(topic_partition, ErrorCode.NONE, high_watermark, -1, log_start_offset, None, records, None)


class Fetcher:
    """Asks a manager as a client would, and answers with what a log would give: nothing new unless told."""

    def __init__(self, max_sessions: int = 1000, seed: int = 1) -> None:
        self.cache = FetchSessionCache(max_sessions, Random(seed))
        self.manager = FetchManager(self.cache)
        self.now_ms = START_MS

    def open(
        self,
        session_id: int,
        epoch: int,
        *topic_partitions: TopicPartition,
        offset: int = 0,
        forget: tuple[TopicPartition, ...] = (),
        is_from_follower: bool = False,
    ) -> FetchContext:
        rows = {each: row(each, offset) for each in topic_partitions}
        return self.manager.new_context(
            session_id, epoch, rows=rows, forgotten=forget, is_from_follower=is_from_follower
        )

    def answer(self, context: FetchContext, *results: FetchedPartition) -> FetchAnswer:
        """Answer a context; what is not in `results` has not changed."""
        given = {result.topic_partition: result for result in results}
        all_results = [given.get(each.topic_partition, read(each.topic_partition)) for each in context.rows]
        return context.keep(context.answer(all_results), self.now_ms)

    def begin(self, *topic_partitions: TopicPartition, is_from_follower: bool = False) -> int:
        """Begin a session; its id, 0 if it is refused."""
        context = self.open(NO_SESSION_ID, INITIAL_EPOCH, *topic_partitions, is_from_follower=is_from_follower)
        return self.answer(context).session_id

    def session(self, session_id: int) -> FetchSession:
        session = self.cache.get(session_id)
        assert session is not None
        return session

    def lives(self, *session_ids: int) -> list[bool]:
        return [self.cache.get(session_id) is not None for session_id in session_ids]


@pytest.fixture
def fetcher() -> Fetcher:
    return Fetcher()


def names(answer: FetchAnswer) -> list[TopicPartition]:
    return [result.topic_partition for result in answer.partitions]


def test_row_41_a_session_that_ended_meanwhile_still_answers(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0)
    context = fetcher.open(session_id, 1)
    fetcher.open(session_id, FINAL_EPOCH)

    answer = fetcher.answer(context, read(A0, high_watermark=9))

    assert (answer.error, answer.session_id, names(answer)) == (ErrorCode.NONE, session_id, [A0])
    assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH


def test_row_42_an_error_forgets_the_high_watermark_even_if_it_has_one(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0)
    error = read(A0, high_watermark=0)._replace(error=ErrorCode.KAFKA_STORAGE_ERROR)

    fetcher.answer(fetcher.open(session_id, 1), error)

    assert fetcher.session(session_id).partitions[A0].high_watermark == -1
    assert names(fetcher.answer(fetcher.open(session_id, 2))) == [A0]


def test_row_46_a_session_is_as_old_as_its_last_use() -> None:
    cache = FetchSessionCache(1, Random(1))
    first = cache.create(cached(A0), is_privileged=True, now_ms=0)
    cache.touch(first, 1000)

    assert not cache.has_room_for(1, is_privileged=True, now_ms=STALE_AFTER_MS + 1)
    assert cache.has_room_for(1, is_privileged=True, now_ms=STALE_AFTER_MS + 1001)

    second = cache.create(cached(A0), is_privileged=True, now_ms=STALE_AFTER_MS + 1001)
    assert cache.has_room_for(1, is_privileged=True, now_ms=2 * STALE_AFTER_MS + 1002)
    assert [cache.get(first.id), cache.get(second.id)] == [None, None]


def test_row_46_of_consumers_of_one_size_the_smallest_id_makes_room() -> None:
    fetcher = Fetcher(max_sessions=4)
    session_ids = [fetcher.begin(A0) for _ in range(4)]

    fetcher.begin(A0, is_from_follower=True)

    assert fetcher.lives(*sorted(session_ids)) == [False, True, True, True]
    assert Fetcher(max_sessions=0).begin(A0, is_from_follower=True) == NO_SESSION_ID


def test_row_46_sessions_make_room_for_others_as_in_apache_kafka_2_0_1() -> None:
    fetcher = Fetcher(max_sessions=3)
    four = A0, A1, A2, B0
    large, small, middle = fetcher.begin(*four), fetcher.begin(A0), fetcher.begin(A0, A1)

    assert fetcher.begin(*four) == NO_SESSION_ID
    fetcher.begin(A0, is_from_follower=True)
    assert fetcher.lives(large, small, middle) == [True, False, True]
    fetcher.answer(fetcher.open(middle, 1, A2, B0, TopicPartition("b", 1)))  # it is the largest now
    fetcher.begin(A0, A1, A2, is_from_follower=True)
    assert fetcher.lives(large, small, middle) == [False, False, True]
    fetcher.begin(A0, A1, is_from_follower=True)
    assert fetcher.lives(large, small, middle) == [False, False, False]
    assert fetcher.begin(*four, is_from_follower=True) == NO_SESSION_ID


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


def test_row_46_a_session_is_stale_after_two_minutes_not_at_two_minutes() -> None:
    fetcher = Fetcher(max_sessions=1)
    large = fetcher.begin(A0, A1)

    fetcher.now_ms += STALE_AFTER_MS
    too_early = fetcher.begin(A0)
    fetcher.now_ms += 1
    in_time = fetcher.begin(A0)

    assert (too_early, in_time != NO_SESSION_ID) == (NO_SESSION_ID, True)
    assert fetcher.lives(large, in_time) == [False, True]


def test_statistics_count_sessions_partitions_and_evictions() -> None:
    fetcher = Fetcher(max_sessions=2)

    def counts() -> tuple[int, int, int]:
        return len(fetcher.cache.sessions), fetcher.cache.partitions, fetcher.cache.evictions

    first = fetcher.begin(A0, A1)
    fetcher.begin(A0)
    fetcher.answer(fetcher.open(first, 1, A2, B0))
    assert counts() == (2, 5, 0)
    fetcher.begin(A0, A1, is_from_follower=True)
    assert counts() == (2, 6, 1)
    fetcher.open(first, FINAL_EPOCH)
    assert counts() == (1, 2, 1)
