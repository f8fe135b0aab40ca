"""`minibroker console` as a command: what it prints, what it listens on, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from minibroker import Broker
from minibroker.client.local_names import is_loopback
from minibroker.console.command_line import listen_address, token_in
from tests.console.asking import ask, change, get
from tests.console.conftest import console_of


def run(*arguments: object) -> tuple[int, str]:
    """Exit status and standard error of a command that does not serve."""
    command = [sys.executable, "-m", "minibroker", "console", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.7", False), ("kafka.example", False)],
)  # fmt: skip
def test_only_loopback_addresses_are_of_this_machine(host: str, local: bool) -> None:
    assert is_loopback(host) == local


def test_an_address_has_a_host_and_a_port() -> None:
    assert listen_address("[::1]:0") == ("::1", 0)
    assert listen_address("localhost:8080") == ("localhost", 8080)


def test_a_token_file_is_made_for_its_owner_only_and_kept(tmp_path: Path) -> None:
    first = token_in(tmp_path / "token")

    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert token_in(tmp_path / "token") == first
    assert len(first) >= 16


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--listen", "8080"], 2, "is not HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], 2, "is not HOST:PORT"),
        (["--bootstrap-server", "nowhere:"], 2, "is not HOST:PORT"),
        (["-X", "security.protocol"], 2, "is not KEY=VALUE"),
        (["--command-config", "/no/such/file"], 2, "cannot read /no/such/file"),
        (["--alow-changes"], 2, "did you mean --allow-changes? See"),
        (["--token-file", "/no/such/folder/token"], 1, "cannot read --token-file"),
    ],
)
def test_a_wrong_option_is_one_line_with_the_next_step(arguments: list[str], status: int, words: str) -> None:
    ended, printed = run(*arguments)

    (line,) = printed.splitlines()
    assert (ended, words in line, ";" in line) == (status, True, True), line


@pytest.mark.slow
@pytest.mark.integration
def test_an_address_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, printed = run("--listen", f"127.0.0.1:{taken.getsockname()[1]}")

    assert (status, "choose another address" in printed) == (1, True)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda each: each.name)
def test_it_ends_in_order_on_a_signal(shown_broker: Broker, number: signal.Signals) -> None:
    with console_of(shown_broker.bootstrap_servers) as console:
        ask(console, "GET", "/api/cluster")
        console.process.send_signal(number)

        assert console.process.wait(10) == 0


@pytest.mark.slow
@pytest.mark.integration
def test_without_a_cluster_the_console_shows_the_error_until_it_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    with console_of(f"127.0.0.1:{port}") as console:
        refused = ask(console, "GET", "/api/cluster")
        assert (console.token, refused.status) == (None, 502)
        assert "no broker at" in refused.error
        assert (ask(console, "GET", "/healthz").status, ask(console, "GET", "/readyz").status) == (200, 502)

        with Broker(listen=f"127.0.0.1:{port}") as broker:
            assert broker.is_running
            assert ask(console, "GET", "/readyz").status == 200


@pytest.mark.slow
@pytest.mark.integration
def test_on_every_interface_it_warns_and_asks_for_the_token(shown_broker: Broker, tmp_path: Path) -> None:
    token = tmp_path / "token"
    command = [sys.executable, "-m", "minibroker", "console", "-b", shown_broker.bootstrap_servers]
    with subprocess.Popen(
        [*command, "--listen", "0.0.0.0:0", "--token-file", str(token)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        warning = process.stderr.readline()
        port = int(line.partition("#")[0].rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /api/cluster HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status = connection.makefile().readline()
        process.terminate()

    assert f"#token={token.read_text().strip()}" in line
    assert "other machines reach it" in warning
    assert " 401 " in status


@pytest.mark.slow
@pytest.mark.integration
def test_a_secured_cluster_is_shown_with_the_properties_of_every_command(tmp_path: Path) -> None:
    with Broker(security="SASL_SSL", users={"alice": "secret"}) as broker:
        settings = dict(broker.client_settings("confluent-kafka"))
        bootstrap = settings.pop("bootstrap.servers")
        file = tmp_path / "admin.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        broker.create_topic("orders")
        with console_of(bootstrap, "--command-config", file, "--allow-changes") as console:
            sent = change(console, "POST", "/api/topics/orders/records", value="hello")
            page = get(console, "/api/topics/orders/messages")
        wrong = [f"-X{name}={value}" for name, value in (settings | {"sasl.password": "wrong"}).items()]
        with console_of(bootstrap, *wrong) as console:
            refused = ask(console, "GET", "/api/cluster")

    assert sent["rows"] == [{"partition": 0, "offset": 0, "timestamp": sent["rows"][0]["timestamp"]}]
    assert [row["value"]["text"] for row in page["rows"]] == ["hello"]
    assert (refused.status, "refused the login" in refused.error) == (502, True)
