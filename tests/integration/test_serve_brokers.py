"""`minibroker serve --brokers`: a cluster from the command line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from minibroker.broker.config.sasl import PLAIN_MODULE
from minibroker.broker.wings.several.launcher import of_broker
from minibroker.control import Control
from minibroker.errors import BrokerError
from minibroker.protocol.jaas import written_jaas
from minibroker.served_cluster import ServedCluster
from tests.certificates import Certificates
from tests.integration.clusters import QUICK_REFRESH, new_topic, produce

WAIT_SECONDS = 20.0
SERVE = [sys.executable, "-P", "-m", "minibroker", "serve", "--brokers", "3"]
SCRAM = "SCRAM-SHA-256"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SASL_ONLY = [
    *("--set", "listeners=SASL_PLAINTEXT://127.0.0.1:9092", "--set", "security.inter.broker.protocol=SASL_PLAINTEXT"),
    *("--set", f"sasl.enabled.mechanisms={SCRAM}", "--set", f"sasl.mechanism.inter.broker.protocol={SCRAM}"),
    *("--set", f"listener.name.sasl_plaintext.{SCRAM.lower()}.sasl.jaas.config={SCRAM_LOGIN}"),
]


def brokers_at(bootstrap: str) -> list[int]:
    return sorted(
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=WAIT_SECONDS).brokers
    )


def until_there_are(bootstrap: str, broker_ids: list[int]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while brokers_at(bootstrap) != broker_ids:
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@contextmanager
def launched(data_dir: Path, ready_file: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*SERVE, "--data-dir", str(data_dir), "--ready-file", str(ready_file), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + WAIT_SECONDS
        while not ready_file.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline, "not in time"
            time.sleep(0.01)
        yield process
        process.kill()


@pytest.fixture
def launcher(tmp_path: Path, data_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    with launched(data_dir, tmp_path / "ready", "--listen", "127.0.0.1:0", "--set", "log.roll=1") as process:
        yield process


def test_three_brokers_start_together_and_are_driven_by_their_launcher(
    launcher: subprocess.Popen[bytes], tmp_path: Path, data_dir: Path
) -> None:
    bootstrap = (tmp_path / "ready").read_text().strip()
    assert brokers_at(bootstrap) == [1, 2, 3]
    control = Control(data_dir / "cluster" / "launcher.control")

    control.call("kill", broker_id=2)
    until_there_are(bootstrap, [1, 3])
    with pytest.raises(BrokerError, match="broker 2 does not run; start it first"):
        control.call("pause", broker_id=2)
    control.call("start", broker_id=2)
    until_there_are(bootstrap, [1, 2, 3])
    with pytest.raises(BrokerError, match="there is no broker 4; the ids are 1 to 3"):
        control.call("start", broker_id=4)

    command = [*SERVE, "--listen", "127.0.0.1:0", "--data-dir", str(data_dir), "--ready-file", str(tmp_path / "ready")]
    second = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    in_use = f"data directory {data_dir} is in use by another broker (.lock is locked); name another directory with"
    assert (second.returncode, second.stderr) == (1, f"minibroker: {in_use} --data-dir DIR\n")
    assert (tmp_path / "ready").read_text().strip() == bootstrap
    control.call("kill", broker_id=2)
    control.call("start", broker_id=2)

    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(WAIT_SECONDS) == 0
    assert launcher.stderr is not None
    printed = launcher.stderr.read().decode()
    assert f"bootstrap.servers   {bootstrap}" in printed
    assert printed.count("minibroker: log.roll is not a setting of Kafka 2.0") == 1
    assert "broker 2 has ended (SIGKILL)" not in printed  # it was asked for
    logs = [(data_dir / f"{each}.log").read_text() for each in (1, 2, 3)]
    assert all("Traceback" not in log for log in logs)


def test_the_console_of_a_cluster_outlives_the_broker_that_it_shows(tmp_path: Path, data_dir: Path) -> None:
    with launched(data_dir, tmp_path / "ready", "--listen", "127.0.0.1:0", "--console", "0") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline().decode() for _ in range(11)]
        banner = {line[4:24].strip(): line[24:].strip() for line in lines}
        address, _, token = banner["console"].partition("#token=")
        bootstrap = (tmp_path / "ready").read_text().strip()
        assert banner["look at it"] == f"minibroker topics list --bootstrap-server {bootstrap}"
        assert Path(banner["control sockets"].removesuffix(", and so on")) == data_dir / "cluster" / "1.control"

        def asked(path: str) -> Any:
            with urllib.request.urlopen(address + path, timeout=WAIT_SECONDS) as answer:
                return json.load(answer)

        before = asked("api/cluster")
        killed = subprocess.run(
            [sys.executable, "-m", *banner["kill one"].split()], capture_output=True, text=True, check=False
        )
        assert killed.returncode == 0, killed.stderr
        until_there_are(bootstrap, [2, 3])
        after, waiting = asked("api/cluster"), asked("api/inside/purgatory")

    assert len(token) > 20
    assert (before["control_broker"], after["control_broker"], waiting["run"] > 0) == (1, 2, True)


def test_each_broker_of_a_cluster_has_a_schema_registry(tmp_path: Path, data_dir: Path) -> None:
    pytest.importorskip("proto_schema_parser", reason="the registry needs its extra: pip install -e '.[schemas]'")
    options = ("--listen", "127.0.0.1:0", "--schema-registry", "127.0.0.1:0")
    with launched(data_dir, tmp_path / "ready", *options) as process:
        assert process.stderr is not None
        banner = [process.stderr.readline().decode() for _ in range(5)]
        (line,) = (each for each in banner if "schema registries" in each)
        subjects = []
        for url in line.split()[-1].split(","):
            with urllib.request.urlopen(f"{url}/subjects", timeout=WAIT_SECONDS) as answer:
                subjects.append(json.load(answer))

    assert subjects == [[], [], []]


def test_brokers_that_speak_only_sasl_ssl_replicate_and_recover(tmp_path: Path, data_dir: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    login = written_jaas(PLAIN_MODULE, {"username": "broker", "password": "b", "user_broker": "b", "user_alice": "a"})
    properties = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
        "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
        "super.users": "User:broker",
        "allow.everyone.if.no.acl.found": "true",
        **certificates.settings(trusts_clients=True),
    }
    (tmp_path / "properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    with launched(data_dir, tmp_path / "ready", "--config", str(tmp_path / "properties")):
        alice: dict[str, Any] = {
            "bootstrap.servers": (tmp_path / "ready").read_text().strip(),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "a",
            "ssl.ca.location": str(certificates.authority),
            "acks": "all",
            **QUICK_REFRESH,
        }
        new_topic(AdminClient(alice), "orders", [(1, 2, 3)])
        cluster = ServedCluster(data_dir)
        produce(Producer(alice), "orders", [b"one"])
        cluster.change("kill", 1)
        cluster.until_leader("orders", not_=1, timeout=WAIT_SECONDS)
        produce(Producer(alice), "orders", [b"two"])
        cluster.change("start", 1)
        cluster.until_isr("orders", 0, [1, 2, 3], timeout=WAIT_SECONDS)
        cluster.until_high_watermark("orders", 0, 2, timeout=WAIT_SECONDS)


def test_a_broker_that_dies_is_reported_and_the_others_go_on(
    launcher: subprocess.Popen[bytes], tmp_path: Path, data_dir: Path
) -> None:
    bootstrap = (tmp_path / "ready").read_text().strip()
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)

    deadline = time.monotonic() + WAIT_SECONDS
    while len(brokers_at(bootstrap)) != 2:
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)
    launcher.terminate()
    assert launcher.stderr is not None
    assert b"has ended (SIGKILL)" in launcher.stderr.read()


def test_an_address_in_use_is_one_error_with_the_next_step(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [*SERVE, "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--data-dir", str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)

    assert ended.returncode == 1
    assert "minibroker: broker 1 has ended with status 1" in ended.stderr
    assert "choose another address with --listen" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cluster", "x"], "--brokers makes a cluster, and --cluster joins one: give one of them"),
        (["--control", "x"], "each broker of --brokers has a control socket, in the data directory"),
        (["--listen", "0.0.0.0:9092"], "--set advertised.listeners=PLAINTEXT://HOST:9092"),
        (
            ["--listen", "127.0.0.1:0", "--create-topics", "a,b:0"],
            "\nminibroker: cannot create topic b: Number of partitio",
        ),
        (SASL_ONLY, "scram-sha-256.sasl.jaas.config has no username and no password, by which brokers log in to each"),
    ],
)
def test_options_that_no_broker_of_a_cluster_can_have_are_one_error(
    options: list[str], message: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [*SERVE, "--data-dir", str(tmp_path), *options],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert (ended.returncode, message in ended.stderr) == (1, True)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (
            ["--brokers", "30", "--set", "nonsense=1"],
            0,
            "WARNING minibroker.broker.config.kafka_config: nonsense is not",
        ),
        (["--listen", "127.0.0.1:65534"], 1, "minibroker: broker 3: argument --listen: '127.0.0.1:65536' is not"),
        (["--set", "num.io.threads=x"], 1, "minibroker: broker 1: Invalid value x for configuration num.io.threads"),
        (["--create-topics", "a:x"], 1, "minibroker: broker 1: --create-topics: 'a:x' is not NAME:PARTITIONS"),
    ],
)
def test_check_reads_the_settings_of_a_cluster_and_writes_nothing(
    options: list[str], status: int, message: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [*SERVE, "--check", *options], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )

    assert (ended.returncode, ended.stdout, list(tmp_path.iterdir())) == (status, "", [])
    assert message in ended.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("argument", "of_the_third"),
    [
        ("listeners=INSIDE://:9092,HOST://:9192", "listeners=INSIDE://:9094,HOST://:9194"),
        ("--set=advertised.listeners=A://[::1]:9092", "--set=advertised.listeners=A://[::1]:9094"),
        ("listeners=A://127.0.0.1:0", "listeners=A://127.0.0.1:0"),
        ("zookeeper.connect=here:2181", "zookeeper.connect=here:2181"),
    ],
)
def test_brokers_have_the_next_ports_of_each_listener(argument: str, of_the_third: str) -> None:
    assert (of_broker(argument, 1), of_broker(argument, 3)) == (argument, of_the_third)
