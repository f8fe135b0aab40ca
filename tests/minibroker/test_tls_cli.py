"""Commands over TLS, as `-X` and `--command-config` ask for it: through a proxy that encrypts what a broker says."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker import Broker
from minibroker.any_cluster.bootstrap import parse_bootstrap
from tests.minibroker.commands import minibroker

pytestmark = [pytest.mark.integration, pytest.mark.slow]

HOST = "127.0.0.1"
OF_A_BUSY_MACHINE = re.compile("does not answer; waiting|is back$")


class Proxy:
    """Accepts TLS on a port, and passes the bytes on to a broker in plain text."""

    def __init__(self, certificate: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._socket = socket.create_server((HOST, 0))
        self.port = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._broker = ("", 0)

    @contextlib.contextmanager
    def serving(self, broker: Broker) -> Iterator[None]:
        self._broker = parse_bootstrap(broker.bootstrap_servers).addresses[0]
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        thread.start()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(self._loop)])
            thread.join()
            self._loop.close()

    async def _serve(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            async with await asyncio.start_server(self._pass_on, sock=self._socket, ssl=self._context) as server:
                await server.serve_forever()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            from_broker, to_broker = await asyncio.open_connection(*self._broker)
            await asyncio.gather(pump(reader, to_broker), pump(from_broker, writer))


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
    target.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its certificate for 127.0.0.1, which is its own authority, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate: apt install openssl")
    key, path = tmp_path_factory.mktemp("tls") / "key", tmp_path_factory.mktemp("tls") / "both.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={HOST} -addext subjectAltName=IP:{HOST}"
    subprocess.run([*command.split(), "-keyout", key, "-out", path], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + key.read_bytes())
    return path


@pytest.fixture(scope="module")
def port(certificate: Path) -> Iterator[int]:
    """The port of a broker that answers in TLS only, as far as its clients know."""
    proxy = Proxy(certificate)
    settings = {"advertised.listeners": f"PLAINTEXT://{HOST}:{proxy.port}", "group.initial.rebalance.delay.ms": 0}
    with Broker(settings=settings) as broker, proxy.serving(broker):
        yield proxy.port


@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_records_go_through_tls(client: str, port: int, certificate: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "confluent_kafka.py"
    if client == "kafka-python":
        hidden.write_text("raise ModuleNotFoundError")
    options = ["-b", f"{HOST}:{port}", "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={certificate}"]
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={certificate}\n"
        f"bootstrap.servers={HOST}:{port}\n"
    )
    (lines := tmp_path / "lines").write_text("one\ntwo\n")

    def run(*arguments: object) -> str:
        done = minibroker(*arguments, PYTHONPATH=str(tmp_path))
        complaints = [line for line in done.err.splitlines() if not OF_A_BUSY_MACHINE.search(line)]
        assert (done.status, complaints) == (0, [])
        return done.out

    assert run("topics", "create", client, *options) == f"created: {client}\n"
    assert run("produce", client, "-f", lines, *options) == f"produced: 2 records to {client}\n"
    assert run("consume", client, "--command-config", config) == "one\ntwo\n"
    assert run("consume", client, "-g", f"of-{client}", "--command-config", config) == "one\ntwo\n"


def test_a_certificate_that_is_not_trusted_is_explained(port: int) -> None:
    asked = minibroker("topics", "list", "-b", f"{HOST}:{port}", "-X", "security.protocol=SSL")

    assert f"no Kafka broker answers in SSL at {HOST}:{port} (" in asked.complaint
