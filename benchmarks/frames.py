"""Request frames for the load clients and for the compiler's profile, and a check of an answer.

The load clients take them from a file, because the C client does not know Kafka's messages.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.protocol.api import ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
)
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
CONSUMER_GROUP_HEARTBEAT_VERSION = 1
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


def frame_of(api_key: ApiKey, version: int, body: Any) -> Frame:
    return Frame(api_key, version, encode_request(api_key, version, 1, CLIENT_ID, body))


def api_versions(version: int = API_VERSIONS_VERSION) -> Frame:
    """The smallest request."""
    return frame_of(ApiKey.API_VERSIONS, version, ApiVersionsRequest())


def metadata(topic: str | None = None, *, version: int = METADATA_VERSION) -> Frame:
    """The brokers, the controller and a topic; without one no topics."""
    topics = [] if topic is None else [MetadataRequest.row("topics")(name=topic)]
    return frame_of(ApiKey.METADATA, version, MetadataRequest(topics=topics))


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
    version: int = FETCH_VERSION,
) -> Frame:
    """A fetch of the first partition at `offsets[0]`, the next one at `offsets[1]`, ...; `session` is id and epoch."""
    most_bytes = max_bytes if partition_max_bytes is None else partition_max_bytes
    partition = FetchRequest.row("topics.partitions")
    partitions = [
        partition(partition=number, fetch_offset=offset, max_bytes=most_bytes)
        for number, offset in enumerate(offsets, first_partition)
    ]
    topics = [FetchRequest.row("topics")(topic=topic, partitions=partitions)] if partitions else []
    limits = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes}
    limits |= dict(zip(("session_id", "session_epoch"), session, strict=True))
    return frame_of(ApiKey.FETCH, version, FetchRequest(replica_id=-1, **limits, topics=topics))


def produce(
    topic: str,
    *,
    value_bytes: int,
    partitions: Iterable[int] = (0,),
    acks: int = 1,
    transactional_id: str | None = None,
    version: int = PRODUCE_VERSION,
    **producer: Any,
) -> Frame:
    """A batch of one record to each of these partitions; `producer` has the id, epoch and sequence in the batch."""
    record = Record(offset=0, timestamp_ms=1_700_000_000_000, key=None, value=bytes(value_bytes))
    batch = bytes(build_batch([record], **producer))
    partition = ProduceRequest.row("topics.partitions")
    rows = [partition(partition=number, records=batch) for number in partitions]
    topics = [ProduceRequest.row("topics")(topic=topic, partitions=rows)]
    body = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topics=topics)
    return frame_of(ApiKey.PRODUCE, version, body)


def find_coordinator(key: str, key_type: int = 0, *, version: int = FIND_COORDINATOR_VERSION) -> Frame:
    """The coordinator of a group, or of a transactional id; the first such request creates its topic."""
    body = FindCoordinatorRequest(key=key, key_type=key_type)
    return frame_of(ApiKey.FIND_COORDINATOR, version, body)


def offset_commit(group_id: str, topic: str, *, version: int = OFFSET_COMMIT_VERSION) -> Frame:
    """A commit of partition 0, by a consumer that assigns its partitions itself."""
    partition = OffsetCommitRequest.row("topics.partitions")(partition=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequest.row("topics")(name=topic, partitions=[partition])]
    body = OffsetCommitRequest(group_id=group_id, generation_id=-1, member_id="", retention_time_ms=-1, topics=topics)
    return frame_of(ApiKey.OFFSET_COMMIT, version, body)


def heartbeat(group_id: str, generation_id: int, member_id: str, *, version: int = HEARTBEAT_VERSION) -> Frame:
    """A heartbeat of a member."""
    body = HeartbeatRequest(group_id=group_id, generation_id=generation_id, member_id=member_id)
    return frame_of(ApiKey.HEARTBEAT, version, body)


def consumer_group_heartbeat(group_id: str, member_id: str, member_epoch: int, **body: Any) -> Frame:
    """A heartbeat of a member of the consumer protocol; with nothing else, of one that has nothing new."""
    request = ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=member_epoch, **body)
    return frame_of(ApiKey.CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_HEARTBEAT_VERSION, request)


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
    answer = receive(connection)
    _, body = decode_response(frame.api_key, frame.version, answer)
    for code in _error_codes(body):
        if code:
            raise FrameError(f"{frame.api_key.name} v{frame.version} was answered with {ErrorCode(code).name}")
    return 4 + len(answer), body


def receive(connection: socket.socket) -> bytes:
    """The next answer, without its size."""
    return _read(connection, int.from_bytes(_read(connection, 4), "big"))


def _read(connection: socket.socket, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        arrived = connection.recv(size_bytes - len(data))
        if not arrived:
            raise FrameError(f"the broker closed the connection after {len(data)} of {size_bytes} bytes")
        data += arrived
    return bytes(data)


def _error_codes(body: Any) -> Iterator[int]:
    """Return the error codes of an answer, and of its topics and partitions."""
    if isinstance(body, list):
        for row in body:
            yield from _error_codes(row)
    elif isinstance(body, tuple):
        yield getattr(body, "error_code", 0)
        yield from _error_codes([each for each in body if isinstance(each, list)])
