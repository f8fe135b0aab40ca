"""`minibroker serve` as a process: how it starts, what it refuses in one clear line, and how it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from benchmarks.processes import ROOT
from minibroker.broker.starting import stop_signals
from minibroker.conformance.requests import fetch_body, frame
from minibroker.protocol.api import ApiKey
from tests.integration.brokers import BrokerProcess, Minibroker, free_port
from tests.integration.conftest import StartMinibroker
from tests.integration.hostile_batches import valid
from tests.integration.members import wait_until
from tests.integration.topics import create_topic
from tests.integration.wire import connection_to, read
from tests.requests import by_name, produce_body

PROMPTLY_SECONDS = 30.0  # on a busy machine: half of what the clients wait
NOT_FOR_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere: run it as another user")

STOCK_SERVER_PROPERTIES = """# The settings of a server.properties as Apache Kafka 2.0 ships it.
broker.id=0
#listeners=PLAINTEXT://:9092
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=6000
group.initial.rebalance.delay.ms=0
"""


def partitions_of(broker: BrokerProcess, topic: str) -> int:
    """How many partitions a topic has."""
    with connection_to(broker.bootstrap) as connection:
        (row,) = connection.call(ApiKey.METADATA, 4, topics=by_name(topic), allow_auto_topic_creation=False).topics
    return len(row.partitions)


def refusal(broker: Minibroker) -> str:
    """The one line with which a broker refused to start."""
    assert broker.wait_for_exit() != 0
    assert not broker.ready_file.exists()
    (line,) = broker.log_text.strip().splitlines()
    return line


def test_the_server_properties_that_kafka_ships_set_the_listener_and_the_data_directory(
    start_minibroker: StartMinibroker, tmp_path: Path
) -> None:
    config = tmp_path / "server.properties"
    port = free_port()
    places = f"listeners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path}/logs\n"
    config.write_text(STOCK_SERVER_PROPERTIES + places)

    broker = start_minibroker("--config", str(config), flags=False).wait_until_ready()

    create_topic(broker, "made")
    assert broker.port == port
    assert (tmp_path / "logs" / "made-0").is_dir()
    assert "ERROR" not in broker.log_text


def test_topics_are_there_when_the_broker_is_ready_unless_they_exist(start_minibroker: StartMinibroker) -> None:
    arguments = ("--create-topics", "orders:3, state:1:1:compact\nclicks", "--set", "num.partitions=2")
    broker = start_minibroker(*arguments).wait_until_ready()

    assert {each: partitions_of(broker, each) for each in ("orders", "state", "clicks")} == {
        "orders": 3,
        "state": 1,
        "clicks": 2,
    }
    broker.terminate()
    broker.wait_for_exit()

    again = start_minibroker("--create-topics", "orders:9").wait_until_ready()
    assert partitions_of(again, "orders") == 3
    assert "WARNING" in again.log_text
    assert "topic orders exists with 3 partitions, not 9: it stays as it is" in again.log_text


def test_a_broker_that_cannot_create_a_topic_of_its_start_is_never_ready(start_minibroker: StartMinibroker) -> None:
    broker = start_minibroker("--create-topics", "orders,none:0,copied:1:2,a.b,a_b,state:1:1:compacted")

    assert broker.wait_for_exit() == 1
    assert not broker.ready_file.exists()
    reasons = [line.partition(" topic ")[2] for line in broker.log_text.splitlines() if " cannot create " in line]
    assert reasons == [
        "none: Number of partitions must be larger than 0.",
        "copied: Replication factor: 2 larger than available brokers: 1.",
        "a_b: Topic 'a_b' collides with existing topics: a.b",
        "state: Invalid value compacted for configuration cleanup.policy: String must be one of: compact, delete",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--config", "{}/bad.properties"], ["num.partitions", "many"], id="a bad value in the file"),
        pytest.param(["--listen", "no-such-host.invalid:0"], ["no-such-host.invalid"], id="an unknown host"),
        pytest.param(["--busy-poll-ms=nonsense"], ["'nonsense'", "from 0 to 1000"], id="a busy poll that is no number"),
        pytest.param(["--busy-poll-ms=-1"], ["'-1'", "from 0 to 1000"], id="a busy poll below its bounds"),
        pytest.param(["--busy-poll-ms=1001"], ["'1001'", "from 0 to 1000"], id="a busy poll above its bounds"),
        pytest.param(["--transcript", "{}/no/such"], ["cannot write --transcript"], id="a transcript in no folder"),
        pytest.param(["--transcript", "{}"], ["cannot write --transcript"], id="a transcript in place of a folder"),
        pytest.param(["--transcript", "{}/bad.properties"], ["not a transcript"], id="a transcript over another file"),
        pytest.param(["--create-topics", "a:b"], ["--create-topics: 'a:b' is not NAME:PARTITIONS"], id="odd topics"),
        pytest.param(["--create-topics", "a b:3"], ['--create-topics: Topic name "a b" is illegal'], id="an odd name"),
        pytest.param(["--create-topics", "a,a:3"], ["topic a is there twice: 'a' and 'a:3'"], id="a topic twice"),
        pytest.param(["--data-dir", "{}/file"], ["{}/file"], id="data in a file"),
        pytest.param(["--data-dir", "{}/file/data"], ["{}/file/data"], id="data below a file"),
        pytest.param(["--data-dir", "/proc/data"], ["/proc/data"], id="a data directory that cannot be made"),
        pytest.param(["--data-dir", "{}/locked"], ["{}/locked"], id="a read-only data directory", marks=NOT_FOR_ROOT),
    ],
)
def test_a_failed_start_prints_one_line(
    start_minibroker: StartMinibroker, tmp_path: Path, arguments: list[str], said: list[str]
) -> None:
    (tmp_path / "bad.properties").write_text("num.partitions=many\n")
    (tmp_path / "file").write_text("")
    (tmp_path / "locked").mkdir(mode=0o500)

    line = refusal(start_minibroker(*(each.format(tmp_path) for each in arguments)))

    for word in said:
        assert word.format(tmp_path) in line


def test_a_broker_serves_on_a_system_that_is_not_linux(tmp_path: Path) -> None:
    """As far as Linux can stand in for it: tests/without_linux.py."""
    address = f"127.0.0.1:{free_port()}"
    files = {name: str(tmp_path / name) for name in ("data-dir", "ready-file", "control")}
    options = [f"--{name}={path}" for name, path in files.items()]
    command = [sys.executable, "-m", "tests.without_linux", "serve", f"--listen={address}", *options]
    command += ["--set", "log.segment.bytes=500000"]
    values = [b"%d" % number + b"x" * 1000 for number in range(2000)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, cwd=ROOT, stderr=log) as broker:
        try:
            wait_until(Path(files["ready-file"]).exists, "the broker to be ready")
            with KafkaProducer(bootstrap_servers=address) as producer:
                for value in values:
                    producer.send("t", value)
            with closing(
                KafkaConsumer(
                    "t",
                    bootstrap_servers=address,
                    auto_offset_reset="earliest",
                    group_id="g",
                    consumer_timeout_ms=20_000,
                )
            ) as consumer:
                read = [next(consumer).value for _ in values]
        finally:
            broker.terminate()
    assert sorted(read) == sorted(values)
    assert broker.returncode == 0
    assert "Error" not in (tmp_path / "log").read_text()


def test_a_broker_that_polls_busily_serves_and_then_sleeps(start_minibroker: StartMinibroker) -> None:
    broker = start_minibroker("--busy-poll-ms", "100").wait_until_ready()
    create_topic(broker, "seen")
    assert partitions_of(broker, "seen") == 1
    time.sleep(0.3)

    before = broker.cpu_seconds()
    time.sleep(1.0)

    assert broker.cpu_seconds() - before < 0.5
    assert broker.terminate() == 0


def test_a_second_broker_on_a_data_directory_is_refused_and_the_first_goes_on(
    start_minibroker: StartMinibroker,
) -> None:
    first = start_minibroker().wait_until_ready()
    create_topic(first, "kept")

    line = refusal(start_minibroker("--data-dir", str(first.data_dir), name="two"))

    assert str(first.data_dir) in line
    assert partitions_of(first, "kept") == 1


@pytest.mark.parametrize("number", stop_signals())
def test_a_signal_stops_the_broker_in_order(start_minibroker: StartMinibroker, number: signal.Signals) -> None:
    broker = start_minibroker().wait_until_ready()
    create_topic(broker, "kept")

    broker.process.send_signal(number)

    assert broker.wait_for_exit() == 0
    assert "Traceback" not in broker.log_text


def test_a_stop_does_not_wait_for_idle_or_waiting_clients(start_minibroker: StartMinibroker) -> None:
    settings = {"group.initial.rebalance.delay.ms": 60_000}
    broker = start_minibroker(settings=settings).wait_until_ready()
    create_topic(broker, "quiet")
    member: dict[str, Any] = {"group_id": "group", "session_timeout_ms": 30_000, "protocol_type": "consumer"}

    with ExitStack() as stack:
        idle, fetching, joining = (stack.enter_context(connection_to(broker.bootstrap)) for _ in range(3))
        idle.ask_for_versions()
        fetching.send(frame(ApiKey.FETCH, 4, **fetch_body(("quiet", 0, 0), max_wait_ms=60_000)))
        joining.call(ApiKey.FIND_COORDINATOR, 1, key="group")
        joining.send(frame(ApiKey.JOIN_GROUP, 0, **member, protocols=[("range", b"")]))
        broker.wait_for_log("group group: rebalance after generation 0")
        started = time.monotonic()
        status = broker.terminate()

    assert status == 0
    assert time.monotonic() - started < PROMPTLY_SECONDS


def test_memory_stays_bounded_under_a_quarter_gigabyte_and_readers_that_do_not_read(
    start_minibroker: StartMinibroker,
) -> None:
    broker = start_minibroker(settings={"log.segment.bytes": 50_000_000}).wait_until_ready()
    create_topic(broker, "big")
    request = frame(ApiKey.PRODUCE, 3, **produce_body("big", valid(size_bytes=300_000)))
    before = broker.resident_bytes()

    with connection_to(broker.bootstrap) as connection:
        for _ in range(280):
            assert connection.exchange(request) is not None
        readers = [connection_to(broker.bootstrap) for _ in range(20)]
        for reader in readers:
            whole = fetch_body(("big", 0, 0), max_partition_bytes=40_000_000, max_bytes=40_000_000)
            reader.send(frame(ApiKey.FETCH, 4, **whole))
        row = read(connection, "big", max_partition_bytes=1_000_000)
        grown = broker.resident_bytes() - before
        for reader in readers:
            reader.reset()

    assert row.high_watermark == 3 * 280
    assert grown < 100 * 2**20
