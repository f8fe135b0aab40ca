"""Conversations of clients that exceed their quotas: answers, throttle times, and when each answer comes.

Held with Apache Kafka 2.0.1, whose quotas are written into its ZooKeeper before it starts, and with minibroker. To
record anew: python -m tests.books kafka-2.0.1 throttling --record
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio

from benchmarks.apache_kafka import ApacheKafka, class_path, kafka_jars
from minibroker.conformance.holding import SETTINGS
from minibroker.conformance.requests import fetch_body, frame
from minibroker.protocol.api import ApiKey, decode_response
from minibroker.protocol.api_table import versions_of
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.protocol.text import counted
from tests.broker.peers import received_frame
from tests.conformance.pair import KAFKA_SETTINGS
from tests.conformance.recordings import Comparison, read
from tests.integration.brokers import Minibroker
from tests.integration.sample_requests import sample_body
from tests.jvm import QUICK_JVM
from tests.requests import produce_body
from tests.setup_clients import compiled_for_kafka

RECORDED = "kafka-2.0.1-quotas.json.gz"
TOOL_SECONDS = 60.0
ANSWER_SECONDS = 30.0
TOLERANCE_MS = 250  # of times: those of a live broker depend on how long its requests take
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
ANY_TIME = 1e-7  # percent: any request takes longer
TOPIC = "quotas"
BATCH_BYTES, BATCHES = 5000, 10

# The quotas of client ids: a client id for each conversation, so that they do not share windows.
QUOTAS: dict[str, dict[str, float]] = {
    "pipelined": {PRODUCE: 10_000},
    "silent": {PRODUCE: 10_000},
    "two": {PRODUCE: 10_000},
    "refused": {PRODUCE: 10_000},
    "fetching": {FETCH: 2900},
    "session": {FETCH: 2900},
    "new session": {FETCH: 2900},
    "waiting": {FETCH: 2900},
    "both": {FETCH: 2900, REQUEST: ANY_TIME},
    "timed": {REQUEST: ANY_TIME},
    "timed silent": {REQUEST: ANY_TIME},
}
FOLLOWER = 7
# Of the APIs of 2.0.1 these are not sent: their samples are for brokers, or close the connection to Kafka; those of
# SASL and of delegation tokens are for secured brokers.
UNSENT = {ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_CONFIGS, 17, 36, 38, 39, 40, 41}


class Event(NamedTuple):
    """An answer: how long after the one before it came, and what it says."""

    after_ms: int
    throttle_ms: int
    facts: Any


class Talk:
    """Connections of one conversation, by name, and the answers in the order in which they are taken."""

    def __init__(self, client_id: str, connect: Callable[[], socket.socket]) -> None:
        self.client_id = client_id
        self.events: list[Event] = []
        self._connect = connect
        self._sockets: dict[str, socket.socket] = {}
        self._last_at = trio.current_time()

    async def send(self, *requests: tuple[ApiKey, int, Mapping[str, Any]], on: str = "main") -> None:
        """Send requests in one write."""
        frames = [frame(key, version, client_id=self.client_id, **body) for key, version, body in requests]
        rest = memoryview(b"".join(frames))
        sock = self._socket(on)
        while rest:
            await trio.lowlevel.wait_writable(sock)
            rest = rest[sock.send(rest) :]

    async def take(self, key: ApiKey, version: int, *, on: str = "main") -> Any:
        """Receive the next answer, and keep it as an event; return None if the broker closes the connection."""
        with trio.fail_after(ANSWER_SECONDS):
            answer = await received_frame(self._socket(on))
        now = trio.current_time()
        after_ms, self._last_at = round((now - self._last_at) * 1000), now
        if not answer:
            self.events.append(Event(after_ms, 0, "closed"))
            return None
        _, body = decode_response(key, version, answer)
        self.events.append(Event(after_ms, getattr(body, "throttle_time_ms", 0), facts_of(key, body)))
        return body

    async def ask(self, key: ApiKey, version: int, body: Mapping[str, Any], *, on: str = "main") -> Any:
        await self.send((key, version, body), on=on)
        return await self.take(key, version, on=on)

    def _socket(self, name: str) -> socket.socket:
        if name not in self._sockets:
            self._sockets[name] = self._connect()
        return self._sockets[name]

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()


def facts_of(key: ApiKey, body: Any) -> Any:
    """Return those facts of an answer that are the same in each run."""
    if key is ApiKey.FETCH:
        rows = [
            [topic.topic, row.partition, row.error_code, len(row.records or b"")]
            for topic in body.topics
            for row in topic.partitions
        ]
        return [body.error_code, "session" if body.session_id else "none", rows]
    if key is ApiKey.PRODUCE:
        return [[topic.topic, row.partition, row.error_code] for topic in body.topics for row in topic.partitions]
    return None


def produce(size: int, *, acks: int = 1, topic: str = TOPIC) -> tuple[ApiKey, int, Mapping[str, Any]]:
    batch = build_batch([Record(0, 1_500_000_000_000, None, b"x" * size, ())])
    return ApiKey.PRODUCE, 5, produce_body(topic, batch, acks=acks)


def fetch(offset: int = 0, size: int = 15_000, **options: Any) -> Mapping[str, Any]:
    return fetch_body(
        (TOPIC, 0, offset), max_partition_bytes=size, **{"max_bytes": size, "session_epoch": -1} | options
    )


# -- conversations: functions by the names of their clients ---------------------------------------------------


async def pipelined(talk: Talk) -> None:
    await talk.send(produce(105_000), produce(5000), produce(10), (ApiKey.API_VERSIONS, 2, {}))
    for _ in range(3):
        await talk.take(ApiKey.PRODUCE, 5)
    await talk.take(ApiKey.API_VERSIONS, 2)


async def silent(talk: Talk) -> None:
    await talk.send(produce(105_000, acks=0), (ApiKey.API_VERSIONS, 2, {}))
    await talk.take(ApiKey.API_VERSIONS, 2)


async def two(talk: Talk) -> None:
    """The other connection is charged and not muted; a third, opened meanwhile, neither."""
    await talk.ask(*produce(105_000))
    await talk.ask(ApiKey.API_VERSIONS, 2, {}, on="other")
    await talk.ask(*produce(10), on="other")
    await talk.ask(ApiKey.API_VERSIONS, 2, {}, on="third")
    await talk.ask(ApiKey.API_VERSIONS, 2, {})


async def refused(talk: Talk) -> None:
    await talk.ask(*produce(105_000, topic="absent"))
    await talk.ask(*produce(10, acks=7))


async def fetching(talk: Talk) -> None:
    """Each is larger than the one before: the same one would be at the limit when its time is over."""
    for size in (15_000, 15_000, 17_000, 19_000):
        await talk.ask(ApiKey.FETCH, 8, fetch(size=size))
    await talk.ask(ApiKey.FETCH, 8, fetch(replica_id=FOLLOWER), on="follower")
    await talk.ask(ApiKey.FETCH, 8, fetch(size=100))


async def session(talk: Talk) -> None:
    begun = await talk.ask(ApiKey.FETCH, 8, fetch(session_epoch=0))
    for epoch, size in ((1, 15_000), (1, 15_000), (2, 20_000), (2, 20_000)):  # throttled, its epoch is past, and again
        await talk.ask(ApiKey.FETCH, 8, fetch(size=size, session_id=begun.session_id, session_epoch=epoch))
    await talk.ask(ApiKey.FETCH, 8, fetch(5, 100, session_id=begun.session_id, session_epoch=3))


async def new_session(talk: Talk) -> None:
    await talk.ask(ApiKey.FETCH, 8, fetch())
    begun = await talk.ask(ApiKey.FETCH, 8, fetch(session_epoch=0))  # throttled
    await talk.ask(ApiKey.FETCH, 8, fetch(session_id=begun.session_id, session_epoch=1, topics=[]))


async def waiting(talk: Talk) -> None:
    await talk.ask(ApiKey.FETCH, 8, fetch())
    await talk.ask(ApiKey.FETCH, 8, fetch(10_000, max_wait_ms=400, min_bytes=1))  # out of range: at once
    await talk.ask(ApiKey.FETCH, 8, fetch(size=20_000, max_wait_ms=400, min_bytes=60_000))  # throttled after its wait


async def both(talk: Talk) -> None:
    await talk.ask(ApiKey.FETCH, 8, fetch(session_epoch=0))
    await talk.ask(ApiKey.FETCH, 8, fetch())


async def timed(talk: Talk) -> None:
    """Every API in every version of 2.0.1, each on a connection of its own."""
    for key, (_, last) in versions_of("2.0").items():
        for version in range(last + 1):
            if key not in UNSENT:
                body = sample_body(ApiKey(key), version)._asdict()
                if key == ApiKey.FETCH:
                    body["replica_id"] = -1
                await talk.ask(ApiKey(key), version, body, on=f"{key} {version}")


async def timed_silent(talk: Talk) -> None:
    await talk.send(produce(10, acks=0), (ApiKey.API_VERSIONS, 2, {}), (ApiKey.API_VERSIONS, 0, {}))
    await talk.take(ApiKey.API_VERSIONS, 2)
    await talk.take(ApiKey.API_VERSIONS, 0)


CONVERSATIONS: dict[str, Callable[[Talk], Awaitable[None]]] = {
    each.__name__.replace("_", " "): each
    for each in (
        pipelined, silent, two, refused, fetching, session, new_session, waiting, both, timed, timed_silent,
    )
}  # fmt: skip


async def fill(connect: Callable[[], socket.socket]) -> None:
    """Make the topic that is fetched from, by a client without a quota."""
    talk = Talk("filler", connect)
    topics: list[Any] = [(TOPIC, 1, 1, [], [])]
    created = await talk.ask(ApiKey.CREATE_TOPICS, 2, {"topics": topics, "timeout_ms": 10_000})
    assert created.topics[0].error_code == 0, created
    written = 0
    while written < BATCHES:
        answer = await talk.ask(*produce(BATCH_BYTES))
        written += not answer.topics[0].partitions[0].error_code  # Kafka's leader comes some time after its topic
    talk.close()


async def hold(name: str, connect: Callable[[], socket.socket]) -> list[Event]:
    talk = Talk(name, connect)
    try:
        await CONVERSATIONS[name](talk)
    finally:
        talk.close()
    return talk.events


async def hold_all(connect: Callable[[], socket.socket]) -> dict[str, list[Event]]:
    await fill(connect)
    return {name: await hold(name, connect) for name in CONVERSATIONS}


def differences(theirs: list[Event], ours: list[Event]) -> list[str]:
    """The events that differ: in their facts, or in their times by more than the tolerance."""
    if len(theirs) != len(ours):
        return [f"{counted(len(theirs), 'answer')}, here {len(ours)}"]
    return [
        f"answer {number}: {kafkas}, here {mine}"
        for number, (kafkas, mine) in enumerate(zip(theirs, ours, strict=True))
        if kafkas.facts != mine.facts
        or (kafkas.throttle_ms == 0) != (mine.throttle_ms == 0)
        or abs(kafkas.throttle_ms - mine.throttle_ms) > TOLERANCE_MS
        or abs(kafkas.after_ms - mine.after_ms) > TOLERANCE_MS
    ]


def recorded() -> dict[str, list[Event]]:
    found: dict[str, list[Any]] = read(RECORDED)
    return {name: [Event(*event) for event in events] for name, events in found.items()}


# -- live brokers ---------------------------------------------------------------------------------------------


def connecting(host: str, port: int) -> Callable[[], socket.socket]:
    def connect() -> socket.socket:
        sock = socket.create_connection((host, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        return sock

    return connect


@contextmanager
def kafka_with_quotas(directory: Path) -> Iterator[ApacheKafka]:
    """Apache Kafka 2.0.1 that finds the quotas in its ZooKeeper. Raises KafkaUnavailable."""
    kafka = ApacheKafka(kafka_jars(), directory, settings={**SETTINGS, **KAFKA_SETTINGS})
    try:
        kafka.start_zookeeper()
        write_quotas(kafka)
        kafka.spawn_broker()
        kafka.wait_until_ready()
        yield kafka
    finally:
        kafka.kill()


def write_quotas(kafka: ApacheKafka) -> None:
    nodes = {"/config": "", "/config/clients": ""}
    for client_id, quotas in QUOTAS.items():
        document = {"version": 1, "config": {key: f"{value}" for key, value in quotas.items()}}
        nodes[f"/config/clients/{client_id.replace(' ', '%20')}"] = json.dumps(document, separators=(",", ":"))
    jars = class_path(kafka_jars())
    classes = compiled_for_kafka("ZooKeeperWriter", jars)
    command = ["java", *QUICK_JVM, "-cp", f"{classes}:{jars}", "ZooKeeperWriter", f"127.0.0.1:{kafka.zookeeper_port}"]
    lines = "".join(f"{path}\t{document}\n" for path, document in nodes.items())
    subprocess.run(command, input=lines, text=True, capture_output=True, timeout=TOOL_SECONDS, check=True)


@asynccontextmanager
async def minibroker_with_quotas(directory: Path) -> AsyncIterator[Minibroker]:
    broker = Minibroker(directory, "--set", "broker.id=0", settings=SETTINGS)
    try:
        broker.wait_until_ready()
        await set_quotas(connecting(broker.host, broker.port))
        yield broker
    finally:
        broker.kill()


async def set_quotas(connect: Callable[[], socket.socket]) -> None:
    talk = Talk("admin", connect)
    entries = [
        ([("client-id", client_id)], [(key, value, False) for key, value in quotas.items()])
        for client_id, quotas in QUOTAS.items()
    ]
    answer = await talk.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})
    assert not any(entry.error_code for entry in answer.entries), answer
    talk.close()


async def kafkas_events(directory: Path) -> dict[str, list[Event]]:
    with kafka_with_quotas(directory) as kafka:
        return await hold_all(connecting(kafka.host, kafka.port))


async def our_events(directory: Path) -> dict[str, list[Event]]:
    async with minibroker_with_quotas(directory) as broker:
        return await hold_all(connecting(broker.host, broker.port))


async def live(directory: Path) -> tuple[dict[str, list[Event]], dict[str, list[Event]]]:
    """The events of Apache Kafka and of minibroker, one after the other. Raises KafkaUnavailable."""
    return await kafkas_events(directory / "kafka"), await our_events(directory / "minibroker")


def compared(seeds: range) -> Comparison:
    with tempfile.TemporaryDirectory() as directory:
        theirs, ours = trio.run(live, Path(directory))
    found = [f"{name}: {each}" for name, events in theirs.items() for each in differences(events, ours[name])]
    return Comparison(theirs, len(theirs), found)
