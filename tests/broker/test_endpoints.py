"""Where the broker listens, what it advertises, and how many connections an address may have."""

from __future__ import annotations

import pytest

from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig


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
        (
            {"listeners": "A://x:1,B://x:2", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"},
            [("x", 1), ("x", 2)],
        ),
    ],
)
def test_listeners(given: dict[str, str], addresses: list[tuple[str, int]]) -> None:
    assert KafkaConfig(given).listen_addresses == addresses


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ("", "no listener is given"),
        ("foo", "Unable to parse foo to a broker endpoint"),
        ("PLAINTEXT://h:65536", "Unable to parse"),
        ("FOO://h:1", "No security protocol defined for listener FOO"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", "Each listener must have a different name"),
        ("SSL://h:1", "only PLAINTEXT listeners are supported"),
        ("SASL_PLAINTEXT://h:1", "only PLAINTEXT listeners are supported"),
    ],
)
def test_bad_listeners_are_refused(listeners: str, message: str) -> None:
    assert message in error_of(listeners=listeners)


def test_two_listeners_cannot_have_one_port() -> None:
    protocols = "A:PLAINTEXT,B:PLAINTEXT"

    assert "different port" in error_of(listeners="A://x:1,B://y:1", listener_security_protocol_map=protocols)
    KafkaConfig({"listeners": "A://x:0,B://y:0", "listener.security.protocol.map": protocols})


def test_an_unknown_protocol_is_refused() -> None:
    assert "Invalid security protocol `PLAIN`" in error_of(listener_security_protocol_map="PLAINTEXT:PLAIN")
    assert "not of the form key:value" in error_of(listener_security_protocol_map="PLAINTEXT")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, None),
        ({"advertised.listeners": "PLAINTEXT://h:1"}, ("h", 1)),
        ({"advertised.host.name": "h", "advertised.port": "5"}, ("h", 5)),
        ({"advertised.host.name": "h"}, ("h", 0)),
        (
            {
                "listeners": "IN://:1,OUT://:2",
                "advertised.listeners": "OUT://out:2,IN://in:1",
                "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            },
            ("in", 1),
        ),
    ],
)
def test_the_first_listener_is_advertised_as_it_was_said(
    given: dict[str, str], address: tuple[str, int] | None
) -> None:
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


def test_a_wildcard_cannot_be_advertised() -> None:
    assert "nonroutable meta-address 0.0.0.0" in error_of(advertised_listeners="PLAINTEXT://0.0.0.0:1")


def test_connection_limits_by_address() -> None:
    config = KafkaConfig({"max.connections.per.ip": "7", "max.connections.per.ip.overrides": "127.0.0.1:2, ::1:3"})

    assert config.max_connections_for("127.0.0.1") == 2
    assert config.max_connections_for("::ffff:127.0.0.1") == 2
    assert config.max_connections_for("::1") == 3
    assert config.max_connections_for("10.0.0.1") == 7


@pytest.mark.parametrize("overrides", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:-1"])
def test_bad_connection_limits_are_refused(overrides: str) -> None:
    assert f"(max.connections.per.ip.overrides={overrides})" in error_of(max_connections_per_ip_overrides=overrides)
