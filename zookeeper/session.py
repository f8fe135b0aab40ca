"""A session with ZooKeeper.

A question is a plain call, which sends a request and waits for its reply on the socket: a ZooKeeper near by answers in
a millisecond, and `answer_timeout_ms` bounds the wait. Events of watches that arrive in between are kept for
`take_events`, and a listener is called (`listen`). The owner calls `receive` when
the socket has become readable, `ping` from time to time, and connects again after a loss, within the session's timeout:
then the session goes on. Watches end with their connection.
"""

from __future__ import annotations

import math
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from minibroker.protocol.text import reason_of
from minibroker.zookeeper import waiting
from minibroker.zookeeper.messages import (
    EVENT_XID,
    INT,
    PASSWORD_BYTES,
    PING,
    PING_XID,
    Answer,
    CloseSession,
    EventType,
    Exists,
    GetChildren,
    GetData,
    NodeData,
    Operation,
    Reply,
    Stat,
    WatchEvent,
    ZooKeeperError,
    decode_answer,
    decode_connected,
    decode_event,
    decode_reply,
    encode_connect,
    encode_request,
    subject_of,
)

DEFAULT_PORT: Final = 2181
IN_FLIGHT_MAX: Final = 100  # requests sent before the replies are read
READ_BYTES: Final = 1 << 16
RETRY_SECONDS: Final = 0.1
FRAME_BYTES_MAX: Final = 1 << 26
NO_PASSWORD: Final = bytes(PASSWORD_BYTES)


class ConnectionLost(Exception):
    """There is no connection to ZooKeeper, or it went; whether the last request was served is open."""


class SessionExpired(Exception):
    """The session has ended; its ephemeral nodes are gone. The next connection begins another."""


class Ensemble(NamedTuple):
    """The servers of a ZooKeeper, and the path under which all nodes are ("" for the root)."""

    servers: Sequence[tuple[str, int]]
    root: str = ""


def parse_ensemble(text: str) -> Ensemble:
    """Read `host:port,host:port/root`, as zookeeper.connect has it. Raises ValueError with the reason."""
    hosts, slash, root = text.strip().partition("/")
    servers = []
    for each in hosts.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not colon:
            host, port = port, str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{each.strip()!r} is not HOST:PORT, such as 127.0.0.1:{DEFAULT_PORT}")
        servers.append((host.strip("[]"), int(port)))
    return Ensemble(servers, (slash + root).rstrip("/"))


class ZooKeeperClient:
    """`session_id` is 0 before the first session; `session_timeout_ms` is what ZooKeeper has granted."""

    def __init__(self, root: str, *, session_timeout_ms: int) -> None:
        self._root = root
        self._wanted_timeout_ms = session_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.session_id = 0
        self._on_event: Callable[[], None] = lambda: None
        self._password = NO_PASSWORD
        self._last_zxid = 0
        self._last_xid = 0
        self._socket: socket.socket | None = None
        self._is_accepted = False  # of the session, on this connection
        self._buffer = bytearray()
        self._events: list[WatchEvent] = []
        # An answer may have lain unread while this process stood still: what it answers to was sent before.
        self._asked_at_seconds: deque[float] = deque()  # what is not answered yet
        self._heard_at_seconds = -math.inf  # when the last that was answered was sent

    def listen(self, on_event: Callable[[], None]) -> None:
        """Call this once there are events."""
        self._on_event = on_event

    @property
    def is_connected(self) -> bool:
        """Whether questions may be asked: a server has accepted the session."""
        return self._is_accepted

    @property
    def silent_seconds(self) -> float:
        """For how long ZooKeeper may have heard nothing of the session."""
        return waiting.monotonic() - self._heard_at_seconds

    @property
    def answer_timeout_ms(self) -> int:
        """The longest wait for a reply: a third of the session's timeout."""
        return self.session_timeout_ms // 3

    def fileno(self) -> int:
        """The socket's descriptor, to wait for. Raises ConnectionLost."""
        return self._connected().fileno()

    def another_end(self) -> socket.socket:
        """Another descriptor of the socket, which stays open for a wait if the client's is closed.

        Raises ConnectionLost.
        """
        return self._connected().dup()

    # -- connections ------------------------------------------------------------------------------------------

    def greet(self, sock: socket.socket) -> None:
        """Ask for the session on a new connection; `accept` reads the answer. Raises ConnectionLost."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._is_accepted = sock, False
        self._buffer.clear()
        self._asked_at_seconds.clear()
        self._send(encode_connect(self._wanted_timeout_ms, self.session_id, self._password, self._last_zxid))

    def accept(self) -> None:
        """Go on with the session, or begin one. Raises ConnectionLost; SessionExpired if it cannot go on."""
        timeout_ms, session_id, password = decode_connected(self._next_frame(self._deadline()))
        if session_id == 0:
            self.session_id, self._password = 0, NO_PASSWORD
            self.disconnect()
            raise SessionExpired
        self.session_timeout_ms, self.session_id, self._password = timeout_ms, session_id, password
        self._is_accepted = True

    def connect(self, servers: Sequence[tuple[str, int]], *, timeout_ms: int) -> None:
        """Connect to the first server that answers, waiting for one that starts.

        Raises ConnectionLost with the reason of the last try, and SessionExpired.
        """
        deadline = waiting.monotonic() + timeout_ms / 1000
        while True:
            for host, port in servers:
                try:
                    self.greet(waiting.create_connection((host, port), self.answer_timeout_ms / 1000))
                    self.accept()
                    return
                except (OSError, ConnectionLost) as error:
                    reason = reason_of(error)
            if waiting.monotonic() > deadline:
                raise ConnectionLost(reason)
            waiting.sleep(RETRY_SECONDS)

    def close(self) -> None:
        """End the session, if there is a connection; else it ends by its timeout."""
        try:
            if self.is_connected and self.session_id:
                self.ask(CloseSession())
        except (ConnectionLost, ZooKeeperError):
            pass  # it has ended, or does so by itself
        finally:
            self.disconnect()

    def resume(self, other: ZooKeeperClient) -> None:
        """Go on with the session of another client, at the next connection: ZooKeeper closes the other's."""
        self.session_id, self._password = other.session_id, other._password

    # -- questions --------------------------------------------------------------------------------------------

    def ask(self, operation: Operation) -> Answer:
        """Raises ZooKeeperError for an answer that is an error, and ConnectionLost."""
        answer = self.ask_all([operation])[0]
        if isinstance(answer, ZooKeeperError):
            raise answer
        return answer

    def ask_all(self, operations: Sequence[Operation]) -> list[Answer | ZooKeeperError]:
        """Send many requests without waiting for each; return their answers in order. Raises ConnectionLost."""
        if not self._is_accepted:  # else they would take the server's greeting for a reply
            raise ConnectionLost("there is no connection to ZooKeeper")
        answers: list[Answer | ZooKeeperError] = []
        for first in range(0, len(operations), IN_FLIGHT_MAX):
            asked = operations[first : first + IN_FLIGHT_MAX]
            first_xid = self._last_xid + 1
            self._last_xid += len(asked)
            frames = [encode_request(xid, each, self._root) for xid, each in enumerate(asked, first_xid)]
            self._asked_at_seconds.extend([waiting.monotonic()] * len(asked))
            self._send(b"".join(frames))
            for xid, operation in enumerate(asked, first_xid):
                answers.append(self._answer(xid, operation))
        return answers

    def _answer(self, xid: int, operation: Operation) -> Answer | ZooKeeperError:
        reply = self._take(self._next_frame(self._deadline()))
        while reply is None:
            reply = self._take(self._next_frame(self._deadline()))
        if reply.xid != xid:
            self.disconnect()
            raise ConnectionLost(f"a reply to request {reply.xid} instead of {xid}")
        if reply.error:
            return ZooKeeperError(reply.error, subject_of(operation))
        return decode_answer(operation, reply.rest, self._root)

    def data(self, path: str) -> NodeData:
        """Return what a node has. Raises as `ask`."""
        answer = self.ask(GetData(path))
        assert isinstance(answer, NodeData)
        return answer

    def data_of(self, paths: Iterable[str], *, watch: bool = False) -> list[NodeData | None]:
        """Return what each node has, None without a node. Raises ConnectionLost."""
        answers = self.ask_all([GetData(path, watch) for path in paths])
        return [each if isinstance(each, NodeData) else None for each in answers]

    def data_if_any(self, path: str) -> NodeData | None:
        """Return what a node has, None without a node. Raises ConnectionLost."""
        return self.data_of([path])[0]

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that have no node. Raises ConnectionLost."""
        asked = list(paths)
        stats = self.ask_all([Exists(path) for path in asked])
        return [path for path, stat in zip(asked, stats, strict=True) if not isinstance(stat, Stat)]

    def watched(self, path: str) -> NodeData | None:
        """Return what a node has, None without a node; watch it, or for it to come. Raises ConnectionLost."""
        self.ask_all([Exists(path, watch=True)])
        return self.data_if_any(path)

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names of a node's children. Raises as `ask`."""
        answer = self.ask(GetChildren(path, watch))
        assert isinstance(answer, list)
        return [str(each) for each in answer]

    def children_if_any(self, path: str) -> list[str]:
        """Return the names of a node's children, none without a node. Raises ConnectionLost."""
        answer = self.ask_all([GetChildren(path)])[0]
        return [str(each) for each in answer] if isinstance(answer, list) else []

    def ping(self) -> None:
        """Keep the session alive. Raises ConnectionLost."""
        self._asked_at_seconds.append(waiting.monotonic())
        self._send(PING)

    def receive(self) -> None:
        """Read what has arrived while nothing was asked. Raises ConnectionLost."""
        while (frame := self._frame()) is not None or self._fill():
            if frame is not None:
                self._take(frame)

    def take_events(self) -> list[WatchEvent]:
        """The events of watches since the last call."""
        events, self._events = self._events, []
        return events

    # -- bytes ------------------------------------------------------------------------------------------------

    def _take(self, frame: bytes) -> Reply | None:
        """Note an event; return any other reply but those of pings."""
        reply = decode_reply(frame)
        if reply.xid == EVENT_XID:
            event = decode_event(reply.rest, self._root)
            if event.event_type != EventType.SESSION:
                self._events.append(event)
                self._on_event()
            return None
        self._last_zxid = max(self._last_zxid, reply.zxid)
        if self._asked_at_seconds:  # else it answers to nothing: `_answer` finds that
            self._heard_at_seconds = self._asked_at_seconds.popleft()
        return None if reply.xid == PING_XID else reply

    def _deadline(self) -> float:
        return waiting.monotonic() + self.answer_timeout_ms / 1000

    def _next_frame(self, deadline: float) -> bytes:
        while (frame := self._frame()) is None:
            if not self._fill():
                self._wait(waiting.wait_readable, deadline)
        return frame

    def _frame(self) -> bytes | None:
        """The next frame that has arrived whole."""
        if len(self._buffer) < INT.size:
            return None
        length: int = INT.unpack_from(self._buffer)[0]
        if not 0 <= length <= FRAME_BYTES_MAX:
            self.disconnect()
            raise ConnectionLost(f"a frame of {length} bytes: no ZooKeeper")
        end = INT.size + length
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[INT.size : end])
        del self._buffer[:end]
        return frame

    def _fill(self) -> bool:
        """Read what is there; return whether that was something."""
        try:
            data = self._connected().recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            self.disconnect()
            raise ConnectionLost(reason_of(error)) from error
        if not data:
            self.disconnect()
            raise ConnectionLost("ZooKeeper has closed the connection")
        self._buffer += data
        return True

    def _send(self, data: bytes) -> None:
        sock, deadline = self._connected(), self._deadline()
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[sock.send(rest) :]
            except BlockingIOError:
                self._wait(waiting.wait_writable, deadline)
            except OSError as error:
                self.disconnect()
                raise ConnectionLost(reason_of(error)) from error

    def _wait(self, until: Callable[[socket.socket, float], bool], deadline: float) -> None:
        if not until(self._connected(), deadline - waiting.monotonic()):
            self.disconnect()
            raise ConnectionLost(f"ZooKeeper has not answered for {self.answer_timeout_ms} ms")

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLost("there is no connection to ZooKeeper")
        return self._socket

    def disconnect(self) -> None:
        """Close the connection; the session goes on until its timeout. A wait for the socket ends, too."""
        if self._socket is not None:
            with suppress(OSError):  # it is closed already
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket, self._is_accepted = None, False
