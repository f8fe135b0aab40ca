"""Targets of any bytes: each reads an input, and raises `Finding`."""

from __future__ import annotations

import gc
import json
import logging
import math
import resource
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import crc32c
import trio

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.app import BrokerApp, way_of
from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig
from minibroker.broker.pending import Pending
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wings.registry.records import Contents, Reference, Version, key_of, schema_key
from minibroker.broker.wings.testing.control.control_server import Calls
from minibroker.broker.wings.testing.control.turnable_clock import TurnableClock
from minibroker.conformance.requests import fetch_body, frame
from minibroker.protocol.api import API_TABLE, ApiKey, encode_request
from minibroker.protocol.compression import Codec, compress
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.java_properties import PropertiesError, read_properties
from minibroker.protocol.primitives import Sized, Uuid, format_of
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.protocol.schema import Array, Message, Row
from minibroker.schemas.schema import MODULES, SchemaError, incompatible, parse
from tests.broker.kept_files import FILES, REFUSALS
from tests.requests import produce_body
from tests.schemas.pairs import pairs

NOW_MS = 1_500_000_000_000
CPU_SECONDS = 0.010  # of the loop, for an input
# What Python's reader of JSON takes, and what reads its values may not.
ODD_VALUES = (
    *(b"1e999", b"-1e400", b"NaN", b"9" * 400, b"-1", b"2147483648", b"-9223372036854775809"),
    *(b'"x"', b'"\\ud800"', b"true", b"null", b"{}", b"[]", b"[" * 1200),
)
MEMORY_KIB = 64 * 1024  # beyond what the process has had
TRIES = 5  # an input is slow if it is so each time
# These do what they are asked: each partition is a directory, and takes its time.
MAY_TAKE_LONG = {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS}
SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "log.index.size.max.bytes": 4096,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}


class Finding(AssertionError):
    """An input that ended otherwise than it may."""


class Defects(logging.Handler):
    """Notes what the broker logs with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.noted: list[str] = []
        self.formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            assert self.formatter is not None
            self.noted.append(self.formatter.format(record))


def bounded(read: Callable[[], object], cpu_seconds: float) -> None:
    """Read an input within the bounds of memory and time. Raises Finding."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(TRIES):
        began = time.thread_time()
        read()
        if time.thread_time() - began < cpu_seconds:
            break
    else:
        raise Finding(f"took more than {cpu_seconds * 1000:.0f} ms of the loop, {TRIES} times")
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib > MEMORY_KIB:
        raise Finding(f"took more than {MEMORY_KIB // 1024} MiB")


class FuzzClock(TurnableClock):
    """A clock that stands still, without a loop."""

    def current_time(self) -> float:
        return 1.0

    def monotonic_ms(self) -> int:
        return 1000

    def wall_ms(self) -> int:
        return NOW_MS


class Target:
    """Reads inputs one after the other; `close` it at the end."""

    name = ""

    def __init__(self, times_as_slow: int = 1) -> None:
        self.cpu_seconds = CPU_SECONDS * times_as_slow

    def seeds(self) -> list[bytes]:
        """Inputs to begin with."""
        raise NotImplementedError

    def run(self, data: bytes) -> None:
        """Read an input. Raises Finding."""
        raise NotImplementedError

    def close(self) -> None:
        pass


# -- a broker ---------------------------------------------------------------------------------------------------------


class OfBroker(Target):
    """Inputs for a broker with a few topics, which begins anew every so many inputs, and finds what it has written."""

    has_control = False
    inputs_of_a_broker = 500
    settings = SETTINGS

    def __init__(self, times_as_slow: int = 1) -> None:
        super().__init__(times_as_slow)
        self._defects = Defects()
        root = logging.getLogger()
        self._handlers, root.handlers = root.handlers, [self._defects]
        self._app: BrokerApp | None = None
        self._left = 0

    def close(self) -> None:
        self._end()
        logging.getLogger().handlers = self._handlers

    def _end(self) -> None:
        """Stop the broker, and start it once more on what it has written."""
        if self._app is None:
            return
        self._app.close(self._parts)
        again = self._new_app()
        again.load()
        again.close(again.build())
        self._directory.cleanup()
        self._app = None
        self._look()

    def _new_app(self) -> BrokerApp:
        options = ServeOptions(control=Registered(self.calls) if self.has_control else None)
        return BrokerApp(self._config, self._clock, options)

    def _begin(self) -> None:
        self._end()
        self._clock = FuzzClock()
        self._directory = tempfile.TemporaryDirectory(prefix="minibroker-fuzz-")
        given = {name: str(value) for name, value in self.settings.items()}
        self._config = KafkaConfig({"log.dirs": self._directory.name, **given})
        self.calls = Calls()
        self._app = self._new_app()
        self._app.load()
        self._parts = self._app.build()
        self._way = way_of(self._parts)
        self._client = Client("127.0.0.1:50000", "127.0.0.1", 9092)
        for wing in self._parts.wings:
            for name, call in wing.calls().items():
                self.calls.register(name, call)
        self._fill()
        self._look()
        self._left = self.inputs_of_a_broker
        gc.collect()

    def _fill(self) -> None:
        """Have topics, coordinators and records."""
        rows: list[Any] = [
            ("t", 2, 1, [], []),
            ("c", 1, 1, [], [("cleanup.policy", "compact")]),
            ("old", 1, 1, [], [("message.format.version", "0.10.0")]),
        ]
        self.ask(frame(ApiKey.CREATE_TOPICS, 2, topics=rows, timeout_ms=1000)[4:])
        for key_type, key in enumerate(("g", "m", "g:AAAAAAAAAAAAAAAAAAAAAA:0")):
            self.ask(frame(ApiKey.FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=[key])[4:])
        self.ask(frame(ApiKey.PRODUCE, 7, **produce_body("t", seed_batch()))[4:])

    def ready(self) -> None:
        """Begin with another broker where it is time."""
        if self._left <= 0:
            self._begin()
        self._left -= 1

    def ask(self, request: bytes) -> None:
        """Ask one request, and read what of its answer is in files."""
        try:
            answer = self._way.serve(bytearray(request), self._client)
        except (KafkaProtocolError, CloseConnectionError):
            return
        if isinstance(answer, Pending):
            if not answer.is_known:
                answer.abandon()
                return
            try:
                answer = answer.result()
            except (KafkaProtocolError, CloseConnectionError):
                return
        for chunk in answer or ():
            if hasattr(chunk, "read"):
                chunk.read()

    def _look(self) -> None:
        """Raise Finding for what was logged with a traceback."""
        if self._defects.noted:
            noted, self._defects.noted = self._defects.noted, []
            raise Finding(noted[0])

    def check(self, read: Callable[[], object], is_slow_work: bool = False) -> None:
        try:
            bounded(read, math.inf if is_slow_work else self.cpu_seconds)
            self._look()
        except Exception:
            self._left = 0  # the next one has a new broker
            raise


class Registered:
    """Stands for the control socket."""

    path = Path("/nowhere")

    def __init__(self, calls: Calls) -> None:
        self.register = calls.register

    async def run(self) -> None:
        raise NotImplementedError


def seed_batch(count: int = 3, **options: Any) -> bytes:
    records = [Record(each, NOW_MS + each, b"k%d" % each, b"v" * 20) for each in range(count)]
    return bytes(build_batch(records, **options))


class Frames(OfBroker):
    """Requests of each API and version."""

    name = "frames"

    def seeds(self) -> list[bytes]:
        return plausible_requests()

    def run(self, data: bytes) -> None:
        self.ready()
        key = int.from_bytes(data[:2], "big", signed=True)
        self.check(lambda: self.ask(data), is_slow_work=key in MAY_TAKE_LONG)


def plausible_requests() -> list[bytes]:
    """One of each API and version."""
    return [
        encode_request(api.key, version, 1, "c", plausible(api.request, version))[4:]
        for api in API_TABLE.values()
        for version in range(api.request.first_version, api.request.last_version + 1)
    ]


def plausible(message: Message, version: int, path: str = "") -> Any:
    """A value that a broker may take: names that there are, a row in each array, zeros."""
    live = {}
    for field in message.fields_at(path):
        if field.is_in(version):
            inner = f"{path}.{field.name}" if path else field.name
            live[field.name] = plausible_of(message, inner, field.kind_in(version), version)
    return message.row(path)(**live)


def plausible_of(message: Message, path: str, kind: Any, version: int) -> Any:
    if isinstance(kind, Sized):
        last = path.rpartition(".")[2]
        text = "g" if "group" in last else "t" if "name" in last or "topic" in last or last == "key" else ""
        return text if kind.kind == "string" else seed_batch() if "record" in last else text.encode()
    if isinstance(kind, Row):
        return plausible(message, version, path)
    if isinstance(kind, Array):
        if kind.element is None:
            return [plausible(message, version, path)]
        return [plausible_of(message, path, kind.element, version)]
    if kind is Uuid:
        return bytes(16)
    return format_of(kind) == "?"


class Batches(OfBroker):
    """Records in a batch whose length and checksum are right, which are read, converted and compacted afterwards.

    The first byte of an input chooses the codec, that compresses the rest, the topic and the version of the Produce.
    """

    name = "batches"

    def seeds(self) -> list[bytes]:
        plain = seed_batch()
        transactional = seed_batch(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        bomb = plain[:61] + bytes(4000)
        return [bytes((way,)) + batch for way in range(0, 256, 5) for batch in (plain, transactional, bomb)]

    def run(self, data: bytes) -> None:
        if len(data) < 62:
            return
        self.ready()
        way, batch = data[0], bytearray(data[1:])
        codec = Codec(way % 5)
        if codec is not Codec.NONE:
            size = 1 + 100 * (way & 0x80)  # 12,801 times as long, once it is decompressed
            batch[61:] = compress(codec, bytes(batch[61:]) * size if way & 0x80 else bytes(batch[61:]))
            batch[22] = batch[22] & 0xF8 | codec
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        batch[16] = 2
        struct.pack_into(">I", batch, 17, crc32c.crc32c(batch[21:]))
        topic = ("t", "c", "old")[way // 5 % 3]
        produce = frame(ApiKey.PRODUCE, 7 if way & 0x40 else 3, **produce_body(topic, batch))[4:]
        self.check(lambda: self.ask(produce), is_slow_work=way >= 0x80)  # some 4 ms a MB that are decompressed
        for version in (1, 2, 4):
            body = fetch_body((topic, 0, 0), max_partition_bytes=4096)
            self.check(lambda version=version, body=body: self.ask(frame(ApiKey.FETCH, version, **body)[4:]))  # type: ignore[misc]


# Control calls that do what they are asked.
MEANT: tuple[tuple[str, dict[str, object]], ...] = (
    ("faults.add", {"kind": "error", "error": "NOT_LEADER_FOR_PARTITION", "api": "produce", "topic": "t", "times": 3}),
    ("faults.add", {"kind": "error", "error": "REQUEST_TIMED_OUT", "api": ["fetch", "metadata"], "when": "after"}),
    ("faults.add", {"kind": "delay", "seconds": 0.5, "topic": "t", "partition": 0, "skip": 1, "for_seconds": 5}),
    ("faults.add", {"kind": "disconnect", "client_id": "c", "when": "after"}),
    ("faults.add", {"kind": "torn_frame", "connection": "127.0.0.1:50000", "times": 1}),
    ("faults.add", {"kind": "wrong_crc", "topic": "t"}),
    ("faults.add", {"kind": "slow", "bytes_per_second": 1000, "connection": 1}),
    ("faults.describe", {"fault_id": 1}),
    ("faults.lift", {"fault_id": 1}),
    ("clock.advance", {"seconds": 1.5}),
    ("clock.advance", {"seconds": 1e9, "at_once": True}),
    ("shared_records", {"group_id": "g"}),
    ("inside.exchange", {"seq": 1}),
    ("inside.explain", {"client_id": "c", "api": ["produce", "fetch"], "topic": "t", "slower_than_ms": 0.1}),
    ("inside.explain", {"since": 1, "connection": 1, "parked": True, "empty": True, "failed": True}),
    ("inside.log", {"topic": "t", "partition": 0, "offset": 1}),
    ("inside.log", {"topic": "t", "partition": 0, "after": 0}),
    ("inside.logs", {"topic": "t", "partitions": [0, 1]}),
    ("inside.groups", {"group_id": "g"}),
)


class ControlCalls(OfBroker):
    """Lines of the control socket, and after each a request to write, one to read and one that asks for a topic."""

    name = "control"
    has_control = True

    def seeds(self) -> list[bytes]:
        self.ready()
        found = []
        for name, (_, signature) in self.calls._calls.items():
            for value in (None, 1, -1, 1e300, "x", [], {}, True, ["t", 0], {"topic": "t"}):
                found.append({"call": name, "arguments": dict.fromkeys(signature.parameters, value)})
            for each in signature.parameters:
                found.append({"call": name, "arguments": {each: "produce"}})
        found += [{"call": name, "arguments": arguments} for name, arguments in MEANT]
        return [json.dumps(each).encode() for each in found]

    def run(self, data: bytes) -> None:
        self.ready()
        self.check(lambda: trio.run(self._answer, data, clock=self._clock))

    async def _answer(self, line: bytes) -> None:
        """Have a call answered, up to where it would wait."""
        with trio.CancelScope() as scope:
            scope.cancel()
            await self.calls._answer(line)
        for request in AFTER_A_CALL:
            self.ask(request)


AFTER_A_CALL = (
    frame(ApiKey.PRODUCE, 7, **produce_body("t", seed_batch()))[4:],
    frame(ApiKey.FETCH, 4, **fetch_body(("t", 0, 0), max_partition_bytes=4096))[4:],
    frame(ApiKey.METADATA, 1, topics=[(None, "t")])[4:],
)


def packed(topic: int, rows: Iterable[tuple[bytes | None, bytes | None]]) -> bytes:
    """Keys and values of an internal topic, as `StoredRecords` reads them."""
    parts = [part for row in rows for part in row]
    return bytes((topic,)) + b"".join(
        struct.pack(">?H", part is not None, len(part or b"")) + (part or b"") for part in parts
    )


def unpacked(data: bytes) -> list[Record]:
    parts: list[bytes | None] = []
    position = 1
    while position + 3 <= len(data):
        is_there, size = struct.unpack_from(">?H", data, position)
        position += 3 + size
        parts.append(data[position - size : position] if is_there else None)
    pairs = zip(parts[::2], parts[1::2], strict=False)
    return [Record(number, NOW_MS, *pair) for number, pair in enumerate(pairs)]


class Files(Target):
    """Files of a data directory, and transcripts; the first byte of an input chooses the kind."""

    name = "files"

    def seeds(self) -> list[bytes]:
        found = []
        for number, (name, write, _) in enumerate(FILES.values()):
            with tempfile.TemporaryDirectory(prefix="minibroker-fuzz-") as directory:
                write(path := Path(directory) / name)
                found.append(bytes((number,)) + path.read_bytes())
        return found

    def run(self, data: bytes) -> None:
        if not data:
            return
        name, _, read = list(FILES.values())[data[0] % len(FILES)]
        with tempfile.TemporaryDirectory(prefix="minibroker-fuzz-") as directory:
            path = Path(directory) / name
            path.write_bytes(data[1:])

            def read_file() -> None:
                with suppress(*REFUSALS):
                    read(path)

            bounded(read_file, math.inf)  # at the start, and not in the loop


class Schemas(Target):
    """Two schemas of a type, which the first byte chooses, compared, and data of the second; zeros part them.

    With other first bytes, records of `_schemas`, which any client may write that has the right.
    """

    name = "schemas"

    def seeds(self) -> list[bytes]:
        kinds = list(MODULES)
        found = [
            b"\0".join((bytes((1 + kinds.index(pair.kind),)), old.encode(), new.encode(), data))
            for pair in pairs()
            for old, new, data in ((pair.old, pair.new, b"1"), (pair.new, pair.old, b'{"a":1}'))
        ]
        version = Version("s", 1, 1, "JSON", '"int"', (Reference("n", "s", 1),))
        rows: list[tuple[bytes, bytes | None]] = [
            version.record(),
            (key_of("CONFIG", "s"), b'{"compatibilityLevel":"NONE"}'),
        ]
        rows += [(key_of("MODE", None), b'{"mode":"READONLY"}'), (key_of("CONFIG", None), None)]
        rows += [(key_of("DELETE_SUBJECT", "s"), b'{"subject":"s","version":1}'), (schema_key("s", 1), None)]
        return [*found, *(packed(0, [row]) for row in rows), packed(0, rows)]

    def run(self, data: bytes) -> None:
        if data:
            kinds = ["", *MODULES]
            kind = kinds[data[0] % len(kinds)]
            bounded(
                partial(self._compare, kind, *data[2:].split(b"\0", 2)) if kind else partial(self._apply, data),
                math.inf,
            )

    def _compare(self, kind: str, *parts: bytes) -> None:
        old, new, data = (*parts, b"", b"")[:3]
        old_text, new_text = (each.decode("utf-8", "surrogateescape") for each in (old, new))
        with suppress(SchemaError):
            reader, writer = (parse(kind, text, {}) for text in (new_text, old_text))
            for each in (reader, writer):
                parse(kind, each.text, {})
                parse(kind, each.normalized(), {})
            incompatible("FULL", reader, [writer])
        with suppress(SchemaError):
            parse(kind, new_text, {}).decode(memoryview(data))
        with suppress(SchemaError, ValueError, RecursionError):
            value = json.loads(data)
            with suppress(SchemaError):
                parse(kind, new_text, {}).encode(value)

    def _apply(self, data: bytes) -> None:
        contents = Contents()
        for each in unpacked(data):
            contents.apply(each.key, each.value)
        for version in contents.all(deleted=True):
            json.dumps(version.shown())
            version.record()
            contents.referring(version.subject, version.version)


class Properties(Target):
    """Files of settings."""

    name = "properties"

    def seeds(self) -> list[bytes]:
        golden = Path(__file__).parent.parent / "golden" / "settings"
        lines = [
            line[2:].replace(" | ", "\n")
            for path in sorted(golden.glob("*.txt"))
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.startswith("> ")
        ]
        return [line.encode() for line in lines]

    def run(self, data: bytes) -> None:
        def read() -> None:
            with suppress(PropertiesError, ConfigError):
                KafkaConfig({"log.dirs": "/nowhere", **read_properties(data.decode("latin-1"))})

        bounded(read, math.inf)  # at the start, and not in the loop


# What coordinators are asked: the plausible request of each API, in its last version.
COORDINATORS = [
    encode_request(key, last, 1, "c", plausible(API_TABLE[key].request, last))[4:]
    for key in API_TABLE
    for last in (API_TABLE[key].request.last_version,)
    if any(each in ApiKey(key).name for each in ("GROUP", "OFFSET", "TXN", "TRANSACTION", "PRODUCER"))
]


def corpus(name: str) -> list[bytes]:
    """The inputs that are kept: one a line, in hexadecimal digits."""
    path = Path(__file__).parent / "corpus" / f"{name}.txt"
    return [bytes.fromhex(line) for line in path.read_text().splitlines()] if path.exists() else []


def warm_up(target: Target, inputs: Sequence[bytes]) -> None:
    """Generate codecs and fill caches: the first request of a version takes longer."""
    for each in inputs:
        with suppress(Finding):
            target.run(each)
