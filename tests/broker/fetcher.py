"""A client of fetch sessions without a broker, and what a log would give it."""

from __future__ import annotations

from random import Random

from minibroker.broker.replica.fetch_context import FetchAnswer, FetchContext, FetchManager
from minibroker.broker.replica.fetch_session import (
    INITIAL_EPOCH,
    NO_SESSION_ID,
    FetchSession,
    FetchSessionCache,
)
from minibroker.broker.replica.partition import FetchedPartition
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
    """What the log gave of a partition."""
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
        return context.answer(all_results, self.now_ms)

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
