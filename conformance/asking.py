"""Short forms of the requests scripts are made of."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from minibroker.conformance.requests import At, fetch_body
from minibroker.conformance.steps import Step, call

TIME_MS = 1_500_000_000_000
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
Row = tuple[Any, ...]


def create(name: str, partitions: int = 1, **configs: object) -> Step:
    return create_all((name, partitions, configs))


def create_all(*topics: tuple[str, int, dict[str, Any]]) -> Step:
    rows: list[Row] = [(name, partitions, 1, [], config_rows(configs)) for name, partitions, configs in topics]
    return call("CreateTopics", 2, topics=rows, timeout_ms=20_000)


def config_rows(configs: dict[str, Any]) -> list[Row]:
    return [(key.replace("_", "."), str(value)) for key, value in configs.items()]


def records(count: int = 3, size: int = 20, *, time_ms: int = TIME_MS, key: bytes | None = b"key") -> tuple[Row, ...]:
    return tuple((time_ms + number, key, size + number) for number in range(count))


def produce(topic: str, what: Any, partition: int = 0, *, version: int = 5, acks: int = -1, **options: Any) -> Step:
    return produce_all((topic, [(partition, what)]), version=version, acks=acks, **options)


def produce_all(*topics: tuple[str, list[Any]], version: int = 5, acks: int = -1, **options: Any) -> Step:
    return call("Produce", version, acks=acks, timeout_ms=5000, topics=list(topics), **options)


def fetch(*rows: Row, version: int = 8, session: tuple[Any, int] = (0, -1), forget: Any = (), **options: Any) -> Step:
    """Rows of (topic, partition, offset, and perhaps max_bytes and a follower's log start offset)."""

    asked = [
        At(*row[:3])._replace(max_bytes=(*row, 1 << 20)[3], log_start_offset=row[4] if len(row) > 4 else -1)
        for row in rows
    ]
    of_session = {"session_id": session[0], "session_epoch": session[1], "forgotten_topics": list(forget)}
    return call("Fetch", version, **fetch_body(*asked, **of_session, **options))


def by_topic(rows: tuple[Row, ...], partition_row: Callable[[Row], Row]) -> list[Row]:
    """Group the questions of partitions by topic; rows begin with the topic."""
    return [(topic, [*map(partition_row, group)]) for topic, group in groupby(rows, key=lambda row: row[0])]


def list_offsets(*rows: Row, version: int = 3, replica_id: int = -1, **options: Any) -> Step:
    """Rows of (topic, partition, timestamp, and perhaps max_num_offsets)."""
    topics = by_topic(rows, lambda row: (row[1], -1, row[2], row[3] if len(row) > 3 else 1))
    return call("ListOffsets", version, replica_id=replica_id, topics=topics, **options)


def delete_records(*rows: Row, version: int = 1) -> Step:
    """Rows of (topic, partition, offset)."""
    return call("DeleteRecords", version, topics=by_topic(rows, lambda row: row[1:]), timeout_ms=5000)
