"""`python -m build_tools.compiled_profile FOLDER`: puts a load on the instrumented form in FOLDER.

gcc learns from it which code is hot: `setup_commands.py` compiles twice, first with counters in the code, which the
broker writes down when it ends, then by what they have counted. The load sends the requests that clients send all the
time, in the versions that they send, over ten connections; code that it does not run is compiled as without a profile.
The load itself runs in pure Python: it must not be counted.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks import frames
from benchmarks.frames import ANSWER_SECONDS, NO_SESSION, Frame, ask_over, frame_of, receive
from minibroker import Broker
from minibroker.client.address import parse_address
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.message_values import NEW_EPOCH
from minibroker.protocol.messages.groups import OffsetFetchRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.messages.transactions import AddPartitionsToTxnRequest

CONNECTIONS = 10
PARTITIONS = 10
ROUNDS = 200  # of each request, on each connection
TRANSACTIONS = 200
TOPIC = "profile"
VALUE_BYTES = 100
A_BATCH_BYTES = 256
ALL_ACKS = -1
# The first version of each that is asked: earlier ones are of clients before 0.11.
FIRST_VERSIONS = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.METADATA: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
}
# Then topics have ids, groups or transactions are several, or transactions have an epoch each.
LAST_VERSIONS = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.END_TXN: 4,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.PRODUCE: 12,
    ApiKey.OFFSET_FETCH: 7,
}
FIRST_VERSION_WITH_SESSIONS = 7
LAST_JOIN_AT_ONCE = 3  # from version 4 on, a member without an id gets one, and joins again


def load(bootstrap_servers: str) -> None:
    """All of it, one kind after the other. Raises FrameError for an error in an answer."""
    with ExitStack() as stack:
        connections = [stack.enter_context(connected(bootstrap_servers)) for _ in range(CONNECTIONS)]
        prepare(connections[0])
        for key, request in small_requests().items():
            for version in versions(key, FIRST_VERSIONS.get(key, 0)):
                ask_over(connections[0], request(version, 0))
                for number in range(ROUNDS):
                    ask_all(connections, [request(version, number)] * CONNECTIONS)
        for version in versions(ApiKey.FETCH, FIRST_VERSION_WITH_SESSIONS):
            consume(connections, version)
        rebalance(connections)
        stay(connections)
        transact(connections[0])


def connected(bootstrap_servers: str) -> socket.socket:
    connection = socket.create_connection(parse_address(bootstrap_servers), timeout=ANSWER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def versions(key: ApiKey, first: int = 0) -> range:
    first_there_is, last = API_TABLE[key].versions
    return range(max(first, first_there_is), min(LAST_VERSIONS.get(key, last), last) + 1)


def ask(connection: socket.socket, key: ApiKey, version: int | None = None, /, **body: Any) -> Any:
    """The answer to a request, of the newest version unless told."""
    version = versions(key)[-1] if version is None else version
    return ask_over(connection, frame_of(key, version, API_TABLE[key].request(**body)))[1]


def ask_all(connections: list[socket.socket], requests: list[Frame]) -> None:
    """Send each connection its request, then wait for the answers."""
    for connection, request in zip(connections, requests, strict=True):
        connection.sendall(request.payload)
    for connection in connections:
        receive(connection)


def prepare(connection: socket.socket) -> None:
    """Create the topic, fill it, and have a coordinator for the group and the transactions."""
    topic = CreateTopicsRequest.row("topics")(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    ask(connection, ApiKey.CREATE_TOPICS, topics=[topic], timeout_ms=1000)
    for _ in range(ROUNDS):
        ask_over(connection, produce(range(PARTITIONS)))
    for key_type in (0, 1):
        ask_over(connection, frames.find_coordinator(TOPIC, key_type))


def produce(partitions: Iterable[int], **others: Any) -> Frame:
    """A batch of one record to each of these partitions."""
    return frames.produce(TOPIC, value_bytes=VALUE_BYTES, partitions=partitions, acks=ALL_ACKS, **others)


def fetch(offsets: list[int], version: int, *, session: tuple[int, int] = NO_SESSION, max_wait_ms: int = 0) -> Frame:
    """A fetch of a batch from each partition, at these offsets; of what the session has, if there are none."""
    options: dict[str, Any] = {"session": session, "max_wait_ms": max_wait_ms, "version": version}
    return frames.fetch(TOPIC, offsets, partition_max_bytes=A_BATCH_BYTES, **options)


def offset_fetch(version: int) -> Frame:
    topic = OffsetFetchRequest.row("topics")(name=TOPIC, partitions=[0])
    return frame_of(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(group_id=TOPIC, topics=[topic]))


def small_requests() -> dict[ApiKey, Callable[[int, int], Frame]]:
    """Requests that ten clients send over and over, by their version and the number of their round."""
    return {
        ApiKey.API_VERSIONS: lambda version, _: frames.api_versions(version),
        ApiKey.METADATA: lambda version, _: frames.metadata(TOPIC, version=version),
        ApiKey.FIND_COORDINATOR: lambda version, _: frames.find_coordinator(TOPIC, version=version),
        ApiKey.PRODUCE: lambda version, _: produce([0], version=version),
        ApiKey.FETCH: lambda version, number: fetch([number] * PARTITIONS, version),
        ApiKey.OFFSET_COMMIT: lambda version, _: frames.offset_commit(TOPIC, TOPIC, version=version),
        ApiKey.OFFSET_FETCH: lambda version, _: offset_fetch(version),
    }


def consume(connections: list[socket.socket], version: int) -> None:
    """Sessions of consumers at the end of the log; one append in ten answers; long polls that an append ends."""
    *consumers, producer = connections
    sessions = []
    for consumer in consumers:
        all_rows = ask_over(consumer, fetch([0] * PARTITIONS, version))[1].topics[0].partitions
        ends = [row.high_watermark for row in all_rows]
        sessions.append(ask_over(consumer, fetch(ends, version, session=(0, 0)))[1].session_id)
    for epoch in range(1, ROUNDS):
        is_poll = epoch % 10 == 0
        for consumer, session in zip(consumers, sessions, strict=True):
            request = fetch([], version, session=(session, epoch), max_wait_ms=1000 if is_poll else 0)
            consumer.sendall(request.payload)
        if is_poll:
            ask_over(producer, produce([epoch // 10 % PARTITIONS]))
        for consumer in consumers:
            receive(consumer)


def rebalance(connections: list[socket.socket]) -> None:
    """A group of one member a connection, in a group of its own; then heartbeats."""
    members = []
    for number, each in enumerate(connections):
        group: dict[str, Any] = {"group_id": f"{TOPIC}-{number}"}
        timeouts = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
        protocol = {"protocol_type": "consumer", "protocols": [("range", b"")]}
        joined = ask(each, ApiKey.JOIN_GROUP, LAST_JOIN_AT_ONCE, **group, **timeouts, **protocol, member_id="")
        group |= {"generation_id": joined.generation_id, "member_id": joined.member_id}
        agreed = {"protocol_type": "consumer", "protocol_name": "range"}
        ask(each, ApiKey.SYNC_GROUP, **group, **agreed, assignments=[(joined.member_id, b"")])
        members.append(group)
    for version in versions(ApiKey.HEARTBEAT):
        requests = [frames.heartbeat(**member, version=version) for member in members]
        for _ in range(ROUNDS):
            ask_all(connections, requests)


def stay(connections: list[socket.socket]) -> None:
    """A member of the consumer protocol a connection, in a group of its own: its heartbeats."""
    terms: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    beats = []
    for number, each in enumerate(connections):
        member = f"{TOPIC}-consumers-{number}", f"member-{number}"
        joined = ask_over(each, frames.consumer_group_heartbeat(*member, NEW_EPOCH, **terms))[1]
        beats.append(frames.consumer_group_heartbeat(*member, joined.member_epoch))
    for _ in range(ROUNDS):
        ask_all(connections, beats)


def transact(connection: socket.socket) -> None:
    """Transactions of one record."""
    producer: dict[str, Any] = {"transactional_id": TOPIC}
    begun = ask(connection, ApiKey.INIT_PRODUCER_ID, **producer, transaction_timeout_ms=10_000)
    stamps = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    producer |= stamps
    topics = [AddPartitionsToTxnRequest.row("topics")(name=TOPIC, partitions=[0])]
    for number in range(TRANSACTIONS):
        ask(connection, ApiKey.ADD_PARTITIONS_TO_TXN, **producer, topics=topics)
        batch = {**stamps, "is_transactional": True, "base_sequence": number}
        ask_over(connection, produce([0], transactional_id=TOPIC, **batch))
        ask(connection, ApiKey.END_TXN, **producer, is_commit=number % 8 != 0)


@contextmanager
def broker() -> Iterator[str]:
    """The address of a broker that ends in order: its counters are written then."""
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as started:
        yield started.bootstrap_servers
        if status := started.stop():
            raise SystemExit(f"the instrumented broker ended with status {status}:\n{started.last_log_lines()}")


if __name__ == "__main__":
    # The broker imports from there. This process has its modules already, in pure Python.
    os.environ["PYTHONPATH"] = os.pathsep.join([sys.argv[1], *filter(None, [os.environ.get("PYTHONPATH")])])
    with broker() as bootstrap_servers:
        load(bootstrap_servers)
