"""Which settings of TLS a broker refuses, and what it then prints. tests/conformance compares with Apache Kafka."""

from __future__ import annotations

import builtins
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.settings.changeable import InvalidDynamicConfig
from minibroker.broker.wings.security.cipher_suites import openssl_names
from minibroker.broker.wings.security.tls import TlsListener, TlsSettings, make_context, problems_of
from tests.broker.tls_peers import SSL
from tests.certificates import PASSWORD, Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.key_store, made.trust_store, made.authority  # noqa: B018
    return made


def problem_with(certificates: Certificates, **settings: str) -> str:
    """Why a broker does not start with these settings; `{}` stands for the folder of the stores."""
    given = {name.replace("_", "."): value.replace("{}", str(certificates.folder)) for name, value in settings.items()}
    return "\n".join(problems_of(KafkaConfig(SSL | given)))


KEY_STORE = {"ssl_keystore_location": "{}/trusted-server.p12", "ssl_keystore_password": PASSWORD}
PEM = {"ssl_keystore_location": "{}/trusted-server.pem", "ssl_keystore_type": "PEM"}


def test_keys_and_certificates_may_stand_in_the_settings(certificates: Certificates) -> None:
    pem = certificates.issued().read_text()
    begin = pem.index("-----BEGIN CERTIFICATE")

    assert not problem_with(
        certificates,
        ssl_keystore_type="PEM",
        ssl_keystore_key=pem[:begin],
        ssl_keystore_certificate_chain=pem[begin:],
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=certificates.authority.read_text(),
        ssl_client_auth="required",
    )


def test_each_listener_has_its_own_settings(certificates: Certificates) -> None:
    def stores(listener: str) -> dict[str, str]:
        return {
            f"listener.name.{listener}.ssl.keystore.location": str(certificates.key_store),
            f"listener.name.{listener}.ssl.keystore.password": PASSWORD,
        }

    listeners = {
        "listeners": "PLAINTEXT://:0,IN://:0,OUT://:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SSL,OUT:ssl",
    }

    assert not problems_of(KafkaConfig(listeners | stores("in") | stores("out")))
    assert problems_of(KafkaConfig(listeners | stores("in") | stores("OUT"))) == [
        "listener OUT: it has no certificate; set ssl.keystore.location"
    ]


def test_a_broker_without_cryptography_reads_pem_and_names_the_ways_out(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "cryptography":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)

    assert problem_with(certificates, **PEM) == ""
    found = problem_with(certificates, **KEY_STORE)
    assert "needs the package cryptography: pip install cryptography" in found
    assert f"`openssl pkcs12 -in {certificates.key_store} -nodes -out" in found


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_DHE_RSA_WITH_AES_128_CCM_8", "DHE-RSA-AES128-CCM8"),
    ],
)
def test_suites_are_named_as_in_java(java: str, openssl: str) -> None:
    assert openssl_names([java]) == ([openssl], False)


@pytest.mark.parametrize(("protocol", "mode"), [("SSL", ssl.CERT_REQUIRED), ("SASL_SSL", ssl.CERT_NONE)])
def test_a_client_that_logs_in_by_sasl_is_asked_for_no_certificate(
    certificates: Certificates, protocol: str, mode: ssl.VerifyMode
) -> None:
    given = {"listeners": f"PLAINTEXT://:0,{protocol}://:0", "ssl.client.auth": "required"}

    context = make_context(
        TlsSettings.of(encrypted_config(given | certificates.settings(trusts_clients=True)), protocol)
    )

    assert context.verify_mode is mode


def encrypted_config(given: dict[str, str]) -> KafkaConfig:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    return KafkaConfig(
        given | {"sasl.enabled.mechanisms": "PLAIN", "listener.name.sasl_ssl.plain.sasl.jaas.config": login}
    )


# -- While the broker runs


def test_a_listener_takes_another_key_store_by_a_change_of_settings(certificates: Certificates) -> None:
    config = KafkaConfig(SSL | certificates.settings())
    listener = TlsListener(config, "SSL")
    dynamic = DynamicConfig(config)
    dynamic.checks.append(problems_of)
    before = listener.context()
    assert listener.context() is before

    dynamic.apply(dynamic.changed("0", {"listener.name.ssl.ssl.keystore.type": "pkcs12"}))

    assert listener.context() is not before


def test_a_change_to_a_key_store_that_cannot_be_read_is_refused(certificates: Certificates) -> None:
    dynamic = DynamicConfig(KafkaConfig(SSL | certificates.settings()))
    dynamic.checks.append(problems_of)

    with pytest.raises(InvalidDynamicConfig, match="No such file or directory"):
        dynamic.changed("0", {"listener.name.ssl.ssl.keystore.location": "/none"})


def test_config_lint_reads_the_key_stores(certificates: Certificates, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    lines = [f"{name}={value}" for name, value in (SSL | certificates.settings()).items()]
    verdicts = []
    for password in (PASSWORD, "wrong"):
        file.write_text("\n".join([*lines, f"ssl.keystore.password={password}"]))
        command = [sys.executable, "-m", "minibroker", "serve", "--check", "--config", str(file)]
        verdicts.append(subprocess.run(command, capture_output=True, text=True, check=False))

    assert [each.returncode for each in verdicts] == [0, 1]
    assert "a wrong password, or not a PKCS#12 file" in verdicts[1].stderr
