"""A broker with listeners of TLS: its addresses, and clients that break the handshake.

Each library writes and reads over TLS in test_secured_clients.py; what the broker does with each byte is in
tests/broker/test_tls_connection.py.
"""

from __future__ import annotations

import random
import re
import resource
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.frames import ask, metadata
from minibroker.conformance.raw_connection import RawConnection
from minibroker.protocol.api import ApiKey
from tests.certificates import Certificates
from tests.integration.brokers import Minibroker
from tests.integration.conftest import Drivers, StartMinibroker
from tests.integration.records import numbered

LISTENERS = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,OTHER://127.0.0.1:0"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,OTHER:SSL"
HALF_OPEN = pytest.mark.parametrize("half_open", [2_000, pytest.param(10_000, marks=pytest.mark.nightly)])
SPARE_DESCRIPTORS = 1000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), rsa=True)


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Minibroker]:
    """One listener in plaintext, and two with TLS."""
    settings: dict[str, str | int] = {
        **certificates.settings(),
        "listener.security.protocol.map": PROTOCOLS,
        "listener.name.ssl.ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    }
    started = Minibroker(tmp_path_factory.mktemp("broker"), "--listen", LISTENERS, settings=settings)
    try:
        yield started.wait_until_ready()
    finally:
        started.kill()


def test_each_client_is_sent_to_the_port_that_it_came_by(tls_broker: Minibroker, certificates: Certificates) -> None:
    with tls_connection(tls_broker, certificates) as connection:
        over_tls = connection.call(ApiKey.METADATA, 1, topics=[])
    _, over_plaintext = ask("127.0.0.1", tls_broker.ports["PLAINTEXT"], metadata())

    assert [row.port for row in over_tls.brokers] == [tls_broker.ports["SSL"]]
    assert [row.port for row in over_plaintext.brokers] == [tls_broker.ports["PLAINTEXT"]]


def test_the_broker_names_its_listeners_in_the_ready_file_and_in_the_log(tls_broker: Minibroker) -> None:
    named = [f"{name}://127.0.0.1:{port}" for name, port in tls_broker.ports.items()]
    named[-1] += " (SSL)"

    assert tls_broker.ready_file.read_text().splitlines() == [tls_broker.bootstrap, *named]
    assert f"minibroker is ready at {', '.join(named)}, data in" in tls_broker.log_text


# -- Clients that break it


def tls_connection(broker: Minibroker, certificates: Certificates) -> RawConnection:
    context = ssl.create_default_context(cafile=str(certificates.authority))
    return RawConnection("localhost", broker.ports["SSL"], context=context)


def assert_served(broker: Minibroker, certificates: Certificates) -> None:
    with tls_connection(broker, certificates) as connection:
        assert connection.call(ApiKey.METADATA, 1, topics=[]).brokers
    assert broker.is_running


def hello(certificates: Certificates) -> bytes:
    """The first message of a client."""
    context = ssl.create_default_context(cafile=str(certificates.authority))
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@HALF_OPEN
def test_half_open_handshakes_leave_others_served(
    start_minibroker: StartMinibroker, certificates: Certificates, drivers: Drivers, half_open: int
) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(half_open, soft - SPARE_DESCRIPTORS)
    broker = start_minibroker(
        "--listen", "SSL://127.0.0.1:0", settings={**certificates.settings(), "security.inter.broker.protocol": "SSL"}
    ).wait_until_ready()
    client = drivers.get("confluent-kafka", f"localhost:{broker.port}")  # before its pipes have numbers beyond select's
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_location": str(certificates.authority)}
    first = hello(certificates)
    with ExitStack() as stack:
        for number in range(count):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=60))
            sock.send(first if number % 2 else first[: 1 + number % len(first)])

        assert_served(broker, certificates)
        assert len(client.produce("served", numbered(10), **settings)) == 10


def test_garbage_in_a_handshake_is_refused_and_others_are_served(
    tls_broker: Minibroker, certificates: Certificates
) -> None:
    whole = hello(certificates)
    drawn = random.Random(14)
    for _ in range(300):
        sent = bytearray(whole)
        for _ in range(drawn.randint(1, 5)):
            sent[drawn.randrange(len(sent))] = drawn.randrange(256)
        if drawn.random() < 0.3:
            sent = sent[: drawn.randrange(len(sent))] + drawn.randbytes(drawn.randrange(50))
        with socket.create_connection(("127.0.0.1", tls_broker.ports["SSL"]), timeout=60) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        if drawn.random() < 0.05:
            assert_served(tls_broker, certificates)

    assert_served(tls_broker, certificates)
    assert "Traceback" not in tls_broker.log_text


@pytest.mark.parametrize(
    ("version", "command", "goes_on"), [("-tls1_2", "R", False), ("-tls1_3", "K", True), ("-tls1_3", "k", True)]
)
def test_a_renegotiation_is_refused_and_new_keys_of_tls_1_3_are_not(
    tls_broker: Minibroker, certificates: Certificates, version: str, command: str, goes_on: bool
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl: install the package openssl")
    arguments = ["-connect", f"localhost:{tls_broker.ports['SSL']}", "-CAfile", str(certificates.authority), version]
    with subprocess.Popen(
        ["openssl", "s_client", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        until(client, b"Verify return code: 0")
        client.stdin.write(f"{command}\n".encode())
        client.stdin.flush()
        if goes_on:
            until(client, b"KEYUPDATE")
            client.stdin.write(b"K\n" * 3)
            client.stdin.flush()
            assert client.poll() is None
        else:
            tls_broker.wait_for_log(re.escape("it asked for a TLS renegotiation"))
            assert b"no renegotiation" in client.stdout.read()
        client.kill()
    assert_served(tls_broker, certificates)


def until(client: subprocess.Popen[bytes], text: bytes) -> None:
    assert client.stdout is not None
    for line in client.stdout:
        if text in line:
            return
    raise AssertionError(f"openssl ended without {text!r}")


def test_a_client_that_does_not_trust_the_broker_leaves_one_line(tls_broker: Minibroker, tmp_path: Path) -> None:
    others = Certificates(tmp_path / "others", rsa=True)
    context = ssl.create_default_context(cafile=str(others.authority))

    with socket.create_connection(("localhost", tls_broker.ports["SSL"])) as plain:
        address = "{}:{}".format(*plain.getsockname())
        with pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(plain, server_hostname="localhost")

    tls_broker.wait_for_log(rf"closing .*{re.escape(address)}: .*(handshake failed|left during the TLS handshake)")
