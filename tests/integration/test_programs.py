"""Programs that others have built on Kafka's Java client, exactly once, while they and the broker are killed: Kafka
Streams, Kafka Connect and MirrorMaker."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.apache_kafka import KafkaUnavailable, kafka_jars
from benchmarks.later_kafka import LaterKafka
from benchmarks.processes import ServerProcess, free_port
from tests.integration.conftest import StartMinibroker
from tests.integration.drivers.line_protocol import Deadline
from tests.integration.librdkafka import read_from_beginning, value_of
from tests.integration.members import wait_until
from tests.integration.topics import create_topic
from tests.jvm import QUICK_JVM
from tests.setup_clients import compiled_for_kafka

pytestmark = pytest.mark.nightly

STREAMS = "4.4.0", ("org.apache.kafka:kafka-streams:4.4.0", "org.slf4j:slf4j-simple:1.7.36")
# The newest of which all parts can be had.
CONNECT = (
    "4.3.1",
    (
        *(f"org.apache.kafka:connect-{part}:4.3.1" for part in ("runtime", "file", "mirror")),
        "org.slf4j:slf4j-simple:1.7.36",
    ),
)
SETTINGS: dict[str, str | int] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000}
PARTITIONS = 3
RECORDS = 2_000
PATIENCE_SECONDS = 120.0
until = partial(wait_until, seconds=PATIENCE_SECONDS)
WORDS = ("alpha", "beta", "gamma")
INTERNAL = ("config.storage", "offset.storage", "status.storage")  # topics of Connect's workers


class Programs:
    """Starts Java's main classes; a name that is taken is started anew, after kill -9."""

    def __init__(self, part: str, release: str, coordinates: Sequence[str], folder: Path) -> None:
        try:
            self.jars = kafka_jars(release=f"{part}-{release}", coordinates=coordinates)
        except KafkaUnavailable as error:
            pytest.skip(f"needs Apache Kafka's {part} {release}: {error}")
        self._folder = folder
        self._running: dict[str, ServerProcess] = {}

    def start(self, name: str, main: str, *arguments: str, classes: Path | None = None) -> None:
        if name in self._running:
            self._running.pop(name).kill()
        path = f"{self.jars}/*" if classes is None else f"{classes}:{self.jars}/*"
        command = ["java", *QUICK_JVM, "-Xmx384m", "-cp", path, main, *arguments]
        self._running[name] = ServerProcess(name, command, self._folder / f"{name}.log")

    def kill(self) -> None:
        for each in self._running.values():
            each.kill()


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def values_by_key(bootstrap: str, topic: str) -> dict[bytes, list[bytes]]:
    """The committed values of each key, in order."""
    consumer = read_from_beginning(
        bootstrap, topic, PARTITIONS, isolation_level="read_committed", enable_partition_eof=True
    )
    found: dict[bytes, list[bytes]] = defaultdict(list)
    ends, deadline = 0, Deadline(PATIENCE_SECONDS)
    while ends < PARTITIONS:
        deadline.seconds_left(f"the ends of {topic}")
        for message in consumer.consume(1000, 0.1):
            value = value_of(message)
            if value is None:
                ends += 1
            else:
                found[message.key() or b""].append(value)
    consumer.close()
    return dict(found)


def has_values(bootstrap: str, topic: str) -> bool:
    return bool(values_by_key(bootstrap, topic))


def has_all(bootstrap: str, topic: str, sent: dict[bytes, list[bytes]]) -> bool:
    return values_by_key(bootstrap, topic) == sent


def produce(bootstrap: str, topic: str, rows: Sequence[tuple[str, str]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for key, value in rows:
        producer.produce(topic, value, key)
    assert producer.flush(PATIENCE_SECONDS) == 0


@pytest.mark.ability("transactions", "Kafka Streams")
def test_kafka_streams_counts_each_word_once(
    start_in_place: StartMinibroker, tmp_path: Path, cleanup: ExitStack
) -> None:
    broker = start_in_place(settings=SETTINGS)
    for topic in ("lines", "names", "counts", "named"):
        create_topic(broker, topic, PARTITIONS)
    produce(broker.bootstrap, "names", [(str(key), f"name {key}") for key in range(10)])
    streams = Programs("streams", *STREAMS, tmp_path)
    cleanup.callback(streams.kill)
    classes = compiled_for_kafka("StreamsCounts", f"{streams.jars}/*")

    def start(name: str) -> None:
        streams.start(name, "StreamsCounts", broker.bootstrap, str(tmp_path / f"state of {name}"), classes=classes)

    start("one")
    start("two")
    lines = [(str(number % 10), " ".join(WORDS[: number % 3 + 1])) for number in range(RECORDS)]
    step = RECORDS // 4
    for first in range(0, RECORDS, step):
        produce(broker.bootstrap, "lines", lines[first : first + step])
        until(partial(has_values, broker.bootstrap, "counts"), "counts")
        if first == step:
            start("one")
        elif first == 2 * step:
            broker.kill()
            broker = start_in_place(settings=SETTINGS)
            start("two")

    words = Counter(word.encode() for _, line in lines for word in line.split())
    counted = {word: [b"%d" % number for number in range(1, count + 1)] for word, count in words.items()}
    until(partial(has_all, broker.bootstrap, "counts", counted), "all counts")
    named = {b"%d" % key: [b"name %d" % key] * (RECORDS // 10) for key in range(10)}
    until(partial(has_all, broker.bootstrap, "named", named), "all names")


def properties(path: Path, settings: dict[str, object]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def put(address: str, path: str, body: object) -> None:
    """Ask the worker until it takes it: after a start it answers with errors first."""
    request = urllib.request.Request(
        f"http://{address}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}, method="PUT"
    )

    def is_taken() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS):
                return True
        except OSError:
            return False

    until(is_taken, path)


@pytest.mark.ability("transactions", "Kafka Connect")
def test_kafka_connect_brings_a_file_into_a_topic_once_and_out_again(
    start_in_place: StartMinibroker, tmp_path: Path, cleanup: ExitStack
) -> None:
    broker = start_in_place(settings=SETTINGS)
    connect = Programs("connect", *CONNECT, tmp_path)
    cleanup.callback(connect.kill)
    address = f"127.0.0.1:{free_port()}"
    text = "org.apache.kafka.connect.storage.StringConverter"
    worker = properties(
        tmp_path / "worker.properties",
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "workers",
            "key.converter": text,
            "value.converter": text,
            **{f"{each}.topic": each for each in INTERNAL},
            **{f"{each}.replication.factor": 1 for each in INTERNAL},
            "offset.flush.interval.ms": 500,
            "exactly.once.source.support": "enabled",
            "listeners": f"http://{address}",
            "plugin.discovery": "only_scan",
            "plugin.path": tmp_path / "plugins",
        },
    )
    (tmp_path / "plugins").mkdir()
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [f"line {number}" for number in range(RECORDS)]
    of_source = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "topic": "lines"}
    of_source |= {"file": str(source), "exactly.once.support": "required"}
    of_source |= {"topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "1"}
    of_sink = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "topics": "lines"}
    of_sink |= {"file": str(sink), "consumer.override.isolation.level": "read_committed"}
    create_topic(broker, "lines", PARTITIONS)

    connect.start("worker", "org.apache.kafka.connect.cli.ConnectDistributed", worker)
    put(address, "connectors/in/config", of_source)
    put(address, "connectors/out/config", of_sink)
    step = RECORDS // 4
    for first in range(0, RECORDS, step):
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[first : first + step])
        until(partial(has_values, broker.bootstrap, "lines"), "records")
        if first == step:
            broker.kill()
            broker = start_in_place(settings=SETTINGS)
            connect.start("worker", "org.apache.kafka.connect.cli.ConnectDistributed", worker)

    sent = sorted(line.encode() for line in lines)
    until(lambda: sorted(values_by_key(broker.bootstrap, "lines").get(b"", ())) == sent, "all records")
    until(lambda: set(sink.read_text().splitlines()) == set(lines), "all lines")


@pytest.mark.ability("transactions", "MirrorMaker")
def test_mirror_maker_copies_to_apache_kafka_and_back_once(
    start_minibroker: StartMinibroker, tmp_path: Path, cleanup: ExitStack
) -> None:
    mirror = Programs("connect", *CONNECT, tmp_path)
    cleanup.callback(mirror.kill)
    broker = start_minibroker(settings=SETTINGS).wait_until_ready()
    kafka = LaterKafka(tmp_path / "kafka", release="4.4.0", java_options=QUICK_JVM).start()
    cleanup.callback(kafka.kill)
    rows = [(str(number), f"value {number}") for number in range(RECORDS)]
    copies = (
        (broker.bootstrap, "ours", kafka.bootstrap, "mini.ours"),
        (kafka.bootstrap, "theirs", broker.bootstrap, "kafka.theirs"),
    )
    for source, topic, target, copied in copies:
        for bootstrap, name in ((source, topic), (target, copied)):
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
    settings: dict[str, object] = {
        "clusters": "mini,kafka",
        "mini.bootstrap.servers": broker.bootstrap,
        "kafka.bootstrap.servers": kafka.bootstrap,
        "mini->kafka.enabled": "true",
        "mini->kafka.topics": "ours",
        "kafka->mini.enabled": "true",
        "kafka->mini.topics": "theirs",
        "mini.exactly.once.source.support": "enabled",
        "kafka.exactly.once.source.support": "enabled",
        "refresh.topics.interval.seconds": 2,
        "replication.factor": 1,
        **{
            f"{each}.replication.factor": 1
            for each in (*INTERNAL, "checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")
        },
    }
    file = properties(tmp_path / "mirror.properties", settings)
    for part in (rows[: RECORDS // 2], rows[RECORDS // 2 :]):
        mirror.start("mirror", "org.apache.kafka.connect.mirror.MirrorMaker", file)
        for source, topic, target, copied in copies:
            produce(source, topic, part)
            until(partial(has_values, target, copied), copied)

    for source, topic, target, copied in copies:
        sent = values_by_key(source, topic)
        until(partial(has_all, target, copied, sent), f"all of {copied}")
