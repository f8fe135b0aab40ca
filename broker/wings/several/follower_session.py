"""The follower's side of a fetch session: what its leader knows already, so that a fetch names only changes (KIP-227).

    session = FollowerSession()
    session.ask(topic_partition, AskRecords(5, 0))     # whenever a partition has something to ask
    fetch = session.next_fetch()
    session.on_answer(error, session_id, answered)     # then `take` each answered partition

A partition stays asked until its answer is taken: a leader leaves partitions without news out of its answers. A leader
that keeps no session answers with id 0, and gets every partition in every fetch. As kafka 2.0.1 FetchSessionHandler,
without a look at the other partitions of a session for each fetch.

A leader begins a session when it answers. If nobody hears the answer the session stays, and no later fetch names it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from minibroker.broker.replica.fetch_session import INITIAL_EPOCH, NO_SESSION_ID, next_epoch
from minibroker.broker.wings.several.following import AskRecords
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition


class SessionFetch(NamedTuple):
    """The part of a Fetch request that the session decides on."""

    session_id: int
    epoch: int
    asked: Sequence[tuple[TopicPartition, AskRecords]]
    forgotten: Sequence[TopicPartition]


class FollowerSession:
    """The partitions that are asked for, and those of them that the leader's session has."""

    __slots__ = ("_asked", "_changed", "_dropped", "_epoch", "_id", "_is_refused", "_known")

    def __init__(self) -> None:
        self._id = NO_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._is_refused = False  # by a leader without room for it
        self._asked: dict[TopicPartition, AskRecords] = {}
        self._known: dict[TopicPartition, AskRecords] = {}  # to the leader's session
        self._changed: dict[TopicPartition, AskRecords] = {}  # asked, and not yet known
        self._dropped: dict[TopicPartition, None] = {}  # known, and not asked any more

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return not self._asked

    @property
    def is_full(self) -> bool:
        """Whether the next fetch names all partitions."""
        return self._epoch == INITIAL_EPOCH

    @property
    def begins(self) -> bool:
        """Whether the leader is likely to begin a session when it answers the next fetch."""
        return self.is_full and not self._is_refused

    def ask(self, topic_partition: TopicPartition, request: AskRecords) -> None:
        """Ask for a partition from the next fetch on, until its answer is taken."""
        self._asked[topic_partition] = request
        self._dropped.pop(topic_partition, None)
        if self._known.get(topic_partition) != request:
            self._changed[topic_partition] = request

    def take(self, topic_partition: TopicPartition) -> AskRecords | None:
        """Ask for a partition no more; return the request that is answered. None if it was not asked."""
        request = self._asked.pop(topic_partition, None)
        if request is not None:
            self._changed.pop(topic_partition, None)
            if topic_partition in self._known:
                self._dropped[topic_partition] = None
        return request

    def take_all(self) -> list[tuple[TopicPartition, AskRecords]]:
        """Ask for nothing any more; return what was asked."""
        asked = list(self._asked.items())
        for topic_partition, _ in asked:
            self.take(topic_partition)
        return asked

    def next_fetch(self) -> SessionFetch:
        """Return the next fetch; its answer, or the lack of one, must be noted before another."""
        if self.is_full:
            self._known = {}
            fetch = SessionFetch(self._id, self._epoch, list(self._asked.items()), ())
            self._known.update(self._asked)
        else:
            fetch = SessionFetch(self._id, self._epoch, list(self._changed.items()), list(self._dropped))
            for topic_partition in self._dropped:
                del self._known[topic_partition]
            self._known.update(self._changed)
        self._changed.clear()
        self._dropped.clear()
        return fetch

    def on_answer(self, error: ErrorCode, session_id: int, answered: Collection[TopicPartition]) -> bool:
        """Take the error and the id of an answer; return whether its partitions count.

        An unknown session is not closed by the next fetch, any other is.
        """
        if error is not ErrorCode.NONE:
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION_ID
            self.begin_anew()
            return False
        self._is_refused = session_id == NO_SESSION_ID
        if self._is_refused:
            self._id = NO_SESSION_ID
            self.begin_anew()
        elif self.is_full:
            # The session has what was answered.
            for topic_partition in self._known.keys() - answered:
                del self._known[topic_partition]
            self._changed = {each: asked for each, asked in self._asked.items() if self._known.get(each) != asked}
            self._dropped = {each: None for each in self._known if each not in self._asked}
            self._id, self._epoch = session_id, next_epoch(INITIAL_EPOCH)
        else:
            self._epoch = next_epoch(self._epoch)
        return True

    def begin_anew(self) -> None:
        """Name all partitions in the next fetch: the answer to one was lost, or there is no session."""
        self._epoch = INITIAL_EPOCH
        self._known = {}
        self._changed = dict(self._asked)
        self._dropped = {}
