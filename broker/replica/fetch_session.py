"""Incremental fetch sessions (KIP-227): what a broker remembers of a fetcher between its requests.

A session holds the partitions a client asked for and what it was last told of each, so that a request need only
name what it changes and an answer only what has changed. The cache holds a limited number of sessions, by random
id, and decides which one makes room for another. What a request means for a session is in `fetch_context.py`.

No clock and no IO: the time and the random numbers are given. As kafka 2.0.1 FetchSession and FetchSessionCache.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from minibroker.broker.replica.partition import FetchedPartition
from minibroker.broker.replica.partition_read import FetchRow
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition

NO_SESSION_ID = 0
INITIAL_EPOCH = 0  # of a full request: begin a session
FINAL_EPOCH = -1  # of a full request: end the session, begin none
MAX_EPOCH = 2**31 - 1
SESSION_IDS = (1, 2**31 - 1)  # the last one excluded

STALE_AFTER_MS = 120_000
UNKNOWN_OFFSET = -1


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one with `epoch`; the largest is followed by 1, for 0 is a new session."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_EPOCH else epoch + 1


class CachedPartition:
    """One partition of a session: the request for it, and what the last answer said of it (-1: nothing)."""

    __slots__ = ("high_watermark", "log_start_offset", "row")

    def __init__(self, row: FetchRow, high_watermark: int, log_start_offset: int) -> None:
        self.row = row
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset

    def remember(self, result: FetchedPartition) -> None:
        """Note what an answer says. An error leaves no high watermark: its end is a change that must be told."""
        is_failed = result.error is not ErrorCode.NONE
        self.high_watermark = UNKNOWN_OFFSET if is_failed else result.high_watermark
        self.log_start_offset = result.log_start_offset


class FetchSession:
    """One fetcher's partitions, in the order in which they are to be read.

    `epoch` is that of the next request. `last_used_ms` and `cached_size` are the cache's: it alone writes them.
    """

    __slots__ = ("cached_size", "created_ms", "epoch", "id", "is_privileged", "last_used_ms", "partitions")

    def __init__(
        self, session_id: int, partitions: dict[TopicPartition, CachedPartition], *, is_privileged: bool, now_ms: int
    ) -> None:
        self.id = session_id
        self.partitions = partitions
        self.is_privileged = is_privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.cached_size = -1

    def update(self, rows: Mapping[TopicPartition, FetchRow], forgotten: Iterable[TopicPartition]) -> None:
        """Take over what an incremental request changes; a new partition comes last."""
        partitions = self.partitions
        for topic_partition, row in rows.items():
            cached = partitions.get(topic_partition)
            if cached is None:
                partitions[topic_partition] = CachedPartition(row, UNKNOWN_OFFSET, UNKNOWN_OFFSET)
            else:
                cached.row = row
        for topic_partition in forgotten:
            partitions.pop(topic_partition, None)

    def changed(self, results: Iterable[FetchedPartition]) -> list[FetchedPartition]:
        """Those with records, an error, another past, or another high watermark or log start than was told."""
        partitions = self.partitions
        chosen = []
        for result in results:
            topic_partition, error, high_watermark, _, log_start_offset, _, records, _, diverging_epoch = result
            cached = partitions[topic_partition]
            if (
                high_watermark != cached.high_watermark
                or log_start_offset != cached.log_start_offset
                or error is not ErrorCode.NONE
                or (records and result.size_bytes)
                or diverging_epoch is not None
            ):
                chosen.append(result)
        return chosen

    def remember(self, answered: Iterable[FetchedPartition]) -> None:
        """Note what is answered. Answered partitions go to the end: others are read first the next time."""
        partitions = self.partitions
        for result in answered:
            cached = partitions.pop(result.topic_partition)
            cached.remember(result)
            partitions[result.topic_partition] = cached


class EvictableKey(NamedTuple):
    """How much a session is worth: the smaller makes room for the greater."""

    is_privileged: bool
    size: int
    id: int


@dataclass(frozen=True, slots=True)
class FetchSessionCacheStatistics:
    """Kafka's NumIncrementalFetchSessions, NumIncrementalFetchPartitionsCached and session evictions."""

    sessions: int
    partitions: int
    evictions: int  # since the start


class FetchSessionCache:
    """At most `max_sessions` sessions by id; 0 has none. Followers' sessions are privileged.

    A new session takes the place of another only if that one is stale, or worth less: a consumer's against a
    follower's, or fewer partitions and not of the last two minutes.
    """

    def __init__(self, max_sessions: int, random: Random, *, stale_after_ms: int = STALE_AFTER_MS) -> None:
        self._max_sessions = max_sessions
        self._random = random
        self._stale_after_ms = stale_after_ms
        self._sessions: dict[int, FetchSession] = {}
        # Sorted, and each key ends with the session's id.
        self._by_last_use: list[tuple[int, int]] = []
        self._evictable_by_all: list[EvictableKey] = []
        self._evictable_by_privileged: list[EvictableKey] = []
        self._partitions = 0
        self._evictions = 0

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def has_room_for(self, size: int, *, is_privileged: bool, now_ms: int) -> bool:
        """Whether a session of `size` partitions may be created now; room is made for it if need be."""
        if len(self._sessions) < self._max_sessions:
            return True
        return self._try_evict(EvictableKey(is_privileged, size, NO_SESSION_ID), now_ms)

    def create(
        self, partitions: dict[TopicPartition, CachedPartition], *, is_privileged: bool, now_ms: int
    ) -> FetchSession:
        """Add a session; `has_room_for` has just said that it may be."""
        session = FetchSession(self._new_id(), partitions, is_privileged=is_privileged, now_ms=now_ms)
        self._sessions[session.id] = session
        self.touch(session, now_ms)
        return session

    def remove(self, session_id: int) -> bool:
        """Forget a session; False if there is none of that id."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        self._unlist(session)
        return True

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Note that a session is used at `now_ms`, and how large it is now."""
        if session.cached_size != -1:
            self._unlist(session)
        session.last_used_ms = now_ms
        session.cached_size = len(session.partitions)
        insort(self._by_last_use, (now_ms, session.id))
        key = EvictableKey(session.is_privileged, session.cached_size, session.id)
        is_settled = now_ms - session.created_ms > self._stale_after_ms
        if is_settled or not session.is_privileged:
            insort(self._evictable_by_privileged, key)
        if is_settled:
            insort(self._evictable_by_all, key)
        self._partitions += session.cached_size

    def statistics(self) -> FetchSessionCacheStatistics:
        return FetchSessionCacheStatistics(
            sessions=len(self._sessions), partitions=self._partitions, evictions=self._evictions
        )

    def _try_evict(self, newcomer: EvictableKey, now_ms: int) -> bool:
        """Remove the session unused for longest if stale, else the one worth least if no more than `newcomer`."""
        if not self._by_last_use:
            return False
        last_used_ms, session_id = self._by_last_use[0]
        if now_ms - last_used_ms <= self._stale_after_ms:
            evictable = self._evictable_by_privileged if newcomer.is_privileged else self._evictable_by_all
            if not evictable or newcomer < evictable[0]:
                return False
            session_id = evictable[0].id
        self._evictions += 1
        return self.remove(session_id)

    def _unlist(self, session: FetchSession) -> None:
        """Take a session, as it was last touched, out of every order."""
        key = EvictableKey(session.is_privileged, session.cached_size, session.id)
        remove_sorted(self._by_last_use, (session.last_used_ms, session.id))
        remove_sorted(self._evictable_by_all, key)
        remove_sorted(self._evictable_by_privileged, key)
        self._partitions -= session.cached_size

    def _new_id(self) -> int:
        while True:
            session_id = self._random.randrange(*SESSION_IDS)
            if session_id not in self._sessions:
                return session_id


def remove_sorted(keys: list[Any], key: Any) -> None:
    """Remove `key` from a sorted list if it is there."""
    index = bisect_left(keys, key)
    if index < len(keys) and keys[index] == key:
        del keys[index]
