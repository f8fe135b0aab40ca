"""Brokers with four listeners side by side, for clients that log in: Apache Kafka 2.0.1, and minibroker.

Each user has a password for PLAIN and for SCRAM, a token is believed as it stands (OAUTHBEARER, unsecured), and on the
listener SSL a client shows the certificate of a user. `admin` is a super user; `bob` may do nothing; `alice` may do
what the test allows her.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.later_kafka import LaterKafka
from minibroker.administration import connected, create_scram_users
from minibroker.any_cluster.kafka_python import KafkaAdminClient
from minibroker.certificates import Certificates
from minibroker.client.login import Login
from minibroker.client_settings import Access, client_settings
from minibroker.protocol.sasl_client import unsecured_token
from tests.integration.brokers import BrokerProcess, Minibroker, free_port
from tests.integration.kafka_tools import kafka_tool

PASSWORDS = {"admin": "admin's secret", "alice": "alice's secret", "bob": "bob's secret"}
SCRAM_USERS = ("admin", "alice")
STORE_PASSWORD = "of the stores"
ENCRYPTION = BestAvailableEncryption(STORE_PASSWORD.encode())
PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL = PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER = MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
JAAS_MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule required {options};",
    SCRAM_256: "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    SCRAM_512: "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="admin";',
}


class KeyStores:
    """Keys and certificates in PKCS#12, which Java before Kafka 2.7 needs: the broker's, the authority's, users'."""

    def __init__(self, certificates: Certificates) -> None:
        self.broker = self.of(certificates.broker_file)
        self.authority = certificates.authority_file.with_suffix(".p12")
        authority = x509.load_pem_x509_certificate(certificates.authority_file.read_bytes())
        trusted = [pkcs12.PKCS12Certificate(authority, b"authority")]
        self.authority.write_bytes(pkcs12.serialize_java_truststore(trusted, ENCRYPTION))

    def of(self, pem_file: Path) -> Path:
        """The same key and certificate in another file."""
        pem, store = pem_file.read_bytes(), pem_file.with_suffix(".p12")
        key, certificate = load_pem_private_key(pem, None), x509.load_pem_x509_certificate(pem)
        store.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, ENCRYPTION)  # type: ignore[arg-type]
        )
        return store


@dataclass(frozen=True)
class SecuredBroker:
    """A broker that runs, its listeners by their protocol, and what its clients need."""

    process: BrokerProcess | LaterKafka
    ports: Mapping[str, int]
    certificates: Certificates
    stores: KeyStores

    @property
    def is_minibroker(self) -> bool:
        return isinstance(self.process, Minibroker)

    def address(self, protocol: str) -> str:
        return f"{self.process.host}:{self.ports[protocol]}"

    def access(self, protocol: str, mechanism: str, user: str, password: str | None = None) -> Access:
        """The settings with which a client comes by this listener; in SSL the user's certificate."""
        has_tls = protocol.endswith("SSL")
        return Access(
            self.address(protocol),
            protocol,
            mechanism,
            user,
            PASSWORDS[user] if password is None else password,
            authority_file=str(self.certificates.authority_file) if has_tls else "",
            key_file=str(self.certificates.of_user(user)) if protocol == SSL else "",
        )

    def create_topic(self, name: str) -> str:
        access = self.access(SASL_PLAINTEXT, PLAIN, "admin")
        with closing(KafkaAdminClient(**client_settings("kafka-python", access))) as admin:
            admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}})
        return name

    def token(self, user: str) -> str:
        """A token that the broker believes."""
        return unsecured_token(user)


@contextmanager
def secured_broker(directory: Path, jars: Path | None) -> Iterator[SecuredBroker]:
    """Apache Kafka of those jars, or minibroker. Raises ProcessError."""
    certificates = Certificates(directory / "certificates")
    ports = {protocol: free_port() for protocol in PROTOCOLS}
    stores = KeyStores(certificates)
    settings = security_settings(ports, stores)
    if jars is None:
        with minibroker(directory, settings) as process:
            yield with_scram_users(SecuredBroker(process, ports, certificates, stores))
        return
    kafka = ApacheKafka(jars, directory, settings=settings, heap="512m")
    kafka.port = ports[PLAINTEXT]
    try:
        kafka.start_zookeeper()
        add_scram_users(jars, kafka.zookeeper_port)
        kafka.spawn_broker()
        kafka.wait_until_ready()
        yield SecuredBroker(kafka, ports, certificates, stores)
    finally:
        kafka.kill()


def with_scram_users(broker: SecuredBroker) -> SecuredBroker:
    """The broker, which has stored the SCRAM credentials of users by the API that 2.0.1 lacks."""
    login = Login(PLAIN, "admin", PASSWORDS["admin"])
    with connected(broker.address(SASL_PLAINTEXT), login) as connection:
        for mechanism in (SCRAM_256, SCRAM_512):  # Kafka without ZooKeeper alters a user once in a request
            create_scram_users(connection, {name: PASSWORDS[name] for name in SCRAM_USERS}, (mechanism,))
    return broker


@contextmanager
def minibroker(directory: Path, settings: Mapping[str, str]) -> Iterator[Minibroker]:
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    process = Minibroker(directory, "--config", str(file), "--data-dir", str(directory / "data"), flags=False)
    try:
        yield process.wait_until_ready()
    finally:
        process.kill()


def security_settings(ports: Mapping[str, int], stores: KeyStores) -> dict[str, str]:
    """Kafka's settings of the four listeners, in which all else is open."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    options = f'username="admin" password="{PASSWORDS["admin"]}" {users}'
    settings = {
        "listeners": ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()),
        "inter.broker.listener.name": SASL_PLAINTEXT,
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.location": str(stores.broker),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
        "ssl.truststore.location": str(stores.authority),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": STORE_PASSWORD,
        "listener.name.ssl.ssl.client.auth": "required",
        "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
        "super.users": f"User:admin;User:{distinguished_name('admin')}",
        "group.initial.rebalance.delay.ms": "0",
    }
    for listener in (SASL_PLAINTEXT, SASL_SSL):
        for mechanism, module in JAAS_MODULES.items():
            name = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
            settings[name] = module.format(options=options)
    return settings


def distinguished_name(user: str) -> str:
    """The name of a user's certificate, which is the principal's."""
    return f"CN={user},OU=users,O=minibroker"


def add_scram_users(jars: Path, zookeeper_port: int) -> None:
    """Store the SCRAM credentials of users, as an administrator of Apache Kafka 2.0.1 does."""
    for name in SCRAM_USERS:
        credentials = ",".join(f"{mechanism}=[password={PASSWORDS[name]}]" for mechanism in (SCRAM_256, SCRAM_512))
        where = ("--zookeeper", f"127.0.0.1:{zookeeper_port}", "--entity-type", "users", "--entity-name", name)
        kafka_tool(jars, "kafka.admin.ConfigCommand", *where, "--alter", "--add-config", credentials)
