"""A session with ZooKeeper 3.5.10 as it was recorded: the same bytes are sent again, and the replies understood."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.zookeeper import waiting
from minibroker.zookeeper.messages import (
    CONNECT,
    CONNECTED,
    EPHEMERAL,
    EVENT_XID,
    INT,
    PING_XID,
    REPLY_HEADER,
    SEQUENTIAL,
    Check,
    CloseSession,
    Create,
    Delete,
    EventType,
    Exists,
    FrameReader,
    GetChildren,
    GetData,
    Multi,
    NodeData,
    Operation,
    ReplyCode,
    SetData,
    Stat,
    WatchEvent,
    ZooKeeperError,
    encode_buffer,
    framed,
)
from minibroker.zookeeper.session import ConnectionLost, SessionExpired, ZooKeeperClient
from tests.sources import ROOT

GREETING_BYTES = CONNECT.size + 4 + 16 + 1  # with the password, and whether reading is enough
RECORDED = ROOT / "tests/golden/zookeeper-3.5.10-session.json"


def conversation(client: ZooKeeperClient) -> list[Any]:
    """Ask everything once; return the answers, errors as their codes."""
    asked: list[Operation] = [
        Create("/a", b"x"),
        Create("/a/s-", "é".encode(), SEQUENTIAL),
        Create("/e", None, EPHEMERAL),
        Create("/a"),
        GetData("/a", watch=True),
        GetChildren("/a", watch=True),
        Exists("/b", watch=True),
        SetData("/a", b"y", 0),
        SetData("/a", b"z", 0),
        Multi([Check("/a", 1), Create("/b", b"1"), SetData("/a", b"2", 1), Delete("/e"), Create("/a/t")]),
        Multi([Check("/a", 1), Create("/c")]),
        GetData("/none"),
    ]
    client.ping()
    answers = client.ask_all(asked)
    client.ask(CloseSession())
    return [[coded(each) for each in answer] if isinstance(answer, list) else coded(answer) for answer in answers]


def coded(answer: Any) -> Any:
    """An answer without what differs in each session."""
    if isinstance(answer, ZooKeeperError):
        return answer.code
    if isinstance(answer, NodeData):
        return answer.data, answer.stat.version
    return (answer.version, answer.children_count) if isinstance(answer, Stat) else answer


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a connection, which is none of TCP."""
    monkeypatch.setattr(socket.socket, "setsockopt", lambda *arguments: None)
    ours, servers = socket.socketpair()
    yield ours, servers
    ours.close()
    servers.close()


def test_a_recorded_session_is_held_again(ends: tuple[socket.socket, socket.socket]) -> None:
    recorded = json.loads(RECORDED.read_text())
    ours, server = ends
    server.sendall(bytes.fromhex(recorded["received"]))
    client = ZooKeeperClient("/root", session_timeout_ms=6000)
    client.greet(ours)
    client.accept()

    answers = conversation(client)

    assert server.recv(1 << 16).hex() == recorded["sent"]
    assert answers == [
        "/a",
        "/a/s-0000000000",
        "/e",
        ReplyCode.NODE_EXISTS,
        (b"x", 0),
        ["s-0000000000"],
        ReplyCode.NO_NODE,
        (1, 1),
        ReplyCode.BAD_VERSION,
        [None, "/b", (2, 1), None, "/a/t"],
        [ReplyCode.BAD_VERSION, -2],
        ReplyCode.NO_NODE,
    ]
    assert client.take_events() == [
        WatchEvent(EventType.DATA_CHANGED, "/a"),
        WatchEvent(EventType.CREATED, "/b"),
        WatchEvent(EventType.CHILDREN_CHANGED, "/a"),
    ]
    assert client.session_timeout_ms == 6000
    assert client.session_id != 0


def test_a_session_that_has_expired_begins_anew(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, server = ends
    server.sendall(framed(CONNECTED.pack(0, 0, 0) + encode_buffer(bytes(16))))
    client = ZooKeeperClient("", session_timeout_ms=6000)
    client.session_id = 5
    client.greet(ours)

    with pytest.raises(SessionExpired):
        client.accept()
    assert (client.session_id, client.is_connected) == (0, False)


def test_nothing_is_asked_before_the_server_has_accepted_the_session(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, server = ends
    server.sendall(framed(CONNECTED.pack(0, 6000, 7) + encode_buffer(bytes(16))))
    client = ZooKeeperClient("", session_timeout_ms=6000)
    client.greet(ours)

    with pytest.raises(ConnectionLost, match="there is no connection"):
        client.ask(GetData("/a"))
    client.accept()

    assert (client.is_connected, client.session_id) == (True, 7)
    client.greet(ours)
    greeting = FrameReader(server.recv(1 << 16)[-GREETING_BYTES:])
    assert greeting.fields(CONNECT) == (0, 0, 6000, 7), "the last zxid that the client has seen is none"


def test_an_answer_that_was_not_read_for_a_while_shows_no_session_that_goes_on(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, server = ends
    now = 100.0
    monkeypatch.setattr(waiting, "monotonic", lambda: now)
    server.sendall(framed(CONNECTED.pack(0, 6000, 7) + encode_buffer(bytes(16))))
    client = ZooKeeperClient("", session_timeout_ms=6000)
    client.greet(ours)
    client.accept()
    client.ping()
    event = REPLY_HEADER.pack(EVENT_XID, -1, 0) + INT.pack(EventType.CREATED) + INT.pack(3) + encode_buffer(b"/a")
    server.sendall(framed(REPLY_HEADER.pack(PING_XID, 1, 0)) + framed(event))

    now = 107.0  # as after SIGSTOP and SIGCONT
    client.receive()

    assert client.take_events() == [WatchEvent(EventType.CREATED, "/a")]
    assert client.silent_seconds == 7


def test_a_server_that_does_not_answer_is_left(ends: tuple[socket.socket, socket.socket]) -> None:
    client = ZooKeeperClient("", session_timeout_ms=30)
    client.greet(ends[0])

    with pytest.raises(ConnectionLost, match="has not answered for 10 ms"):
        client.accept()
    with pytest.raises(ConnectionLost, match="there is no connection"):
        client.ask(GetData("/a"))
