"""Explains one exchange: its stages, what ended its wait, and how its bytes were found.

What the facts of an exchange do not have is found again now: the walk from the offset index to the batch, by the same
steps as the read. A log that has changed since gives no such walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from minibroker.broker.wings.looking.exchange_facts import (
    NEVER,
    Facts,
    FetchedFacts,
    FetchFacts,
    ProduceFacts,
    SessionFacts,
)
from minibroker.broker.wings.looking.trace import NO_CAUSE, WAITS, Trace
from minibroker.broker.wings.looking.tracer import Tracer
from minibroker.protocol.api import API_TABLE
from minibroker.protocol.batches import BatchView, view_header
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record_batch import HEADER_SIZE_UP_TO_MAGIC, RECORD_BATCH_OVERHEAD
from minibroker.storage.segment.log_segment import LogSegment

FIRST_VERSION_WITH_SESSIONS: int = FetchRequest.field("session_id").first
HEADERS_MAX = 256  # looked at to find an offset again, and the last offset of what leaves
CASES = {
    "A": "this broker no longer leads a partition",
    "B": "this broker no longer knows a partition",
    "C": "the fetch offset is not on the last segment, or the log was truncated below it",
    "D": "there are enough bytes",
    "E": "the log directory of a partition is offline",
}
Json = dict[str, Any]


class Walk(NamedTuple):
    """A search for an offset: the index entry, the batches between it and the offset, and the batch that holds it."""

    entry: int
    entries: int
    offset: int
    position: int
    headers_looked_at: int
    found: BatchView


class Explainer:
    """Explains the exchanges that `tracer` has kept."""

    def __init__(self, tracer: Tracer, parts: BrokerParts) -> None:
        self._tracer = tracer
        self._replicas = parts.replica_manager

    def explain(self, exchange: Trace, *, with_walks: bool = True) -> Json:
        """Return all of an exchange but its story, for JSON; without the walks through the indexes if asked so."""
        facts = self._facts_of(exchange)
        client = exchange.client
        us = {
            name: exchange.since_arrival_us(getattr(exchange, f"{name}_ns"))
            for name in ("handled", "woken", "answered", "sent")
        }
        return {
            **request_of(exchange),
            "address": client.address,
            "principal": str(client.principal),
            "listener": client.listener,
            "api_key": exchange.api_key,
            "us": us,
            "stages_us": stages_of(us, facts.throttled_ms),
            "bytes_in": exchange.bytes_in,
            "bytes_out": exchange.bytes_out,
            "outcome": self._tracer.outcome_of(exchange),
            "error": exchange.error,
            "throttled_ms": facts.throttled_ms,
            "converted_to": facts.converted_to,
            "woke": exchange.woke or [],
            "topics": facts.topics,
            "wait": self._wait(exchange, facts) if exchange.is_parked or exchange.wheel_ms != NEVER else None,
            "sent": exchange.sent and exchange.sent._asdict(),
            "fetch": facts.fetch and self._fetch(exchange, facts.fetch, with_walks),
            "produce": facts.produce and produce_of(facts.produce),
            "group": facts.group and facts.group._asdict(),
            "login": facts.login and facts.login._asdict(),
        }

    def _facts_of(self, exchange: Trace) -> Facts:
        return exchange.facts or self._tracer.facts.take(exchange)

    # -- the wait ---------------------------------------------------------------------------------------------

    def _wait(self, exchange: Trace, facts: Facts) -> Json:
        wait = facts.wait
        level, slot = place_in_wheel(exchange.wheel_ms, wait.deadline_ms)
        cause = self._cause(exchange)
        if wait.case == "D" and wait.partition is None and cause is not None and cause["partitions"]:
            first = cause["partitions"][0]
            wait = wait._replace(partition=str(TopicPartition(first["topic"], first["partition"])))
        return {
            **wait._asdict(),
            "parked_at_ms": exchange.wheel_ms,
            "level": level,
            "slot": slot,
            "case_text": CASES.get(wait.case, ""),
            "ended_by": "" if exchange.outcome == WAITS else exchange.ended_by,
            "cause": cause,
        }

    def _cause(self, exchange: Trace) -> Json | None:
        cause = None if exchange.woken_by == NO_CAUSE else self._tracer.find(exchange.woken_by)
        if cause is None:
            return None
        facts = self._facts_of(cause)
        return {
            **request_of(cause),
            "replica_id": NEVER if facts.fetch is None else facts.fetch.replica_id,
            "partitions": [] if facts.produce is None else produce_of(facts.produce)["partitions"],
        }

    # -- Fetch ------------------------------------------------------------------------------------------------

    def _fetch(self, exchange: Trace, facts: FetchFacts, with_walks: bool) -> Json:
        is_answered = exchange.answered_ns != NEVER
        return facts._asdict() | {
            "session": session_of(exchange.api_version, facts.session, is_answered=is_answered),
            "left_out": max(0, facts.asked - facts.answered) if is_answered else 0,
            "partitions": [self._fetched(row, with_walks) for row in facts.partitions],
        }

    def _fetched(self, row: FetchedFacts, with_walks: bool) -> Json:
        found = row._asdict() | {"base_offset": None, "last_offset": None, "index": None, "index_error": None}
        del found["truncations"]
        if row.segment is None or row.position is None or not with_walks:
            return found
        try:
            walk, last_offset = self._walked(row, row.position)
        except (ValueError, OSError, KafkaError) as error:
            return found | {"index_error": str(error)}
        index = walk._asdict()
        return found | {"base_offset": index.pop("found").base_offset, "last_offset": last_offset, "index": index}

    def _walked(self, row: FetchedFacts, position: int) -> tuple[Walk, int | None]:
        """Walk to the batch again; return the last offset of the sent records, too.

        Raises ValueError, OSError, KafkaError.
        """
        led = self._replicas.partitions.any(TopicPartition(row.topic, row.partition))
        if led is None:
            raise ValueError("the partition was deleted since")
        if led.log.truncations != row.truncations:
            raise ValueError("the log was truncated since")
        segment = next((each for each in led.log.segments if each.base_offset == row.segment), None)
        if segment is None:
            raise ValueError("the segment was deleted or compacted since")
        walk = walk_to(segment, row.asked_offset)
        if walk is None or walk.found.position != position:
            raise ValueError("the segment was compacted since")
        last_offset = None
        for view in headers_from(segment, position):
            if view.end_position > position + row.bytes:
                break
            last_offset = view.last_offset
            if view.position - position > row.bytes:
                break
        return walk, last_offset


def walk_to(segment: LogSegment, offset: int) -> Walk | None:
    """Find an offset in a segment as a read does: from its index entry, header by header; None if it is not there."""
    index = segment.offset_index
    slot = index.slot_before(offset)
    entry_offset, position = (segment.base_offset, 0) if slot < 0 else index.entry(slot)
    for looked_at, view in enumerate(headers_from(segment, position), start=1):
        if view.last_offset >= offset:
            return Walk(slot, index.entries, entry_offset, position, looked_at, view)
        if looked_at == HEADERS_MAX:
            break
    return None


def headers_from(segment: LogSegment, position: int) -> Iterator[BatchView]:
    """Read the headers of the batches from a position on, without mapping the file; `HEADERS_MAX` at most.

    Raises KafkaError at damaged bytes.
    """
    records = segment.records
    for _ in range(HEADERS_MAX):
        header = records.read(position, RECORD_BATCH_OVERHEAD)
        if len(header) < HEADER_SIZE_UP_TO_MAGIC:
            return
        view = view_header(header, position)
        if view.end_position > records.size_bytes:
            return
        yield view
        position = view.end_position


def place_in_wheel(now_ms: int, deadline_ms: int) -> tuple[int, int]:
    """The level and the slot of a deadline that was added at a time of the wheel; (-1, -1) if it never was."""
    if now_ms == NEVER or deadline_ms <= now_ms:
        return NEVER, NEVER
    level = ((deadline_ms ^ now_ms).bit_length() - 1) >> 3
    return level, (deadline_ms >> (level << 3)) & 255


def stages_of(us: dict[str, int], throttled_ms: int) -> dict[str, int]:
    """The times of Kafka's stages; the broker has no queues."""
    handled, woken, answered, sent = us["handled"], us["woken"], us["answered"], us["sent"]
    remote = woken - handled if woken != NEVER else 0
    end = answered if answered != NEVER else handled
    return {
        "request_queue": 0,
        "local": max(0, end - remote),
        "remote": remote,
        "throttle": throttled_ms * 1000,
        "response_queue": 0,
        "response_send": sent - answered if sent != NEVER else 0,
    }


def session_of(api_version: int, facts: SessionFacts, *, is_answered: bool) -> Json:
    """The decision about the fetch session, by the table of `fetch_context.py`."""
    found = facts._asdict()
    error, epoch, answered_id = found.pop("error"), facts.asked_epoch, facts.answered_id
    next_epoch = NEVER
    if api_version < FIRST_VERSION_WITH_SESSIONS:
        decision, text = "none", f"Fetch v{api_version} knows no sessions"
    elif error == "FETCH_SESSION_ID_NOT_FOUND":
        decision, text = "unknown id", "the session was evicted, or ended with the broker's process"
    elif error:
        decision, text = "wrong epoch", "the session is at another epoch: the client may have sent a request twice"
    elif epoch == FINAL_EPOCH:
        decision, text = "sessionless", "ends the session" if facts.asked_id else "outside of any session"
    elif epoch == INITIAL_EPOCH and is_answered and answered_id == 0:
        decision, text = "no room", "the cache of sessions is full"
    elif epoch == INITIAL_EPOCH:
        decision, text, next_epoch = "new", "begins a session", 1
    elif is_answered and answered_id == 0:
        decision, text = "ended", "the last partition left the session"
    else:
        decision, text, next_epoch = "incremental", "names only what changes", epoch + 1
    return found | {"decision": decision, "next_epoch": next_epoch, "text": text}


def produce_of(facts: ProduceFacts) -> Json:
    return facts._asdict() | {"partitions": [row._asdict() for row in facts.partitions]}


def request_of(exchange: Trace) -> Json:
    """The names of a request."""
    return {
        "seq": exchange.seq,
        "connection": exchange.client.number,
        "client_id": exchange.client_id,
        "api": name_of_api(exchange.api_key),
        "version": exchange.api_version,
        "correlation_id": exchange.correlation_id,
        "arrived_us": exchange.arrived_ns // 1000,
    }


def name_of_api(api_key: int) -> str:
    api = API_TABLE.get(api_key)
    return f"API {api_key}" if api is None else api.name
