"""Snapshots of a broker's state, for JSON: a log, the purgatories on their wheel, connections, fetch sessions, groups.

Requests wait while one is made, so each is bounded: by rows, then `more` has where to go on, and by `MOST_NS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any

from minibroker.broker.network.connection import Connection
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.fetch_session import FetchSession
from minibroker.broker.wings.looking.exchange_facts import NEVER
from minibroker.broker.wings.looking.explanation import headers_from, name_of_api
from minibroker.broker.wings.looking.facts import codec_name
from minibroker.broker.wings.looking.fetch_positions import FetchPositions, fetched_offset
from minibroker.broker.wings.looking.trace import Trace
from minibroker.broker.wings.looking.tracer import Tracer
from minibroker.protocol.batches import BatchView
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.purgatory import Purgatory
from minibroker.purgatory.timing_wheel import TimerTask
from minibroker.storage.log.log import Log
from minibroker.storage.segment.log_segment import LogSegment

MOST_NS = 1_000_000
SEGMENTS_MAX = 256
ENTRIES_MAX = 64
BATCHES_MAX = 64
LEVELS_SHOWN = 3
TASKS_OF_A_SLOT_MAX = 64
PARTITIONS_MAX = 32
GROUPS_MAX = 200
LOGS_MAX = 200

# What has a deadline in the wheel, by the name of its class.
KINDS = {
    "DelayedFetch": "Fetch",
    "DelayedProduce": "Produce",
    "DelayedDeleteRecords": "DeleteRecords",
    "DelayedJoin": "Rebalance",
    "InitialDelayedJoin": "Rebalance",
    "DelayedHeartbeat": "Member",
    "Connection": "Connection",
    "TlsConnection": "Connection",
    "Mute": "Mute",
    "Timeout": "Transaction",
    "Refusal": "Login",
}

Json = dict[str, Any]


class Snapshots:
    """Makes the snapshots. Its methods are calls; they raise ValueError for what does not exist."""

    def __init__(
        self, tracer: Tracer, parts: BrokerParts, positions: FetchPositions, connections: Collection[Connection]
    ) -> None:
        self._positions = positions
        self._tracer = tracer
        self._parts = parts
        self._partitions = parts.replica_manager.partitions
        self._connections = connections

    # -- a log ------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int, offset: int | None = None, after: int | None = None) -> Json:
        """A partition's log: its segments from the base offset `after` on, and what lies around an offset."""
        role = self._partitions.any(TopicPartition(topic, partition))
        if role is None:
            raise ValueError(f"unknown partition {topic}-{partition}")
        log = role.log
        wanted = log.high_watermark if offset is None else offset
        holder = log.segments.floor(wanted) if log.log_start_offset <= wanted <= log.log_end_offset else None
        segments = {each.base_offset: each for each in log.segments}
        shown, more = page(segments, -1 if after is None else after, SEGMENTS_MAX)
        return {
            "topic": topic,
            "partition": partition,
            "log_start_offset": log.log_start_offset,
            "last_stable_offset": log.last_stable_offset,
            "high_watermark": log.high_watermark,
            "log_end_offset": log.log_end_offset,
            "leader_epoch": role.leader_epoch,
            "size_bytes": log.size_bytes,
            "index_interval_bytes": log.config.index_interval_bytes,
            "truncations": log.truncations,
            "segments": [segment_of(segments[each], log) for each in shown],
            "more": more,
            "offset": wanted,
            "segment": None if holder is None else holder.base_offset,
            **around(holder, wanted),
        }

    def logs(self, topic: str, partitions: list[int]) -> Json:
        """The end and the number of segments of these logs; missing logs are left out."""
        if not isinstance(partitions, list) or len(partitions) > LOGS_MAX:
            raise ValueError(f"partitions is a list of {LOGS_MAX} numbers at most")
        if any(isinstance(each, bool) or not isinstance(each, int) or each < 0 for each in partitions):
            raise ValueError("each partition is a whole number from 0")
        found = [(each, self._partitions.any(TopicPartition(topic, each))) for each in partitions]
        return {
            "rows": [
                {
                    "partition": each,
                    "log_end_offset": role.log.log_end_offset,
                    "segments": len(role.log.segments),
                    "leader_epoch": role.leader_epoch,
                }
                for each, role in found
                if role is not None
            ]
        }

    # -- waiting ----------------------------------------------------------------------------------------------

    def purgatory(self, budget: int = 200) -> Json:
        """The purgatories, and the slots of the wheel that are lit, up to `budget` operations."""
        until_ns = self._tracer.now_ns() + MOST_NS
        timer, now_ms = self._parts.timers.timer, self._parts.timers.clock.monotonic_ms()
        exchanges = {each.operation: each for each in self._tracer.not_ended() if each.operation is not None}
        levels: list[Json] = []
        found: list[tuple[int, int, TimerTask]] = []
        counted, is_all = 0, True
        for level in range(LEVELS_SHOWN):
            lit: list[tuple[int, Counter[str]]] = []
            for slot, tasks in timer.lit_slots(level):
                if self._tracer.now_ns() > until_ns:
                    is_all = False
                    break
                shown = list(islice(tasks, TASKS_OF_A_SLOT_MAX + 1))
                if len(shown) > TASKS_OF_A_SLOT_MAX:
                    is_all = False
                    shown.pop()
                counted += len(shown)
                lit.append((slot, Counter(map(kind_of, shown))))
                if len(found) <= budget:
                    found += [(level, slot, task) for task in shown]
            hand = (now_ms >> (level << 3)) & 255
            levels.append({"level": level, "slot_ms": 256**level, "hand": hand, "lit": lit})
        found.sort(key=lambda each: each[-1].deadline_ms)
        operations = [
            {"kind": kind_of(task), "deadline_ms": task.deadline_ms, "level": level, "slot": slot}
            | who_waits(task, exchanges)
            for level, slot, task in found[:budget]
        ]
        return {
            "now_ms": now_ms,
            "pending": len(timer),
            "purgatories": [purgatory_of(each) for each in self._parts.purgatories],
            "levels": levels,
            "later": len(timer) - counted if is_all else NEVER,
            "operations": operations,
            "more": len(operations) < len(timer),
        }

    # -- clients ----------------------------------------------------------------------------------------------

    def connections(self, after: int = 0, budget: int = 500) -> Json:
        """The open connections with numbers above `after`, in their order."""
        by_number = {each.client.number: each for each in self._connections}
        shown, more = page(by_number, after, budget)
        rows = [self._connection(by_number[each]) for each in shown]
        return {"open": len(by_number), "more": more, "connections": rows}

    def _connection(self, connection: Connection) -> Json:
        client, now_ms = connection.client, self._parts.timers.clock.monotonic_ms()
        exchange = self._tracer.in_hand(client.number)
        seen = self._tracer.seen_of(client.number)
        in_hand = exchange and {
            "seq": exchange.seq,
            "api": name_of_api(exchange.api_key),
            "for_us": (self._tracer.now_ns() - exchange.arrived_ns) // 1000,
        }
        return {
            "connection": client.number,
            "address": client.address,
            "client_id": client.client_id,
            "listener": client.listener,
            "principal": str(client.principal),
            "encrypted": connection.tls_version,
            "idle_ms": max(0, now_ms - connection.last_active_ms),
            "throttled_ms": max(0, client.muted_until_ms - now_ms) if client.muted_until_ms else 0,
            "in_hand": in_hand,
            "requests": {name_of_api(api_key): counts for api_key, counts in seen.requests.items()},
            "last_error": seen.last_error,
            "errors": seen.errors,
        }

    def sessions(self, after: int = 0, budget: int = 200) -> Json:
        """The fetch sessions with ids above `after`, in their order."""
        cache, now_ms = self._parts.fetch_sessions, self._parts.timers.clock.monotonic_ms()
        shown, more = page(cache.sessions, after, budget)
        return {
            "sessions": len(cache.sessions),
            "partitions": cache.partitions,
            "evictions": cache.evictions,
            "max_sessions": cache.max_sessions,
            "more": more,
            "rows": [session_of(cache.sessions[each], now_ms) for each in shown],
        }

    def fetches(self, after: int = 0, skip: int = 0) -> Json:
        """The last fetches of clients, from reader `after` on without its first `skip` partitions."""
        clock, until_ns = self._parts.timers.clock, self._tracer.now_ns() + MOST_NS
        turn_ms = clock.wall_ms() - clock.monotonic_ms()
        rows: list[Json] = []
        more: tuple[int, int] | None = None
        for reader in self._positions.all():
            if more is not None or reader.number < after:
                continue
            partitions: list[Any] = []
            first = skip if reader.number == after else 0
            for place, (key, position) in enumerate(islice(reader.positions.items(), first, None), start=first):
                if self._tracer.now_ns() > until_ns and (rows or partitions):
                    more = reader.number, place
                    break
                role = self._partitions.any(key)
                if role is not None:
                    at_ms = reader.at_ms(position) + turn_ms
                    partitions.append((*key, fetched_offset(position, role.log), role.log.high_watermark, at_ms))
            shown = {"client_id": reader.client_id, "host": reader.host, "groups": reader.groups}
            rows.append({**shown, "partitions": partitions})
        return {"cluster_id": self._parts.metadata_cache.cluster_id, "rows": rows, "more": more}

    # -- groups -----------------------------------------------------------------------------------------------

    def groups(self, group_id: str | None = None) -> Json:
        """Show why groups rebalanced last, and which members they went on without."""
        groups = self._parts.groups
        one = None if group_id is None else groups.get(group_id)
        found = groups.all() if group_id is None else [] if one is None else [one]
        return {
            "rows": [
                {
                    "group_id": group.group_id,
                    "state": group.state.value,
                    "generation": group.generation_id,
                    "members": len(group.members),
                    "why": group.rebalance_reason,
                    "missed": list(islice(group.missed_members, PARTITIONS_MAX)),
                    "since_ms": group.state_timestamp_ms,
                }
                for group in islice(found, GROUPS_MAX)
            ]
        }


def page(numbers: Iterable[int], after: int, most: int) -> tuple[list[int], int | None]:
    """The first numbers above `after`, and after which one the next page goes on, None for the last page."""
    left = sorted(each for each in numbers if each > after)
    return left[:most], left[most - 1] if len(left) > most else None


def segment_of(segment: LogSegment, log: Log) -> Json:
    return {
        "base_offset": segment.base_offset,
        "name": segment.path.name,
        "size_bytes": segment.size_bytes,
        "entries": segment.offset_index.entries,
        "is_active": segment is log.segments.active,
        "last_modified_ms": segment.last_modified_ms,
        "max_timestamp_ms": segment.max_timestamp_so_far,
    }


def purgatory_of(purgatory: Purgatory) -> Json:
    counts = {"watched": purgatory.watched, "delayed": purgatory.delayed, "purged": purgatory.purged}
    return {"name": purgatory.name, **counts, **{str(ending): count for ending, count in purgatory.endings.items()}}


def session_of(session: FetchSession, now_ms: int) -> Json:
    return {
        "id": session.id,
        "epoch": session.epoch,
        "partitions": len(session.partitions),
        "is_follower": session.is_privileged,
        "age_ms": now_ms - session.created_ms,
        "used_ms_ago": now_ms - session.last_used_ms,
        "shown": [
            (each.topic, each.partition, cached.row.fetch_offset, cached.high_watermark)
            for each, cached in islice(session.partitions.items(), PARTITIONS_MAX)
        ],
    }


def who_waits(task: TimerTask, exchanges: Mapping[Any, Trace]) -> Json:
    """The request and the connection of an operation with a deadline, -1 for none."""
    exchange = exchanges.get(task)
    if exchange is not None:
        return {"seq": exchange.seq, "connection": exchange.client.number}
    return {"seq": NEVER, "connection": task.client.number if isinstance(task, Connection) else NEVER}


def around(segment: LogSegment | None, offset: int) -> Json:
    """The index entries around an offset of a segment, and the batches from the entry on at which a read begins."""
    if segment is None:
        return {"index": [], "entry": NEVER, "batches": [], "batches_more": False}
    index = segment.offset_index
    slot = index.slot_before(offset)
    first = max(0, min(slot - ENTRIES_MAX // 2, index.entries - ENTRIES_MAX))
    entries = [(*index.entry(each), each) for each in range(first, min(first + ENTRIES_MAX, index.entries))]
    position = 0 if slot < 0 else index.entry(slot).position
    try:
        views = list(islice(headers_from(segment, position), BATCHES_MAX))
    except KafkaError as error:
        raise ValueError(f"{segment.path.name} is damaged: {error}") from error
    end = views[-1].end_position if views else segment.size_bytes
    return {
        "index": entries,
        "entry": slot,
        "batches": [batch_of(view) for view in views],
        "batches_more": end < segment.size_bytes,
    }


def batch_of(view: BatchView) -> Json:
    return {
        "base_offset": view.base_offset,
        "last_offset": view.last_offset,
        "position": view.position,
        "bytes": view.size_bytes,
        "records": view.records_count,
        "magic": view.magic,
        "codec": codec_name(view),
        "max_timestamp_ms": view.max_timestamp_ms,
        "producer_id": view.producer_id,
        "is_transactional": view.is_transactional,
        "is_control": view.is_control,
        "leader_epoch": view.partition_leader_epoch,
    }


def kind_of(task: TimerTask) -> str:
    return KINDS.get(type(task).__name__, "Other")
