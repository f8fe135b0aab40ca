"""The steps of a conversation as plain values: they can be printed as a script, shrunk, and asked of any broker.

Three things in a request depend on the run, and are put in when it is sent: `@` in a string is the prefix of
the run's topics, `FromNow` a time around the present, `SessionOf` the fetch session that an earlier step began.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import crc32c

from minibroker.conformance.lies import Lie
from minibroker.protocol.api import API_TABLE, ApiKey, encode_request
from minibroker.protocol.compression import Codec, compress
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch

KEYS = {api.name: ApiKey(key) for key, api in API_TABLE.items()}
PREFIX_MARK = "@"
RAW_PREFIX = b"@" * 8  # in raw bytes, where lengths are given: as long as a prefix
CORRELATION_ID = 77
CLIENT_ID = "conformance"
TEXT = b"The quick brown fox jumps over the lazy dog. "
CRC_AT, CRC_COVERS_FROM = 17, 21  # of a batch of magic 2
MESSAGE_CRC_AT, MESSAGE_CRC_COVERS_FROM, ATTRIBUTES_AT = 12, 16, 17  # of magic 0 and 1
NO_BODY = struct.Struct(">hhih")


class Shown:
    """Printed as the call that makes it, without what is left at its default."""

    def __repr__(self) -> str:
        given = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)  # type: ignore[arg-type]
            if getattr(self, each.name) != each.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"


@dataclass(frozen=True, repr=False)
class Batch(Shown):
    """Records to produce: rows of (timestamp, key, value) and maybe headers, in the form of a magic.

    A key or value that is a number is that many bytes: of text, or, below zero, of noise no codec makes smaller.
    `edits` overwrite the finished bytes: (position, struct format, number); `is_resealed` makes the CRC right again.
    """

    rows: tuple[tuple[Any, ...], ...]
    magic: int = 2
    codec: int = 0
    producer: tuple[int | ProducerOf, int, int] = (-1, -1, -1)  # id, epoch, first sequence
    is_transactional: bool = False
    is_control: bool = False
    first_offset: int = 0  # of magic 0 and 1, whose offsets are the producer's until the broker gives its own
    edits: tuple[tuple[int, str, int], ...] = ()
    is_resealed: bool = False

    def build(self, now_ms: int) -> bytes:
        records = [
            record_of(row, (0 if self.magic == 2 else self.first_offset) + number, now_ms)
            for number, row in enumerate(self.rows)
        ]
        if self.magic == 2:
            producer_id, epoch, sequence = self.producer
            assert isinstance(producer_id, int), f"{producer_id} is filled in before a batch is built"
            built = build_batch(
                records,
                codec=Codec(self.codec),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=self.is_transactional,
                is_control=self.is_control,
            )
        else:
            built = build_message_set(records, magic=self.magic, codec=Codec(self.codec))
        for position, form, number in self.edits:
            struct.pack_into(form, built, position, number)
        if self.is_resealed:
            struct.pack_into(">I", built, CRC_AT, crc32c.crc32c(bytes(built[CRC_COVERS_FROM:])))
        return bytes(built)


@dataclass(frozen=True, repr=False)
class Wrapper(Shown):
    """A compressed message set as no library makes it: rows as those of a Batch, each with any offset inside.

    `offset` is the wrapper's own, `cut` the bytes that lack at the end of what is compressed. `edits` overwrite that
    before, `damage` what comes of it: (position, struct format, number). `packed_for` is the magic whose lz4 it is.
    """

    rows: tuple[tuple[Any, ...], ...]
    offsets: tuple[int, ...]
    offset: int
    magic: int = 1
    inner_magic: int = -1  # the wrapper's
    codec: int = 1
    attributes: int = 0
    cut: int = 0
    edits: tuple[tuple[int, str, int], ...] = ()
    damage: tuple[tuple[int, str, int], ...] = ()
    packed_for: int = -1  # the wrapper's

    def build(self, now_ms: int) -> bytes:
        inner_magic = self.magic if self.inner_magic < 0 else self.inner_magic
        inside = bytearray().join(
            build_message_set([record_of(row, offset, now_ms)], magic=inner_magic)
            for offset, row in zip(self.offsets, self.rows, strict=True)
        )
        for position, form, number in self.edits:
            struct.pack_into(form, inside, position, number)
        packed_for = self.magic if self.packed_for < 0 else self.packed_for
        packed = bytearray(compress(Codec(self.codec), inside[: len(inside) - self.cut], magic=packed_for))
        for position, form, number in self.damage:
            struct.pack_into(form, packed, position, number)
        time_ms = max(record_of(row, 0, now_ms).timestamp_ms for row in self.rows)
        built = build_message_set([Record(self.offset, time_ms, None, bytes(packed))], magic=self.magic)
        built[ATTRIBUTES_AT] = self.attributes | self.codec
        struct.pack_into(">I", built, MESSAGE_CRC_AT, zlib.crc32(built[MESSAGE_CRC_COVERS_FROM:]))
        return bytes(built)


def record_of(row: tuple[Any, ...], offset: int, now_ms: int) -> Record:
    time_ms = row[0].at(now_ms) if isinstance(row[0], FromNow) else row[0]
    return Record(offset, time_ms, content(row[1]), content(row[2]), tuple(row[3]) if len(row) > 3 else ())


@dataclass(frozen=True, repr=False)
class Joined(Shown):
    """Batches and raw bytes one after the other, without the last `cut` bytes."""

    parts: tuple[Batch | Wrapper | bytes, ...]
    cut: int = 0

    def build(self, now_ms: int) -> bytes:
        data = b"".join(part if isinstance(part, bytes) else part.build(now_ms) for part in self.parts)
        return data[: len(data) - self.cut]


@dataclass(frozen=True, repr=False)
class FromNow(Shown):
    delta_ms: int

    def at(self, now_ms: int) -> int:
        return now_ms + self.delta_ms


@dataclass(frozen=True, repr=False)
class SessionOf(Shown):
    """The session id in the answer to the step of that name; 0 if there was none."""

    step: str


@dataclass(frozen=True, repr=False)
class ProducerOf(Shown):
    """The producer id in the answer to the step of that name; -1 if there was none."""

    step: str


@dataclass(frozen=True, repr=False)
class Subscribed(Shown):
    """The topics of a consumer of the classic protocol, as it writes them for the others of its group."""

    topics: tuple[str, ...]

    def build(self, prefix: str) -> bytes:
        names = [topic.replace(PREFIX_MARK, prefix).encode() for topic in self.topics]
        rows = b"".join(struct.pack(">h", len(name)) + name for name in names)
        return struct.pack(">hi", 0, len(names)) + rows + struct.pack(">i", -1)


@dataclass(frozen=True, repr=False)
class IdOf(Shown):
    """The id of a topic that the conversation has created; zeros for others."""

    topic: str


@dataclass(frozen=True, repr=False)
class Told(Shown):
    """A value that the answer to the step of that name gave a member: its `member_id`, or its `generation_id`; of the
    member of that name in a group of the consumer protocol its `member_epoch`, or its `assignment`; of one in a share
    group its `member_epoch`, or `share_epoch`, the next of its session."""

    step: str
    name: str = "member_id"

    def __str__(self) -> str:
        return f"{self.step}.{self.name}"


@dataclass(frozen=True)
class Step:
    """One move on one connection. `kind`:

    call  ask and wait for the answer          park  ask, and see whether it waits
    look  see whether the parked one waits     take  wait for the parked one's answer     drop  hang up
    restart  kill the broker, and start it again
    """

    api: str
    version: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    connection: str = "main"
    kind: str = "call"
    client_id: str | None = CLIENT_ID
    raw: bytes | None = None  # sent as the body, as it is
    retry: tuple[int, ...] = ()  # errors upon which it is asked again
    lie: Lie | None = None  # about one of its lengths

    @property
    def key(self) -> ApiKey:
        return KEYS[self.api]

    @property
    def is_unanswered(self) -> bool:
        return self.raw is None and self.body.get("acks") == 0

    def __repr__(self) -> str:
        if self.kind == "restart":
            return "restart()"
        if self.kind in ("look", "take", "drop"):
            return f"{self.kind}({self.connection!r})"
        parts = [repr(self.api), str(self.version)]
        for each in ("name", "connection", "kind", "client_id", "raw", "retry", "lie"):
            if getattr(self, each) != Step.__dataclass_fields__[each].default:
                parts.append(f"{each}={getattr(self, each)!r}")
        parts += [f"{name}={value!r}" for name, value in self.body.items()]
        return f"call({', '.join(parts)})"

    def frame(self, prefix: str, now_ms: int, sessions: Mapping[str, Any]) -> bytes:
        """The request with its size in front."""
        if self.raw is not None:
            return self._frame_of(self.raw.replace(RAW_PREFIX, prefix.encode()))
        message = API_TABLE[self.key].request
        body = message(**resolved(dict(self.body), prefix, now_ms, sessions))
        if self.lie is not None:
            return self._frame_of(self.lie.told(message, self.version, body))
        frame: bytes = encode_request(self.key, self.version, CORRELATION_ID, self.client_id, body)
        return frame

    def _frame_of(self, body: bytes) -> bytes:
        client = (self.client_id or "").encode()
        payload = NO_BODY.pack(self.key, self.version, CORRELATION_ID, len(client)) + client + body
        return struct.pack(">i", len(payload)) + payload


Script = list[Step]


def call(api: str, version: int, /, *, name: str = "", connection: str = "main", **body: Any) -> Step:
    """Ask; `kind`, `client_id`, `raw`, `retry` and `lie` are the step's, everything else the request's."""
    own = {each: body.pop(each) for each in ("kind", "client_id", "raw", "retry", "lie") if each in body}
    return Step(api, version, body, name, connection, **own)


def look(connection: str) -> Step:
    return Step("Fetch", kind="look", connection=connection)


def take(connection: str) -> Step:
    return Step("Fetch", kind="take", connection=connection)


def drop(connection: str) -> Step:
    return Step("Fetch", kind="drop", connection=connection)


def restart() -> Step:
    return Step("Fetch", kind="restart")


def content(given: bytes | int | None) -> bytes | None:
    if not isinstance(given, int):
        return given
    if given < 0:
        return random.Random(given).randbytes(-given)
    return (TEXT * (given // len(TEXT) + 1))[:given]


def resolved(value: Any, prefix: str, now_ms: int, sessions: Mapping[str, Any]) -> Any:
    """The value with what depends on the run put in."""
    if isinstance(value, str):
        return value.replace(PREFIX_MARK, prefix)
    if isinstance(value, Batch):
        producer = tuple(resolved(value.producer, prefix, now_ms, sessions))
        return replace(value, producer=producer).build(now_ms)
    if isinstance(value, Joined | Wrapper):
        return value.build(now_ms)
    if isinstance(value, FromNow):
        return value.at(now_ms)
    if isinstance(value, SessionOf):
        return sessions.get(value.step, 0)
    if isinstance(value, Told):
        return sessions.get(str(value), {"member_id": "", "assignment": ()}.get(value.name, -1))
    if isinstance(value, Subscribed):
        return value.build(prefix)
    if isinstance(value, IdOf):
        return sessions.get(value.topic, ZERO_UUID)
    if isinstance(value, ProducerOf):
        return sessions.get(value.step, -1)
    if isinstance(value, dict):
        return {key: resolved(each, prefix, now_ms, sessions) for key, each in value.items()}
    if isinstance(value, list | tuple):
        items = [resolved(each, prefix, now_ms, sessions) for each in value]
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    return value


def script_text(script: Script) -> str:
    """The script as Python, to be read and to be run again with `--script`."""
    return "".join(f"{step!r},\n" for step in script)


def read_script(text: str) -> Script:
    """Read a script that `script_text` wrote."""
    put_in = (Batch, Wrapper, Joined, Lie, FromNow, SessionOf, ProducerOf, Subscribed, IdOf, Told)
    known = {each.__name__: each for each in (*put_in, call, look, take, drop, restart)}
    script: Script = list(eval(f"({text})", known))
    return script
