"""The answers of a broker to each API of groups and transactions, in each version that Kafka 2.0.1 has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minibroker.protocol.api import ApiKey
from tests.integration.wire import connection_to

GROUP, TRANSACTIONAL_ID, TOPIC = "group", "transactional", "written"
FIRST_VERSION_OF_ALL = 2  # of OffsetFetch: all partitions
OFFSET, TXN_OFFSET = (0, 5, -1, -1, "metadata"), (0, 5, -1, "metadata")
MEMBER: Mapping[str, Any] = {"group_id": GROUP, "generation_id": 1, "member_id": "member"}
JOINING: Mapping[str, Any] = {
    "group_id": GROUP,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [("range", b"")],
}
PRODUCER: Mapping[str, Any] = {"transactional_id": TRANSACTIONAL_ID, "producer_id": 7, "producer_epoch": 0}
OFFSETS: Mapping[str, Any] = {**PRODUCER, "group_id": GROUP, "topics": [(TOPIC, [TXN_OFFSET])]}
ELSEWHERE = [("unknown", [0]), (TOPIC, [0, 9])]

# By API the last version of Kafka 2.0.1, and bodies.
REQUESTS: Mapping[ApiKey, tuple[int, list[Mapping[str, Any]]]] = {
    ApiKey.OFFSET_COMMIT: (
        4,
        [
            {**MEMBER, "topics": [(TOPIC, [OFFSET])]},
            {**MEMBER, "topics": [(TOPIC, [OFFSET, (9, *OFFSET[1:])]), ("unknown", [OFFSET])]},
            {"group_id": "", "topics": [(TOPIC, [OFFSET])]},
            {**MEMBER, "topics": []},
        ],
    ),
    ApiKey.OFFSET_FETCH: (
        4,
        [
            {"group_id": GROUP, "topics": [(TOPIC, [0, 9]), ("unknown", [0])]},
            {"group_id": GROUP, "topics": None},
            {"group_id": GROUP, "topics": []},
            {"group_id": "", "topics": [(TOPIC, [0])]},
        ],
    ),
    ApiKey.JOIN_GROUP: (
        3,
        [
            JOINING,
            {**JOINING, "session_timeout_ms": 1},
            {**JOINING, "member_id": "member"},
            {**JOINING, "group_id": ""},
            {**JOINING, "protocols": []},
            {**JOINING, "session_timeout_ms": 1, "group_id": ""},
        ],
    ),
    ApiKey.SYNC_GROUP: (2, [{**MEMBER, "assignments": []}, {**MEMBER, "group_id": "", "assignments": []}]),
    ApiKey.HEARTBEAT: (2, [MEMBER, {**MEMBER, "group_id": ""}]),
    ApiKey.LEAVE_GROUP: (2, [{"group_id": name, "member_id": "member"} for name in (GROUP, "")]),
    ApiKey.DESCRIBE_GROUPS: (2, [{"groups": [GROUP, ""]}, {"groups": []}]),
    ApiKey.LIST_GROUPS: (2, [{}]),
    ApiKey.DELETE_GROUPS: (1, [{"group_names": [GROUP]}, {"group_names": [""]}, {"group_names": []}]),
    ApiKey.INIT_PRODUCER_ID: (
        1,
        [
            {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
            for name, timeout_ms in ((TRANSACTIONAL_ID, 60_000), (TRANSACTIONAL_ID, 0), ("", 60_000))
        ],
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        1,
        [
            {**PRODUCER, "topics": [(TOPIC, [0])]},
            {**PRODUCER, "topics": ELSEWHERE},
            {**PRODUCER, "topics": []},
            {**PRODUCER, "transactional_id": "", "topics": [(TOPIC, [0])]},
        ],
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (1, [{**PRODUCER, "group_id": GROUP}, {**PRODUCER, "group_id": ""}]),
    ApiKey.TXN_OFFSET_COMMIT: (
        1,
        [
            OFFSETS,
            {**OFFSETS, "group_id": ""},
            {**OFFSETS, "topics": []},
            {**OFFSETS, "topics": [(TOPIC, [TXN_OFFSET, (9, *TXN_OFFSET[1:])]), ("unknown", [TXN_OFFSET])]},
        ],
    ),
    ApiKey.END_TXN: (
        1,
        [
            {**PRODUCER, "is_commit": True},
            {**PRODUCER, "is_commit": False},
            {**PRODUCER, "transactional_id": "", "is_commit": True},
        ],
    ),
}


def answers(bootstrap: str, of: Iterable[ApiKey] = REQUESTS) -> dict[str, Any]:
    """The answer to each request, by what it asks."""
    found: dict[str, Any] = {}
    with connection_to(bootstrap) as connection:
        for key in of:
            last_version, bodies = REQUESTS[key]
            for version in range(last_version + 1):
                for body in bodies:
                    if body.get("topics", ()) is not None or version >= FIRST_VERSION_OF_ALL:
                        found[f"{key.name} v{version} {dict(body)}"] = in_order(connection.call(key, version, **body))
    return found


def in_order(answer: Any) -> Any:
    """The answer with its rows sorted: Kafka's come from hash maps."""
    if isinstance(answer, list):
        return sorted(map(in_order, answer), key=repr)
    return tuple(map(in_order, answer)) if isinstance(answer, tuple) else answer
