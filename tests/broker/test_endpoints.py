"""The broker's listeners and ports, what it advertises, how many connections an address may have."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from minibroker.broker.config.kafka_config import KafkaConfig, load_config
from minibroker.broker.network import listen as listening
from minibroker.broker.network.listen import FIRST_FREE_PORT, listen

AS_USED = "", 0  # the address that a client has used
TWO_PROTOCOLS = "A:PLAINTEXT,B:PLAINTEXT"
HERE = "PLAINTEXT:PLAINTEXT"


@pytest.mark.parametrize(
    ("lines", "advertised"),
    [
        ("", AS_USED),
        ("listeners=A://:1,B://:2\nadvertised.listeners=A://a:1,B://b:2\ninter.broker.listener.name=A\n", ("a", 1)),
        ("advertised.listeners=PLAINTEXT://p:1,A://a:1\n", ("p", 1)),
        ("listeners=A://:1\nadvertised.listeners=A://a:1\n", AS_USED),
    ],
)
def test_the_argument_replaces_all_listeners_by_one_that_keeps_its_name(
    tmp_path: Path, lines: str, advertised: tuple[str, int]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"listener.security.protocol.map={TWO_PROTOCOLS},{HERE}\n{lines}")

    config = load_config(file, [], listen="127.0.0.1:7", data_dir=str(tmp_path))

    assert config.listen_addresses == [("127.0.0.1", 7)]
    assert config.advertised_endpoints.get(config.endpoints[0].name) == advertised


@pytest.mark.parametrize(
    ("lines", "listen", "listeners"),
    [
        ("listeners=SSL://:9093\nsecurity.inter.broker.protocol=ssl", "127.0.0.1:7", [("SSL", 7, "SSL")]),
        ("inter.broker.listener.name=B", "127.0.0.1:7", [("B", 7, "PLAINTEXT")]),
        ("", "PLAINTEXT://:7,OUT://:8", [("PLAINTEXT", 7, "PLAINTEXT"), ("OUT", 8, "SSL")]),
        (
            "advertised.listeners=OUT://out:1,B://b:2,PLAINTEXT://p:3",
            "PLAINTEXT://:7,OUT://:8",
            [("PLAINTEXT", 7, "PLAINTEXT"), ("OUT", 8, "SSL")],
        ),
    ],
)
def test_the_argument_may_name_listeners(
    tmp_path: Path, lines: str, listen: str, listeners: list[tuple[str, int, str]]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"listener.security.protocol.map={TWO_PROTOCOLS},{HERE},SSL:SSL,OUT:ssl\n{lines}\n")

    config = load_config(file, [], listen=listen, data_dir=str(tmp_path))

    assert [(each.name, each.port, each.protocol) for each in config.endpoints] == listeners


def test_connection_limits_by_address() -> None:
    config = KafkaConfig({"max.connections.per.ip": "7", "max.connections.per.ip.overrides": "127.0.0.1:2, ::1:3"})

    assert config.max_connections_for("127.0.0.1") == 2
    assert config.max_connections_for("::ffff:127.0.0.1") == 2
    assert config.max_connections_for("::1") == 3
    assert config.max_connections_for("10.0.0.1") == 7


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_free_port_is_one_that_no_client_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(listening, "CLIENT_PORTS", ports := tmp_path / "ip_local_port_range")
    ports.write_text("32768\t60999\n")

    for _ in range(20):
        with listen(host, 0) as sock:
            assert FIRST_FREE_PORT <= sock.getsockname()[1] < 32_768


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.1", 0) as taken, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
        probe.close()
        monkeypatch.setattr(listening, "candidates", lambda: iter([taken.getsockname()[1], free]))

        with listen("127.0.0.1", 0) as sock:
            assert sock.getsockname()[1] == free


@pytest.mark.parametrize("text", [None, "", "nonsense", "1024 65000"])
def test_any_port_if_clients_may_have_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    monkeypatch.setattr(listening, "CLIENT_PORTS", ports := tmp_path / "ip_local_port_range")
    if text is not None:
        ports.write_text(text)

    with listen("127.0.0.1", 0) as sock:
        assert sock.getsockname()[1] > 0


def test_a_setting_of_one_listener_wins_over_that_of_all() -> None:
    config = KafkaConfig(
        {"ssl.client.auth": "requested", "listener.name.out.ssl.client.auth": "required", "ssl.protocol": "TLSv1.2"}
    )

    assert [config.for_listener(name, "ssl.client.auth") for name in ("OUT", "IN")] == ["required", "requested"]
    assert [config.for_listener("OUT", name) for name in ("ssl.protocol", "ssl.keystore.type")] == ["TLSv1.2", "JKS"]
