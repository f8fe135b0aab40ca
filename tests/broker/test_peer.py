"""A connection to another broker, over real sockets, with a broker that follows a script. Time is jumped."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.decisions import Broker, UpdateMetadata
from minibroker.broker.wings.several.peer import Peer, PeerError
from minibroker.broker.wings.several.peers import Peers
from minibroker.protocol.api import API_TABLE, ApiKey, decode_request, encode_response
from tests.requests import framed

pytestmark = pytest.mark.time_jumps

CLIENT_ID = "broker-2-fetcher-0"
VERSION = 2
REQUEST = API_TABLE[ApiKey.LIST_OFFSETS].request(replica_id=2, topics=[("t", [(0, -1, -1, 1)])])
BODY = API_TABLE[ApiKey.LIST_OFFSETS].response(topics=[("t", [(0, 0, (), -1, 7, -1)])])
Answer = Callable[[trio.SocketStream], Awaitable[None]]


MakePeer = Callable[..., Awaitable[Peer]]


@pytest.fixture
async def peer_of(nursery: trio.Nursery) -> AsyncIterator[MakePeer]:
    """Make peers of brokers that meet each connection with the next of some answers."""
    peers: list[Peer] = []

    async def make(*answers: Answer) -> Peer:
        left = list(answers)

        async def serve(stream: trio.SocketStream) -> None:
            await left.pop(0)(stream)

        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        peers.append(Peer("127.0.0.1", port, client_id=CLIENT_ID, timeout_ms=1000))
        return peers[-1]

    yield make
    for peer in peers:
        peer.close()
    nursery.cancel_scope.cancel()


async def received(stream: trio.SocketStream) -> Any:
    """The next request; None if the peer has closed."""
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        try:
            piece = await stream.receive_some()
        except trio.BrokenResourceError:  # closed before it had read all
            return None
        if not piece:
            return None
        data += piece
    return decode_request(data[4:])


async def properly(stream: trio.SocketStream) -> None:
    while (request := await received(stream)) is not None:
        assert request.client_id == CLIENT_ID
        for byte in b"".join(encode_response(request, BODY)):
            await stream.send_all(bytes([byte]))


async def once(stream: trio.SocketStream) -> None:
    await stream.send_all(b"".join(encode_response(await received(stream), BODY)))


async def with_nothing(stream: trio.SocketStream) -> None:
    while await received(stream) is not None:
        pass


async def by_closing(stream: trio.SocketStream) -> None:
    await received(stream)


def with_bytes(answer: bytes) -> Answer:
    async def answer_with_bytes(stream: trio.SocketStream) -> None:
        await received(stream)
        await stream.send_all(answer)
        await with_nothing(stream)

    return answer_with_bytes


async def test_requests_are_answered_over_one_connection_in_turn(peer_of: MakePeer) -> None:
    peer = await peer_of(properly)
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await peer.ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST))

    async with trio.open_nursery() as asking:
        for _ in range(3):
            asking.start_soon(ask)

    assert answers == [BODY] * 3


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (with_nothing, "did not answer within 1000 ms"),
        (by_closing, "closed the connection"),
        (with_bytes(framed(struct.pack(">i", 7))), "an answer that is malformed"),
        (with_bytes(framed(struct.pack(">iii", 7, 0, 0))), "answered request 7, and was asked 1"),
        (with_bytes(b"HTTP/1.1 400 Bad Request"), "an answer of 1213486160 bytes"),
    ],
)
async def test_a_failed_request_is_an_error_and_the_next_one_connects_again(
    peer_of: MakePeer, answer: Answer, message: str
) -> None:
    peer = await peer_of(answer, properly)

    with pytest.raises(PeerError, match=f"^the broker at 127.0.0.1:{peer.address[1]} (sent )?{message}"):
        await peer.ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST)

    assert await peer.ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST) == BODY


async def test_a_broker_that_is_cut_off_is_not_reached_until_the_network_is_healed(peer_of: MakePeer) -> None:
    address = (await peer_of(with_nothing, properly)).address
    cache = MetadataCache("")
    cache.update(UpdateMetadata(1, 1, {7: Broker({"PLAINTEXT": address}), 8: Broker({"PLAINTEXT": ("h", 1)})}, {}))
    peers = Peers(KafkaConfig({}), cache)
    peer = peers.to(7, CLIENT_ID)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, peer, "cannot be reached")  # it waits for an answer
        await trio.sleep(0.1)
        peers.cut_off(7)
    cache.update(UpdateMetadata(1, 1, {}, {}))  # it has ended, and comes back where it was
    await refused(peer, "is cut off from this one")
    peers.heal()

    assert await peer.ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST) == BODY
    peer.close()


async def refused(peer: Peer, message: str) -> None:
    with pytest.raises(PeerError, match=message):
        await peer.ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST)


async def test_a_controller_waits_for_the_time_of_its_own_setting(peer_of: MakePeer) -> None:
    address = await peer_of(with_nothing)
    config = KafkaConfig({"controller.socket.timeout.ms": "50"})

    with pytest.raises(PeerError, match="did not answer within 50 ms"):
        await Peers(config, MetadataCache("")).at(*address.address).ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST)


async def test_a_connection_that_has_ended_since_is_made_again(peer_of: MakePeer) -> None:
    peer = await peer_of(once, once)
    await peer.ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST)
    await trio.testing.wait_all_tasks_blocked()

    assert await peer.ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST) == BODY


async def test_a_request_that_is_cancelled_leaves_no_answer_to_the_next(peer_of: MakePeer) -> None:
    peer = await peer_of(with_nothing, properly)
    with trio.move_on_after(0.5) as asking:
        await peer.ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST)
    assert asking.cancelled_caught

    assert await peer.ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST) == BODY


async def test_a_broker_that_does_not_listen_is_an_error() -> None:
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        peer = Peer("127.0.0.1", unused.getsockname()[1], client_id=None)

        with pytest.raises(PeerError, match=r"cannot be reached: .*refused"):
            await peer.ask(ApiKey.LIST_OFFSETS, VERSION, REQUEST)
