"""Brokers with a listener of TLS beside one in plaintext for topics: minibroker and Apache Kafka, with one key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.installed import Minibroker
from benchmarks.lab import CaseUnavailableError, Lab
from benchmarks.processes import free_port
from benchmarks.topics import Broker

PASSWORD = "benchmark"


class TlsBroker(NamedTuple):
    """A broker, the address of its listener with TLS, and what a client of that trusts."""

    broker: Broker
    bootstrap: str
    authority: Path


class KeyStores(NamedTuple):
    """One key in both formats, and the certificate of its authority."""

    pem: Path
    pkcs12: Path
    authority: Path


@contextmanager
def tls_brokers(lab: Lab) -> Iterator[list[TlsBroker]]:
    """Start minibroker, and Apache Kafka where it can be had; both end with the block."""
    stores = make_key_stores(lab.new_folder("keys"))
    with ExitStack() as stack:
        port, tls_port = free_port(), free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
        minibroker = lab.new_minibroker(
            *("--listen", listeners),
            *("--set", "ssl.keystore.type=PEM", "--set", f"ssl.keystore.location={stores.pem}"),
        )
        minibroker.port = port
        brokers: list[tuple[Minibroker | ApacheKafka, int]] = [(minibroker, tls_port)]
        if lab.has_kafka:
            port, tls_port = free_port(), free_port()
            kafka = lab.new_kafka(
                {
                    "listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}",
                    "ssl.keystore.location": stores.pkcs12,
                    "ssl.keystore.password": PASSWORD,
                    "ssl.keystore.type": "PKCS12",
                }
            )
            kafka.port = port
            brokers.append((kafka, tls_port))
        for broker, _ in brokers:
            stack.enter_context(broker)
        yield [TlsBroker(broker, f"localhost:{tls_port}", stores.authority) for broker, tls_port in brokers]


def make_key_stores(folder: Path) -> KeyStores:
    """Make a key of RSA with 2048 bits. Raises CaseUnavailableError without the packages."""
    try:
        import trustme
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
        from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
    except ImportError as error:
        raise CaseUnavailableError(f"TLS needs {error.name}: pip install {error.name}") from None
    stores = KeyStores(folder / "server.pem", folder / "server.p12", folder / "authority.pem")
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    authority.cert_pem.write_to_path(stores.authority)
    issued = authority.issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.RSA)
    issued.private_key_and_cert_chain_pem.write_to_path(stores.pem)
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    encryption = BestAvailableEncryption(PASSWORD.encode())
    stores.pkcs12.write_bytes(serialize_key_and_certificates(b"server", key, certificate, None, encryption))  # type: ignore[arg-type]
    return stores
