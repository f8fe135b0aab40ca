"""One moment of a cluster, as the console answers it: for pictures that are the same each time."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

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
    "cluster_id": "XDyr67HYTbmw", "version": "2.0", "controller": 1, "topics": 5, "internal_topics": 2, "offline": 0,
    "brokers": [{"id": 1, "host": "127.0.0.1", "port": 9092}, {"id": 2, "host": "127.0.0.1", "port": 9093}],
    "partitions": 23, "under_replicated": 2, "bootstrap": "127.0.0.1:9092", "control": False, "changes": True,
}  # fmt: skip


def group_row(index: int) -> dict[str, Any]:
    names = ("group", "state", "members", "topics", "lag", "slope", "seconds", "points")
    return dict(zip(names, GROUPS[index], strict=True)) | {"type": "consumer", "failure": None}


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
        "bytes": 3_434_496 - at * 9_000, "rate": 100.0 + at,
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
        "state": "Stable",
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
        cursor="0:104190", partitions=12, without_leader=0,
    ) | {"total": 336_776},
    "/api/topics/flights/messages/5/104239": MESSAGE,
    "/api/topics/flights/groups": page_of(
        [{"group": "audit", "lag": 12_040, "partitions": 12}, {"group": "billing", "lag": 0, "partitions": 12}],
        looked_through=3,
    ) | {"all": 3},
    "/api/topics/flights/settings": page_of(
        [
            {"name": name, "value": value, "source": source, "read_only": False, "sensitive": False,
             "is_default": source == "DEFAULT_CONFIG"}
            for name, value, source in SETTINGS
        ]
    ),
    "/api/groups": page_of([group_row(at) for at in range(3)]),
    "/api/groups/billing": group_row(1) | {
        "protocol": "range", "members": MEMBERS, "partitions": [group_partition(at) for at in range(12)], "lag": 48,
        "slope": -3.2, "seconds": 3.2, "points": points(40, 900, 20, 340, 60, 48),
    },
    "/api/clients": {"members": MEMBERS, "groups": 3, "looked_through": 3, "connections": None},
    "/api/transactions": page_of(TRANSACTIONS),
}  # fmt: skip
EMPTY: dict[str, Any] = {
    "/api/cluster": CLUSTER | {"topics": 0, "partitions": 0, "under_replicated": 0},
    "/api/topics": page_of([]),
    "/api/lag": {"groups": 0, "looked_through": 0, "lag": 0, "worst": [], "topics": {}},
    "/api/groups": page_of([]),
    "/api/clients": {"members": [], "groups": 0, "looked_through": 0, "connections": None},
    "/api/transactions": page_of([]),
    "/api/topics/flights": ANSWERS["/api/topics/flights"],
    "/api/topics/flights/groups": page_of([], looked_through=0),
    "/api/topics/flights/messages": ANSWERS["/api/topics/flights/messages"]
    | {"rows": [], "total": 0, "cursor": "", "state": "end", "scanned": 0},
}


def answer_to(url: str, answers: dict[str, Any]) -> Any:
    """What the console answers to an address; None for one that the moment does not have."""
    return answers.get(unquote(urlsplit(url).path))
