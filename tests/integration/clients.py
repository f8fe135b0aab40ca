"""Client libraries under test: where each one is found, and its driver process with one small interface."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from benchmarks.apache_kafka import jvm_options
from tests.integration.drivers.kcat import HEADERS_AS_TEXT
from tests.integration.records import (
    Record,
    every_shape,
    records_of,
    shapes_for_a_command_line,
    with_null_header,
    with_null_header_and_nothing,
)
from tests.jvm import JAVA_CLIENT_VARIABLE, QUICK_JVM
from tests.setup_clients import (
    EARLIER_CLIENTS,
    FRANZ_GO,
    HOW_TO_PREPARE,
    JAVA_DRIVERS,
    KAFKAJS,
    NEWEST_JAVA_CLIENT,
    OLD_KAFKA_PYTHON,
    PLATFORMATIC,
    ROOT,
    compiled_java_drivers,
    franz_go_driver,
    java_client,
    python_of,
)

DRIVERS = "tests.integration.drivers"
SOURCES = ROOT.joinpath(*DRIVERS.split("."))
PATIENCE_SECONDS = 60.0
HANG_SECONDS = 120.0
JAVA_OPTIONS = ("-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
SHORT_WAIT_MS = 50  # of a consumer's fetch: a parked one delays its next assignment


class UnavailableError(Exception):
    """The client is not here; the message says what to do."""


class ClientError(Exception):
    """The error that the client library raised."""

    def __init__(self, client: str, error: dict[str, Any]) -> None:
        super().__init__(f"{client}: {error['kind']} (code {error['code']}): {error['message']}")
        self.kind: str = error["kind"]
        self.code: int | None = error["code"]


def python_driver(module: str, python: Path = Path(sys.executable)) -> list[str]:
    if not python.exists():
        raise UnavailableError(f"no {python}: {HOW_TO_PREPARE}")
    return [str(python), "-m", f"{DRIVERS}.{module}"]


def old_kafka_python() -> list[str]:
    return python_driver("kafka_python", python_of(OLD_KAFKA_PYTHON))


def kcat_driver() -> list[str]:
    if shutil.which("kcat") is None:
        raise UnavailableError(f"no kcat: install the package kcat, or as root {HOW_TO_PREPARE}")
    return python_driver("kcat")


def java_driver(version: str, name: str = "JavaDriver") -> list[str]:
    """A driver of that version of the Java client, compiled once."""
    assert name in JAVA_DRIVERS[version], f"{name} is not compiled for {version}"
    jars = java_client(version)
    if shutil.which("java") is None:
        raise UnavailableError("no java: install a JDK (Debian: default-jdk-headless)")
    if not jars.is_dir():
        raise UnavailableError(f"no {jars}: {HOW_TO_PREPARE}")
    try:
        drivers = compiled_java_drivers(version)
    except RuntimeError as error:
        raise UnavailableError(f"{error}: {HOW_TO_PREPARE}") from None
    options = jvm_options(QUICK_JVM, JAVA_CLIENT_VARIABLE) if version == NEWEST_JAVA_CLIENT else QUICK_JVM
    return ["java", *options, *JAVA_OPTIONS, "-cp", f"{drivers}:{jars}/*", name]


def node_program(name: str) -> list[str]:
    """A driver of kafkajs, or of @platformatic/kafka."""
    modules = (PLATFORMATIC if name.startswith("platformatic") else KAFKAJS) / "node_modules"
    if shutil.which("node") is None:
        raise UnavailableError("no node: install Node.js (Debian: nodejs)")
    if not modules.is_dir():
        raise UnavailableError(f"no {modules}: {HOW_TO_PREPARE}")
    return ["env", f"NODE_PATH={modules}", "node", str(SOURCES / f"{name}.js")]


def go_program(command: str) -> list[str]:
    """The driver of franz-go, built without the network where its source has changed."""
    if not FRANZ_GO.is_dir():
        raise UnavailableError(f"no {FRANZ_GO}: {HOW_TO_PREPARE}")
    try:
        return [os.fspath(franz_go_driver(is_online=False)), command]
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{error}: {HOW_TO_PREPARE}") from None


@dataclass(frozen=True, slots=True)
class ClientKind:
    """A client library: the command of its driver, and what it cannot express."""

    name: str
    command: Callable[[], list[str]]
    shapes: Callable[[], list[Record]] = every_shape
    reports_timestamps_of_offsets: bool = True
    settings: tuple[tuple[str, str], ...] = ()  # of every producer and consumer

    def sees(self, record: Record) -> Record:
        """Return the record as this client's driver reports it."""
        return record


@dataclass(frozen=True, slots=True)
class CommandLineKind(ClientKind):
    """kcat: headers are one printed text, each value up to its first NUL."""

    def sees(self, record: Record) -> Record:
        if not record.headers:
            return record
        pairs = [
            name.encode() + b"=" + (b"NULL" if value is None else value.split(b"\0")[0])
            for name, value in record.headers
        ]
        text = b",".join(pairs)
        return replace(record, headers=((HEADERS_AS_TEXT, text),))


@dataclass(frozen=True, slots=True)
class OldKind(ClientKind):
    """A client from before record headers, or even before timestamps, or a new one with settings that make it one."""

    reads_headers: bool = False
    reads_timestamps: bool = True

    def sees(self, record: Record) -> Record:
        return replace(
            record,
            headers=record.headers if self.reads_headers else (),
            timestamp_ms=record.timestamp_ms if self.reads_timestamps else None,
        )


CLIENTS: dict[str, ClientKind] = {
    kind.name: kind
    for kind in (
        ClientKind("kafka-python-3.0", lambda: python_driver("kafka_python")),
        ClientKind("kafka-python-2.3", old_kafka_python),
        ClientKind(
            "confluent-kafka",
            lambda: python_driver("confluent"),
            with_null_header_and_nothing,
            reports_timestamps_of_offsets=False,
        ),
        ClientKind("aiokafka", lambda: python_driver("aiokafka"), with_null_header),
        ClientKind("java-3.9", lambda: java_driver("3.9.0"), with_null_header_and_nothing),
        CommandLineKind("kcat", kcat_driver, shapes=shapes_for_a_command_line, reports_timestamps_of_offsets=False),
    )
}
OLD_CLIENTS: dict[str, OldKind] = {
    kind.name: kind
    for kind in (
        OldKind("java-0.10.2", lambda: java_driver("0.10.2.2", "OldJavaDriver")),
        OldKind("java-0.11", lambda: java_driver("0.11.0.3", "OldJavaDriver")),
        OldKind("kafka-python-as-0.9", old_kafka_python, settings=(("api_version", "0.9"),), reads_timestamps=False),
        OldKind("kafka-python-as-0.10", old_kafka_python, settings=(("api_version", "0.10"),)),
        OldKind(
            "librdkafka-as-0.9",
            lambda: python_driver("confluent"),
            settings=(("api_version_request", "false"), ("broker_version_fallback", "0.9.0")),
            reads_timestamps=False,
        ),
        OldKind(
            "librdkafka-as-0.10",
            lambda: python_driver("confluent"),
            settings=(("api_version_request", "false"), ("broker_version_fallback", "0.10.0")),
        ),
    )
}
# The module of each library's driver, and the client whose shapes of records it can express.
PYTHON_LIBRARIES = {
    "kafka-python": ("kafka_python", CLIENTS["kafka-python-2.3"]),
    "confluent-kafka": ("confluent", CLIENTS["confluent-kafka"]),
    "aiokafka": ("aiokafka", CLIENTS["aiokafka"]),
}


def earlier(name: str) -> ClientKind:
    module, kind = PYTHON_LIBRARIES[name.rpartition("-")[0]]
    return replace(kind, name=name, command=partial(python_driver, module, python_of(name)))


EARLIER = {name: earlier(name) for name in EARLIER_CLIENTS}
KINDS = {
    **CLIENTS,
    **OLD_CLIENTS,
    **EARLIER,
    "java-4.4": ClientKind("java-4.4", lambda: java_driver("4.4.0"), with_null_header_and_nothing),
    "java-1.1": OldKind("java-1.1", lambda: java_driver("1.1.1", "OldJavaDriver")),
}
JAVA_OF_RELEASES = {"0.10": "java-0.10.2", "0.11": "java-0.11", "1.1": "java-1.1"}
LIBRARIES = tuple(name for name in CLIENTS if name != "kcat")
ADMINS = ("kafka-python-3.0", "confluent-kafka", "java-3.9")


class DriverProcess:
    """A driver in a process of its own, asked line by line. Raises ClientError for what the library raises."""

    def __init__(self, name: str, command: Sequence[str], log: IO[bytes]) -> None:
        self.name = name
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def call(self, operation: str, **arguments: Any) -> Any:
        self.send(operation, **arguments)
        return self.receive()

    def send(self, operation: str, **arguments: Any) -> None:
        """Ask, while the test does something else; `receive` returns the answer."""
        self._stdin.write(json.dumps({"op": operation, "arguments": arguments}).encode() + b"\n")
        self._stdin.flush()

    def receive(self) -> Any:
        if not self.has_answered(within_seconds=HANG_SECONDS):
            self._process.kill()  # the next test gets a new one
            raise AssertionError(f"the driver of {self.name} did not answer in {HANG_SECONDS} s")
        line = self._stdout.readline()
        if not line:
            raise AssertionError(f"the driver of {self.name} ended with status {self._process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise ClientError(self.name, reply["error"])
        return reply["result"]

    def has_answered(self, *, within_seconds: float) -> bool:
        """True once an answer that was started is there."""
        ready, _, _ = select.select([self._stdout], [], [], within_seconds)
        return bool(ready)

    def end(self) -> None:
        """Let it end by itself."""
        self._stdin.close()
        self._process.wait(HANG_SECONDS)
        self._stdout.close()

    def kill(self) -> None:
        """kill -9. One that is dead stays so."""
        self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()


class Client(DriverProcess):
    """A driver of a client library, with the operations that every driver has."""

    def __init__(self, kind: ClientKind, bootstrap: str, log: IO[bytes]) -> None:
        super().__init__(kind.name, [*kind.command(), bootstrap], log)
        self.kind = kind

    def produce(
        self, topic: str, records: Sequence[Record], *, partition: int | None = 0, codec: str = "none", **settings: Any
    ) -> list[Record]:
        """Write records and wait for every ack; return them with partition, offset and timestamp as acked."""
        rows = [record.as_json() for record in records]
        settings = dict(self.kind.settings) | settings
        acked = self.call("produce", topic=topic, partition=partition, records=rows, codec=codec, settings=settings)
        return [
            record.written(at, offset, record.timestamp_ms if record.timestamp_ms is not None else timestamp_ms)
            for record, (at, offset, timestamp_ms) in zip(records, acked, strict=True)
        ]

    def start_produce(self, topic: str, records: Sequence[Record], **settings: Any) -> None:
        """Begin to write to partition 0 while the test does something else; `finish_produce` counts the acks."""
        rows = [record.as_json() for record in records]
        self.send("produce", topic=topic, partition=0, records=rows, codec="none", settings=settings)

    def finish_produce(self) -> int:
        return len(self.receive())

    def consume(
        self,
        topic: str,
        count: int,
        *,
        partitions: Iterable[int] = (0,),
        start: int | str = "beginning",
        seconds: float = PATIENCE_SECONDS,
        **settings: Any,
    ) -> list[Record]:
        """Read `count` records from an offset, the beginning or the end of each partition."""
        settings = {"fetch_max_wait_ms": SHORT_WAIT_MS} | dict(self.kind.settings) | settings
        where = {"topic": topic, "partitions": list(partitions), "start": start}
        return records_of(self.call("consume", **where, count=count, seconds=seconds, settings=settings))

    def consume_in_group(
        self, topic: str, group: str, count: int, *, seconds: float = PATIENCE_SECONDS, **settings: Any
    ) -> list[Record]:
        """Read on from where the group is, or from the beginning, and commit what was read (old clients)."""
        settings = {"fetch_max_wait_ms": SHORT_WAIT_MS} | dict(self.kind.settings) | settings
        where = {"topic": topic, "group": group}
        return records_of(self.call("consume_in_group", **where, count=count, seconds=seconds, settings=settings))

    def follow(self, topic: str, *, partition: int = 0, **settings: Any) -> int:
        """Take a position at the end of a partition, and return it; `next` goes on from there."""
        return cast(int, self.call("follow", topic=topic, partition=partition, settings=settings))

    def start_next(self, count: int, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Let the client wait for records while the test does something else; `finish_next` returns them."""
        self.send("next", count=count, seconds=seconds)

    def finish_next(self) -> list[Record]:
        return records_of(self.receive())

    def offsets_for_times(self, topic: str, timestamps_ms: Sequence[int], *, partition: int = 0) -> list[Any]:
        """Return [offset, timestamp or None], or None, for each timestamp."""
        answer = self.call("offsets_for_times", topic=topic, partition=partition, timestamps_ms=timestamps_ms)
        return cast(list[Any], answer)

    def watermarks(self, topic: str, *, partition: int = 0) -> list[int]:
        """Return the first offset of a partition and the next to be written."""
        return cast(list[int], self.call("watermarks", topic=topic, partition=partition))
