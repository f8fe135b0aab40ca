"""Requests by their fields: rows as tuples, what is left out at its default."""

from __future__ import annotations

from itertools import groupby
from typing import Any, NamedTuple

from minibroker.protocol.api import API_TABLE, ApiKey, encode_request


class At(NamedTuple):
    """One partition of a Fetch request."""

    topic: str
    partition: int
    offset: int
    epoch: int = -1
    last_epoch: int = -1
    log_start_offset: int = -1
    max_bytes: int = 1 << 20


def frame(key: ApiKey, version: int, /, number: int = 1, client_id: str | None = "test", **body: Any) -> bytes:
    """A request with its size; `number` is the correlation id."""
    encoded: bytes = encode_request(key, version, number, client_id, API_TABLE[key].request(**body))
    return encoded


def fetch_body(*rows: tuple[Any, ...], max_partition_bytes: int = 1 << 20, **options: Any) -> dict[str, Any]:
    """A Fetch of (topic, partition, offset)..., or of `At` where more is asked; rows of one topic are sent as one."""
    asked = [row if isinstance(row, At) else At(*row)._replace(max_bytes=max_partition_bytes) for row in rows]
    topics = [
        (topic, [(row.partition, row.epoch, *row[2:3], *row[4:]) for row in group])
        for topic, group in groupby(asked, key=lambda row: row.topic)
    ]
    return {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, "topics": topics, **options}
