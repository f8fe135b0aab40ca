"""Certificates and key stores of the tests, made where they are needed (`trustme`)."""

from __future__ import annotations

import datetime
from functools import cached_property
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)

PASSWORD = "secret"
LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
HOSTS = ("localhost", "127.0.0.1")


class Certificates:
    """An authority whose certificates are trusted, another one whose are not, and the files of both in `folder`.

    Elliptic keys are made in no time; `rsa` makes those that every client of old takes.
    """

    def __init__(self, folder: Path, *, rsa: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key_type = trustme.KeyType.RSA if rsa else trustme.KeyType.ECDSA
        self._authority = trustme.CA(organization_name="minibroker tests", key_type=self._key_type)
        self._other = trustme.CA(organization_name="another", key_type=self._key_type)

    @cached_property
    def authority(self) -> Path:
        """The authority that clients and brokers trust, in PEM."""
        path = self.folder / "authority.pem"
        self._authority.cert_pem.write_to_path(path)
        return path

    def issued(self, name: str = "", *, by_other: bool = False, is_expired: bool = False) -> Path:
        """A key with its certificate in PEM: of a server, or of a client whose common name is `name`."""
        authority = self._other if by_other else self._authority
        issued = authority.issue_cert(
            *HOSTS,
            common_name=name or None,
            organization_name="Acme, Inc.",
            organization_unit_name="dev",
            not_after=LONG_AGO if is_expired else None,
            key_type=self._key_type,
        )
        kind = "expired" if is_expired else "other" if by_other else "trusted"
        path = self.folder / f"{kind}-{name or 'server'}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(path)
        return path

    @cached_property
    def key_store(self) -> Path:
        """The server's key in PKCS#12."""
        return self.as_pkcs12(self.issued())

    def as_pkcs12(self, pem: Path, password: str = PASSWORD) -> Path:
        content = pem.read_bytes()
        certificate, *chain = x509.load_pem_x509_certificates(content)
        path = pem.with_suffix(".p12")
        path.write_bytes(
            serialize_key_and_certificates(
                b"server",
                load_pem_private_key(content, None),  # type: ignore[arg-type]
                certificate,
                chain,
                BestAvailableEncryption(password.encode()),
            )
        )
        return path

    @cached_property
    def trust_store(self) -> Path:
        """The authority in PKCS#12, as keytool makes it."""
        certificate = x509.load_pem_x509_certificate(self._authority.cert_pem.bytes())
        path = self.folder / "authority.p12"
        path.write_bytes(
            serialize_java_truststore(
                [PKCS12Certificate(certificate, b"ca")], BestAvailableEncryption(PASSWORD.encode())
            )
        )
        return path

    def settings(self, *, trusts_clients: bool = False) -> dict[str, str]:
        """The settings of a broker with the server's key, and with the authority if it is to trust clients."""
        given = {
            "ssl.keystore.location": str(self.key_store),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": PASSWORD,
        }
        if trusts_clients:
            given |= {"ssl.truststore.location": str(self.authority), "ssl.truststore.type": "PEM"}
        return given
