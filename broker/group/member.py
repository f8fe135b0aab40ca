"""A member of a group: its ids, its protocols, and its requests that wait for an answer.

A JoinGroup or SyncGroup that has to wait leaves a `Reply` with its member; the end of the rebalance resolves it, even
if the client has hung up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, TypeVar

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import MemberRecord

Protocols = Sequence[tuple[str, bytes]]  # name and metadata, in the member's order of preference

# The generation in an error's answer, as kafka 2.0.1 GroupCoordinator.joinError.
NO_GENERATION = 0


class MemberIdentity(NamedTuple):
    """The ids of a member, and the generation it believes to be in."""

    member_id: str
    group_instance_id: str | None = None
    generation_id: int = -1


class JoinTerms(NamedTuple):
    """The terms on which a member joins, which it may change when it joins again."""

    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int


class JoinedMember(NamedTuple):
    """A member in the leader's answer to JoinGroup."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to JoinGroup. Without an error it names the generation that the member is part of."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: Sequence[JoinedMember] = ()
    skips_assignment: bool = False


class SyncResult(NamedTuple):
    """The answer to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


Answer = TypeVar("Answer", contravariant=True)


class Reply(Protocol[Answer]):
    """The answer that a member's request waits for; only the first `resolve` counts."""

    def resolve(self, value: Answer, /) -> None: ...


class Heartbeat(Protocol):
    """The deadline of a member, or of a pending one that has yet to join."""

    def expect_by(self, deadline_ms: int) -> None: ...

    def cancel(self) -> None: ...


class Member:
    """One member. `heartbeat` is its deadline; `is_new` until its first generation is complete, `is_unheard` if it was
    loaded at the start and its client has not been heard from since."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "heartbeat",
        "is_new",
        "is_unheard",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        *,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.is_unheard = False
        self.join_reply: Reply[JoinResult] | None = None
        self.sync_reply: Reply[SyncResult] | None = None
        self.heartbeat: Heartbeat | None = None

    @classmethod
    def from_record(cls, record: MemberRecord, protocol: str) -> Member:
        """Make a stored member; only the chosen one of its protocols was stored."""
        return cls(
            record.member_id,
            group_instance_id=record.group_instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            session_timeout_ms=record.session_timeout_ms,
            protocols=[(protocol, record.subscription)],
            assignment=record.assignment,
        )

    def record(self, protocol: str, assignment: bytes) -> MemberRecord:
        """Make the record to store, in a generation with `protocol`."""
        return MemberRecord(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @property
    def terms(self) -> JoinTerms:
        return JoinTerms(self.protocols, self.session_timeout_ms, self.rebalance_timeout_ms)

    def take(self, terms: JoinTerms) -> None:
        self.protocols, self.session_timeout_ms, self.rebalance_timeout_ms = terms

    @property
    def is_kept_alive(self) -> bool:
        """Return whether a missed heartbeat is ignored: a request of the member waits, and not its first JoinGroup."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def matches(self, protocols: Protocols) -> bool:
        """Return whether these are the member's present protocols, with the same metadata."""
        return list(self.protocols) == list(protocols)

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata of a protocol. Raises KeyError if it does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that the member prefers."""
        return next(name for name, _ in self.protocols if name in candidates)

    def rename(self, member_id: str) -> None:
        self.member_id = member_id

    def assign(self, assignment: bytes) -> None:
        self.assignment = assignment

    def await_generation(self, reply: Reply[JoinResult], *, is_new: bool = False) -> None:
        """Let its JoinGroup wait for the next generation."""
        self.is_new = self.is_new or is_new
        self.join_reply = reply

    def forget_join(self, reply: Reply[JoinResult]) -> None:
        """Leave the answer to this JoinGroup to the caller."""
        if self.join_reply is reply:
            self.join_reply = None

    def await_assignment(self, reply: Reply[SyncResult]) -> None:
        """Let its SyncGroup wait for the leader's."""
        self.sync_reply = reply

    def begin_generation(self, result: JoinResult, now_ms: int) -> None:
        """Answer its JoinGroup, and expect its next request."""
        self.answer_join(result)
        self.expect_heartbeat(now_ms)
        self.is_new = False

    def answer_join(self, result: JoinResult) -> None:
        """Answer its JoinGroup, if one waits."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply.resolve(result)

    def answer_sync(self, result: SyncResult) -> bool:
        """Answer its SyncGroup; False if none waits."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is None:
            return False
        reply.resolve(result)
        return True

    def watch_by(self, heartbeat: Heartbeat) -> None:
        """Give it a deadline, which `expect_heartbeat` sets."""
        self.heartbeat = heartbeat

    def expect_client(self, now_ms: int) -> None:
        """Give the client of a loaded member a session timeout from now to be heard from."""
        self.expect_heartbeat(now_ms)
        self.is_unheard = True

    def expect_heartbeat(self, now_ms: int, within_ms: int | None = None) -> None:
        """Set the deadline of the next heartbeat: `within_ms`, else the session timeout, from now."""
        self.is_unheard = False
        if self.heartbeat is not None:
            self.heartbeat.expect_by(now_ms + (self.session_timeout_ms if within_ms is None else within_ms))

    def forget_heartbeat(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.cancel()
            self.heartbeat = None
