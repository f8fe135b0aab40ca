"""Snapshots of a broker's state, for JSON: a log, the purgatories on their wheel, connections, fetch sessions, groups.

Requests wait while one is made, so each is bounded: by rows, then `more` has where to go on, and by `MOST_NS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

from minibroker.broker.inside.explanation import headers_from
from minibroker.broker.inside.trace import NEVER
from minibroker.broker.inside.tracer import Tracer
from minibroker.broker.network.connection import Connection
from minibroker.broker.parts import BrokerParts
from minibroker.protocol.api import API_TABLE
from minibroker.protocol.batches import BatchView
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.purgatory import Purgatory
from minibroker.purgatory.timing_wheel import TimerTask
from minibroker.storage.segment.log_segment import LogSegment

MOST_NS = 1_000_000
SEGMENTS_MAX = 256
ENTRIES_MAX = 64
BATCHES_MAX = 64
LEVELS_SHOWN = 3
TASKS_OF_A_SLOT_MAX = 64
PARTITIONS_MAX = 32
GROUPS_MAX = 200

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
    """Makes the snapshots. Its methods raise ValueError for what does not exist."""

    def __init__(self, tracer: Tracer, parts: BrokerParts, connections: Collection[Connection]) -> None:
        self._tracer = tracer
        self._parts = parts
        self._connections = connections
        self._timer = parts.timers.timer

    # -- a log ------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int, offset: int | None, after: int | None) -> Json:
        """A partition's log: its segments from the base offset `after` on, and what lies around an offset."""
        led = self._parts.replica_manager.partitions.any(TopicPartition(topic, partition))
        if led is None:
            raise ValueError(f"unknown partition {topic}-{partition}")
        log = led.log
        segments = [each for each in log.segments if after is None or each.base_offset > after]
        wanted = led.log.high_watermark if offset is None else offset
        holder = log.segments.floor(wanted) if log.log_start_offset <= wanted <= log.log_end_offset else None
        return {
            "topic": topic,
            "partition": partition,
            "log_start_offset": log.log_start_offset,
            "last_stable_offset": log.last_stable_offset,
            "high_watermark": led.log.high_watermark,
            "log_end_offset": log.log_end_offset,
            "leader_epoch": led.leader_epoch,
            "size_bytes": log.size_bytes,
            "index_interval_bytes": log.config.index_interval_bytes,
            "truncations": log.truncations,
            "segments": [
                {
                    "base_offset": each.base_offset,
                    "name": each.path.name,
                    "size_bytes": each.size_bytes,
                    "entries": each.offset_index.entries,
                    "is_active": each is log.segments.active,
                    "last_modified_ms": each.last_modified_ms,
                    "max_timestamp_ms": each.max_timestamp_so_far,
                }
                for each in segments[:SEGMENTS_MAX]
            ],
            "more": segments[SEGMENTS_MAX - 1].base_offset if len(segments) > SEGMENTS_MAX else None,
            "offset": wanted,
            "segment": None if holder is None else holder.base_offset,
            **around(holder, wanted),
        }

    def logs(self, topic: str, partitions: Sequence[int]) -> list[Json]:
        """What a list of partitions shows of each log."""
        found = self._parts.replica_manager.partitions
        led = [(each, found.any(TopicPartition(topic, each))) for each in partitions]
        return [
            {
                "partition": each,
                "log_end_offset": partition.log.log_end_offset,
                "segments": len(partition.log.segments),
                "leader_epoch": partition.leader_epoch,
            }
            for each, partition in led
            if partition is not None
        ]

    # -- waiting ----------------------------------------------------------------------------------------------

    def purgatory(self, budget: int) -> Json:
        """The purgatories, and the slots of the wheel that are lit, up to `budget` operations."""
        until_ns = self._tracer.now_ns() + MOST_NS
        timer, now_ms = self._timer, self._parts.timers.clock.monotonic_ms()
        exchanges = {id(each.operation): each for each in self._tracer.not_ended() if each.operation is not None}
        levels: list[Json] = []
        found: list[tuple[int, int, int, TimerTask]] = []
        counted, is_all = 0, True
        for level in range(LEVELS_SHOWN):
            lit: list[tuple[int, Counter[str]]] = []
            for index, tasks in timer.lit_slots(level):
                if self._tracer.now_ns() > until_ns:
                    is_all = False
                    break
                shown = list(islice(tasks, TASKS_OF_A_SLOT_MAX + 1))
                if len(shown) > TASKS_OF_A_SLOT_MAX:
                    is_all = False
                    shown.pop()
                counted += len(shown)
                lit.append((index, Counter(map(kind_of, shown))))
                if len(found) <= budget:
                    found += [(task.deadline_ms, level, index, task) for task in shown]
            hand = (now_ms >> (level << 3)) & 255
            levels.append({"level": level, "slot_ms": 256**level, "hand": hand, "lit": lit})
        found.sort(key=lambda each: each[0])
        operations = []
        for deadline_ms, level, index, task in found[:budget]:
            exchange = exchanges.get(id(task))
            connection = task.client.number if isinstance(task, Connection) else NEVER
            operations.append(
                {
                    "kind": kind_of(task),
                    "deadline_ms": deadline_ms,
                    "level": level,
                    "slot": index,
                    "seq": NEVER if exchange is None else exchange.seq,
                    "connection": connection if exchange is None else exchange.client.number,
                }
            )
        return {
            "now_ms": now_ms,
            "pending": len(timer),
            "purgatories": [statistics_of(each) for each in self.purgatories()],
            "levels": levels,
            "later": len(timer) - counted if is_all else NEVER,
            "operations": operations,
            "more": len(operations) < len(timer),
        }

    def purgatories(self) -> list[Purgatory]:
        replicas = self._parts.replica_manager
        return [
            replicas.fetch_purgatory,
            replicas.produce_purgatory,
            replicas.delete_records_purgatory,
            self._parts.groups.rebalance_purgatory,
        ]

    # -- clients ----------------------------------------------------------------------------------------------

    def connections(self, after: int, budget: int) -> Json:
        """The open connections with numbers above `after`, in their order."""
        rows = sorted(
            (each for each in self._connections if each.client.number > after), key=lambda each: each.client.number
        )
        shown = rows[:budget]
        return {
            "open": len(self._connections),
            "more": shown[-1].client.number if len(rows) > budget else None,
            "connections": [self._connection(each) for each in shown],
        }

    def _connection(self, connection: Connection) -> Json:
        client, now_ms = connection.client, self._parts.timers.clock.monotonic_ms()
        exchange = self._tracer.in_hand(client.number)
        seen = self._tracer.seen_of(client.number)
        return {
            "connection": client.number,
            "address": client.address,
            "client_id": client.client_id,
            "listener": client.listener,
            "principal": str(client.principal),
            "encrypted": connection.tls_version,
            "idle_ms": max(0, now_ms - connection.last_active_ms),
            "throttled_ms": max(0, client.muted_until_ms - now_ms) if client.muted_until_ms else 0,
            "in_hand": None
            if exchange is None
            else {
                "seq": exchange.seq,
                "api": name_of_api(exchange.api_key),
                "for_us": (self._tracer.now_ns() - exchange.arrived_ns) // 1000,
            },
            "requests": {name_of_api(api_key): list(counts) for api_key, counts in seen.requests.items()},
            "last_error": seen.last_error,
            "errors": seen.errors,
        }

    def sessions(self, after: int, budget: int) -> Json:
        """The fetch sessions with ids above `after`, in their order."""
        cache, now_ms = self._parts.fetch_sessions, self._parts.timers.clock.monotonic_ms()
        statistics = cache.statistics()
        ids = sorted(each for each in cache.sessions if each > after)
        shown = ids[:budget]
        return {
            "sessions": statistics.sessions,
            "partitions": statistics.partitions,
            "evictions": statistics.evictions,
            "max_sessions": cache.max_sessions,
            "more": shown[-1] if len(ids) > budget else None,
            "rows": [
                {
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
                for session in (cache.sessions[each] for each in shown)
            ],
        }

    # -- groups -----------------------------------------------------------------------------------------------

    def groups(self, group_id: str | None) -> Json:
        """Why groups rebalanced last, and which members they went on without."""
        if group_id is None:
            groups = list(islice(self._parts.groups.all(), GROUPS_MAX))
        else:
            group = self._parts.groups.get(group_id)
            groups = [] if group is None else [group]
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
                for group in groups
            ]
        }


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
    try:
        codec = view.codec.name.lower()
    except KafkaError:
        codec = "unknown"
    return {
        "base_offset": view.base_offset,
        "last_offset": view.last_offset,
        "position": view.position,
        "bytes": view.size_bytes,
        "records": view.records_count,
        "magic": view.magic,
        "codec": codec,
        "max_timestamp_ms": view.max_timestamp_ms,
        "producer_id": view.producer_id,
        "is_transactional": view.is_transactional,
        "is_control": view.is_control,
        "leader_epoch": view.partition_leader_epoch,
    }


def kind_of(task: TimerTask) -> str:
    return KINDS.get(type(task).__name__, "Other")


def statistics_of(purgatory: Purgatory) -> Json:
    statistics = purgatory.statistics()
    return {
        "name": purgatory.name,
        **{
            name: getattr(statistics, name)
            for name in ("watched", "delayed", "completed", "expired", "cancelled", "purged")
        },
    }


def name_of_api(api_key: int) -> str:
    api = API_TABLE.get(api_key)
    return f"API {api_key}" if api is None else api.name
