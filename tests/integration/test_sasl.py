"""A broker with a SASL listener keeps its secrets, and serves others beside thousands of half-open logins.

Client libraries log in by each mechanism in tests/integration/test_secured_clients.py.
"""

from __future__ import annotations

import json
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from minibroker import Broker
from tests.conformance.sasl import FIRST, SETTINGS
from tests.integration.brokers import Minibroker
from tests.requests import authenticate, framed, handshake

HALF_OPEN = pytest.mark.parametrize("half_open", [2_000, pytest.param(10_000, marks=pytest.mark.nightly)])
SPARE_DESCRIPTORS = 500
LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def users(*arguments: str, password: str | None = None) -> str:
    """`minibroker users`, with a password on its standard input."""
    command = [sys.executable, "-P", "-m", "minibroker", "users", *arguments]
    done = subprocess.run(command, input=password, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(directory: Path, settings: Mapping[str, str] | None = None) -> Minibroker:
    """A broker with the users, added to its data directory before its first start."""
    data_dir = directory / "data"
    users("add", "grace", "--password-file", "-", "--data-dir", str(data_dir), password="hopper\n")
    return Minibroker(
        directory,
        *("--data-dir", str(data_dir), "--transcript", str(directory / "transcript")),
        settings={"listeners": LISTENERS, **SETTINGS, **(settings or {})},
        flags=False,
    ).wait_until_ready()


def address(broker: Minibroker) -> str:
    return f"127.0.0.1:{broker.ports['SASL_PLAINTEXT']}"


PATIENCE_SECONDS = 30.0
BYTES_EACH_MAX = 24 * 1024  # of the broker's memory for each half-open login
SASL_LOGIN = (
    *("-Xsecurity.protocol=SASL_PLAINTEXT", "-Xsasl.mechanism=PLAIN"),
    *("-Xsasl.username=carol", "-Xsasl.password=carol-secret"),
)

# -- secrets --------------------------------------------------------------------------------------------------

PLANTED = ("plain-hunter2", "scram-hunter3", "wrong-hunter4", "jaas-hunter5", "changed-hunter6")


def test_the_users_of_the_file_that_kafka_opts_names_log_in(tmp_path: Path) -> None:
    """As in the compose file that comes with the apache/kafka image."""
    file = tmp_path / "broker_jaas.conf"
    file.write_text(
        f'// of the image\nKafkaServer {{\n    {PLAIN_MODULE} required\n    username="admin"\n    password="a"\n'
        '    user_admin="a"\n    user_alice="b";\n};\n'
    )
    environment = {
        "KAFKA_OPTS": f"-Xmx1G -Djava.security.auth.login.config={file}",
        "KAFKA_SECURITY_INTER_BROKER_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
    }

    with Broker(environment=environment) as broker:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        client = login | {"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"}
        assert AdminClient({**client, "sasl.password": "b"}).list_topics(timeout=PATIENCE_SECONDS).brokers
        with pytest.raises(KafkaException):
            AdminClient({**client, "sasl.password": "a"}).list_topics(timeout=1)


def test_no_secret_is_in_any_output(tmp_path: Path) -> None:
    """Passwords of JAAS, of SCRAM, wrong ones, and secrets in refused settings: planted, and looked for everywhere."""
    module = f'{PLAIN_MODULE} required username="x" password="{PLANTED[3]}" user_carol="{PLANTED[0]}";'
    broker = start(tmp_path, {"listener.name.sasl_plaintext.plain.sasl.jaas.config": module})
    outputs: list[str] = []
    try:
        plain, sasl = f"127.0.0.1:{broker.ports['PLAINTEXT']}", address(broker)
        outputs.append(users("add", "eve", "-b", plain, "--password-file", "-", password=f"{PLANTED[1]}\n"))
        for mechanism, user, password in (
            ("PLAIN", "carol", PLANTED[0]),
            ("PLAIN", "carol", PLANTED[2]),
            ("SCRAM-SHA-256", "eve", PLANTED[1]),
            ("SCRAM-SHA-512", "eve", PLANTED[2]),
        ):
            login = ["-Xsecurity.protocol=SASL_PLAINTEXT", f"-Xsasl.mechanism={mechanism}", f"-Xsasl.username={user}"]
            outputs.append(ran("health", "-b", sasl, *login, f"-Xsasl.password={password}"))
        for version in (0, 1):
            talk(broker, handshake("PLAIN", version), framed_login(version, f"\0carol\0{PLANTED[2]}".encode()))
        talk(broker, framed(f"\0carol\0{PLANTED[0]}".encode()))  # a token in the wrong place
        talk(broker, handshake("PLAIN", 1), framed(f"\0carol\0{PLANTED[0]}".encode()))
        setting = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        changed = f'{PLAIN_MODULE} required user_eve="{PLANTED[4]}"'
        outputs.append(ran("configs", "set", "-b", plain, "--broker", "0", f"{setting}={changed}"))
        outputs.append(ran("configs", "set", "-b", plain, "--broker", "0", f"sasl.jaas.config={changed}"))
        outputs.append(ran("configs", "describe", "-b", plain, "--broker", "0", "--all", "-o", "json"))
        transcript = str(tmp_path / "transcript")
        for options in ((), ("--full",), ("-o", "json"), ("-o", "json", "--full"), ("--brief",)):
            outputs.append(ran("transcript", transcript, *options))
        assert "SaslAuthenticate" in outputs[-1]
    finally:
        broker.terminate()
    lint = tmp_path / "bad.properties"
    lint.write_text(f"listeners=SASL_PLAINTEXT://:1\n{setting}={changed}\nsasl.enabled.mechanisms=PLAIN\n")
    outputs += [ran("config", "lint", str(lint)), broker.log_text]
    outputs += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file() and path != lint]

    found = [(secret, number) for number, text in enumerate(outputs) for secret in PLANTED if secret in text]
    assert found == []
    salted = stored_keys(tmp_path / "data" / "minibroker.json")
    assert [key for key in salted if any(key in text for text in outputs[: -len(list(tmp_path.rglob("*")))])] == []


def ran(*arguments: str) -> str:
    """Run a command; return what it prints, right or wrong."""
    command = [sys.executable, "-P", "-m", "minibroker", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def stored_keys(path: Path) -> list[str]:
    credentials = json.loads(path.read_text())["scram_credentials"]
    return [row[key] for user in credentials.values() for row in user.values() for key in ("stored_key", "server_key")]


def framed_login(version: int, token: bytes) -> bytes:
    return framed(token) if version == 0 else authenticate(token, 0)


def talk(broker: Minibroker, *messages: bytes) -> bytes:
    """Send messages in one write, and read until the broker closes."""
    with socket.create_connection(("127.0.0.1", broker.ports["SASL_PLAINTEXT"]), timeout=PATIENCE_SECONDS) as sock:
        sock.sendall(b"".join(messages))
        answered = b""
        while piece := sock.recv(65536):
            answered += piece
        return answered


# -- thousands of half-open logins ----------------------------------------------------------------------------


@HALF_OPEN
def test_half_open_logins_leave_others_served(tmp_path: Path, half_open: int) -> None:
    """Each has stopped at another place: before a byte, in a length, in a large token, between SCRAM's messages."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < half_open + SPARE_DESCRIPTORS:
        pytest.skip(f"{hard} open files are allowed, and this needs {half_open + SPARE_DESCRIPTORS}: see ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, half_open + SPARE_DESCRIPTORS), hard))
    broker = start(tmp_path)
    places = [
        b"",
        b"\0\0",
        struct.pack(">i", 524_288) + b"x",
        handshake("PLAIN", 0) + struct.pack(">i", 524_288) + bytes(100),
        handshake("SCRAM-SHA-256", 1),
        handshake("SCRAM-SHA-256", 1) + authenticate(FIRST.encode(), 0),
    ]
    sockets: list[socket.socket] = []
    try:
        before_bytes = memory_bytes(broker.pid)
        for number in range(half_open):
            sock = socket.create_connection(("127.0.0.1", broker.ports["SASL_PLAINTEXT"]), timeout=PATIENCE_SECONDS)
            sock.sendall(places[number % len(places)])
            sockets.append(sock)
        answered_by = [sock for number, sock in enumerate(sockets) if number % len(places) > 3]
        for sock in answered_by:
            assert sock.recv(4096)

        began = time.monotonic()
        served = ran("health", "-b", address(broker), *SASL_LOGIN)
        taken_seconds = time.monotonic() - began

        assert "carol" not in served
        assert "1 broker" in served, served
        assert taken_seconds < PATIENCE_SECONDS
        assert (memory_bytes(broker.pid) - before_bytes) / half_open < BYTES_EACH_MAX
    finally:
        for sock in sockets:
            sock.close()
        broker.kill()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory_bytes(pid: int) -> int:
    """The resident memory of a process."""
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) * 1024
