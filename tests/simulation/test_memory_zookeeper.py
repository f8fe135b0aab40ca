"""The ZooKeeper of the simulation answers what one of 3.5.10 has answered, to the byte; and its sessions end."""

from __future__ import annotations

import json
import re

from minibroker.simulation.memory_zookeeper import Connection, MemoryZooKeeper
from minibroker.zookeeper.messages import (
    CONNECTED,
    EPHEMERAL,
    INT,
    PASSWORD_BYTES,
    PING,
    Create,
    EventType,
    Exists,
    FrameReader,
    decode_connected,
    decode_event,
    decode_reply,
    encode_connect,
    encode_request,
)
from tests.sources import ROOT

RECORDED = ROOT / "tests/golden/zookeeper-3.5.10-session.json"
RECORDED_MS = 0x1A2155DCF00
OWN_OF_A_SESSION = slice(INT.size + CONNECTED.size - 8, INT.size + CONNECTED.size + INT.size + PASSWORD_BYTES)


class Client:
    """A connection, and what it was sent."""

    def __init__(self, server: MemoryZooKeeper, session_id: int = 0, password: bytes = bytes(PASSWORD_BYTES)) -> None:
        self.sent: list[bytes | None] = []
        self.connection: Connection = server.connect(self.sent.append)
        self.connection.take(encode_connect(1000, session_id, password, 0))
        greeting = self.sent.pop(0)
        assert greeting is not None
        _, self.session_id, self.password = decode_connected(greeting[INT.size :])

    def read(self) -> list[FrameReader | None]:
        """Take what was sent: the replies and events, None for the end."""
        sent = [None if each is None else decode_reply(each[INT.size :]).rest for each in self.sent]
        self.sent.clear()
        return sent


def test_a_recorded_session_is_answered_to_the_byte() -> None:
    recorded = json.loads(RECORDED.read_text())
    server = MemoryZooKeeper(lambda: RECORDED_MS)
    before = Client(server)
    before.connection.take(encode_request(1, Create("/root"), ""))
    sent = bytearray()
    connection = server.connect(lambda data: sent.extend(data or b""))
    server.end_session(before.session_id)
    assert server.zxid == 3  # as before the recording

    connection.take(bytes.fromhex(recorded["sent"]))

    expected = bytearray.fromhex(recorded["received"])
    for each in (sent, expected):
        each[OWN_OF_A_SESSION] = b""
    times = re.compile(rb"\x00\x00\x01\xa2\x15\x5d..", re.DOTALL)
    assert times.sub(b"time", sent).hex(" ") == times.sub(b"time", expected).hex(" ")


def test_a_session_ends_once_nothing_is_heard_of_it_and_shows_that_its_nodes_go() -> None:
    now_ms = 0.0
    server = MemoryZooKeeper(lambda: now_ms)
    owner, other = Client(server), Client(server)
    owner.connection.take(encode_request(1, Create("/mine", b"", EPHEMERAL), ""))
    other.connection.take(encode_request(1, Exists("/mine", watch=True), ""))
    owner.read(), other.read()

    now_ms = 900.0
    other.connection.take(PING)
    server.expire()
    assert (owner.read(), len(other.read())) == ([], 1)
    now_ms = 1000.0
    server.expire()

    assert owner.read() == [None]
    (event,) = other.read()
    assert event is not None and decode_event(event, "") == (EventType.DELETED, "/mine")
    assert list(server.nodes) == ["/"]
    assert Client(server, owner.session_id, owner.password).session_id == 0
    assert Client(server, other.session_id, other.password).session_id == other.session_id
    assert Client(server, other.session_id, bytes(PASSWORD_BYTES)).session_id == 0
