"""What a Fetch request is to its session, and what its answer does to it (KIP-227).

    session id  epoch  context       the request                            its answer
    any         0      Full          begins a session, ends the one named   all partitions, the new id or 0
    any         -1     Sessionless        ends the one named, if any             all partitions, id 0
    known       its    Incremental   changes the session                    what has changed, the id
    known       its    Sessionless        takes its last partition away          all partitions, id 0
    known       other  SessionError  INVALID_FETCH_SESSION_EPOCH            the error, id 0
    unknown     other  SessionError  FETCH_SESSION_ID_NOT_FOUND             the error, id 0

A context lives from the request to its answer, over the wait between them. It gives the rows to read and takes
what was read. "None" is the Sessionless one: the rows are the request's, and all of them are answered.

As kafka 2.0.1 FetchContext and FetchManager. Clients can tell what later releases changed, so it is as 2.0.1 has it:
being used does not keep a session (KAFKA-9137, see `_incremental`), and whatever is answered of a partition, records
or not, it is read last the next time (KAFKA-12330, see `FetchSession.remember`). An order that a later release lost
(KAFKA-8332, of the protocols in JoinGroup) was never lost in 2.0.1, nor is it here.
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
    FetchSessionCache,
    next_epoch,
)
from minibroker.broker.replica.partition import FetchedPartition
from minibroker.broker.replica.partition_read import FetchRow
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition

logger = logging.getLogger(__name__)


class FetchAnswer(NamedTuple):
    """What a response says: its own error and session id, and the partitions in it."""

    error: ErrorCode
    session_id: int
    partitions: Sequence[FetchedPartition]


class SessionlessContext:
    """A request that is answered in full, and neither begins a session nor goes on with one."""

    __slots__ = ("_requested",)

    def __init__(self, rows: Mapping[TopicPartition, FetchRow]) -> None:
        self._requested = rows

    @property
    def rows(self) -> Iterable[FetchRow]:
        return self._requested.values()

    def answer(self, results: Sequence[FetchedPartition], now_ms: int) -> FetchAnswer:
        return FetchAnswer(ErrorCode.NONE, NO_SESSION_ID, results)


class FullFetchContext:
    """A request that is answered in full and begins a session, if the cache has room for one."""

    __slots__ = ("_cache", "_is_from_follower", "_requested")

    def __init__(
        self, rows: Mapping[TopicPartition, FetchRow], cache: FetchSessionCache, *, is_from_follower: bool
    ) -> None:
        self._requested = rows
        self._cache = cache
        self._is_from_follower = is_from_follower

    @property
    def rows(self) -> Iterable[FetchRow]:
        return self._requested.values()

    def answer(self, results: Sequence[FetchedPartition], now_ms: int) -> FetchAnswer:
        """The session begins only now: its partitions are in the order of the answer, with what it says."""
        is_privileged = self._is_from_follower
        if not self._cache.has_room_for(len(results), is_privileged=is_privileged, now_ms=now_ms):
            return FetchAnswer(ErrorCode.NONE, NO_SESSION_ID, results)
        partitions = {
            result.topic_partition: CachedPartition(
                self._requested[result.topic_partition], result.high_watermark, result.log_start_offset
            )
            for result in results
        }
        session = self._cache.create(partitions, is_privileged=is_privileged, now_ms=now_ms)
        return FetchAnswer(ErrorCode.NONE, session.id, results)


class IncrementalFetchContext:
    """A request in a session: every partition of the session is read, and what has changed is answered."""

    __slots__ = ("_next_epoch", "_session", "rows")

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._next_epoch = session.epoch
        self.rows = [cached.row for cached in session.partitions.values()]

    def answer(self, results: Sequence[FetchedPartition], now_ms: int) -> FetchAnswer:
        """INVALID_FETCH_SESSION_EPOCH if the session went on without this request while it waited."""
        session = self._session
        if session.epoch != self._next_epoch:
            logger.info(
                "fetch session %d is at epoch %d, not %d: possibly a request sent twice",
                session.id,
                session.epoch,
                self._next_epoch,
            )
            return FetchAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, ())
        changed = session.changed(results)
        session.remember(changed)
        return FetchAnswer(ErrorCode.NONE, session.id, changed)


class SessionErrorContext:
    """A request in a session that is not there, or not at that epoch: what it wants read is not known."""

    __slots__ = ("_error",)

    rows: Sequence[FetchRow] = ()

    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    def answer(self, results: Sequence[FetchedPartition], now_ms: int) -> FetchAnswer:
        return FetchAnswer(self._error, NO_SESSION_ID, ())


FetchContext = SessionlessContext | FullFetchContext | IncrementalFetchContext | SessionErrorContext


class FetchManager:
    """Finds the context of each Fetch request that names or wants a session."""

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
    ) -> FetchContext:
        """What the request is to its session, which is changed or ended at once. `rows` are those it names."""
        if epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._incremental(session_id, epoch, rows, forgotten)
        if session_id != NO_SESSION_ID:
            self._cache.remove(session_id)
        if epoch == FINAL_EPOCH:
            return SessionlessContext(rows)
        return FullFetchContext(rows, self._cache, is_from_follower=is_from_follower)

    def _incremental(
        self,
        session_id: int,
        epoch: int,
        rows: Mapping[TopicPartition, FetchRow],
        forgotten: Iterable[TopicPartition],
    ) -> FetchContext:
        session = self._cache.get(session_id)
        if session is None:
            return SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return SessionErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.update(rows, forgotten)
        if not session.partitions:
            self._cache.remove(session.id)
            return SessionlessContext(rows)
        if len(session.partitions) != session.cached_size:
            # As 2.0.1 (KAFKA-9137): being used is noted only when the size changes, and then with the old time.
            # So a session is stale two minutes after it began, however much it is used, and until then makes
            # room for no larger one of its kind.
            self._cache.touch(session, session.last_used_ms)
        session.epoch = next_epoch(epoch)
        return IncrementalFetchContext(session)
