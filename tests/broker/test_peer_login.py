"""How a broker gets into the secured listener of another one, and what stops it; over real sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.sasl import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, SaslError, setting_of
from minibroker.broker.wings.security.key_stores import KeyStoreError
from minibroker.broker.wings.security.peer_login import peer_login
from minibroker.broker.wings.several.peer import PeerError
from minibroker.broker.wings.several.peers import Peers
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.jaas import written_jaas
from tests.broker.conftest import InMemoryBroker
from tests.broker.sasl_broker import add_scram_user, serve
from tests.broker.tls_peers import certificates as certificates
from tests.certificates import Certificates

METADATA = API_TABLE[ApiKey.METADATA]
LISTENING, OTHER_HOST = "127.0.0.1", "127.0.0.2"  # the first is in the certificate
SECRET = "its secret"
ACCOUNT = {"username": "broker", "password": SECRET}
MODULES = {
    "PLAIN": (PLAIN_MODULE, {**ACCOUNT, "user_broker": SECRET}),
    "SCRAM-SHA-256": (SCRAM_MODULE, ACCOUNT),
    "SCRAM-SHA-512": (SCRAM_MODULE, ACCOUNT),
    "OAUTHBEARER": (OAUTHBEARER_MODULE, {"unsecuredLoginStringClaim_sub": "broker"}),
}


def settings(certificates: Certificates, protocol: str, mechanism: str = "", **options: str) -> dict[str, str]:
    found = {"listeners": f"{protocol}://{LISTENING}:0", "security.inter.broker.protocol": protocol}
    if protocol.endswith("SSL"):
        found |= {**certificates.settings(trusts_clients=True), "ssl.client.auth": "required"}
    if mechanism:
        module, given = MODULES[mechanism]
        found |= {
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            setting_of(protocol, mechanism, "sasl.jaas.config"): written_jaas(module, {**given, **options}),
        }
    return found


async def asked(port: int, config: KafkaConfig, host: str = LISTENING) -> Any:
    """The answer that a broker with this configuration gets from the one at the port. Raises PeerError."""
    peer = Peers(config, MetadataCache(""), peer_login(config)).at(host, port)
    try:
        for _ in range(2):  # over one connection
            answer = await peer.ask(ApiKey.METADATA, 1, METADATA.request(topics=None))
        return answer
    finally:
        peer.close()


@pytest.fixture
async def port_of(nursery: trio.Nursery, tmp_path: Path) -> Any:
    """Start a broker with these settings; the port of its listener."""
    brokers = []

    async def start(**given: Any) -> int:
        brokers.append(InMemoryBroker(tmp_path, nursery, **given))
        add_scram_user(brokers[-1], "broker", SECRET)
        ports = await serve(brokers[-1], nursery)
        return next(iter(ports.values()))

    yield start
    for each in brokers:
        each.close()
    nursery.cancel_scope.cancel()


SECURED = [
    ("SSL", ""),
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
]


@pytest.mark.parametrize(("protocol", "mechanism"), SECURED)
async def test_a_broker_gets_into_the_listener_of_another(
    port_of: Any, certificates: Certificates, protocol: str, mechanism: str
) -> None:
    given = settings(certificates, protocol, mechanism)
    port = await port_of(**given)

    assert [each.port for each in (await asked(port, KafkaConfig(given))).brokers] == [port]
    assert SECRET not in repr(peer_login(KafkaConfig(given)))


@pytest.mark.parametrize(
    ("protocol", "mechanism", "changed", "message"),
    [
        ("SASL_PLAINTEXT", "PLAIN", {"password": "wrong"}, "refuses the login of this one: .*[Ii]nvalid"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256", {"password": "wrong"}, "refuses the login of this one: .*[Ii]nvalid"),
        ("SASL_SSL", "PLAIN", {"username": "nobody"}, "refuses the login of this one: .*[Ii]nvalid"),
    ],
)
async def test_a_wrong_account_is_refused(
    port_of: Any, certificates: Certificates, protocol: str, mechanism: str, changed: dict[str, str], message: str
) -> None:
    port = await port_of(**settings(certificates, protocol, mechanism))

    with pytest.raises(PeerError, match=f"^the broker at 127.0.0.1:{port} {message}"):
        await asked(port, KafkaConfig(settings(certificates, protocol, mechanism, **changed)))


async def test_a_mechanism_that_the_other_broker_lacks_is_named(port_of: Any, certificates: Certificates) -> None:
    port = await port_of(**settings(certificates, "SASL_PLAINTEXT", "PLAIN"))

    with pytest.raises(PeerError, match="has no mechanism SCRAM-SHA-256, only PLAIN"):
        await asked(port, KafkaConfig(settings(certificates, "SASL_PLAINTEXT", "SCRAM-SHA-256")))


async def test_a_certificate_is_checked_with_its_host(port_of: Any, certificates: Certificates, tmp_path: Path) -> None:
    given = settings(certificates, "SSL") | {"listeners": f"SSL://{OTHER_HOST}:0"}
    port = await port_of(**given)
    unchecked = KafkaConfig({**given, "listener.name.ssl.ssl.endpoint.identification.algorithm": ""})
    others = Certificates(tmp_path / "others")

    with pytest.raises(PeerError, match=r"its certificate is refused: .*127\.0\.0\.2"):
        await asked(port, KafkaConfig(given), OTHER_HOST)
    assert (await asked(port, unchecked, OTHER_HOST)).brokers
    with pytest.raises(PeerError, match="its certificate is refused: self-signed"):
        await asked(port, KafkaConfig(settings(others, "SSL")), OTHER_HOST)


async def test_a_listener_without_tls_is_no_answer_to_it(port_of: Any, certificates: Certificates) -> None:
    port = await port_of()

    with pytest.raises(PeerError, match="cannot be reached"):
        await asked(port, KafkaConfig(settings(certificates, "SSL")))


@pytest.mark.parametrize(
    ("protocol", "mechanism", "changed", "message"),
    [
        ("SASL_PLAINTEXT", "PLAIN", {"username": ""}, "plain.sasl.jaas.config has no username, by which brokers"),
        ("SASL_SSL", "SCRAM-SHA-512", {"username": "", "password": ""}, "has no username and no password"),
        ("SASL_PLAINTEXT", "OAUTHBEARER", {"unsecuredLoginStringClaim_sub": ""}, "unsecuredLoginStringClaim_sub"),
    ],
)
def test_a_login_module_without_an_own_account_is_refused(
    certificates: Certificates, protocol: str, mechanism: str, changed: dict[str, str], message: str
) -> None:
    with pytest.raises(SaslError, match=message):
        peer_login(KafkaConfig(settings(certificates, protocol, mechanism, **changed)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ssl.truststore.location": ""}, "listener SSL: it does not trust its own certificate"),
        ({"ssl.endpoint.identification.algorithm": "LDAP"}, "algorithm LDAP is unknown; use https, or leave it empty"),
    ],
)
def test_a_key_that_the_others_would_refuse_is_refused(
    certificates: Certificates, changed: dict[str, str], message: str
) -> None:
    given = settings(certificates, "SSL") | changed
    if not given["ssl.truststore.location"]:
        given["ssl.truststore.location"] = str(Certificates(certificates.folder / "another").authority)

    with pytest.raises(KeyStoreError, match=message):
        peer_login(KafkaConfig(given))
