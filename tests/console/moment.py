"""One moment of a cluster, as the console answers it: for pictures that are the same each time."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from minibroker.admin.configs import meaning_of

NOW = datetime(2013, 1, 1, 12, 4, 36, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
CARRIERS = ("UA", "AA", "DL", "B6", "WN")


def points(*lags: int) -> list[tuple[int, int]]:
    """The lags at equal distances over ten minutes."""
    step = 600_000 // len(lags)
    return [
        (NOW_MS - 600_000 + step * at + part, round(lag + (following - lag) * part / step))
        for at, (lag, following) in enumerate(zip(lags, [*lags[1:], lags[-1]], strict=True))
        for part in range(0, step, 10_000)
    ]


def topic_row(name: str, partitions: int, messages: int, size: int, rate: float, **more: Any) -> dict[str, Any]:
    row = {"name": name, "internal": False, "partitions": partitions, "replication": 1, "offline": 0}
    return row | {"under_replicated": 0, "messages": messages, "bytes": size, "rate": rate} | more


TOPICS = [
    topic_row("flights", 12, 336_776, 41_213_952, 1_240.0),
    topic_row("flights.dlq", 1, 14, 2_048, 0.0),
    topic_row("<b>payments</b>", 3, 88_120, 9_437_184, 37.4),
    topic_row("sensors", 6, 1_204_331, 356_515_840, 412.0, replication=3, under_replicated=2),
    topic_row("weather", 1, 0, 0, 0.0),
]
GROUPS = [
    ("audit", "Stable", 2, ["flights"], 12_040, 18.2, 41.0, points(0, 2_000, 4_400, 4_100, 9_000, 12_040)),
    ("billing", "Stable", 3, ["flights", "<b>payments</b>"], 0, 0.0, 0.0, points(40, 900, 20, 0, 0, 0)),
    ("spark-2013", "Empty", 0, ["flights"], 336_776, 0.0, 5_400.0, points(336_776, 336_776)),
]
CLUSTER = {
    "cluster_id": "XDyr67HYTbmw", "version": "2.0", "controller": 1, "topics": 5, "partitions": 23, "offline": 0,
    "brokers": [{"id": 1, "host": "127.0.0.1", "port": 9092}, {"id": 2, "host": "127.0.0.1", "port": 9093}],
    "internal_topics": 2, "internal_partitions": 100, "under_replicated": 2,
    "bootstrap": "127.0.0.1:9092", "control": False, "changes": True, "gone": [], "internal_offline": 0,
    "internal_under_replicated": 0, "control_broker": None, "replicas": False,
}  # fmt: skip


def group_row(index: int) -> dict[str, Any]:
    names = ("group", "state", "members", "topics", "lag", "slope", "seconds", "points")
    return dict(zip(names, GROUPS[index], strict=True)) | {
        "type": "classic", "protocol_type": "consumer", "epoch": None, "assignment_epoch": None, "failure": None,
    }  # fmt: skip


def message_row(number: int) -> dict[str, Any]:
    carrier = CARRIERS[number % len(CARRIERS)]
    value = f'{{"delay": {number * 7 % 90 - 5}, "carrier": "{carrier}", "flight": {1000 + number}}}'
    return {
        "partition": number * 5 % 12,
        "offset": 104_240 - number,
        "timestamp": NOW_MS - number * 412,
        "key": {"text": carrier, "size": 2},
        "value": {"text": value, "size": len(value)} if number != 3 else {"hex": "000102fe" * 9, "size": 36},
        "headers": 3 if number == 1 else 0,
        "size": len(value) + 2,
        "transactional": False,
    }


def encoded(text: bytes) -> dict[str, Any]:
    return {"base64": base64.b64encode(text).decode(), "size": len(text)}


MESSAGE = message_row(1) | {
    "key": encoded(b"AA"),
    "value": encoded(message_row(1)["value"]["text"].encode()),
    "headers": [
        {"name": "source", **encoded(b"tower")},
        {"name": "source", **encoded(b"radar")},
        {"name": "trace", **encoded(b"\x00\x01\xfe")},
    ],
    "sequence": 17,
    "decoded": {"key": None, "value": None},
    "batch": {
        "base_offset": 104_233, "last_offset": 104_240, "position": 485_112, "size": 1_420, "magic": 2, "codec": "LZ4",
        "timestamp_type": "CREATE_TIME", "partition_leader_epoch": 4, "producer_id": 4_000, "producer_epoch": 2,
        "is_transactional": False, "is_control": False,
    },
}  # fmt: skip
PARTITIONS = [
    {
        "partition": at, "leader": 1 + at % 2, "replicas": [1, 2], "isr": [1, 2] if at != 3 else [2],
        "start": 12_000, "end": 40_000 + at * 311, "stable": 40_000 + at * 311 - (17 if at == 1 else 0),
        "bytes": 3_434_496 - at * 9_000, "rate": 100.0 + at, "log_end": None, "segments": None, "epoch": 4 + at % 2,
    }
    for at in range(12)
]  # fmt: skip
SETTINGS = [
    ("cleanup.policy", "delete", "DEFAULT_CONFIG"),
    ("compression.type", "producer", "DEFAULT_CONFIG"),
    ("max.message.bytes", "1000012", "DEFAULT_CONFIG"),
    ("min.insync.replicas", "2", "STATIC_BROKER_CONFIG"),
    ("retention.ms", "60000", "DYNAMIC_TOPIC_CONFIG"),
    ("segment.bytes", "1073741824", "DEFAULT_CONFIG"),
]
MEMBERS = [
    {
        "client_id": f"billing-{number}", "member_id": f"billing-{number}-615e9e81-ec25-4c6c", "host": "127.0.0.1",
        "partitions": [f"flights-{at}" for at in range(number * 4 - 4, number * 4)], "group": "billing",
        "state": "Stable", "unread": None, "protocol": None, "epoch": None, "awaits": [], "revokes": [], "tasks": [],
        "instance_id": None, "subscribed_topic_regex": None,
    }
    for number in (1, 2, 3)
]  # fmt: skip
TRANSACTIONS = [
    {
        "transactional_id": "payments-1", "state": "Ongoing", "producer_id": 4_000, "coordinator": 1,
        "producer_epoch": 2, "started": NOW_MS - 42_000, "timeout_ms": 60_000,
        "partitions": ["<b>payments</b>-0", "flights-1"],
    },
    {
        "transactional_id": "payments-2", "state": "CompleteCommit", "producer_id": 4_001, "coordinator": 1,
        "producer_epoch": None, "started": None, "timeout_ms": None, "partitions": [],
    },
]  # fmt: skip


def page_of(rows: list[Any], **more: Any) -> dict[str, Any]:
    return {"rows": rows, "total": len(rows), "all": len(rows), "from": 0} | more


def group_partition(at: int) -> dict[str, Any]:
    end, lag = 40_000 + at * 311, at % 3 * 4
    return {
        "topic": "flights", "partition": at, "committed": end - lag, "end": end, "lag": lag,
        "client_id": f"billing-{at // 4 + 1}", "seconds": 0.4 * lag if lag else None,
    }  # fmt: skip


def fetched_partition(at: int) -> dict[str, Any]:
    row = group_partition(at)
    client_id, fetched_ms = f"consumer-audit-{at % 4 + 1}", NOW_MS - at * 1_000
    return row | {"fetched": row.pop("committed"), "client_id": client_id, "host": "10.0.0.7", "fetched_ms": fetched_ms}


BROKERS = [
    {
        "id": 1,
        "alive": True,
        "address": "127.0.0.1:9092",
        "controller": True,
        "leads": 12,
        "replicas": 23,
        "in_sync": 23,
    },
    {
        "id": 2,
        "alive": True,
        "address": "127.0.0.1:9093",
        "controller": False,
        "leads": 11,
        "replicas": 23,
        "in_sync": 21,
    },
]
BROKER_SETTINGS = [
    ("advertised.listeners", "PLAINTEXT://127.0.0.1:9092", "STATIC_BROKER_CONFIG", True),
    ("log.cleaner.threads", "2", "DYNAMIC_BROKER_CONFIG", False),
    ("log.retention.hours", "168", "DEFAULT_CONFIG", True),
    ("num.io.threads", "8", "DEFAULT_CONFIG", False),
]


def rule_row(text: str, resource: str, name: str, principal: str, operation: str, **more: str) -> dict[str, str]:
    row = {"text": text, "resource_type": resource, "name": name, "pattern": "literal", "principal": principal}
    return row | {"host": "*", "permission": "allow", "operation": operation} | more


RULES = [
    rule_row("User:spark may Read topic fl...", "Topic", "fl", "User:spark", "Read", pattern="prefixed"),
    rule_row("User:ann may IdempotentWrite the cluster", "Cluster", "kafka-cluster", "User:ann", "IdempotentWrite"),
    rule_row("User:* may not Delete topic *", "Topic", "*", "User:*", "Delete", permission="deny"),
    rule_row("User:ann may Write topic <b>payments</b> from 10.0.0.7", "Topic", "<b>payments</b>", "User:ann", "Write",
             host="10.0.0.7"),
]  # fmt: skip
USERS = [
    {"user": "ann", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}},
    {"user": "spark", "mechanisms": {"SCRAM-SHA-512": 8192}},
]
QUOTAS = [
    {"text": "the default user", "entity": {"user": None}, "quotas": {"consumer_byte_rate": 52_428_800.0}},
    {"text": "user spark", "entity": {"user": "spark"}, "quotas": {"request_percentage": 50.0}},
    {"text": "user ann, client-id slow", "entity": {"user": "ann", "client-id": "slow"},
     "quotas": {"producer_byte_rate": 10_000.0, "consumer_byte_rate": 20_000.0}},
]  # fmt: skip

ANSWERS: dict[str, Any] = {
    "/api/cluster": CLUSTER,
    "/api/topics": page_of(
        TOPICS, totals={"messages": 1_629_241, "bytes": 407_168_000, "rate": 1_689.4}
    ),
    "/api/lag": {
        "groups": 3, "looked_through": 3, "lag": 348_816,
        "worst": sorted((group_row(at) for at in range(3)), key=lambda row: -row["lag"]),
        "topics": {"flights": [{"group": "audit", "lag": 12_040}, {"group": "billing", "lag": 0}]},
    },
    "/api/topics/flights": topic_row("flights", 12, 0, 0, 0) | page_of(PARTITIONS),
    "/api/topics/flights/messages": page_of(
        [message_row(number) for number in range(12)], state="full", failure=None, scanned=144, start=0,
        cursor="0:104190", partitions=12, without_leader=0, unreadable=[],
    ) | {"total": 336_776},
    "/api/topics/flights/messages/5/104239": MESSAGE,
    "/api/topics/flights/groups": page_of(
        [
            {"group": "audit", "lag": 12_040, "partitions": 12, "only_fetches": True},
            {"group": "billing", "lag": 0, "partitions": 12, "only_fetches": False},
        ],
        looked_through=3,
    ) | {"all": 3},
    "/api/topics/flights/settings": page_of(
        [
            {"name": name, "value": value, "source": source, "read_only": False, "sensitive": False,
             "is_default": source == "DEFAULT_CONFIG", "about": meaning_of("topic", name)}
            for name, value, source in SETTINGS
        ]
    ),
    "/api/groups": page_of([group_row(at) for at in range(3)]),
    "/api/groups/billing": group_row(1) | {
        "protocol": "range", "members": MEMBERS, "partitions": [group_partition(at) for at in range(12)], "lag": 48,
        "fetched": [], "slope": -3.2, "seconds": 3.2, "points": points(40, 900, 20, 340, 60, 48),
    },
    "/api/groups/audit": group_row(0) | {
        "group": "audit", "state": "fetches only", "type": "", "protocol_type": "", "protocol": "", "members": [],
        "partitions": [], "lag": 48, "slope": -3.2, "seconds": 3.2, "points": points(40, 900, 20, 340, 60, 48),
        "fetched": [fetched_partition(at) for at in range(12)],
    },
    "/api/clients": {"members": MEMBERS, "groups": 3, "looked_through": 3, "connections": None},
    "/api/transactions": page_of(TRANSACTIONS),
    "/api/activity": {"requests": None, "errors": None},
    "/api/brokers": page_of(BROKERS),
    "/api/brokers/1/settings": page_of(
        [
            {"name": name, "value": value, "source": source, "read_only": read_only, "sensitive": False,
             "is_default": source == "DEFAULT_CONFIG", "about": meaning_of("broker", name)}
            for name, value, source, read_only in BROKER_SETTINGS
        ]
    ),
    "/api/acls": page_of(RULES, authorizer=True),
    "/api/users": page_of(USERS),
    "/api/quotas": page_of(QUOTAS),
}  # fmt: skip
EMPTY: dict[str, Any] = {
    "/api/cluster": CLUSTER | {"topics": 0, "partitions": 0, "under_replicated": 0},
    "/api/topics": page_of([]),
    "/api/lag": {"groups": 0, "looked_through": 0, "lag": 0, "worst": [], "topics": {}},
    "/api/groups": page_of([]),
    "/api/clients": {"members": [], "groups": 0, "looked_through": 0, "connections": None},
    "/api/transactions": page_of([]),
    "/api/activity": ANSWERS["/api/activity"],
    "/api/brokers": page_of([]),
    "/api/acls": page_of([], authorizer=False),
    "/api/users": page_of([]),
    "/api/quotas": page_of([]),
    "/api/topics/flights": ANSWERS["/api/topics/flights"],
    "/api/topics/flights/groups": page_of([], looked_through=0),
    "/api/topics/flights/messages": ANSWERS["/api/topics/flights/messages"]
    | {"rows": [], "total": 0, "cursor": "", "state": "end", "scanned": 0},
}


def error_row(seq: int, api: str, error: str, topic: str) -> dict[str, Any]:
    row = {"seq": seq, "connection": 14 - seq % 3, "client_id": "admin-cli", "api": api, "version": 3, "error": error}
    return row | {"broker_ms": NOW_MS - seq * 4_100, "topics": [topic]}


def exchange_row(number: int) -> dict[str, Any]:
    api, version, about = (("Fetch", 12, "flights"), ("OffsetCommit", 8, "billing"), ("Heartbeat", 4, "billing"))[
        number % 3
    ]
    return {
        "at": 90_000 - number * 700, "time_ms": NOW_MS - number * 481, "api": api, "version": version,
        "correlation": 4_711 - number, "client_id": "billing-1", "bytes_in": 97 + number, "bytes_out": 1_474 - number,
        "latency_ms": 212.5 if number % 3 == 0 else 0.3, "outcome": "answered", "about": [about],
        "errors": ["REBALANCE_IN_PROGRESS"] if number == 5 else [],
    }  # fmt: skip


LOG: dict[str, Any] = {
    "topic": "flights", "partition": 0, "log_start_offset": 12_000, "last_stable_offset": 104_218,
    "high_watermark": 104_235, "log_end_offset": 104_239, "leader_epoch": 4, "size_bytes": 3_774_000,
    "index_interval_bytes": 4096, "more": None, "segment": 98_304, "offset": 104_235, "entry": 118,
    "segments": [
        {"base_offset": base, "name": f"{base:020}.log", "size_bytes": size, "entries": entries,
         "is_active": base == 98_304, "last_modified_ms": NOW_MS, "max_timestamp_ms": NOW_MS - 98_304 + base}
        for base, size, entries in (
            (0, 1_048_000, 255), (31_402, 1_060_000, 258), (62_815, 1_064_000, 259), (98_304, 602_000, 143)
        )
    ],
    "index": [[104_150, 479_232, 117], [104_190, 483_328, 118]],
    "batches": [
        {"base_offset": first, "last_offset": last, "position": position, "bytes": size, "records": last - first + 1,
         "magic": 2, "codec": "lz4", "max_timestamp_ms": NOW_MS - 104_239 + last, "producer_id": 4_000 + first % 2,
         "is_transactional": first == 104_218, "is_control": False, "leader_epoch": 4}
        for first, last, position, size in (
            (104_210, 104_217, 483_328, 620), (104_218, 104_224, 483_948, 540), (104_225, 104_232, 484_488, 624),
            (104_233, 104_234, 485_112, 1_420), (104_235, 104_238, 486_532, 1_096),
        )
    ],
    "batches_more": False,
}  # fmt: skip
# Of a minibroker with a control socket.
CONTROLLED = ANSWERS | {
    "/api/cluster": CLUSTER | {"control": True},
    "/api/activity": {
        "requests": {
            "rate": 312.4, "bytes_in": 91_204.0, "bytes_out": 402_114.0, "more": 4,
            "points": points(120, 180, 160, 240, 420, 312),
            "apis": [
                {"api": api, "requests": requests, "rate": rate, "errors": errors}
                for api, requests, rate, errors in (
                    ("Fetch", 120_402, 201.3, 0), ("Produce", 64_120, 96.2, 3), ("Heartbeat", 9_220, 9.4, 1),
                    ("OffsetCommit", 4_104, 5.5, 0), ("Metadata", 88, 0.0, 0),
                )
            ],
        },
        "errors": [
            error_row(1, "FindCoordinator", "COORDINATOR_NOT_AVAILABLE", ""),
            error_row(2, "Produce", "NOT_LEADER_FOR_PARTITION", "flights"),
            error_row(6, "Heartbeat", "REBALANCE_IN_PROGRESS", "billing"),
        ],
    },
    "/api/topics/flights": topic_row("flights", 12, 0, 0, 0)
    | page_of([row | {"log_end": 40_000 + at * 311 + at % 3 * 4, "segments": 4} for at, row in enumerate(PARTITIONS)]),
    "/api/inside/log/flights/0": LOG,
    "/api/clients/7": {
        "connection": {
            "connection": 7, "address": "127.0.0.1:41230", "client_id": "billing-1", "listener": "PLAINTEXT",
            "principal": "User:ANONYMOUS", "encrypted": None, "idle_ms": 452, "throttled_ms": 0, "errors": 1,
            "last_error": "REBALANCE_IN_PROGRESS", "in_hand": {"seq": 1, "api": "Fetch", "for_us": 452_000},
            "requests": {"Fetch": [12, 401, 38_897, 590_074], "OffsetCommit": [8, 12, 1_440, 720]},
        },
        "faults": [{"id": 3, "kind": "delay", "connection": 7, "seconds": 0.5}],
    },
    "/api/clients/7/transcript": {
        "path": "/var/tmp/broker.transcript", "is_recording": True, "read": 100_000, "size": 100_000,
        "rows": [exchange_row(number) for number in range(12)],
    },
    "/api/clients/7/transcript/90000": {
        "is_cut": False,
        "lines": [
            [("   36.018 s  #7  ", "dim"), ("Fetch v12", "bold"), ("  correlation 4711  97 -> 1474 bytes", "")],
            [("  request", "bold")],
            [("    ", ""), ("max_wait_ms: ", "cyan"), ("500", "")],
            [("    topics:", "cyan")],
            [("      - ", ""), ("topic: ", "cyan"), ('"flights"', "")],
            [("  response", "bold")],
            [("    ", ""), ("error_code: ", "cyan"), ("27 REBALANCE_IN_PROGRESS", "bold red")],
        ],
    },
}  # fmt: skip


# The longest that Kafka allows, or longer than any page is wide; none has a place at which a line may break.
LONG_NAMES = {
    name: f"{name}_{'x' * (length - len(name) - 1)}"
    for name, length in {
        "flights": 249, "orders": 249, "billing": 400, "admin-cli": 300, "payments-1": 300, "source": 300,
        "tower": 900, "60000": 600, "127.0.0.1": 45, "delay": 600,
    }.items()
}  # fmt: skip


def lengthened(answers: Any) -> Any:
    """The same answers, and their addresses, with names and values that are as long as they can be."""
    if isinstance(answers, str):
        return re.sub("|".join(map(re.escape, LONG_NAMES)), lambda found: LONG_NAMES[found[0]], answers)
    if isinstance(answers, list | tuple):
        return [lengthened(each) for each in answers]
    if isinstance(answers, dict):
        return {lengthened(key) if "/" in key else key: lengthened(each) for key, each in answers.items()}
    return answers


def answer_to(url: str, answers: dict[str, Any]) -> Any:
    """Return the console's answer to an address; None for one that the moment does not have."""
    return answers.get(unquote(urlsplit(url).path))
