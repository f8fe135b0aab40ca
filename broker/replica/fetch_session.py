"""Incremental fetch sessions (KIP-227): the state that a broker keeps for a client between its fetches.

A session holds the client's partitions and the offsets last answered for each, so that a request names only its
changes, and an answer has only the partitions that changed. The cache holds a limited number of sessions, by random
id, and evicts one to make room for another. `fetch_context.py` applies a request to its session.

No clock and no IO: the caller passes the time and the random numbers. As kafka 2.0.1 FetchSession and
FetchSessionCache; sessions of clients that name topics by ids as kafka 3.9.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, NamedTuple

from minibroker.broker.replica.fetched_partition import NO_PREFERRED_REPLICA, FetchedPartition
from minibroker.broker.replica.partition_read import FetchRow
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicById, TopicPartition, UnknownTopicById
from minibroker.protocol.record import NO_OFFSET

NO_SESSION_ID = 0
INITIAL_EPOCH = 0  # in a full request: begin a session
FINAL_EPOCH = -1  # in a full request: end the session, begin none
MAX_EPOCH = 2**31 - 1
SESSION_IDS = (1, 2**31 - 1)  # from, to (exclusive)

STALE_AFTER_MS = 120_000


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after one with `epoch`; 1 follows the largest, since 0 begins a session."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_EPOCH else epoch + 1


class CachedPartition:
    """One partition of a session: the client's request for it, and the offsets of its last answer (-1 for none)."""

    __slots__ = ("high_watermark", "log_start_offset", "row")

    def __init__(self, row: FetchRow, high_watermark: int, log_start_offset: int) -> None:
        self.row = row
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset

    def remember(self, result: FetchedPartition) -> None:
        """Note the answered offsets; no high watermark with an error, so that the error's end counts as a change."""
        is_failed = result.error is not ErrorCode.NONE
        self.high_watermark = NO_OFFSET if is_failed else result.high_watermark
        self.log_start_offset = result.log_start_offset


class FetchSession:
    """The partitions of one client, in the order in which they are read.

    `epoch` is that of the next request. Only the cache writes `last_used_ms` and `cached_size`.
    """

    __slots__ = ("cached_size", "created_ms", "epoch", "id", "is_privileged", "last_used_ms", "partitions")

    uses_ids = False

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
        """Apply the changes of an incremental request; a new partition comes last."""
        partitions = self.partitions
        for topic_partition, row in rows.items():
            cached = partitions.get(topic_partition)
            if cached is None:
                partitions[topic_partition] = CachedPartition(row, NO_OFFSET, NO_OFFSET)
            else:
                cached.row = row
        for topic_partition in forgotten:
            partitions.pop(topic_partition, None)

    def await_next(self) -> None:
        """Expect the next request of the session."""
        self.epoch = next_epoch(self.epoch)

    def forget_high_watermark(self, topic_partition: TopicPartition) -> None:
        """Let the next high watermark of a partition count as a change."""
        self.partitions[topic_partition].high_watermark = NO_OFFSET

    def changed(self, results: Iterable[FetchedPartition]) -> list[FetchedPartition]:
        """Return the results with records, an error, a diverging epoch, a preferred replica, or a changed high
        watermark or log start."""
        partitions = self.partitions
        chosen = []
        for result in results:
            topic_partition, error, high_watermark, _, log_start_offset, _, records, _, diverging, preferred = result
            cached = partitions[topic_partition]
            if (
                high_watermark != cached.high_watermark
                or log_start_offset != cached.log_start_offset
                or error is not ErrorCode.NONE
                or (records and result.size_bytes)
                or diverging is not None
                or preferred != NO_PREFERRED_REPLICA
            ):
                chosen.append(result)
        return chosen

    def remember(self, answered: Iterable[FetchedPartition]) -> None:
        """Note the answered offsets. Move answered partitions to the end: the next fetch reads the others first."""
        partitions = self.partitions
        for result in answered:
            cached = partitions.pop(result.topic_partition)
            cached.remember(result)
            partitions[result.topic_partition] = cached


class FetchSessionById(FetchSession):
    """A session of a client that names topics by ids: it goes on with the topic of an id, whatever has its name now."""

    __slots__ = ("_has_unknown",)

    uses_ids = True

    def __init__(
        self, session_id: int, partitions: dict[TopicPartition, CachedPartition], *, is_privileged: bool, now_ms: int
    ) -> None:
        super().__init__(session_id, partitions, is_privileged=is_privileged, now_ms=now_ms)
        self._has_unknown = has_unknown(partitions)

    def learn_names(self, topics: Mapping[bytes, TopicById]) -> None:
        """Name topics that were not known yet when the client began to ask for them."""
        if not self._has_unknown:
            return
        renamed = {}
        for topic_partition, cached in self.partitions.items():
            topic = topic_partition.topic
            if isinstance(topic, UnknownTopicById) and topic.topic_id in topics:
                topic_partition = TopicPartition(topics[topic.topic_id], topic_partition.partition)
                cached.row = cached.row._replace(topic_partition=topic_partition)
            renamed[topic_partition] = cached
        self.partitions = renamed
        self._has_unknown = has_unknown(renamed)

    def update(self, rows: Mapping[TopicPartition, FetchRow], forgotten: Iterable[TopicPartition]) -> None:
        """Apply the changes of an incremental request; a topic that was made anew takes the place of the old one."""
        for topic_partition in rows:
            cached = self.partitions.get(topic_partition)
            if cached is not None and id_of(cached.row.topic_partition) != id_of(topic_partition):
                del self.partitions[topic_partition]
        super().update(rows, ())
        self._has_unknown = self._has_unknown or has_unknown(rows)
        gone = {(id_of(each), each.partition) for each in forgotten}
        if gone:
            self.partitions = {
                topic_partition: cached
                for topic_partition, cached in self.partitions.items()
                if (id_of(cached.row.topic_partition), topic_partition.partition) not in gone
            }


def has_unknown(topic_partitions: Iterable[TopicPartition]) -> bool:
    return any(isinstance(each.topic, UnknownTopicById) for each in topic_partitions)


def id_of(topic_partition: TopicPartition) -> bytes:
    topic = topic_partition.topic
    assert isinstance(topic, TopicById)
    return topic.topic_id


class EvictableKey(NamedTuple):
    """The rank of a session: one with a smaller key is evicted for one with a greater."""

    is_privileged: bool
    size: int
    id: int


class FetchSessionCache:
    """At most `max_sessions` sessions by id; 0 has none. Followers' sessions are privileged.

    A new session evicts another only if that one is stale or ranks lower: a consumer's below a follower's; then, from
    two minutes after its creation, one with fewer partitions below one with more.
    """

    def __init__(self, max_sessions: int, random: Random, *, stale_after_ms: int = STALE_AFTER_MS) -> None:
        self.max_sessions = max_sessions
        self._random = random
        self._stale_after_ms = stale_after_ms
        self._sessions: dict[int, FetchSession] = {}
        # Sorted, and each key ends with the session's id.
        self._by_last_use: list[tuple[int, int]] = []
        self._evictable_by_all: list[EvictableKey] = []
        self._evictable_by_privileged: list[EvictableKey] = []
        self.partitions = 0  # of all sessions
        self.evictions = 0  # since the start

    @property
    def sessions(self) -> Mapping[int, FetchSession]:
        """The sessions by id."""
        return self._sessions

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def has_room_for(self, size: int, *, is_privileged: bool, now_ms: int) -> bool:
        """Return whether a session of `size` partitions may be created; evict another for it if the cache is full."""
        if len(self._sessions) < self.max_sessions:
            return True
        return self._try_evict(EvictableKey(is_privileged, size, NO_SESSION_ID), now_ms)

    def create(
        self,
        partitions: dict[TopicPartition, CachedPartition],
        *,
        is_privileged: bool,
        now_ms: int,
        uses_ids: bool = False,
    ) -> FetchSession:
        """Add a session; the caller has just checked `has_room_for`."""
        make = FetchSessionById if uses_ids else FetchSession
        session = make(self._new_id(), partitions, is_privileged=is_privileged, now_ms=now_ms)
        self._sessions[session.id] = session
        self.touch(session, now_ms)
        return session

    def remove(self, session_id: int) -> bool:
        """Remove a session; return False if the id is unknown."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        self._unlist(session)
        return True

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Note the use of a session at `now_ms`, and its size."""
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
        self.partitions += session.cached_size

    def _try_evict(self, newcomer: EvictableKey, now_ms: int) -> bool:
        """Evict the least recently used session if it is stale, else the lowest one if it is not above `newcomer`."""
        if not self._by_last_use:
            return False
        last_used_ms, session_id = self._by_last_use[0]
        if now_ms - last_used_ms <= self._stale_after_ms:
            evictable = self._evictable_by_privileged if newcomer.is_privileged else self._evictable_by_all
            if not evictable or newcomer < evictable[0]:
                return False
            session_id = evictable[0].id
        self.evictions += 1
        return self.remove(session_id)

    def _unlist(self, session: FetchSession) -> None:
        """Remove a session from all sorted lists, by the values of its last `touch`."""
        key = EvictableKey(session.is_privileged, session.cached_size, session.id)
        remove_sorted(self._by_last_use, (session.last_used_ms, session.id))
        remove_sorted(self._evictable_by_all, key)
        remove_sorted(self._evictable_by_privileged, key)
        self.partitions -= session.cached_size

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
