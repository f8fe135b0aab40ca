"""Where the broker listens and on which port, what it advertises, how many connections an address may have."""

from __future__ import annotations

import re
import socket
from contextlib import nullcontext
from pathlib import Path

import pytest

from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig, load_config
from minibroker.broker.network import listen as listening
from minibroker.broker.network.listen import FIRST_FREE_PORT, listen

AS_USED = "", 0  # the address that a client has used
TWO_PROTOCOLS = "A:PLAINTEXT,B:PLAINTEXT"
HERE = "PLAINTEXT:PLAINTEXT"
TWO = {"listener.security.protocol.map": TWO_PROTOCOLS, "inter.broker.listener.name": "a"}


def error_of(**given: str) -> str:
    with pytest.raises(ConfigError) as caught:
        KafkaConfig({name.replace("_", "."): value for name, value in given.items()})
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ({}, [("", 9092)]),
        ({"host.name": "h", "port": "77"}, [("h", 77)]),
        ({"listeners": "PLAINTEXT://:0"}, [("", 0)]),
        ({"listeners": "plaintext://h:1 , "}, [("h", 1)]),
        ({"listeners": "PLAINTEXT://[::1]:9092"}, [("::1", 9092)]),
        ({"listeners": "A://x:1,B://x:2", **TWO}, [("x", 1), ("x", 2)]),
        ({"listeners": "A://x:0,B://y:0", **TWO}, [("x", 0), ("y", 0)]),
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
        ({"listeners": "A://x:1,B://y:1", "listener.security.protocol.map": TWO_PROTOCOLS}, "different port"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAIN"}, "Invalid security protocol `PLAIN`"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "not of the form key:value"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable meta-address 0.0.0.0"),
    ],
)
def test_bad_listeners_are_refused(given: dict[str, str], message: str) -> None:
    assert message in error_of(**given)


# What Apache Kafka 2.0.1 answers, word for word.
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"advertised_listeners": "PLAINTEXT://h:1,B://h:2"},
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found"
            " PLAINTEXT,B. The valid options based on the current configuration are PLAINTEXT (advertised.listeners=",
        ),
        (
            {"advertised_listeners": "B://h:2"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options"
            " based on currently configured listeners are B (advertised.listeners=B://h:2",
        ),
        (
            {"listeners": "A://:1,B://:2"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options"
            " based on currently configured listeners are A,B (listeners=A://:1,B://:2",
        ),
        ({"inter_broker_listener_name": "B"}, "based on currently configured listeners are PLAINTEXT (inter.broker"),
        ({"security_inter_broker_protocol": "SSL"}, "inter.broker.listener.name must be a listener name defined in"),
        (
            {"inter_broker_listener_name": "C"},
            "Listener with name C defined in inter.broker.listener.name not found in listener.security.protocol.map. (",
        ),
        (
            {"inter_broker_listener_name": "B", "security_inter_broker_protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set. (inter.broker",
        ),
        (
            {"security_inter_broker_protocol": "TLS"},
            "Invalid security protocol `TLS` defined in security.inter.broker.protocol (security.inter.broker.prot",
        ),
    ],
)
def test_listeners_that_do_not_go_together_are_refused_in_the_words_of_kafka(
    given: dict[str, str], message: str
) -> None:
    assert message in error_of(listener_security_protocol_map=f"{TWO_PROTOCOLS},{HERE}", **given)


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


@pytest.mark.parametrize(
    ("name", "value", "is_checked"),
    [
        ("listener.name.in.max.connections.per.ip", "x", True),
        ("listener.name.in.ssl.client.auth", "REQUIRED", True),
        ("listener.name.in.any.connections.max.idle.ms", "x", True),
        ("listener.name.IN.ssl.client.auth", "REQUIRED", False),
        ("listener.name.none.ssl.client.auth", "REQUIRED", False),
        ("listener.name.in.no.such.setting", "x", False),
    ],
)
def test_settings_of_a_listener_are_checked_as_those_of_all(name: str, value: str, is_checked: bool) -> None:
    given = {
        "listeners": "PLAINTEXT://:1,IN://:2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:PLAINTEXT",
        name: value,
    }

    with pytest.raises(ConfigError, match=f"Invalid value {value} for configuration") if is_checked else nullcontext():
        KafkaConfig(given)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, AS_USED),
        ({"advertised.listeners": "PLAINTEXT://h:1"}, ("h", 1)),
        ({"advertised.host.name": "h", "advertised.port": "5"}, ("h", 5)),
        ({"advertised.host.name": "h"}, ("h", 0)),
        (
            {
                "listeners": "IN://:1,OUT://:2",
                "advertised.listeners": "OUT://out:2,IN://in:1",
                "inter.broker.listener.name": "IN",
                "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            },
            ("in", 1),
        ),
    ],
)
def test_the_first_listener_is_advertised_as_given(given: dict[str, str], address: tuple[str, int]) -> None:
    config = KafkaConfig(given)

    assert config.advertised_endpoints.get(config.endpoints[0].name) == address


def test_each_listener_is_advertised_by_its_own_address() -> None:
    config = KafkaConfig(
        {
            "listeners": "IN://:1,OUT://:2,UNSAID://:3",
            "advertised.listeners": "OUT://out:20,IN://in:10",
            "inter.broker.listener.name": "OUT",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,UNSAID:PLAINTEXT",
        }
    )

    assert [config.advertised_endpoints.get(name) for name in ("IN", "OUT", "UNSAID")] == [
        ("in", 10),
        ("out", 20),
        None,
    ]


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


def test_a_setting_of_one_listener_wins_over_that_of_all() -> None:
    config = KafkaConfig(
        {"ssl.client.auth": "requested", "listener.name.out.ssl.client.auth": "required", "ssl.protocol": "TLSv1.2"}
    )

    assert [config.for_listener(name, "ssl.client.auth") for name in ("OUT", "IN")] == ["required", "requested"]
    assert [config.for_listener("OUT", name) for name in ("ssl.protocol", "ssl.keystore.type")] == ["TLSv1.2", "JKS"]
