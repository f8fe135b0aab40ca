"""Rows 84-91 of kafka 2.0.1's fetch path: connections, over real sockets. Time is jumped."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.server import Server
from minibroker.broker.time.timers import TimerLoop
from minibroker.conformance.requests import fetch_body, frame
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.asking import LONG_MS, fill, row_of
from tests.broker.conftest import NOW_MS, FixedClock, InMemoryBroker
from tests.broker.peers import Peer
from tests.requests import framed, produce_body

pytestmark = pytest.mark.time_jumps

DEFAULTS = KafkaConfig({"log.dirs": "/nowhere"})
CLOSED = b""


class Wire(Peer):
    """A client's socket to a broker without a process. Answers come with their correlation ids."""

    def __init__(self, broker: InMemoryBroker, **limits: int) -> None:
        self.dispatched: list[bytes] = []
        self.broker = broker
        options: dict[str, Any] = {"max_request_bytes": 1 << 20, **limits}
        super().__init__(self._dispatch, client=broker.client, timers=broker.timers, **options)

    def _dispatch(self, frame: bytearray, client: Any) -> Any:
        self.dispatched.append(bytes(frame))
        return self.broker.way.serve(frame, client)

    async def numbered(self) -> tuple[int, bytes]:
        """The correlation id of the next answer, and the answer."""
        answer = await self.answer()
        return int.from_bytes(answer[:4], "big"), answer

    async def answers(self, count: int) -> list[int]:
        return [(await self.numbered())[0] for _ in range(count)]


Connect = Callable[..., Wire]


@pytest.fixture
async def connect(broker: InMemoryBroker) -> AsyncIterator[Connect]:
    """Connect clients; the keywords are limits of the connection."""
    wires: list[Wire] = []

    async with trio.open_nursery() as nursery:

        def make(**limits: int) -> Wire:
            wires.append(Wire(broker, **limits))
            nursery.start_soon(wires[-1].run)
            return wires[-1]

        yield make
        nursery.cancel_scope.cancel()
    for wire in wires:
        wire.sock.close()


def fetch(number: int, *, max_wait_ms: int = 0) -> bytes:
    return frame(ApiKey.FETCH, 8, number, **fetch_body(("t", 0, 0), max_wait_ms=max_wait_ms))


def produce(number: int, *, acks: int, partition: int = 0) -> bytes:
    batch = build_batch([Record(0, NOW_MS, None, b"v")])
    return frame(ApiKey.PRODUCE, 7, number, **produce_body("t", batch, partition=partition, acks=acks))


def metadata(number: int) -> bytes:
    return frame(ApiKey.METADATA, 1, number, topics=[])


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
async def test_row_84_unknown_versions_of_api_versions_are_answered_in_v0(connect: Connect, version: int) -> None:
    wire = connect()
    asked = bytearray(frame(ApiKey.API_VERSIONS, 0, 7))
    asked[6:8] = struct.pack(">h", version)

    wire.sock.send(asked + metadata(8))
    number, answer = await wire.numbered()

    body = decode_response(ApiKey.API_VERSIONS, 0, answer)[1]
    own = (ApiKey.API_VERSIONS, *API_TABLE[ApiKey.API_VERSIONS].versions)  # as kafka 2.4 (KIP-511)
    assert (number, body.error_code, list(body.api_keys)) == (7, ErrorCode.UNSUPPORTED_VERSION, [own])
    assert (await wire.numbered())[0] == 8  # the connection goes on


def with_head(key: int, version: int) -> bytes:
    """A request of that API key and version, whatever is in it."""
    asked = fetch(1)
    return asked[:4] + struct.pack(">hh", key, version) + asked[8:]


@pytest.mark.parametrize(
    "sent",
    [
        *(with_head(ApiKey.FETCH, version) for version in (99, -1)),
        *(with_head(key, 0) for key in (999, -1)),
        with_head(ApiKey.METADATA, 99),
        *(framed(garbage) for garbage in (b"", b"\0", b"\xff" * 50, b"GET / HTTP/1.1\r\n\r\n", fetch(1)[4:-3])),
        *(struct.pack(">i", size) for size in (-1, -(2**31), 1001, 2**31 - 1)),
    ],
)
async def test_row_85_row_87_bytes_that_are_no_request_close_the_connection(connect: Connect, sent: bytes) -> None:
    wire = connect(max_request_bytes=1000)

    wire.sock.send(sent)

    assert await wire.receive(1) == CLOSED


async def test_row_86_the_next_request_waits_and_answers_are_in_order(connect: Connect, broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    wire = connect()

    began = trio.current_time()
    wire.sock.send(fetch(1, max_wait_ms=500) + produce(2, acks=1) + fetch(3) + metadata(4))
    await wait_all_tasks_blocked()

    assert (len(wire.dispatched), broker.log_of("t").log_end_offset) == (1, 0)
    assert await wire.answers(4) == [1, 2, 3, 4]
    assert trio.current_time() - began == pytest.approx(0.5, abs=0.01)
    assert broker.log_of("t").log_end_offset == 1


async def test_row_87_a_request_as_long_as_the_limit_is_answered(connect: Connect, broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    asked = fetch(1)
    wire = connect(max_request_bytes=len(asked) - 4)

    wire.sock.send(asked)

    assert await wire.answers(1) == [1]
    assert DEFAULTS.socket_request_max_bytes == 100 * 1024 * 1024


async def test_row_88_a_connection_is_closed_ten_minutes_after_its_last_request(connect: Connect) -> None:
    wire = connect(max_idle_ms=DEFAULTS.connections_max_idle_ms)
    for _ in range(2):
        await trio.sleep(599)
        wire.sock.send(metadata(1))
        assert await wire.answers(1) == [1]
    used_until = trio.current_time()

    assert await wire.receive(1) == CLOSED
    assert trio.current_time() - used_until == pytest.approx(600, abs=0.01)


@pytest.mark.parametrize(
    "settings",
    [
        {"max.connections.per.ip": "2"},
        {"max.connections.per.ip": "100", "max.connections.per.ip.overrides": "127.0.0.1:2"},
    ],
    ids=["limit", "override"],
)
async def test_row_89_more_connections_than_one_address_may_have_are_closed(
    broker: InMemoryBroker, nursery: trio.Nursery, settings: dict[str, str]
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    port = listener.getsockname()[1]
    config = KafkaConfig({"log.dirs": "/nowhere", **settings})
    connections: set[Connection] = set()
    server = Server(
        [listener],
        config=config,
        dispatch=broker.way.serve,
        timers=TimerLoop(FixedClock()),
        afterwards=broker.parts.afterwards,
        connections=connections,
    )
    nursery.start_soon(server.run)
    async with AsyncExitStack() as streams:

        async def connected() -> trio.SocketStream:
            return await streams.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))

        first, second = await connected(), await connected()
        served = [await is_served(stream) for stream in (first, second, await connected())]
        await first.aclose()
        while len(connections) > 1:
            await wait_all_tasks_blocked()
        served += [await is_served(stream) for stream in (await connected(), second, await connected())]

    assert served == [True, True, False] * 2


async def is_served(stream: trio.SocketStream) -> bool:
    """Whether a request is answered; False where the broker closes."""
    try:
        await stream.send_all(metadata(1))
        return await stream.receive_some(1000) != CLOSED
    except trio.BrokenResourceError:
        return False


async def test_row_90_a_fetch_of_a_client_that_is_gone_is_completed(connect: Connect, broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    gone, other = connect(), connect()
    gone.sock.send(fetch(1, max_wait_ms=LONG_MS))
    await wait_all_tasks_blocked()
    purgatory = broker.parts.replica_manager.fetch_purgatory

    gone.sock.close()
    await wait_all_tasks_blocked()
    while_nobody_asks = purgatory.delayed
    await fill(broker, "t")
    await wait_all_tasks_blocked()

    assert while_nobody_asks == 1
    assert (purgatory.delayed, purgatory.endings["completed"]) == (0, 1)
    other.sock.send(fetch(2))
    assert await other.answers(1) == [2]


async def test_row_91_no_acks_no_answer_but_to_the_next_request(connect: Connect, broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    wire = connect()

    wire.sock.send(produce(1, acks=0) + produce(2, acks=0) + metadata(3) + produce(4, acks=1))

    assert await wire.answers(2) == [3, 4]
    assert row_of(await broker.fetch(("t", 0, 0))).high_watermark == 3


async def test_row_82_a_failed_acks_0_produce_closes_the_connection(connect: Connect, broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    wire = connect()

    wire.sock.send(metadata(1) + produce(2, acks=0, partition=9) + metadata(3))

    assert await wire.answers(1) == [1]
    assert await wire.receive(1) == CLOSED
