"""Logins of a command at a secured broker, by its client properties: stores, users and tokens."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from minibroker.any_cluster.client_properties import normalized
from minibroker.any_cluster.logins import for_librdkafka, login_of, pem_of
from minibroker.certificates import Certificates
from minibroker.errors import BadValue

PASSWORD = "of the store"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def key_store(certificates: Certificates) -> Path:
    """The key and the certificate of ann in PKCS#12, in a file whose name does not show it."""
    pem = certificates.of_user("ann").read_bytes()
    key, certificate = load_pem_private_key(pem, None), x509.load_pem_x509_certificate(pem)
    data = pkcs12.serialize_key_and_certificates(
        b"ann",
        key,  # type: ignore[arg-type]
        certificate,
        None,
        BestAvailableEncryption(PASSWORD.encode()),
    )
    path = certificates.authority_file.with_name("ann.keystore")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("jaas", "user", "password"),
    [
        ('module required username="ann" password="a;b=c";', "ann", "a;b=c"),
        ("module required username='ann' password='a\"b';", "ann", 'a"b'),
        (r'module required username="a\"n" password="back\\slash";', 'a"n', "back\\slash"),
        ("module required\n username=ann\n password=plain;", "ann", "plain"),
    ],
)
def test_a_user_comes_from_jaas(jaas: str, user: str, password: str) -> None:
    login = login_of(normalized({**SASL, "sasl.jaas.config": jaas}))

    assert login is not None
    assert (login.mechanism, login.user, login.password, login.tls) == ("PLAIN", user, password, None)


def test_jaas_that_java_would_refuse_is_refused_without_its_secrets() -> None:
    with pytest.raises(BadValue, match=r"sasl\.jaas\.config: Value not specified for key 'password'") as refused:
        normalized({"sasl.jaas.config": "module required username=ann password=4711;"})

    assert "4711" not in str(refused.value)


def test_plain_text_has_no_login() -> None:
    assert login_of({}) is None
    assert login_of({"sasl.username": "ann"}) is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "GSSAPI is none of them"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "needs one of these as sasl.mechanism"),
        ({"security.protocol": "TLS"}, "is none of PLAINTEXT"),
        (SASL, "needs a user"),
        ({**SASL, "sasl.username": "ann"}, "needs a password"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "needs a token in a file"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}, "cannot read /nowhere"),
        ({"security.protocol": "SSL", "ssl.ca.pem": "-----BEGIN"}, "cannot be used"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "x"}, "set ssl.keystore.certificate.chain"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "SSLv3"}, "none of TLSv1.2, TLSv1.3"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "none-such"}, "no cipher"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "ca.jks"}, "-deststoretype pkcs12"),
    ],
)
def test_properties_without_a_login_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadValue, match=reason):
        login_of(normalized(given))


def test_a_token_is_read_from_its_file_each_time(tmp_path: Path) -> None:
    file = tmp_path / "the token"
    properties = {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    login = login_of(normalized(properties))
    assert login is not None and login.token is not None

    for text in ("a.b.c", "d.e.f\n"):
        file.write_text(text)
        assert login.token() == text.strip()
    file.unlink()
    with pytest.raises(BadValue, match="cannot read the token"):
        login.token()


def test_a_key_store_of_java_is_read(certificates: Certificates, key_store: Path) -> None:
    given = {"ssl.keystore.location": str(key_store), "ssl.keystore.password": PASSWORD}

    _, certificate, key = pem_of(normalized(given))

    own = certificates.of_user("ann").read_text()
    assert set(certificate.split("-----BEGIN")) == set(key.split("-----BEGIN")) == set(own.split("-----BEGIN"))


@pytest.mark.parametrize(("content", "reason"), [(b"\xfe\xed\xfe\xed", "is a JKS key store"), (b"?", "neither PEM")])
def test_a_key_store_of_another_kind_is_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    (store := tmp_path / "store").write_bytes(content)

    with pytest.raises(BadValue, match=reason):
        pem_of({"ssl.ca.location": str(store)})


def test_a_wrong_password_of_a_key_store_is_not_shown(key_store: Path) -> None:
    with pytest.raises(BadValue, match="correct its password") as raised:
        pem_of(normalized({"ssl.keystore.location": str(key_store), "ssl.keystore.password": "not-it"}))

    assert "not-it" not in str(raised.value)


def test_librdkafka_gets_properties_of_its_own(key_store: Path, certificates: Certificates) -> None:
    given: dict[str, Any] = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(certificates.authority_file),
        "ssl.truststore.password": "none",
        "ssl.keystore.location": str(key_store),
        "ssl.keystore.password": PASSWORD,
    }

    found = for_librdkafka(normalized(given))

    assert found.keys() == {"security.protocol", "ssl.ca.location", "ssl.certificate.pem", "ssl.key.pem"}
    assert "PRIVATE KEY" in found["ssl.key.pem"]
    with pytest.raises(ValueError, match="version of TLS"):
        for_librdkafka({"ssl.enabled.protocols": "TLSv1.3"})


def test_the_versions_of_tls_may_be_chosen(certificates: Certificates) -> None:
    given = {"security.protocol": "SSL", "ssl.ca.location": str(certificates.authority_file)}

    login = login_of({**given, "ssl.enabled.protocols": "TLSv1.2, TLSv1.1"})

    assert login is not None and login.tls is not None
    assert login.tls.maximum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(("algorithm", "is_checked"), [(None, True), ("https", True), ("", False), ("none", False)])
def test_the_host_is_checked_unless_it_shall_not(
    algorithm: str | None, is_checked: bool, certificates: Certificates
) -> None:
    given = {"security.protocol": "SSL", "ssl.ca.location": str(certificates.authority_file)}
    if algorithm is not None:
        given["ssl.endpoint.identification.algorithm"] = algorithm

    login = login_of(normalized(given))

    assert login is not None and login.tls is not None
    assert (login.tls.check_hostname, login.tls.verify_mode) == (is_checked, ssl.CERT_REQUIRED)


def test_certificates_are_for_this_user_alone(certificates: Certificates) -> None:
    assert certificates.authority_file.parent.stat().st_mode & 0o077 == 0
    assert certificates.of_user("ann") == certificates.of_user("ann") != certificates.of_user("../bob")
    assert certificates.of_user("../bob").parent == certificates.authority_file.parent
    subject = x509.load_pem_x509_certificate(certificates.of_user("ann").read_bytes()).subject
    assert subject.rfc4514_string() == "CN=ann,OU=users,O=minibroker"
