"""Client properties under Java's and librdkafka's names, and what kafka-python makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.any_cluster.bootstrap import read_client_properties
from minibroker.any_cluster.client_properties import for_kafka_python, normalized, unknown_of
from minibroker.any_cluster.kafka_python import KafkaAdminClient, KafkaConsumer
from minibroker.cli.app import main
from minibroker.cli.options import parse_delimiter
from minibroker.errors import BadValue
from tests.minibroker.conftest import CommandLine

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"ann\" password='s;=';"


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"sasl.jaas.config": JAAS}, {"sasl_plain_username": "ann", "sasl_plain_password": "s;="}),
        ({"sasl.mechanism": "PLAIN"}, {"sasl_mechanism": "PLAIN"}),
        ({"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM"}, {"ssl_cafile": "ca.pem"}),
        ({"ssl.keystore.location": "me.pem"}, {"ssl_certfile": "me.pem", "ssl_keyfile": "me.pem"}),
        ({"ssl.ca.location": "ca.pem", "ssl.key.password": "p"}, {"ssl_cafile": "ca.pem", "ssl_password": "p"}),
        (
            {"request.timeout.ms": "5", "security.protocol": "SSL"},
            {"request_timeout_ms": 5, "security_protocol": "SSL"},
        ),
        ({"check.crcs": "false"}, {"check_crcs": False}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl_check_hostname": False}),
        ({"key.deserializer": "org.example.Of", "group.id": "g"}, {}),
    ],
)
def test_properties_become_settings(given: dict[str, str], settings: dict[str, object]) -> None:
    properties = normalized(given)

    assert for_kafka_python(properties, KafkaConsumer.DEFAULT_CONFIG) == settings
    assert unknown_of(properties, [KafkaConsumer.DEFAULT_CONFIG]) == []


def test_a_client_gets_the_properties_that_it_knows_and_the_unknown_are_named() -> None:
    properties = {"fetch.min.bytes": "1", "nonsense": "1"}

    assert for_kafka_python(properties, KafkaAdminClient.DEFAULT_CONFIG) == {}
    assert unknown_of(properties, [KafkaAdminClient.DEFAULT_CONFIG, KafkaConsumer.DEFAULT_CONFIG]) == ["nonsense"]


@pytest.mark.parametrize(
    "given", [{"request.timeout.ms": "soon"}, {"check.crcs": "maybe"}, {"ssl.truststore.location": "ca.jks"}]
)
def test_a_value_that_does_not_fit_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(BadValue):
        for_kafka_python(normalized(given), KafkaConsumer.DEFAULT_CONFIG)


@pytest.mark.parametrize("byte_order_mark", ["", "\ufeff"])
def test_a_file_is_read_as_java_reads_it_and_as_editors_of_windows_save_it(
    tmp_path: Path, byte_order_mark: str
) -> None:
    file = tmp_path / "client.properties"
    lines = "security.protocol = SSL\n# of Ann\n! old\n\nsasl.jaas.config=one \\\n    two\\\\three\nx=a=b\n"
    file.write_text(byte_order_mark + lines)

    assert read_client_properties(file) == {
        "security.protocol": "SSL",
        "sasl.jaas.config": "one two\\three",
        "x": "a=b",
    }


@pytest.mark.parametrize(("data", "reason"), [(b"a=\\u12", "line 1: "), (b"\xff=1", "cannot read ")])
def test_a_file_that_java_could_not_read_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(data)

    with pytest.raises(BadValue, match=reason):
        read_client_properties(file)


@pytest.mark.parametrize(
    ("text", "delimiter"), [(r"\n", b"\n"), (r"\0\x1e", b"\0\x1e"), (r"a\\tb\t", rb"a\tb" + b"\t"), ("é", "é".encode())]
)
def test_a_delimiter_has_escapes(text: str, delimiter: bytes) -> None:
    assert parse_delimiter(text) == delimiter


@pytest.mark.parametrize("text", ["", "\\", r"\q", r"\x", r"\x1", r"\xzz"])
def test_a_delimiter_of_nothing_or_with_another_escape_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        parse_delimiter(text)


@pytest.mark.integration
@pytest.mark.slow
def test_the_command_line_goes_before_the_file_and_the_file_before_the_environment(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MINIBROKER_BOOTSTRAP", "127.0.0.1:9")
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={cli.bootstrap}\n")

    assert main(["apis"]) == 1
    assert main(["apis", "--command-config", str(file)]) == 0
    assert main(["apis", "-X", f"bootstrap.servers={cli.bootstrap}"]) == 0
    assert main(["apis", "--command-config", str(file), "-b", "127.0.0.1:9"]) == 1
