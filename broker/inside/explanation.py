"""Explains one exchange: its stages, what ended its wait, and how its bytes were found.

What the facts of an exchange do not have is found again now: the walk from the offset index to the batch, by the same
steps as the read. A log that has changed since gives no such walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from minibroker.broker.inside.facts import Facts, FetchedFacts, FetchFacts, GroupFacts, ProducedFacts, ProduceFacts
from minibroker.broker.inside.trace import (
    NEVER,
    NO_CAUSE,
    WAITS,
    Trace,
)
from minibroker.broker.inside.tracer import Tracer
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
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
ISOLATION = {0: "read_uncommitted", 1: "read_committed"}

Json = dict[str, Any]


class Walk(NamedTuple):
    """How an offset was found: the index entry, the batches between it and the offset, and the batch that holds it."""

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
        """Everything about an exchange but its story, for JSON; without the walks through the indexes if asked so."""
        facts = exchange.facts or self._tracer.facts.take(exchange)
        us = {
            name: exchange.since_arrival_us(time_ns)
            for name, time_ns in (
                ("handled", exchange.handled_ns),
                ("woken", exchange.woken_ns),
                ("answered", exchange.answered_ns),
                ("sent", exchange.sent_ns),
            )
        }
        client = exchange.client
        api = API_TABLE.get(exchange.api_key)
        return {
            "seq": exchange.seq,
            "connection": client.number,
            "address": client.address,
            "client_id": exchange.client_id if exchange.number != NEVER else client.client_id,
            "principal": str(client.principal),
            "listener": client.listener,
            "api": f"API {exchange.api_key}" if api is None else api.name,
            "api_key": exchange.api_key,
            "version": exchange.api_version,
            "correlation_id": exchange.correlation_id,
            "arrived_us": exchange.arrived_ns // 1000,
            "us": us,
            "stages_us": stages_of(us, facts.throttled_ms),
            "bytes_in": exchange.bytes_in,
            "bytes_out": exchange.bytes_out,
            "outcome": self._tracer.outcome_of(exchange),
            "error": exchange.error,
            "throttled_ms": facts.throttled_ms,
            "converted_to": None if facts.fetch is None else facts.fetch.converted_to,
            "woke": exchange.woke or [],
            "topics": list(facts.topics),
            "wait": self._wait(exchange, facts) if exchange.is_parked or exchange.wheel_ms != NEVER else None,
            "sent": sent_of(exchange),
            "fetch": None if facts.fetch is None else self._fetch(exchange, facts.fetch, with_walks),
            "produce": None if facts.produce is None else produce_of(facts.produce),
            "group": None if facts.group is None else group_of(facts.group),
            "login": None if facts.login is None else facts.login._asdict(),
        }

    # -- the wait ---------------------------------------------------------------------------------------------

    def _wait(self, exchange: Trace, facts: Facts) -> Json:
        case = "" if facts.fetch is None else facts.fetch.case
        decided_by = None if facts.fetch is None else facts.fetch.decided_by
        level, slot = place_in_wheel(exchange.wheel_ms, facts.deadline_ms)
        cause = self._cause(exchange)
        if decided_by is None and case == "D" and cause is not None and cause["partitions"]:
            decided_by = TopicPartition(cause["partitions"][0]["topic"], cause["partitions"][0]["partition"])
        return {
            "max_wait_ms": facts.max_wait_ms,
            "deadline_ms": facts.deadline_ms,
            "parked_at_ms": exchange.wheel_ms,
            "level": level,
            "slot": slot,
            "kind": facts.kind,
            "watched": facts.watched,
            "case": case,
            "case_text": CASES.get(case, ""),
            "partition": None if decided_by is None else str(decided_by),
            "ended_by": "" if exchange.outcome == WAITS else exchange.ended_by,
            "cause": cause,
        }

    def _cause(self, exchange: Trace) -> Json | None:
        if exchange.woken_by == NO_CAUSE:
            return None
        cause = self._tracer.find(exchange.woken_by)
        if cause is None:
            return None
        facts = cause.facts or self._tracer.facts.take(cause)
        api = API_TABLE.get(cause.api_key)
        return {
            "seq": cause.seq,
            "connection": cause.client.number,
            "client_id": cause.client.client_id,
            "api": "" if api is None else api.name,
            "version": cause.api_version,
            "correlation_id": cause.correlation_id,
            "arrived_us": cause.arrived_ns // 1000,
            "replica_id": NEVER if facts.fetch is None else facts.fetch.replica_id,
            "partitions": [] if facts.produce is None else produce_of(facts.produce)["partitions"],
        }

    # -- Fetch ------------------------------------------------------------------------------------------------

    def _fetch(self, exchange: Trace, facts: FetchFacts, with_walks: bool) -> Json:
        return {
            "replica_id": facts.replica_id,
            "min_bytes": facts.min_bytes,
            "max_bytes": facts.max_bytes,
            "max_wait_ms": facts.max_wait_ms,
            "isolation": ISOLATION.get(facts.isolation_level, str(facts.isolation_level)),
            "session": session_of(exchange, facts),
            "bytes_found_first": facts.bytes_found_first,
            "asked": facts.partitions_read,
            "answered": facts.answered,
            "left_out": max(0, facts.partitions_read - facts.answered) if exchange.answered_ns != NEVER else 0,
            "bytes": facts.bytes,
            "partitions": [self._fetched(row, with_walks) for row in facts.rows],
        }

    def _fetched(self, row: FetchedFacts, with_walks: bool) -> Json:
        found: Json = {
            "topic": row.topic,
            "partition": row.partition,
            "asked_offset": row.asked_offset,
            "error": row.error,
            "is_in_answer": row.is_in_answer,
            "bytes": row.bytes,
            "high_watermark": row.high_watermark,
            "last_stable_offset": row.last_stable_offset,
            "log_start_offset": row.log_start_offset,
            "log_end_offset": row.log_end_offset,
            "segment": None if row.segment == NEVER else row.segment,
            "position": None if row.position == NEVER else row.position,
            "base_offset": None,
            "last_offset": None,
            "index": None,
            "index_error": None,
        }
        if row.segment == NEVER or not with_walks:
            return found
        try:
            walk, last_offset = self._walked(row)
        except (ValueError, OSError, KafkaError) as error:
            found["index_error"] = str(error)
            return found
        found["base_offset"], found["last_offset"] = walk.found.base_offset, last_offset
        found["index"] = {name: getattr(walk, name) for name in Walk._fields[:-1]}
        return found

    def _walked(self, row: FetchedFacts) -> tuple[Walk, int | None]:
        """Walk to the batch again; return the last offset of what left, too. Raises ValueError, OSError, KafkaError."""
        led = self._replicas.partitions.any(TopicPartition(row.topic, row.partition))
        if led is None:
            raise ValueError("the partition was deleted since")
        if led.log.truncations != row.truncations:
            raise ValueError("the log was truncated since")
        segment = next((each for each in led.log.segments if each.base_offset == row.segment), None)
        if segment is None:
            raise ValueError("the segment was deleted or compacted since")
        walk = walk_to(segment, row.asked_offset)
        if walk is None or walk.found.position != row.position:
            raise ValueError("the segment was compacted since")
        last_offset = None
        for view in headers_from(segment, row.position):
            if view.end_position > row.position + row.bytes:
                break
            last_offset = view.last_offset
            if view.position - row.position > row.bytes:
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


def session_of(exchange: Trace, facts: FetchFacts) -> Json:
    """The decision about the fetch session, by the table of `fetch_context.py`."""
    asked_id, epoch, answered_id = facts.asked_id, facts.asked_epoch, facts.answered_id
    is_answered = exchange.answered_ns != NEVER
    if exchange.api_version < FIRST_VERSION_WITH_SESSIONS:
        decision, text = "none", f"Fetch v{exchange.api_version} knows no sessions"
    elif facts.session_error == "FETCH_SESSION_ID_NOT_FOUND":
        decision, text = "unknown id", "the session was evicted, or ended with the broker's process"
    elif facts.session_error:
        decision, text = "wrong epoch", "the session is at another epoch: the client may have sent a request twice"
    elif epoch == FINAL_EPOCH:
        decision, text = "sessionless", "ends the session" if asked_id else "outside of any session"
    elif epoch == INITIAL_EPOCH:
        has_room = answered_id != 0 or not is_answered
        decision, text = ("new", "begins a session") if has_room else ("no room", "the cache of sessions is full")
    elif answered_id == 0 and is_answered:
        decision, text = "ended", "the last partition left the session"
    else:
        decision, text = "incremental", "names only what changes"
    return {
        "decision": decision,
        "asked_id": asked_id,
        "asked_epoch": epoch,
        "answered_id": answered_id,
        "next_epoch": epoch + 1 if decision == "incremental" else 1 if decision == "new" else NEVER,
        "named": facts.named,
        "forgotten": facts.forgotten,
        "partitions": facts.partitions_read,
        "text": text,
    }


def sent_of(exchange: Trace) -> Json | None:
    """How the response left; None if none has left."""
    sent = exchange.sent
    if sent is None or exchange.sent_ns == NEVER:
        return None
    is_copied = sent.long_slices == 0
    if sent.is_encrypted:
        how = "encrypted"
    elif sent.is_converted:
        how = "converted"
    elif is_copied:
        how = "copied"
    else:
        how = "sendfile" if sent.long_slices == sent.slices else "mixed"
    calls = None
    if exchange.is_sent_in_the_call:
        calls = 1 if is_copied else 2
    if sent.is_encrypted:
        calls = None
    return {
        "how": how,
        "calls": calls,
        "in_the_call": exchange.is_sent_in_the_call,
        "slices": sent.slices,
        "slice_bytes": sent.slice_bytes,
    }


def produce_of(facts: ProduceFacts) -> Json:
    return {
        "acks": facts.acks,
        "transactional_id": facts.transactional_id,
        "timeout_ms": facts.timeout_ms,
        "asked": facts.asked,
        "partitions": [produced_of(row) for row in facts.rows],
    }


def produced_of(row: ProducedFacts) -> Json:
    return {**row._asdict(), "high_watermark": list(row.high_watermark), "log_end_offset": list(row.log_end_offset)}


def group_of(facts: GroupFacts) -> Json:
    found = facts._asdict()
    return {**found, "missed": list(facts.missed), "offsets": [list(row) for row in facts.offsets]}
