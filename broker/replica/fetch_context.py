"""The context of a Fetch request: how it changes its fetch session, and which partitions its answer has (KIP-227).

    session id  epoch  context       the request                              its answer
    any         0      Full          ends the session it names, begins a new  all partitions, the new id or 0
    any         -1     Sessionless   ends the session it names                all partitions, id 0
    known       its    Incremental   changes the session                      the changed partitions, the id
    known       its    Sessionless   removes the last partition               all partitions, id 0
    known       other  SessionError  INVALID_FETCH_SESSION_EPOCH              the error, id 0
    known       its    SessionError  FETCH_SESSION_TOPIC_ID_ERROR: by names   the error, id 0
                                     in a session by ids, or the reverse
    unknown     other  SessionError  FETCH_SESSION_ID_NOT_FOUND               the error, id 0

A context lives from the request to its answer, also while the request waits. `rows` are the partitions to read;
`answer` makes the answer from their results.

As kafka 2.0.1 FetchContext and FetchManager, without two later fixes that clients can notice: using a session does not
keep it fresh (KAFKA-9137, see `_incremental`), and each answered partition, with records or without, is read last the
next time (KAFKA-12330, see `FetchSession.remember`). The order that a later release lost (KAFKA-8332, the protocols in
JoinGroup) is kept here, as in 2.0.1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minibroker.broker.replica.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    CachedPartition,
    FetchSession,
    FetchSessionById,
    FetchSessionCache,
)
from minibroker.broker.replica.fetched_partition import FetchedPartition
from minibroker.broker.replica.partition_read import FetchRow
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicById, TopicPartition, new

logger = logging.getLogger(__name__)


class FetchAnswer(NamedTuple):
    """A response's own error and session id, and its partitions."""

    error: ErrorCode
    session_id: int
    partitions: Sequence[FetchedPartition]


class SessionlessContext:
    """A request outside of any session: its answer has all partitions."""

    __slots__ = ("rows",)

    def __init__(self, rows: Mapping[TopicPartition, FetchRow]) -> None:
        self.rows = list(rows.values())

    def answer(self, results: Sequence[FetchedPartition]) -> FetchAnswer:
        """Return the answer, and change no session."""
        return new(FetchAnswer, (ErrorCode.NONE, NO_SESSION_ID, results))

    def keep(self, answer: FetchAnswer, now_ms: int) -> FetchAnswer:
        """Change the session by the answer, which is sent; return it as it is in the session."""
        return answer

    def throttled_answer(self) -> FetchAnswer:
        """Return the answer to a client that exceeds its quota: it begins no session."""
        return new(FetchAnswer, (ErrorCode.NONE, NO_SESSION_ID, ()))


class FullFetchContext(SessionlessContext):
    """A request that begins a session, if the cache has room for one: its answer has all partitions."""

    __slots__ = ("_cache", "_is_from_follower", "_requested", "_uses_ids")

    def __init__(
        self,
        rows: Mapping[TopicPartition, FetchRow],
        cache: FetchSessionCache,
        *,
        is_from_follower: bool,
        uses_ids: bool,
    ) -> None:
        super().__init__(rows)
        self._requested = rows
        self._cache = cache
        self._is_from_follower = is_from_follower
        self._uses_ids = uses_ids

    def keep(self, answer: FetchAnswer, now_ms: int) -> FetchAnswer:
        """Create the session, with the partitions in the order of the answer and with the answered offsets."""
        results = answer.partitions
        is_privileged = self._is_from_follower
        if not self._cache.has_room_for(len(results), is_privileged=is_privileged, now_ms=now_ms):
            return answer
        partitions = {
            result.topic_partition: CachedPartition(
                self._requested[result.topic_partition], result.high_watermark, result.log_start_offset
            )
            for result in results
        }
        session = self._cache.create(partitions, is_privileged=is_privileged, now_ms=now_ms, uses_ids=self._uses_ids)
        return new(FetchAnswer, (ErrorCode.NONE, session.id, results))


class IncrementalFetchContext:
    """A request in a session: it reads all partitions of the session, and its answer has the changed ones."""

    __slots__ = ("_next_epoch", "_session", "rows")

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._next_epoch = session.epoch
        self.rows = [cached.row for cached in session.partitions.values()]

    def answer(self, results: Sequence[FetchedPartition]) -> FetchAnswer:
        """Answer INVALID_FETCH_SESSION_EPOCH if the session served another request while this one waited."""
        session = self._session
        if session.epoch != self._next_epoch:
            return self._overtaken()
        return new(FetchAnswer, (ErrorCode.NONE, session.id, session.changed(results)))

    def keep(self, answer: FetchAnswer, now_ms: int) -> FetchAnswer:
        self._session.remember(answer.partitions)
        return answer

    def throttled_answer(self) -> FetchAnswer:
        """Return the answer to a client that exceeds its quota: the epoch moves on, but no partition is answered."""
        if self._session.epoch != self._next_epoch:
            return self._overtaken()
        return new(FetchAnswer, (ErrorCode.NONE, self._session.id, ()))

    def _overtaken(self) -> FetchAnswer:
        session = self._session
        logger.info(
            "fetch session %d is at epoch %d, not %d: the client may have sent a request twice",
            session.id,
            session.epoch,
            self._next_epoch,
        )
        return new(FetchAnswer, (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, ()))


class SessionErrorContext:
    """A request with an unknown session id or a wrong epoch: its partitions are unknown, so none is read."""

    __slots__ = ("_error",)

    rows: Sequence[FetchRow] = ()

    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    def answer(self, results: Sequence[FetchedPartition]) -> FetchAnswer:
        return self.throttled_answer()

    def keep(self, answer: FetchAnswer, now_ms: int) -> FetchAnswer:
        return answer

    def throttled_answer(self) -> FetchAnswer:
        return new(FetchAnswer, (self._error, NO_SESSION_ID, ()))


FetchContext = SessionlessContext | FullFetchContext | IncrementalFetchContext | SessionErrorContext


class FetchManager:
    """Makes the context of each Fetch request that names or begins a session."""

    def __init__(self, cache: FetchSessionCache) -> None:
        self._cache = cache

    def new_context(
        self,
        session_id: int,
        epoch: int,
        *,
        rows: Mapping[TopicPartition, FetchRow],
        forgotten: Iterable[TopicPartition],
        is_from_follower: bool,
        topics_by_id: Mapping[bytes, TopicById] | None = None,
    ) -> FetchContext:
        """Make the context; change or end the session at once. `rows` are those of the request, which names topics by
        ids if it comes with `topics_by_id`."""
        if epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._incremental(session_id, epoch, rows, forgotten, topics_by_id)
        if session_id != NO_SESSION_ID:
            self._cache.remove(session_id)
        if epoch == FINAL_EPOCH:
            return SessionlessContext(rows)
        return FullFetchContext(rows, self._cache, is_from_follower=is_from_follower, uses_ids=topics_by_id is not None)

    def _incremental(
        self,
        session_id: int,
        epoch: int,
        rows: Mapping[TopicPartition, FetchRow],
        forgotten: Iterable[TopicPartition],
        topics_by_id: Mapping[bytes, TopicById] | None,
    ) -> FetchContext:
        session = self._cache.get(session_id)
        if session is None:
            return SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return SessionErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != (topics_by_id is not None):
            return SessionErrorContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if topics_by_id is not None and isinstance(session, FetchSessionById):
            session.learn_names(topics_by_id)
        session.update(rows, forgotten)
        if not session.partitions:
            self._cache.remove(session.id)
            return SessionlessContext(rows)
        if len(session.partitions) != session.cached_size:
            # As 2.0.1 (KAFKA-9137): the cache notes a use only when the size changes, and then with the old time.
            # So a session is stale two minutes after it began, however often it is used, and a larger session of
            # the same kind cannot evict it until then.
            self._cache.touch(session, session.last_used_ms)
        session.await_next()
        return IncrementalFetchContext(session)
