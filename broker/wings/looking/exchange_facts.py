"""The facts of an exchange: the values that explain it, as `facts.py` takes them."""

from __future__ import annotations

from typing import Any, NamedTuple

NEVER = -1


class FetchedFacts(NamedTuple):
    """One partition of a Fetch; offsets of the log are -1 if this broker does not have it."""

    topic: str
    partition: int
    asked_offset: int
    error: str = ""
    is_in_answer: bool = False
    bytes: int = 0
    high_watermark: int = NEVER
    last_stable_offset: int = NEVER
    log_start_offset: int = NEVER
    log_end_offset: int = NEVER
    segment: int | None = None  # the base offset of the segment that has its records
    position: int | None = None
    truncations: int = NEVER


class SessionFacts(NamedTuple):
    """The fetch session of a Fetch, as it was asked for and as it was answered."""

    asked_id: int
    asked_epoch: int
    answered_id: int
    error: str
    named: int
    forgotten: int
    partitions: int  # that were read: those of the session, too


class FetchFacts(NamedTuple):
    replica_id: int
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    isolation: str
    session: SessionFacts
    bytes_found_first: int  # when it was parked, else -1
    asked: int
    answered: int
    bytes: int
    partitions: tuple[FetchedFacts, ...]


class ProducedFacts(NamedTuple):
    """One partition of a Produce; of its offsets those before and after it."""

    topic: str
    partition: int
    error: str
    message: str | None
    base_offset: int
    last_offset: int
    records: int
    bytes: int
    batches: int
    timestamp_type: str
    validation: str
    magic: int = NEVER
    codec: str = ""
    is_transactional: bool = False
    producer_id: int = NEVER
    producer_epoch: int = NEVER
    base_sequence: int = NEVER
    is_duplicate: bool = False
    high_watermark: tuple[int, int] = (NEVER, NEVER)
    log_end_offset: tuple[int, int] = (NEVER, NEVER)
    rolled: bool = False
    segment: int = NEVER
    position: int = NEVER


class ProduceFacts(NamedTuple):
    acks: int
    transactional_id: str | None
    timeout_ms: int
    asked: int
    partitions: tuple[ProducedFacts, ...]


class GroupFacts(NamedTuple):
    """A group, as a request finds it, and the offsets that it commits: topic, partition, offset, lag.

    Of a member of the consumer protocol: `epoch` is its own, `revokes` has the partitions that it has to give up first,
    `lacks` those of its target that another member has yet to give up, with that member's id. Of a share group,
    `records` has the first runs of records in flight, as the control call `shared_records` has them; its `state` is
    empty if another broker coordinates it.
    """

    group_id: str
    state: str
    generation: int
    members: int
    member_id: str
    protocol: str | None
    is_leader: bool
    why: str
    missed: tuple[str, ...]
    offsets: tuple[tuple[str, int, int, int], ...]
    epoch: int | None = None
    revokes: tuple[tuple[str, int], ...] = ()
    lacks: tuple[tuple[str, int, str], ...] = ()
    records: tuple[tuple[Any, ...], ...] = ()


class LoginFacts(NamedTuple):
    """A step of an authentication; never a token of it."""

    mechanism: str  # that a SaslHandshake asks for, else empty
    enabled: tuple[str, ...]
    message: str | None  # of the answer to a SaslAuthenticate


class WaitFacts(NamedTuple):
    """The operation of a wait; -1 and nothing if none is known."""

    max_wait_ms: int = NEVER
    deadline_ms: int = NEVER
    kind: str = ""
    watched: int = 0  # keys that it waited for
    case: str = ""  # that ended the wait of a Fetch
    partition: str | None = None  # that decided it


NO_WAIT = WaitFacts()


class Facts(NamedTuple):
    """All of a request; of `fetch`, `produce`, `group` and `login` one at most."""

    topics: tuple[str, ...] = ()
    records: int = 0  # partitions answered with records, or appended to
    throttled_ms: int = 0
    converted_to: int | None = None  # the magic of the records for an older client
    wait: WaitFacts = NO_WAIT
    fetch: FetchFacts | None = None
    produce: ProduceFacts | None = None
    group: GroupFacts | None = None
    login: LoginFacts | None = None
