"""The operations of ZooKeeper's protocol that Kafka 2.0.1 uses, as bytes.

Each frame is its length and its content, by jute: numbers are big-endian; texts, buffers and lists have their length in
front, -1 for null. A request is a header (xid, type) and a body; a reply is a header (xid, zxid, error) and, without
an error, a body. An event of a watch is a reply with xid -1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

EVENT_XID: Final = -1
PING_XID: Final = -2
ANY_VERSION: Final = -1
EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2
PASSWORD_BYTES: Final = 16

INT = struct.Struct(">i")
HEADER = struct.Struct(">ii")  # of a request: xid, type
REPLY_HEADER = struct.Struct(">iqi")  # xid, zxid, error
CONNECT = struct.Struct(">iqiq")  # protocol version, last zxid seen, timeout in ms, session id
CONNECTED = struct.Struct(">iiq")  # protocol version, timeout in ms, session id
STAT = struct.Struct(">qqqqiiiqiiq")
OP_HEADER = struct.Struct(">i?i")  # in a multi: type, whether it is the end, error
WORLD_ANYONE = INT.pack(1) + INT.pack(31) + INT.pack(5) + b"world" + INT.pack(6) + b"anyone"


class OpCode(IntEnum):
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    PING = 11
    GET_CHILDREN = 12
    CHECK = 13
    MULTI = 14
    CLOSE_SESSION = -11


class ReplyCode(IntEnum):
    """The errors that a request of ours can get; others are a plain number."""

    OK = 0
    CONNECTION_LOSS = -4
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112


class Stat(NamedTuple):
    """The facts that ZooKeeper has of a node. `czxid` numbers its creation, `ephemeral_owner` is a session or 0."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    children_version: int
    acl_version: int
    ephemeral_owner: int
    data_bytes: int
    children_count: int
    pzxid: int


class EventType(IntEnum):
    SESSION = -1
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    """A watch has fired: it fires once."""

    event_type: int
    path: str


class Create(NamedTuple):
    """Make a node; the answer is its path, with a number if it is SEQUENTIAL."""

    path: str
    data: bytes | None = None
    flags: int = 0


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class SetData(NamedTuple):
    """The answer is the Stat of the node."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Have a Multi fail if the node has another version."""

    path: str
    version: int


class Exists(NamedTuple):
    """The answer is the Stat of the node. A watch is set even if there is no node (NO_NODE)."""

    path: str
    watch: bool = False


class GetData(NamedTuple):
    """The answer is a NodeData; with NO_NODE no watch is set."""

    path: str
    watch: bool = False


class GetChildren(NamedTuple):
    """The answer is the names of a node's children."""

    path: str
    watch: bool = False


Write = Create | Delete | SetData | Check


class Multi(NamedTuple):
    """All of these writes or none; the answer is that of each."""

    writes: Sequence[Write]


class CloseSession(NamedTuple):
    """End the session; its ephemeral nodes go."""


Operation = Write | Exists | GetData | GetChildren | Multi | CloseSession


class NodeData(NamedTuple):
    data: bytes
    stat: Stat


class ZooKeeperError(Exception):
    """An answer of ZooKeeper that is an error; the message names the operation."""

    def __init__(self, code: int, subject: str) -> None:
        name = ReplyCode(code).name if code in ReplyCode._value2member_map_ else str(code)
        super().__init__(f"{subject}: {name}")
        self.code = code


Answer = str | Stat | NodeData | list[str] | list["Answer | ZooKeeperError"] | None


def is_error(answer: Answer | ZooKeeperError, code: ReplyCode) -> bool:
    return isinstance(answer, ZooKeeperError) and answer.code == code


CODES = {
    Create: OpCode.CREATE,
    Delete: OpCode.DELETE,
    SetData: OpCode.SET_DATA,
    Check: OpCode.CHECK,
    Exists: OpCode.EXISTS,
    GetData: OpCode.GET_DATA,
    GetChildren: OpCode.GET_CHILDREN,
    Multi: OpCode.MULTI,
    CloseSession: OpCode.CLOSE_SESSION,
}


# -- requests -------------------------------------------------------------------------------------------------------


def encode_buffer(data: bytes | None) -> bytes:
    return INT.pack(-1) if data is None else INT.pack(len(data)) + data


def encode_text(text: str) -> bytes:
    return encode_buffer(text.encode())


def encode_operation(operation: Operation, root: str) -> bytes:
    """The body of a request; `root` goes in front of its paths."""
    match operation:
        case Create(path, data, flags):
            return encode_text(root + path) + encode_buffer(data) + WORLD_ANYONE + INT.pack(flags)
        case SetData(path, data, version):
            return encode_text(root + path) + encode_buffer(data) + INT.pack(version)
        case Delete(path, version) | Check(path, version):
            return encode_text(root + path) + INT.pack(version)
        case Exists(path, watch) | GetData(path, watch) | GetChildren(path, watch):
            return encode_text(root + path) + bytes([watch])
        case Multi(writes):
            parts = [OP_HEADER.pack(CODES[type(each)], False, -1) + encode_operation(each, root) for each in writes]
            return b"".join(parts) + OP_HEADER.pack(-1, True, -1)
        case CloseSession():
            return b""


def encode_request(xid: int, operation: Operation, root: str) -> bytes:
    return framed(HEADER.pack(xid, CODES[type(operation)]) + encode_operation(operation, root))


def encode_connect(timeout_ms: int, session_id: int, password: bytes, last_zxid: int) -> bytes:
    """Ask for a session, a new one with id 0."""
    return framed(CONNECT.pack(0, last_zxid, timeout_ms, session_id) + encode_buffer(password) + b"\0")


PING = INT.pack(HEADER.size) + HEADER.pack(PING_XID, OpCode.PING)


def framed(content: bytes) -> bytes:
    return INT.pack(len(content)) + content


# -- replies --------------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """`rest` is the body, and begins where its frame does."""

    xid: int
    zxid: int
    error: int
    rest: FrameReader


class FrameReader:
    """Reads the fields of a frame, one after the other. Raises struct.error and ValueError for a short frame."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._position = 0

    def fields(self, form: struct.Struct) -> tuple[int, ...]:
        values: tuple[int, ...] = form.unpack_from(self._frame, self._position)
        self._position += form.size
        return values

    def number(self) -> int:
        return self.fields(INT)[0]

    def buffer(self) -> bytes:
        """A buffer; null is an empty one."""
        length = max(0, self.number())
        end = self._position + length
        if end > len(self._frame):
            raise ValueError(f"a buffer of {length} bytes in a frame of {len(self._frame)}")
        data = self._frame[self._position : end]
        self._position = end
        return data

    def text(self) -> str:
        return self.buffer().decode()

    def stat(self) -> Stat:
        return Stat(*self.fields(STAT))


def decode_reply(frame: bytes) -> Reply:
    reader = FrameReader(frame)
    xid, zxid, error = reader.fields(REPLY_HEADER)
    return Reply(xid, zxid, error, reader)


def decode_connected(frame: bytes) -> tuple[int, int, bytes]:
    """The timeout of the session in ms, its id and its password; id 0 for one that has expired."""
    reader = FrameReader(frame)
    _, timeout_ms, session_id = reader.fields(CONNECTED)
    return timeout_ms, session_id, reader.buffer()


def decode_event(reader: FrameReader, root: str) -> WatchEvent:
    event_type, _ = reader.number(), reader.number()
    return WatchEvent(event_type, reader.text().removeprefix(root) or "/")


def decode_answer(operation: Operation, reader: FrameReader, root: str) -> Answer:
    match operation:
        case Create():
            return reader.text().removeprefix(root)
        case SetData() | Exists():
            return reader.stat()
        case GetData():
            data = reader.buffer()
            return NodeData(data, reader.stat())
        case GetChildren():
            return [reader.text() for _ in range(reader.number())]
        case Multi(writes):
            answers: list[Answer | ZooKeeperError] = []
            for write in writes:
                code, _, error = reader.fields(OP_HEADER)
                if code == -1:
                    error = reader.number()
                    answers.append(ZooKeeperError(error, subject_of(write)))
                else:
                    answers.append(decode_answer(write, reader, root))
            return answers
        case _:
            return None


def subject_of(operation: Operation) -> str:
    return f"{CODES[type(operation)].name.lower()} {getattr(operation, 'path', '')}".rstrip()
