"""Share sessions: the partitions that a member fetches, so that its requests name only what changes. Pure.

As kafka 4.4 ShareSessionCache. A session is of a member and its connection; it ends with either.
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.protocol.errors import ErrorCode, KafkaError

FIRST_EPOCH, FINAL_EPOCH = 0, -1
GREATEST_EPOCH = 2**31 - 1

Partition = tuple[bytes, int]  # a topic's id, and the number


class Session:
    """`epoch` is that of the next request; `connection` the number of the client's."""

    def __init__(self, connection: int) -> None:
        self.epoch = 1
        self.connection = connection
        self.partitions: dict[Partition, None] = {}


class Sessions:
    """The sessions by group and member, `most` at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[tuple[str, str], Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, connection: int, partitions: Iterable[Partition]) -> Session:
        """Open a session, in place of the member's old one. Raises KafkaError(SHARE_SESSION_LIMIT_REACHED)."""
        self._sessions.pop((group_id, member_id), None)
        if len(self._sessions) >= self._most:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[group_id, member_id] = Session(connection)
        session.partitions = dict.fromkeys(partitions)
        return session

    def go_on(self, group_id: str, member_id: str, epoch: int) -> Session:
        """Take a request in a session. Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == GREATEST_EPOCH else epoch + 1
        return session

    def close(self, group_id: str, member_id: str) -> Session | None:
        return self._sessions.pop((group_id, member_id), None)

    def has(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return any(group == group_id for group, _ in self._sessions)

    def of_connection(self, connection: int) -> list[tuple[str, str]]:
        """The group and member of each session of a connection."""
        return [each for each, session in self._sessions.items() if session.connection == connection]
