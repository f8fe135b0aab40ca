"""A ZooKeeper in memory: one server, which answers as ZooKeeper 3.5.10.

tests/integration/test_memory_zookeeper.py holds the same conversations with both.

It has what Kafka 2.0.1 uses: sessions that expire, nodes with versions, ephemeral and sequential ones, multis, watches
that fire once. It has no ACLs, and forgets nothing when it restarts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from minibroker.zookeeper.messages import (
    ANY_VERSION,
    CODES,
    CONNECT,
    CONNECTED,
    EPHEMERAL,
    EVENT_XID,
    HEADER,
    INT,
    OP_HEADER,
    PING_XID,
    REPLY_HEADER,
    SEQUENTIAL,
    STAT,
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
    OpCode,
    Operation,
    ReplyCode,
    SetData,
    Write,
    encode_buffer,
    encode_text,
    framed,
)

CONNECTED_STATE = 3  # of an event
NO_CHILDREN_FOR_EPHEMERALS = -108
NOT_TRIED = -2  # of a write of a multi after the one that failed
BOOLEAN = struct.Struct("?")
FIRST_SESSION = 1 << 56
OPERATIONS = {code: operation for operation, code in CODES.items()}


class Node(NamedTuple):
    data: bytes  # none as nothing: the client reads both alike
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    owner: int = 0  # the session that it goes with
    version: int = 0
    created: int = 0  # children, ever
    children: tuple[str, ...] = ()

    def stat(self) -> bytes:
        changes = 2 * self.created - len(self.children)
        times = self.czxid, self.mzxid, self.ctime_ms, self.mtime_ms
        sizes = len(self.data), len(self.children)
        return STAT.pack(*times, self.version, changes, 0, self.owner, *sizes, self.pzxid)


class Session(NamedTuple):
    timeout_ms: int
    password: bytes


class RefusedError(Exception):
    """A request gets an error."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


Event = tuple[EventType, str]


class Connection:
    """A client's connection: `take` bytes from it. `send` gets what it is answered, None for the end."""

    def __init__(self, server: MemoryZooKeeper, send: Callable[[bytes | None], None]) -> None:
        self._server = server
        self._send = send
        self._buffer = b""
        self.session_id = 0
        self._is_open = True
        self._data_watches: set[str] = set()
        self._child_watches: set[str] = set()

    def take(self, data: bytes | None) -> None:
        """Take bytes, or None for the end."""
        if data is None:
            self.close()
            return
        self._buffer += data
        while self._is_open and len(self._buffer) >= INT.size:
            end = INT.size + INT.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            frame, self._buffer = self._buffer[INT.size : end], self._buffer[end:]
            self._serve(FrameReader(frame))

    def close(self) -> None:
        """End the connection, and its watches."""
        if self._is_open:
            self._is_open = False
            self._server.forget(self)
            self._send(None)

    def _serve(self, frame: FrameReader) -> None:
        if not self.session_id:
            self._greet(frame)
            return
        if not self._server.touch(self.session_id):
            self.close()
            return
        xid, code = frame.fields(HEADER)
        if xid == PING_XID:
            self._reply(xid, 0)
            return
        operation = decoded(OpCode(code), frame)
        try:
            body = self._server.serve(self, operation)
        except RefusedError as refused:
            self._reply(xid, refused.code)
        else:
            self._reply(xid, 0, body)
        self._watch(operation)
        if isinstance(operation, CloseSession):
            self.close()

    def _greet(self, frame: FrameReader) -> None:
        _, zxid, timeout_ms, session_id = frame.fields(CONNECT)
        if zxid > self._server.zxid:
            self.close()
            return
        self.session_id = self._server.session(session_id, frame.buffer(), timeout_ms)
        session = self._server.sessions.get(self.session_id, Session(0, bytes(16)))
        fields = CONNECTED.pack(0, session.timeout_ms, self.session_id)
        self._send(framed(fields + encode_buffer(session.password) + b"\0"))
        if not self.session_id:
            self.close()

    def _reply(self, xid: int, error: int, body: bytes = b"") -> None:
        self._send(framed(REPLY_HEADER.pack(xid, self._server.zxid, error) + body))

    # -- watches ----------------------------------------------------------------------------------------------

    def _watch(self, operation: Operation) -> None:
        match operation:
            case Exists(path, True):
                self._data_watches.add(path)
            case GetData(path, True) if path in self._server.nodes:
                self._data_watches.add(path)
            case GetChildren(path, True) if path in self._server.nodes:
                self._child_watches.add(path)

    def show(self, event: Event) -> None:
        """Send an event, if a watch is there for it."""
        event_type, path = event
        watches = self._watches_of(event_type)
        if any(path in each for each in watches):
            for each in watches:
                each.discard(path)
            body = INT.pack(event_type) + INT.pack(CONNECTED_STATE) + encode_text(path)
            self._send(framed(REPLY_HEADER.pack(EVENT_XID, -1, 0) + body))

    def _watches_of(self, event_type: EventType) -> list[set[str]]:
        if event_type == EventType.CHILDREN_CHANGED:
            return [self._child_watches]
        return [self._data_watches] + [self._child_watches] * (event_type == EventType.DELETED)


def decoded(code: OpCode, frame: FrameReader) -> Operation:
    if code == OpCode.MULTI:
        return Multi(list(writes_of(frame)))
    if code == OpCode.CLOSE_SESSION:
        return CloseSession()
    path = frame.text()
    match code:
        case OpCode.CREATE:
            data = frame.buffer()
            for _ in range(frame.number()):  # the rights of a node: all have all
                frame.number(), frame.text(), frame.text()
            return Create(path, data, frame.number())
        case OpCode.SET_DATA:
            return SetData(path, frame.buffer(), frame.number())
        case OpCode.DELETE:
            return Delete(path, frame.number())
        case OpCode.CHECK:
            return Check(path, frame.number())
        case OpCode.EXISTS:
            return Exists(path, watched(frame))
        case OpCode.GET_DATA:
            return GetData(path, watched(frame))
        case OpCode.GET_CHILDREN:
            return GetChildren(path, watched(frame))
    raise AssertionError(code)


def watched(frame: FrameReader) -> bool:
    return bool(frame.fields(BOOLEAN)[0])


def writes_of(frame: FrameReader) -> Iterator[Write]:
    while True:
        code, is_end, _ = frame.fields(OP_HEADER)
        if is_end:
            return
        write = decoded(OpCode(code), frame)
        assert isinstance(write, Write)
        yield write


class MemoryZooKeeper:
    """`now_ms` is the time of its clock. `nodes` are all there are by path; the root is "/"."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self.zxid = 0
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0, 0, 0)}
        self.sessions: dict[int, Session] = {}
        self._due_ms: dict[int, float] = {}
        self._connections: list[Connection] = []
        self._events: list[Event] = []

    # -- sessions ---------------------------------------------------------------------------------------------

    def connect(self, send: Callable[[bytes | None], None]) -> Connection:
        connection = Connection(self, send)
        self._connections.append(connection)
        return connection

    def forget(self, connection: Connection) -> None:
        self._connections.remove(connection)

    def session(self, session_id: int, password: bytes, timeout_ms: int) -> int:
        """Go on with a session, or begin one for id 0; return its id, 0 for one that has ended."""
        if not session_id:
            self.zxid += 1
            session_id = FIRST_SESSION + self.zxid
            self.sessions[session_id] = Session(timeout_ms, session_id.to_bytes(16))
        elif session_id not in self.sessions or self.sessions[session_id].password != password:
            return 0
        self._close_connections(session_id)  # where it was before
        self.touch(session_id)
        return session_id

    def touch(self, session_id: int) -> bool:
        """Have a session go on; return whether it can."""
        if session_id not in self.sessions:
            return False
        self._due_ms[session_id] = self._now_ms() + self.sessions[session_id].timeout_ms
        return True

    def expire(self) -> None:
        """End the sessions that are due."""
        for session_id in [each for each, due_ms in self._due_ms.items() if due_ms <= self._now_ms()]:
            self.end_session(session_id)

    def end_session(self, session_id: int) -> None:
        """End a session: its nodes and its connections go."""
        self._end(session_id)
        self._close_connections(session_id)

    def _close_connections(self, session_id: int) -> None:
        for each in [each for each in self._connections if each.session_id == session_id]:
            each.close()

    def _end(self, session_id: int) -> None:
        del self.sessions[session_id], self._due_ms[session_id]
        self.zxid += 1
        for path in [path for path, node in self.nodes.items() if node.owner == session_id]:
            self._delete(path)
        self._show_events()

    def restart(self) -> None:
        """Close all connections; the sessions go on, each for as long as it is granted."""
        for each in list(self._connections):
            each.close()
        for session_id in self.sessions:
            self.touch(session_id)

    # -- requests ---------------------------------------------------------------------------------------------

    def serve(self, connection: Connection, operation: Operation) -> bytes:
        """Return the body of a reply. Raises RefusedError."""
        match operation:
            case CloseSession():
                self._end(connection.session_id)
                return b""
            case Exists(path):
                return self._node(path).stat()
            case GetData(path):
                return encode_buffer(self._node(path).data) + self._node(path).stat()
            case GetChildren(path):
                node = self._node(path)
                return INT.pack(len(node.children)) + b"".join(map(encode_text, node.children)) + node.stat()
            case Multi(writes):
                return self._write_all(writes, connection.session_id)
            case Create() | Delete() | SetData():
                self.zxid += 1
                body = self._write(operation, connection.session_id)
                self._show_events()
                return body
        raise AssertionError(operation)

    def _write_all(self, writes: Sequence[Write], session_id: int) -> bytes:
        self.zxid += 1
        before, parts = dict(self.nodes), []
        try:
            for write in writes:
                parts.append(OP_HEADER.pack(CODES[type(write)], False, 0) + self._write(write, session_id))
        except RefusedError as refused:
            self.nodes = before
            self._events.clear()
            errors = [*[0] * len(parts), refused.code, *[NOT_TRIED] * (len(writes) - len(parts) - 1)]
            parts = [OP_HEADER.pack(-1, False, each) + INT.pack(each) for each in errors]
        self._show_events()
        return b"".join(parts) + OP_HEADER.pack(-1, True, -1)

    def _write(self, write: Write, session_id: int) -> bytes:
        match write:
            case Create(path, data, flags):
                return encode_text(self._create(path, data, flags, session_id))
            case Check(path, version):
                self._node(path, version)
            case SetData(path, data, version):
                node = self._node(path, version)
                node = node._replace(
                    data=data or b"", mzxid=self.zxid, mtime_ms=self._time_ms(), version=node.version + 1
                )
                self.nodes[path] = node
                self._events.append((EventType.DATA_CHANGED, path))
                return node.stat()
            case Delete(path, version):
                if self._node(path, version).children:
                    raise RefusedError(ReplyCode.NOT_EMPTY)
                self._delete(path)
        return b""

    def _node(self, path: str, version: int = ANY_VERSION) -> Node:
        node = self.nodes.get(path)
        if node is None:
            raise RefusedError(ReplyCode.NO_NODE)
        if version not in (ANY_VERSION, node.version):
            raise RefusedError(ReplyCode.BAD_VERSION)
        return node

    def _time_ms(self) -> int:
        return int(self._now_ms())

    def _create(self, path: str, data: bytes | None, flags: int, session_id: int) -> str:
        above, _, name = path.rpartition("/")
        above = above or "/"
        parent = self._node(above)
        if flags & SEQUENTIAL:
            path, name = f"{path}{parent.created:010}", f"{name}{parent.created:010}"
        if path in self.nodes:
            raise RefusedError(ReplyCode.NODE_EXISTS)
        if parent.owner:
            raise RefusedError(NO_CHILDREN_FOR_EPHEMERALS)
        now_ms, owner = self._time_ms(), session_id if flags & EPHEMERAL else 0
        self.nodes[path] = Node(data or b"", self.zxid, self.zxid, self.zxid, now_ms, now_ms, owner)
        children = (*parent.children, name)
        self.nodes[above] = parent._replace(children=children, created=parent.created + 1, pzxid=self.zxid)
        self._events += [(EventType.CREATED, path), (EventType.CHILDREN_CHANGED, above)]
        return path

    def _delete(self, path: str) -> None:
        above, _, name = path.rpartition("/")
        above = above or "/"
        parent = self.nodes[above]
        del self.nodes[path]
        children = tuple([each for each in parent.children if each != name])
        self.nodes[above] = parent._replace(children=children, pzxid=self.zxid)
        self._events += [(EventType.DELETED, path), (EventType.CHILDREN_CHANGED, above)]

    def _show_events(self) -> None:
        events, self._events = self._events, []
        for event in events:
            for connection in list(self._connections):
                connection.show(event)

    def delete(self, path: str) -> bool:
        """Delete a node as an operator does; return whether it was there."""
        if path not in self.nodes:
            return False
        self.zxid += 1
        self._delete(path)
        self._show_events()
        return True
