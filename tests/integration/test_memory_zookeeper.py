"""The ZooKeeper of the simulation, and a real one: the same conversations, with equal answers."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.apache_kafka import ApacheKafka
from minibroker.simulation.memory_zookeeper import MemoryZooKeeper
from minibroker.zookeeper import waiting
from minibroker.zookeeper.messages import (
    EPHEMERAL,
    SEQUENTIAL,
    Answer,
    Check,
    CloseSession,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    NodeData,
    Operation,
    SetData,
    Stat,
    ZooKeeperError,
    encode_connect,
)
from minibroker.zookeeper.session import NO_PASSWORD, ConnectionLost, SessionExpired, ZooKeeperClient

SESSION_MS = 20_000  # the longest; a third of it is the time for an answer
ROOT = f"/{uuid.uuid4().hex}"
Connect = Callable[[], socket.socket]
# Who asks what, one after the other.
SCRIPT: list[tuple[int, Operation]] = [
    (0, Create("/a", b"1")),
    (0, Create("/a/none/b")),
    (0, Create("/a")),
    (0, Create("/a/mine", b"m", EPHEMERAL)),
    (0, Create("/a/mine/below")),
    (0, Create("/a/s_", b"", SEQUENTIAL)),
    (0, Create("/a/s_", None, EPHEMERAL | SEQUENTIAL)),
    (1, GetData("/a", watch=True)),
    (1, GetChildren("/a", watch=True)),
    (1, Exists("/a/mine", watch=True)),
    (1, Exists("/a/later", watch=True)),
    (1, GetData("/a/never", watch=True)),
    (1, GetChildren("/a/never", watch=True)),
    (0, SetData("/a", b"2", 1)),
    (0, SetData("/a", b"two", 0)),
    (0, SetData("/a", b"three")),
    (1, GetData("/a")),
    (0, Delete("/a")),
    (0, Delete("/a/s_0000000001", 1)),
    (0, Delete("/a/s_0000000001", 0)),
    (0, Delete("/a/never")),
    (0, Create("/a/later")),
    (0, Create("/a/never")),
    (0, Multi([Check("/a", 2), SetData("/a", b"4"), Create("/a/x"), SetData("/a/x", b"y", 0), Delete("/a/x", 1)])),
    (0, Multi([SetData("/a", b"5"), Create("/a/t"), Check("/a", 2), Delete("/a/none"), Check("/a", 9)])),
    (0, Multi([Delete("/a/none")])),
    (0, Multi([])),
    (1, GetData("/a")),
    (1, Exists("/a/t")),
    (1, GetChildren("/a", watch=True)),
    (1, GetData("/a/later", watch=True)),
    (1, GetChildren("/a/later", watch=True)),
    (0, Multi([Create("/a/later/1", b"", SEQUENTIAL), Create("/a/later/1", b"", SEQUENTIAL)])),
    (0, Multi([Delete("/a/later/10000000000"), Delete("/a/later/10000000001"), Delete("/a/later")])),
    (0, CloseSession()),
    (1, GetChildren("/a")),
    (1, Exists("/a")),
]


class InMemory:
    """The end of a socket that the ZooKeeper in memory answers."""

    def __init__(self, server: MemoryZooKeeper, at_end: ExitStack) -> None:
        self.ours, self._theirs = map(at_end.enter_context, socket.socketpair())
        self._theirs.setblocking(False)
        self._connection = server.connect(self._send)

    def _send(self, data: bytes | None) -> None:
        if data is None:
            self._theirs.shutdown(socket.SHUT_WR)
        else:
            self._theirs.sendall(data)

    def serve(self) -> None:
        """Answer what was sent."""
        with suppress(BlockingIOError):
            self._connection.take(self._theirs.recv(1 << 20) or None)


@pytest.fixture(scope="module")
def zookeeper(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a ZooKeeper."""
    kafka = ApacheKafka(jars, tmp_path_factory.mktemp("zookeeper"))
    try:
        kafka.start_zookeeper()
        first = ZooKeeperClient("", session_timeout_ms=SESSION_MS)
        first.connect([("127.0.0.1", kafka.zookeeper_port)], timeout_ms=60_000)
        first.close()
        yield kafka.zookeeper_port
    finally:
        kafka.kill()


def test_both_answer_equally(zookeeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server = MemoryZooKeeper(lambda: waiting.monotonic() * 1000)
    ends: list[InMemory] = []
    wait = waiting.wait_readable

    def answered(sock: socket.socket, seconds: float) -> bool:
        for each in ends:
            each.serve()
        return wait(sock, seconds)

    with ExitStack() as at_end:

        def connect() -> socket.socket:
            return at_end.enter_context(socket.create_connection(("127.0.0.1", zookeeper)))

        def connect_in_memory() -> socket.socket:
            ends.append(InMemory(server, at_end))
            return ends[-1].ours

        real = conversations(connect)
        monkeypatch.setattr(waiting, "wait_readable", answered)
        monkeypatch.setattr(socket.socket, "setsockopt", lambda *arguments: None)
        for one, other in zip(real, conversations(connect_in_memory), strict=True):
            assert other == one


def conversations(connect: Connect) -> list[Any]:
    """Hold all conversations; return what was answered, with numbers that follow from the first ones."""
    clients = [connected(connect) for _ in range(2)]
    created = clients[1].ask_all([Create(""), Exists("")])[1]
    assert isinstance(created, Stat)
    owners = [0, *(each.session_id for each in clients)]

    def coded(answer: Answer | ZooKeeperError) -> Any:
        match answer:
            case ZooKeeperError():
                return answer.code
            case NodeData(data, stat):
                return data, coded(stat)
            case Stat():
                zxids = [each - created.czxid for each in (answer.czxid, answer.mzxid, answer.pzxid)]
                return zxids, owners.index(answer.ephemeral_owner), answer[4:7], answer[8:10]
            case list():
                return sorted(answer) if all(isinstance(each, str) for each in answer) else [*map(coded, answer)]
        return answer

    found = []
    for number, operation in SCRIPT:
        answer = coded(clients[number].ask_all([operation])[0])
        found.append((operation, answer, clients[number].take_events()))
    return [*found, *sessions(connect)]


def connected(connect: Connect, session: ZooKeeperClient | None = None) -> ZooKeeperClient:
    """Begin a session, or go on with that of another client."""
    client = ZooKeeperClient(ROOT, session_timeout_ms=SESSION_MS)
    if session is not None:
        client.resume(session)
    client.greet(connect())
    client.accept()
    return client


def sessions(connect: Connect) -> Iterator[Any]:
    """Yield what becomes of sessions, and of connections that are not theirs any more."""
    before = connected(connect)
    after = connected(connect, before)
    yield "the same session", after.session_id == before.session_id, after.session_timeout_ms
    try:
        yield "the connection before", before.ask(Create("/late"))
    except ConnectionLost:
        yield "the connection before is closed"
    after.ask(CloseSession())
    with pytest.raises(SessionExpired):
        connected(connect, after)
    ahead = connect()
    ahead.sendall(encode_connect(SESSION_MS, 0, NO_PASSWORD, 1 << 60))
    yield "a client that has seen more than the server", waiting.wait_readable(ahead, 10), ahead.recv(100)
