"""The settings with which each client library logs in; the integration tests show that the libraries take them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from minibroker.any_cluster.client_properties import normalized
from minibroker.any_cluster.logins import login_of
from minibroker.certificates import Certificates
from minibroker.client_settings import FORMS, Access, client_settings

OPEN = Access("127.0.0.1:9092")
SCRAM = Access("127.0.0.1:9092", "SASL_PLAINTEXT", "SCRAM-SHA-512", "ann", 'a"b\\c')
BEARER = Access("127.0.0.1:9092", "SASL_PLAINTEXT", "OAUTHBEARER", "ann")
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Access:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    return Access(
        "127.0.0.1:9092",
        "SSL",
        authority_file=str(certificates.authority_file),
        key_file=str(certificates.of_user("ann")),
    )


@pytest.mark.parametrize(
    ("library", "settings"),
    [
        ("confluent-kafka", {"bootstrap.servers": "127.0.0.1:9092", "security.protocol": "PLAINTEXT"}),
        ("kafka-python", {"bootstrap_servers": "127.0.0.1:9092", "security_protocol": "PLAINTEXT"}),
        ("aiokafka", {"bootstrap_servers": "127.0.0.1:9092", "security_protocol": "PLAINTEXT"}),
        ("kcat", ["-b", "127.0.0.1:9092", "-X", "security.protocol=PLAINTEXT"]),
        ("kafkajs", {"brokers": ["127.0.0.1:9092"]}),
        ("franz-go", {"brokers": ["127.0.0.1:9092"]}),
        ("java", {"bootstrap.servers": "127.0.0.1:9092", "security.protocol": "PLAINTEXT"}),
        ("spark", {"kafka.bootstrap.servers": "127.0.0.1:9092", "kafka.security.protocol": "PLAINTEXT"}),
    ],
)
def test_an_open_broker_needs_its_address(library: str, settings: object) -> None:
    assert client_settings(library, OPEN) == settings


@pytest.mark.parametrize(
    ("library", "settings"),
    [
        ("confluent-kafka", {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": 'a"b\\c'}),
        ("kafka-python", {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_password": 'a"b\\c'}),
        ("aiokafka", {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "ann"}),
        ("kafkajs", {"sasl": {"mechanism": "scram-sha-512", "username": "ann", "password": 'a"b\\c'}}),
        ("franz-go", {"mechanism": "SCRAM-SHA-512", "user": "ann", "password": 'a"b\\c'}),
        ("java", {"sasl.jaas.config": f'{MODULE} required username="ann" password="a\\"b\\\\c";'}),
        ("spark", {"kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.security.protocol": "SASL_PLAINTEXT"}),
    ],
)
def test_a_user_has_a_password(library: str, settings: dict[str, object]) -> None:
    assert settings.items() <= client_settings(library, SCRAM).items()


def test_kcat_has_the_same_as_arguments() -> None:
    assert client_settings("kcat", SCRAM)[4:] == [
        *("-X", "sasl.mechanisms=SCRAM-SHA-512", "-X", "sasl.username=ann", "-X", 'sasl.password=a"b\\c')
    ]


@pytest.mark.parametrize(
    ("library", "settings"),
    [
        ("confluent-kafka", {"sasl.oauthbearer.config": "principal=ann"}),
        ("java", {"sasl.jaas.config": f'{BEARER_MODULE} required unsecuredLoginStringClaim_sub="ann";'}),
    ],
)
def test_a_token_names_its_user(library: str, settings: dict[str, object]) -> None:
    found = client_settings(library, BEARER)

    assert settings.items() <= found.items()
    assert "sasl.password" not in found


@pytest.mark.parametrize("library", ["kafkajs", "franz-go"])
def test_a_token_is_made_for_a_library_without_a_callback(library: str) -> None:
    found = client_settings(library, BEARER)

    assert found.get("token", found.get("sasl", {}).get("token", "")).count(".") == 2


def test_python_has_an_object_that_makes_tokens() -> None:
    provider = client_settings("kafka-python", BEARER)["sasl_oauth_token_provider"]

    assert provider.token().count(".") == 2


def test_a_certificate_is_a_file_or_its_text(encrypted: Access) -> None:
    key = Path(encrypted.key_file).read_text()
    authority = Path(encrypted.authority_file).read_text()

    librdkafka = client_settings("confluent-kafka", encrypted)
    assert (librdkafka["ssl.key.location"], librdkafka["ssl.certificate.location"]) == (encrypted.key_file,) * 2
    assert client_settings("java", encrypted)["ssl.keystore.type"] == "PEM"
    assert client_settings("kafkajs", encrypted)["ssl"] == {"ca": [authority], "key": key, "cert": key}
    assert isinstance(client_settings("aiokafka", encrypted)["ssl_context"], ssl.SSLContext)
    assert client_settings("kafka-python", encrypted)["ssl_keyfile"] == encrypted.key_file


@pytest.mark.parametrize("access", [OPEN, SCRAM, BEARER])
def test_our_own_command_takes_the_settings_of_java(access: Access) -> None:
    given: dict[str, Any] = client_settings("java", access)

    login = login_of(normalized(given))

    assert (login and (login.mechanism, login.user, login.password)) == (
        None if access is OPEN else (access.mechanism, access.user, access.password)
    )


def test_another_library_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"'ruby-kafka' is none of the libraries confluent-kafka, .*spark"):
        client_settings("ruby-kafka", OPEN)


def test_every_library_is_named_where_users_read() -> None:
    from minibroker import Broker

    assert [library for library in FORMS if f'"{library}"' not in (Broker.client_settings.__doc__ or "")] == []
