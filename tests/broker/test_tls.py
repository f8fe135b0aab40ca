"""TLS of a listener: which clients it accepts and who they are, its protocols and suites, and the renewal of its key.

Time is jumped.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest
import trio.testing

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.wings.security.tls import TlsListener
from tests.broker.tls_peers import SSL, MakeSide, Side, TlsClient, closings
from tests.broker.tls_peers import certificates as certificates
from tests.broker.tls_peers import connect as connect
from tests.broker.tls_peers import make_side as make_side
from tests.broker.tls_peers import side as side
from tests.certificates import Certificates
from tests.requests import framed

pytestmark = pytest.mark.time_jumps

ANONYMOUS = "User:ANONYMOUS"
ALICE = "User:CN=alice,OU=dev,O=Acme\\, Inc."
REFUSED = "refused"


# -- Certificates of clients: the table of Kafka


def client_context(certificates: Certificates, kind: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.authority))
    if kind != "none":
        context.load_cert_chain(certificates.issued("alice", by_other=kind == "other", is_expired=kind == "expired"))
    return context


@pytest.mark.parametrize(
    ("client_auth", "of_none", "of_trusted", "of_other", "of_expired"),
    [
        ("none", ANONYMOUS, ANONYMOUS, ANONYMOUS, ANONYMOUS),
        ("requested", ANONYMOUS, ALICE, REFUSED, REFUSED),
        ("required", REFUSED, ALICE, REFUSED, REFUSED),
    ],
)
async def test_a_certificate_is_asked_for_and_checked_as_in_kafka(
    make_side: MakeSide, certificates: Certificates, caplog: pytest.LogCaptureFixture, client_auth: str,
    of_none: str, of_trusted: str, of_other: str, of_expired: str,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    side = make_side(trusts_clients=True, ssl_client_auth=client_auth)
    outcomes = {}
    for kind in ("none", "trusted", "other", "expired"):
        peer = side.peer()
        client = TlsClient(peer, client_context(certificates, kind))
        try:
            await client.shake_hands()
            await client.send(b"who")
            assert await client.receive(7) == framed(b"who")
        except ssl.SSLError:
            outcomes[kind] = REFUSED
        else:
            outcomes[kind] = str(peer.connection.client.principal)

    await trio.testing.wait_all_tasks_blocked()
    assert outcomes == {"none": of_none, "trusted": of_trusted, "other": of_other, "expired": of_expired}
    refusals = [outcome for outcome in outcomes.values() if outcome == REFUSED]
    assert sum("the TLS handshake failed" in line for line in closings(caplog)) == len(refusals)


async def test_a_rule_maps_a_certificate_to_its_user_and_refuses_others(
    make_side: MakeSide, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    side = make_side(
        trusts_clients=True, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=(al.*?),.*$/$1/U"
    )
    principals = []
    for name in ("alice", "bob"):
        context = ssl.create_default_context(cafile=str(certificates.authority))
        context.load_cert_chain(certificates.issued(name))
        peer = side.peer()
        client = TlsClient(peer, context)
        await client.shake_hands()
        await trio.testing.wait_all_tasks_blocked()
        principals.append(str(peer.connection.client.principal))

    assert principals == ["User:ALICE", ANONYMOUS]
    assert [line for line in closings(caplog) if "no rule of ssl.principal.mapping.rules matches CN=bob" in line]


# -- Protocols and suites


@pytest.mark.parametrize(
    ("enabled", "suites", "outcomes"),
    [
        ("TLSv1.2,TLSv1.1,TLSv1", "", ["TLSv1.2", REFUSED]),
        ("TLSv1.2,TLSv1.3", "", ["TLSv1.2", "TLSv1.3"]),
        ("TLSv1.3", "", [REFUSED, "TLSv1.3"]),
        ("TLSv1.2,TLSv1.3", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", ["TLSv1.2", REFUSED]),
        ("TLSv1.2,TLSv1.3", "TLS_AES_128_GCM_SHA256", [REFUSED, "TLSv1.3"]),
    ],
)
async def test_only_the_enabled_protocols_are_spoken(
    make_side: MakeSide, enabled: str, suites: str, outcomes: list[str]
) -> None:
    side = make_side(ssl_enabled_protocols=enabled, ssl_cipher_suites=suites)
    spoken = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        side.context.minimum_version = ssl.TLSVersion.TLSv1_2
        side.context.maximum_version = side.context.minimum_version = version
        client = TlsClient(side.peer(), side.context)
        try:
            await client.shake_hands()
        except ssl.SSLError:
            spoken.append(REFUSED)
        else:
            spoken.append(str(client.tls.version()))
    assert spoken == outcomes


async def test_a_cipher_suite_is_chosen_by_its_name_in_java(make_side: MakeSide) -> None:
    side = make_side(ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")

    client = await side.client()

    assert (client.tls.cipher() or ("",))[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"


# -- Renewal


async def test_a_new_key_store_is_used_from_the_next_connection_on(
    side: Side, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    old = await side.client()
    old_serial = serial_of(old)

    certificates.as_pkcs12(certificates.issued())
    new = await side.client()

    assert serial_of(new) != old_serial
    await old.send(b"lives on")
    assert await old.receive(12) == framed(b"lives on")


async def test_a_key_store_that_cannot_be_read_keeps_the_old_one(
    make_side: MakeSide, tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "server.pem"
    path.write_bytes(certificates.issued().read_bytes())
    given = {"ssl_keystore_location": str(path), "ssl_keystore_type": "PEM"}
    config = KafkaConfig(SSL | {name.replace("_", "."): value for name, value in given.items()})
    side = make_side()._replace(listener=TlsListener(config, "SSL"))
    serial = serial_of(await side.client())

    path.write_text("-----BEGIN CERTIFICATE-----\n")
    serials = [serial_of(await side.client()) for _ in range(3)]

    assert serials == [serial] * 3
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1 and "listener SSL keeps its certificate: " in errors[0]


def serial_of(client: TlsClient) -> str:
    certificate = client.tls.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])
