"""Requests as tests ask them of a broker, in memory or over a socket: fields by keyword, rows as tuples."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from minibroker.conformance.requests import frame
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.message_rows import changed
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.topic_ids import BY_ID


def framed(payload: bytes) -> bytes:
    """Put the size in front."""
    return struct.pack(">i", len(payload)) + payload


def frame_by_ids(
    key: ApiKey, version: int, id_of: Callable[[Any], bytes], client_id: str | None, /, **body: Any
) -> bytes:
    """A request with its size; `id_of` gives the id of a topic's name in versions that have ids."""

    def by_id(topics: Any) -> Any:
        return topics and [(id_of(topic), partitions) for topic, partitions in topics]

    ids = BY_ID.get(key)
    if ids is not None and version >= ids.first:
        whole = API_TABLE[key].request(**body)
        for path in ids.asked:
            whole = changed(whole, path, by_id)
        body = whole._asdict()
    if key == ApiKey.FETCH and version >= FetchRequest.field("replica_state").first:
        body |= {"replica_state": (body.pop("replica_id"), -1)}
    return frame(key, version, client_id=client_id, **body)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)


def authenticate(token: bytes, version: int = 1) -> bytes:
    return frame(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=token)


def produce_body(topic: str, records: bytes | bytearray, *, partition: int = 0, acks: int = -1) -> dict[str, Any]:
    return {"acks": acks, "timeout_ms": 10_000, "topics": [(topic, [(partition, records)])]}


def list_offsets_body(topic: str, *, partition: int = 0, timestamp_ms: int = -1) -> dict[str, Any]:
    """A ListOffsets of one partition; -1 asks for the end."""
    return {"replica_id": -1, "topics": [(topic, [(partition, -1, timestamp_ms, 1)])]}


def by_name(*names: str) -> list[Any]:
    """The topics of a Metadata request, by name."""
    return [(ZERO_UUID, name) for name in names]
