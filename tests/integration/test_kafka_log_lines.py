"""Kafka's log lines in docs/troubleshooting.md are Kafka 2.0.1's, and a broker shows what stands beside them.

The broker goes through what the tables name. That the lines which it does not come to are among those that the source
logs, is in tests/test_documents.py.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.processes import ROOT
from minibroker import Broker
from minibroker.conformance.raw_connection import RawConnection
from minibroker.conformance.requests import fetch_body, frame
from minibroker.protocol.api import ApiKey
from minibroker.story import steps_of
from tests.integration.kafka_python import KafkaProducer
from tests.integration.wire import connection_to
from tests.minibroker.commands import minibroker

SETTINGS = {
    "max.connections.per.ip": 20,
    "log.segment.bytes": 100_000,
    "socket.request.max.bytes": 1_000_000,
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 0,
    "log.cleaner.backoff.ms": 100,
    "group.min.session.timeout.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
}
# What this broker does not come to, and why.
ELSEWHERE = {
    "FETCH v0 of connection 0 of 0 (client id 'billing', correlation id 0): a defect of minibroker": "no defect known",
    "Case A: this broker no longer leads a partition": "of a cluster",
    "Case E: the log directory of a partition is offline": "tests/fetch_path/test_disk.py",
    "/data is offline: cannot write": "tests/fetch_path/test_disk.py",
}
OF_CLUSTERS = "Replicas"
A_PIECE = 6  # shorter ones are in every file


class Row(NamedTuple):
    kafka: list[str]
    here: list[str]


def rows(*, but: str | None = None) -> list[Row]:
    """The rows of the tables, but for those of one heading."""
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8").partition("## Kafka's log lines\n")[2]
    tables = [table for table in page.split("\n### ") if but is None or not table.startswith(but)]
    cells = [line.strip("| ").split(" | ") for table in tables for line in table.splitlines() if line.startswith("| `")]
    return [Row(code(first), shown(here)) for first, _, here in cells]


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def shown(here: str) -> list[str]:
    """The lines of the log, or of the story of a request, that a cell names."""
    return [line for cell in re.findall(r"(?:the log|explained): ((?:`[^`]+`(?:, )?)+)", here) for line in code(cell)]


def plain(line: str) -> str:
    """A line without its numbers, plurals and ids of members, which differ from run to run."""
    line = re.sub(r"[\w-]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "c-1", line)
    return re.sub(r"\b0 ([a-z]+)s\b", r"0 \1", re.sub(r"\d[\d,.:]*(?<=\d)", "0", line))


def test_each_line_of_kafka_is_one_of_2_0_1(jars: Path) -> None:
    classes = b"".join(
        jar.read(name)
        for path in (jars / "kafka_2.11-2.0.1.jar", jars / "kafka-clients-2.0.1.jar")
        for jar in [zipfile.ZipFile(path)]
        for name in jar.namelist()
        if re.match(r"kafka/|org/apache/kafka/(common/network|clients/Fetch)", name)
    )
    pieces = {piece.strip() for row in rows() for line in row.kafka for piece in line.split("...")}
    told = {piece for piece in pieces if len(piece) >= A_PIECE}

    assert len(told) >= 60
    assert [piece for piece in sorted(told) if piece.encode() not in classes] == []


class Story:
    """A broker, and what it has logged and explained of what was done to it."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(control=True, data_dir=folder / "data", log_file=folder / "log", settings=SETTINGS)
        self.explained: set[str] = set()

    def logged(self) -> set[str]:
        log = self.broker.log_file.read_text(encoding="utf-8").replace(str(self.broker.data_dir), "/data")
        return {plain(line.split(": ", 1)[1]) for line in log.splitlines() if " minibroker." in line}

    def wait_for_log(self, words: str) -> None:
        self.broker.wait_for(lambda: any(words in line for line in self.logged()))

    def connect(self) -> RawConnection:
        return connection_to(self.broker.bootstrap_servers)

    def send_bytes(self, data: bytes) -> None:
        with self.connect() as connection:
            connection.send(data)
            connection.receive_frame()

    def has_parked(self) -> bool:
        return bool(self.broker._control.call("inside.pull", lease_ms=1000)["parked"])

    def command(self, *words: object) -> None:
        done = minibroker(*words, "-b", self.broker.bootstrap_servers)
        assert done.status == 0, done.err


def fetch(connection: RawConnection, *rows: tuple[str, int, int], version: int = 8, **options: Any) -> Any:
    return connection.call(ApiKey.FETCH, version, **fetch_body(*rows, **options))


def read_and_write(story: Story, first: RawConnection, second: RawConnection) -> None:
    """Fetches in a session and without one, of which some wait and some fail."""
    broker = story.broker

    def park(*rows: tuple[str, int, int], **options: Any) -> None:
        body = fetch_body(*rows, **{"max_wait_ms": 60_000, **options})
        second.send(frame(ApiKey.FETCH, 8, client_id="billing", **body))
        broker.wait_for(story.has_parked)

    broker.produce("t", ["x" * 780], partition=0)
    broker.produce("new", ["x"])
    fetch(first, ("t", 0, 900))
    session = fetch(first, ("t", 0, 0), ("t", 1, 0), session_epoch=0).session_id
    fetch(first, session_id=session, session_epoch=1)
    fetch(first, session_id=session, session_epoch=7)
    fetch(first, session_id=session ^ 1, session_epoch=3)
    park(session_id=session, session_epoch=2, min_bytes=1 << 20, max_wait_ms=300)
    fetch(first, session_id=session, session_epoch=3)
    second.receive_frame()
    park(("t", 1, 0))
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="orders-api") as producer:
        producer.send("t", b"x", partition=1).get(60)
        second.receive_frame()
    park(("t", 1, 1), min_bytes=1 << 20)
    broker.produce("t", ["x" * 60_000], partition=1)
    broker.produce("t", ["x" * 60_000], partition=1)
    second.receive_frame()
    park(("gone", 0, 0))
    story.command("topics", "delete", "gone")
    second.receive_frame()
    fetch(first, ("t", 0, 0), version=2)
    fetch(first, ("new", 0, 0), version=2)
    with story.connect() as leaving:
        leaving.send(frame(ApiKey.FETCH, 8, client_id="leaving", **fetch_body(("t", 0, 1), max_wait_ms=300)))
        broker.wait_for(story.has_parked)
    broker.wait_for(lambda: not story.has_parked())
    story.command("quotas", "set", "--client-id", "billing", "consumer_byte_rate=1000")
    second.exchange(frame(ApiKey.FETCH, 8, client_id="billing", **fetch_body(("t", 1, 0))))


def lose_connections(story: Story) -> None:
    story.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    story.send_bytes(struct.pack(">ihhih", 10, 99, 0, 1, -1))
    with ExitStack() as crowd:
        for _ in range(SETTINGS["max.connections.per.ip"] + 1):
            crowd.enter_context(story.connect())
        story.wait_for_log("refusing a connection")
        story.broker.clock.advance(timedelta(minutes=11))
        story.wait_for_log("idle for")


def join_and_fall_silent(story: Story) -> None:
    member = {"session_timeout_ms": 500, "rebalance_timeout_ms": 500, "member_id": "", "protocol_type": "consumer"}
    with story.connect() as connection:
        story.broker.wait_for(lambda: connection.call(ApiKey.FIND_COORDINATOR, 0, key="g").error_code == 0)
        connection.call(ApiKey.JOIN_GROUP, 2, group_id="g", protocols=[("range", b"")], **member)
        story.wait_for_log("group g: empty")


def shorten_logs(story: Story) -> None:
    story.command("topics", "delete-records", "t", "--partition", 1, "--before", "end")
    for _ in range(5):
        story.broker.produce("table", [("key", "x" * 60_000)])
    story.wait_for_log("t-0: deleted segment")
    story.wait_for_log("table-0: compacted")


def damage(story: Story) -> None:
    """After a stop an index is not whole; after a kill there are an index too many, and torn batches."""
    broker = story.broker
    broker.stop()
    *_, index = sorted(broker.data_dir.glob("t-1/*.index"))
    index.write_bytes(b"x" * 9)
    broker.start()
    broker.kill()
    for partition in (0, 1):
        *_, last = sorted(broker.data_dir.glob(f"t-{partition}/*.log"))
        with last.open("ab") as file:
            file.write(b"x" * 120)
    (broker.data_dir / "t-0" / f"{777:020}.index").touch()
    broker.start()


@pytest.fixture(scope="module")
def shown_lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    story = Story(tmp_path_factory.mktemp("lines"))
    with story.broker as broker:
        broker.create_topic("t", partitions=2)
        broker.create_topic("gone", partitions=1)
        broker.create_topic("new", configs={"message.downconversion.enable": "false"})
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        broker.create_topic("table", partitions=1, configs=compacted)
        with broker.explain(api=["fetch", "produce"]) as explained, story.connect() as first, story.connect() as second:
            read_and_write(story, first, second)
        steps = [step for each in explained for step in steps_of(each.json)]
        lose_connections(story)
        join_and_fall_silent(story)
        shorten_logs(story)
        damage(story)
        yield story.logged() | {plain(line) for step in steps for line in (step.title, *step.detail)}


def test_a_broker_shows_what_stands_beside_the_lines_of_kafka(shown_lines: set[str]) -> None:
    told = [plain(line) for row in rows(but=OF_CLUSTERS) for line in row.here]
    left_out = {plain(line) for line in ELSEWHERE}

    assert len(told) >= 35
    assert left_out <= set(told)
    assert [line for line in told if line not in shown_lines | left_out] == []
