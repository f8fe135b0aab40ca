"""Request frames for the load clients, and a check of one answer before thousands are counted.

The frames go through a file, because the C client does not know Kafka's messages.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.protocol.api import ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import FindCoordinatorRequest, HeartbeatRequest, OffsetCommitRequest
from minibroker.protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch

CLIENT_ID = "benchmark"
FETCH_VERSION = 8
PRODUCE_VERSION = 5
API_VERSIONS_VERSION = 0
FIND_COORDINATOR_VERSION = 1
OFFSET_COMMIT_VERSION = 3
HEARTBEAT_VERSION = 1
METADATA_VERSION = 1
MEBIBYTE = 1024 * 1024
NO_SESSION = (0, -1)
ANSWER_SECONDS = 30.0


class FrameError(RuntimeError):
    """A broker answered a frame of the benchmark with an error, or not at all."""


class Frame(NamedTuple):
    """A whole request, its size in front."""

    api_key: ApiKey
    version: int
    payload: bytes


def api_versions() -> Frame:
    """The smallest request."""
    return _frame(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, ApiVersionsRequest())


def metadata(topic: str | None = None) -> Frame:
    """The brokers, the controller and a topic; without one no topics."""
    topics = [] if topic is None else [MetadataRequest.row("topics")(name=topic)]
    return _frame(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=topics))


def fetch(
    topic: str,
    offsets: Sequence[int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = MEBIBYTE,
    partition_max_bytes: int | None = None,
    first_partition: int = 0,
    session: tuple[int, int] = NO_SESSION,
) -> Frame:
    """Fetch v8 of the first partition at `offsets[0]`, the next one at `offsets[1]`, ...; `session` is id and epoch."""
    most_bytes = max_bytes if partition_max_bytes is None else partition_max_bytes
    partition = FetchRequest.row("topics.partitions")
    partitions = [
        partition(partition=number, fetch_offset=offset, max_bytes=most_bytes)
        for number, offset in enumerate(offsets, first_partition)
    ]
    topics = [FetchRequest.row("topics")(topic=topic, partitions=partitions)] if partitions else []
    limits = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes}
    limits |= dict(zip(("session_id", "session_epoch"), session, strict=True))
    return _frame(ApiKey.FETCH, FETCH_VERSION, FetchRequest(replica_id=-1, **limits, topics=topics))


def produce(topic: str, *, value_bytes: int, partitions: Iterable[int] = (0,)) -> Frame:
    """Produce v5, acks=1, one batch of one record to each of these partitions."""
    record = Record(offset=0, timestamp_ms=1_700_000_000_000, key=None, value=bytes(value_bytes))
    partition = ProduceRequest.row("topics.partitions")
    rows = [partition(partition=number, records=bytes(build_batch([record]))) for number in partitions]
    topics = [ProduceRequest.row("topics")(topic=topic, partitions=rows)]
    return _frame(ApiKey.PRODUCE, PRODUCE_VERSION, ProduceRequest(acks=1, timeout_ms=30_000, topics=topics))


def find_coordinator(group_id: str) -> Frame:
    """The coordinator of a group; the first such request creates its topic."""
    return _frame(ApiKey.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, FindCoordinatorRequest(key=group_id))


def offset_commit(group_id: str, topic: str) -> Frame:
    """OffsetCommit v3 of partition 0, by a consumer that assigns its partitions itself."""
    partition = OffsetCommitRequest.row("topics.partitions")(partition=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequest.row("topics")(name=topic, partitions=[partition])]
    body = OffsetCommitRequest(group_id=group_id, generation_id=-1, member_id="", retention_time_ms=-1, topics=topics)
    return _frame(ApiKey.OFFSET_COMMIT, OFFSET_COMMIT_VERSION, body)


def heartbeat(group_id: str, generation_id: int, member_id: str) -> Frame:
    """Heartbeat v1 of a member."""
    body = HeartbeatRequest(group_id=group_id, generation_id=generation_id, member_id=member_id)
    return _frame(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, body)


def _frame(api_key: ApiKey, version: int, body: Any) -> Frame:
    return Frame(api_key, version, encode_request(api_key, version, 1, CLIENT_ID, body))


def write_frames(path: Path, frames: Iterable[Frame]) -> Path:
    """Put them into a file for a load client."""
    path.write_bytes(b"".join(frame.payload for frame in frames))
    return path


def ask(host: str, port: int, frame: Frame) -> tuple[int, Any]:
    """Send one frame; return the size of the whole answer, and its body. Raises FrameError on any error code in it."""
    with socket.create_connection((host, port), timeout=ANSWER_SECONDS) as connection:
        return ask_over(connection, frame)


def ask_over(connection: socket.socket, frame: Frame) -> tuple[int, Any]:
    """The same on a connection that is there."""
    connection.sendall(frame.payload)
    size_bytes = int.from_bytes(_receive(connection, 4), "big")
    answer = _receive(connection, size_bytes)
    _, body = decode_response(frame.api_key, frame.version, answer)
    for code in _error_codes(body):
        if code:
            raise FrameError(f"{frame.api_key.name} was answered with {ErrorCode(code).name}")
    return 4 + size_bytes, body


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        arrived = connection.recv(size_bytes - len(data))
        if not arrived:
            raise FrameError(f"the broker closed the connection after {len(data)} of {size_bytes} bytes")
        data += arrived
    return bytes(data)


def _error_codes(body: Any) -> list[int]:
    codes = [getattr(body, "error_code", 0)]
    for topic in getattr(body, "topics", ()):
        codes.append(getattr(topic, "error_code", 0))
        codes += [partition.error_code for partition in topic.partitions]
    return codes
