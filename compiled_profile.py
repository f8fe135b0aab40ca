"""`compiled_profile.py FOLDER`: puts a load on the instrumented form in FOLDER, so that gcc learns which code is hot.

setup.py compiles twice: first with counters in the code, which the broker writes down when it ends, then by what they
have counted. What clients send all the time is asked here, in the versions that they send, over ten connections; what
is not asked is compiled as it would be without a profile. The load itself runs in pure Python: it must not be counted.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from minibroker.protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch

CONNECTIONS = 10
PARTITIONS = 10
ROUNDS = 200  # of each request, on each connection
TRANSACTIONS = 200
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0
TOPIC = "profile"
VALUE = bytes(100)
MAX_BYTES = 1 << 20
A_BATCH_BYTES = 256
# The first version of each that is asked: earlier ones are of clients before 0.11.
FIRST_VERSIONS = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.METADATA: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
}
FIRST_VERSION_WITH_SESSIONS = 7
NO_SESSION = (0, -1)

Build = Callable[[int], Any]  # the body of a request, by the number of its round


class Connection:
    """A client with one request in flight."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def send(self, key: ApiKey, version: int, body: Any) -> None:
        self._socket.sendall(encode_request(key, version, 1, "profile", body))

    def receive(self) -> bytes:
        size_bytes = int.from_bytes(self._read(4), "big")
        return self._read(size_bytes)

    def ask(self, key: ApiKey, body: Any, version: int | None = None) -> Any:
        """The body of the answer, in the newest version unless told. Raises SystemExit for an error in it."""
        version = API_TABLE[key].versions[1] if version is None else version
        self.send(key, version, body)
        answer = decode_response(key, version, self.receive())[1]
        if any(error_codes(answer)):
            raise SystemExit(f"{key.name} v{version} of the profile's load was answered with {answer}")
        return answer

    def _read(self, size_bytes: int) -> bytes:
        data = self._socket.recv(size_bytes, socket.MSG_WAITALL)
        if len(data) < size_bytes:
            raise SystemExit("the instrumented broker closed a connection of the profile's load")
        return data


def error_codes(body: Any) -> Iterator[int]:
    """Those of an answer, and of its topics and partitions."""
    if isinstance(body, list):
        for row in body:
            yield from error_codes(row)
    elif isinstance(body, tuple):
        yield getattr(body, "error_code", 0)
        yield from error_codes([each for each in body if isinstance(each, list)])


def produce(partitions: Iterable[int], *, transactional_id: str | None = None, **producer: Any) -> Any:
    """A batch of one record to each of these partitions."""
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, None, VALUE)], **producer))
    row = ProduceRequest.row("topics.partitions")
    rows = [row(partition=number, records=batch) for number in partitions]
    topics = [ProduceRequest.row("topics")(topic=TOPIC, partitions=rows)]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topics=topics)


def fetch(offsets: Iterable[int], *, session: tuple[int, int] = NO_SESSION, wait_ms: int = 0) -> Any:
    """A fetch of a batch from each partition, at these offsets; of what the session has, if there are none."""
    row = FetchRequest.row("topics.partitions")
    rows = [row(partition=i, fetch_offset=offset, max_bytes=A_BATCH_BYTES) for i, offset in enumerate(offsets)]
    topics = [FetchRequest.row("topics")(topic=TOPIC, partitions=rows)] if rows else []
    limits = {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": MAX_BYTES}
    return FetchRequest(replica_id=-1, **limits, session_id=session[0], session_epoch=session[1], topics=topics)


def commit() -> Any:
    """Of a consumer that assigns its partitions itself."""
    row = OffsetCommitRequest.row("topics.partitions")(partition=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequest.row("topics")(name=TOPIC, partitions=[row])]
    return OffsetCommitRequest(group_id=TOPIC, generation_id=-1, member_id="", retention_time_ms=-1, topics=topics)


def small_requests() -> dict[ApiKey, Build]:
    """Requests that ten clients send over and over, by their APIs."""
    of_topic = MetadataRequest(topics=[MetadataRequest.row("topics")(name=TOPIC)])
    of_group = OffsetFetchRequest(group_id=TOPIC, topics=[OffsetFetchRequest.row("topics")(name=TOPIC, partitions=[0])])
    one, api_versions, coordinator = produce([0]), ApiVersionsRequest(), FindCoordinatorRequest(key=TOPIC)
    committed = commit()
    return {
        ApiKey.API_VERSIONS: lambda number: api_versions,
        ApiKey.METADATA: lambda number: of_topic,
        ApiKey.FIND_COORDINATOR: lambda number: coordinator,
        ApiKey.PRODUCE: lambda number: one,
        ApiKey.FETCH: lambda number: fetch([number] * PARTITIONS),
        ApiKey.OFFSET_COMMIT: lambda number: committed,
        ApiKey.OFFSET_FETCH: lambda number: of_group,
    }


def load(address: tuple[str, int]) -> None:
    """All of it, one kind after the other."""
    with ExitStack() as stack:
        connections = [Connection(address) for _ in range(CONNECTIONS)]
        for each in connections:
            stack.callback(each.close)
        prepare(connections[0])
        for key, build in small_requests().items():
            first, last = API_TABLE[key].versions
            for version in range(FIRST_VERSIONS.get(key, first), last + 1):
                connections[0].ask(key, build(0), version)
                for number in range(ROUNDS):
                    ask_all(connections, key, version, [build(number)] * CONNECTIONS)
        for version in range(FIRST_VERSION_WITH_SESSIONS, API_TABLE[ApiKey.FETCH].versions[1] + 1):
            consume(connections, version)
        rebalance(connections)
        transact(connections[0])


def ask_all(connections: list[Connection], key: ApiKey, version: int, bodies: list[Any]) -> None:
    for connection, body in zip(connections, bodies, strict=True):
        connection.send(key, version, body)
    for connection in connections:
        connection.receive()


def prepare(connection: Connection) -> None:
    """Create the topic, fill it, and have a coordinator for the group and the transactions."""
    topic = CreateTopicsRequest.row("topics")(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    connection.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    for _ in range(ROUNDS):
        connection.ask(ApiKey.PRODUCE, produce(range(PARTITIONS)))
    for key_type in (0, 1):
        connection.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key=TOPIC, key_type=key_type))


def consume(connections: list[Connection], version: int) -> None:
    """Sessions of consumers at the end of the log; one append in ten answers; long polls that an append ends."""
    *consumers, producer = connections
    sessions = []
    for consumer in consumers:
        all_rows = consumer.ask(ApiKey.FETCH, fetch([0] * PARTITIONS), version).topics[0].partitions
        ends = [row.high_watermark for row in all_rows]
        sessions.append(consumer.ask(ApiKey.FETCH, fetch(ends, session=(0, 0)), version).session_id)
    for epoch in range(1, ROUNDS):
        is_poll = epoch % 10 == 0
        for consumer, session in zip(consumers, sessions, strict=True):
            consumer.send(ApiKey.FETCH, version, fetch([], session=(session, epoch), wait_ms=1000 if is_poll else 0))
        if is_poll:
            producer.ask(ApiKey.PRODUCE, produce([epoch // 10 % PARTITIONS]))
        for consumer in consumers:
            consumer.receive()


def rebalance(connections: list[Connection]) -> None:
    """A group of one member a connection, in a group of its own; then heartbeats."""
    members = []
    for number, each in enumerate(connections):
        group: dict[str, Any] = {"group_id": f"{TOPIC}-{number}"}
        join = JoinGroupRequest(
            **group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[("range", b"")],
        )
        joined = each.ask(ApiKey.JOIN_GROUP, join, 2)
        group |= {"generation_id": joined.generation_id, "member_id": joined.member_id}
        each.ask(ApiKey.SYNC_GROUP, SyncGroupRequest(**group, assignments=[(joined.member_id, b"")]), 1)
        members.append(group)
    for version in range(API_TABLE[ApiKey.HEARTBEAT].versions[1] + 1):
        for _ in range(ROUNDS):
            ask_all(connections, ApiKey.HEARTBEAT, version, [HeartbeatRequest(**member) for member in members])


def transact(connection: Connection) -> None:
    """Transactions of one record."""
    producer: dict[str, Any] = {"transactional_id": TOPIC}
    begun = connection.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(**producer, transaction_timeout_ms=10_000))
    producer |= {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    stamps = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch, "is_transactional": True}
    topics = [AddPartitionsToTxnRequest.row("topics")(name=TOPIC, partitions=[0])]
    for number in range(TRANSACTIONS):
        connection.ask(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest(**producer, topics=topics))
        connection.ask(ApiKey.PRODUCE, produce([0], transactional_id=TOPIC, base_sequence=number, **stamps))
        connection.ask(ApiKey.END_TXN, EndTxnRequest(**producer, is_commit=number % 8 != 0))


@contextmanager
def broker(folder: Path) -> Iterator[tuple[str, int]]:
    """The address of a broker of the form in `folder`, which ends in order: its counters are written then."""
    with tempfile.TemporaryDirectory() as work:
        ready = Path(work, "ready")
        command = [sys.executable, "-m", "minibroker", "serve", "--listen", "127.0.0.1:0", "--data-dir", f"{work}/data"]
        command += ["--ready-file", str(ready), "--log-level", "WARNING", "--set", "group.initial.rebalance.delay.ms=0"]
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(command, cwd=work, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
        try:
            deadline = time.monotonic() + START_SECONDS
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the instrumented broker of {folder} does not start")
                time.sleep(0.01)
            host, _, port = ready.read_text().split()[0].rpartition(":")
            yield host, int(port)
            process.terminate()
            if process.wait(START_SECONDS):
                raise SystemExit(f"the instrumented broker ended with status {process.returncode}")
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    with broker(Path(sys.argv[1])) as address:
        load(address)
