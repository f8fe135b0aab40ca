"""Where the broker listens and on which port, what it advertises, how many connections an address may have."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig
from minibroker.broker.network import listen as listening
from minibroker.broker.network.listen import FIRST_FREE_PORT, listen

TWO_PROTOCOLS = "A:PLAINTEXT,B:PLAINTEXT"


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ({}, [("", 9092)]),
        ({"host.name": "h", "port": "77"}, [("h", 77)]),
        ({"listeners": "PLAINTEXT://:0"}, [("", 0)]),
        ({"listeners": "plaintext://h:1 , "}, [("h", 1)]),
        ({"listeners": "PLAINTEXT://[::1]:9092"}, [("::1", 9092)]),
        ({"listeners": "A://x:1,B://x:2", "listener.security.protocol.map": TWO_PROTOCOLS}, [("x", 1), ("x", 2)]),
        ({"listeners": "A://x:0,B://y:0", "listener.security.protocol.map": TWO_PROTOCOLS}, [("x", 0), ("y", 0)]),
    ],
)
def test_listeners(given: dict[str, str], addresses: list[tuple[str, int]]) -> None:
    assert KafkaConfig(given).listen_addresses == addresses


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"listeners": ""}, "no listener is given"),
        ({"listeners": "foo"}, "Unable to parse foo to a broker endpoint"),
        ({"listeners": "PLAINTEXT://h:65536"}, "Unable to parse"),
        ({"listeners": "FOO://h:1"}, "No security protocol defined for listener FOO"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "Each listener must have a different name"),
        ({"listeners": "SSL://h:1"}, "only PLAINTEXT listeners are supported"),
        ({"listeners": "SASL_PLAINTEXT://h:1"}, "only PLAINTEXT listeners are supported"),
        ({"listeners": "A://x:1,B://y:1", "listener.security.protocol.map": TWO_PROTOCOLS}, "different port"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAIN"}, "Invalid security protocol `PLAIN`"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "not of the form key:value"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable meta-address 0.0.0.0"),
    ],
)
def test_bad_listeners_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        KafkaConfig(given)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, None),
        ({"advertised.listeners": "PLAINTEXT://h:1"}, ("h", 1)),
        ({"advertised.host.name": "h", "advertised.port": "5"}, ("h", 5)),
        ({"advertised.host.name": "h"}, ("h", 0)),
    ],
)
def test_the_first_listener_is_advertised_as_given(given: dict[str, str], address: tuple[str, int] | None) -> None:
    assert KafkaConfig(given).advertised_address(1) == address


def test_each_listener_is_advertised_by_its_own_address() -> None:
    config = KafkaConfig(
        {
            "listeners": "IN://:1,OUT://:2,UNSAID://:3",
            "advertised.listeners": "OUT://out:20,IN://in:10",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,UNSAID:PLAINTEXT",
        }
    )

    assert [config.advertised_address(port) for port in (1, 2, 3)] == [("in", 10), ("out", 20), None]


def test_connection_limits_by_address() -> None:
    config = KafkaConfig({"max.connections.per.ip": "7", "max.connections.per.ip.overrides": "127.0.0.1:2, ::1:3"})

    assert config.max_connections_for("127.0.0.1") == 2
    assert config.max_connections_for("::ffff:127.0.0.1") == 2
    assert config.max_connections_for("::1") == 3
    assert config.max_connections_for("10.0.0.1") == 7


@pytest.mark.parametrize("overrides", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:-1"])
def test_bad_connection_limits_are_refused(overrides: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"(max.connections.per.ip.overrides={overrides})")):
        KafkaConfig({"max.connections.per.ip.overrides": overrides})


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
