"""Certificates for the tests of a secured broker, made on the spot by an authority of their own (trustme)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minibroker.errors import BrokerError

if TYPE_CHECKING:
    import trustme

OWN_HOSTS = ("localhost", "127.0.0.1", "::1")
ORGANIZATION = "minibroker"
NO_HOST = "user.invalid"  # Java refuses a certificate whose list of hosts is empty
NO_TRUSTME = "a broker with TLS needs certificates, which trustme makes: pip install trustme (the extra `secure`)"


class Certificates:
    """An authority and what it has signed: PEM files in a directory, which only this user can read.

    `authority_file` is the authority's certificate, `broker_file` the broker's key and certificate for `hosts`.
    Raises BrokerError where trustme is not installed.
    """

    def __init__(self, directory: Path, hosts: Sequence[str] = OWN_HOSTS) -> None:
        try:
            import trustme
        except ImportError:
            raise BrokerError(NO_TRUSTME) from None

        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._users: dict[str, Path] = {}
        self._authority = trustme.CA(organization_name=ORGANIZATION, organization_unit_name="authority")
        self.authority_file = directory / "authority.pem"
        self._authority.cert_pem.write_to_path(self.authority_file)
        self.broker_file = self._written(
            "broker.pem", self._authority.issue_cert(*dict.fromkeys(hosts), organization_name=ORGANIZATION)
        )

    def of_user(self, name: str) -> Path:
        """The file of the key and the certificate of a client, made at the first call: CN=<name>,OU=users,O=minibroker.

        It is named by a number, since a name may hold any character.
        """
        if name not in self._users:
            signed = self._authority.issue_cert(
                NO_HOST, common_name=name, organization_name=ORGANIZATION, organization_unit_name="users"
            )
            self._users[name] = self._written(f"user-{len(self._users)}.pem", signed)
        return self._users[name]

    def _written(self, name: str, signed: trustme.LeafCert) -> Path:
        """A file of a key, as Java reads it, and its certificate."""
        from cryptography.hazmat.primitives import serialization  # trustme needs it anyway

        key = serialization.load_pem_private_key(signed.private_key_pem.bytes(), None)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._directory / name
        path.write_bytes(pem + b"".join(each.bytes() for each in signed.cert_chain_pems))
        return path
