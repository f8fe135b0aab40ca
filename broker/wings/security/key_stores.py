"""Reads key stores and trust stores: PKCS#12, and PEM as a file or as the text of settings (KIP-651).

As kafka 2.0.1 SslFactory and 2.7 DefaultSslEngineFactory check them. Java's own format, JKS, is refused with the
command that converts it. As in Java, a store of type JKS may in fact be PKCS#12. Reading PKCS#12 needs the package
`cryptography`; PEM needs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, NoReturn

from minibroker.broker.starting import StartError

PEM = "PEM"
JAVA_TYPES = ("JKS", "PKCS12")  # a store of one of these types may be of the other
JKS_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, and JCEKS
PEM_BEGIN = b"-----BEGIN "
WRONG_PASSWORD = "a wrong password, or not a PKCS#12 file"
CERTIFICATE_BEGIN = b"-----BEGIN CERTIFICATE-----"


class KeyStoreError(StartError):
    """A store that cannot be used; the message is for the operator, and shows no password."""


class Store(NamedTuple):
    """The settings of one store. `kind` is `keystore` or `truststore`, as in their names."""

    kind: str
    type: str
    location: str | None
    password: str | None

    @property
    def label(self) -> str:
        return "key store" if self.kind == "keystore" else "trust store"

    def refuse(self, problem: str) -> NoReturn:
        raise KeyStoreError(f"Failed to load SSL {self.label} {self.location} of type {self.type}: {problem}")


class Key(NamedTuple):
    """A private key and its chain of certificates in PEM; `password` decrypts the key, if it is encrypted."""

    pem: bytes
    password: str | None


def read_key(store: Store, key_password: str | None, key: str | None, chain: str | None) -> Key | None:
    """Read a listener's key; `key` and `chain` are PEM text in settings. None if none is set. Raises KeyStoreError."""
    if key is not None or chain is not None:
        return _key_of_settings(store, key_password, key, chain)
    _check_settings(store)
    if store.location is None:
        return None
    content = _read(store)
    if store.type.upper() == PEM:
        return Key(content, key_password)
    return _key_of_pkcs12(store, content, key_password)


def read_certificates(store: Store, certificates: str | None) -> str | None:
    """Read the certificates to trust, in PEM; `certificates` is their text in a setting. None if none are set.

    Raises KeyStoreError.
    """
    if certificates is not None:
        if store.type.upper() != PEM:
            raise KeyStoreError(
                f"SSL trust store certs can be specified only for PEM, but trust store type is {store.type}."
            )
        if store.location is not None:
            raise KeyStoreError("Both SSL trust store location and separate trust certificates are specified.")
        content = certificates.encode()
    else:
        _check_settings(store)
        if store.location is None:
            return None
        content = _read(store)
        if store.type.upper() != PEM:
            return _certificates_of_pkcs12(store, content)
    if CERTIFICATE_BEGIN not in content:
        store.refuse("it has no certificate")
    return content.decode("ascii", "replace")


def _key_of_settings(store: Store, key_password: str | None, key: str | None, chain: str | None) -> Key:
    if store.type.upper() != PEM:
        raise KeyStoreError(f"SSL private key can be specified only for PEM, but key store type is {store.type}.")
    if store.location is not None:
        raise KeyStoreError("Both SSL key store location and separate private key are specified.")
    if store.password is not None:
        raise KeyStoreError(
            "SSL key store password cannot be specified with PEM format, only key password may be specified."
        )
    if key is None or chain is None:
        given, missing = ("certificate chain", "private key") if key is None else ("private key", "certificate chain")
        raise KeyStoreError(f"SSL {given} is specified, but {missing} is not specified.")
    return Key(f"{key}\n{chain}\n".encode(), key_password)


def _check_settings(store: Store) -> None:
    """Check location and password together. Raises KeyStoreError."""
    if store.location is None and store.password is not None:
        raise KeyStoreError(f"SSL {store.label} is not specified, but {store.label} password is specified.")
    if store.type.upper() == PEM:
        if store.password is not None:
            raise KeyStoreError(f"SSL {store.label} password cannot be specified for PEM format.")
    elif store.kind == "keystore" and store.location is not None and store.password is None:
        raise KeyStoreError("SSL key store is specified, but key store password is not specified.")


def _read(store: Store) -> bytes:
    """Read the file of a store, of a type that this broker reads. Raises KeyStoreError."""
    assert store.location is not None
    if store.type.upper() not in (*JAVA_TYPES, PEM):
        store.refuse(f"the type is unknown; ssl.{store.kind}.type may be PKCS12 or PEM")
    try:
        content = Path(store.location).read_bytes()
    except OSError as error:
        store.refuse(str(error.strerror))
    is_pem = PEM_BEGIN in content
    if store.type.upper() == PEM and not is_pem:
        store.refuse("the file is not PEM")
    if store.type.upper() != PEM and is_pem:
        store.refuse(f"the file is PEM; set ssl.{store.kind}.type=PEM")
    if content.startswith(JKS_MAGICS):
        store.refuse(
            "the file is JKS, which only Java reads; convert it with `keytool -importkeystore -srckeystore"
            f" {store.location} -destkeystore {Path(store.location).with_suffix('.p12')} -deststoretype PKCS12`"
        )
    return content


def _key_of_pkcs12(store: Store, content: bytes, key_password: str | None) -> Key:
    """Raises KeyStoreError."""
    if key_password is not None and key_password != store.password:
        store.refuse("ssl.key.password differs from ssl.keystore.password; a PKCS#12 file has one password")
    _need_cryptography(store)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

    try:
        key, certificate, others = load_key_and_certificates(content, (store.password or "").encode())
    except ValueError:
        store.refuse(WRONG_PASSWORD)
    if key is None or certificate is None:
        store.refuse("it has no private key with a certificate")
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Key(b"".join([pem, *(each.public_bytes(Encoding.PEM) for each in (certificate, *others))]), None)


def _certificates_of_pkcs12(store: Store, content: bytes) -> str:
    """Raises KeyStoreError."""
    _need_cryptography(store)
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        loaded = load_pkcs12(content, None if store.password is None else store.password.encode())
    except ValueError:
        store.refuse(WRONG_PASSWORD if store.password is not None else f"set ssl.{store.kind}.password")
    found = [each.certificate for each in (loaded.cert, *loaded.additional_certs) if each is not None]
    if not found:
        store.refuse("it has no certificate")
    return b"".join(each.public_bytes(Encoding.PEM) for each in found).decode()


def _need_cryptography(store: Store) -> None:
    """Raises KeyStoreError with what to do without the package."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        store.refuse(
            "reading PKCS#12 needs the package cryptography: pip install cryptography (the extra `tls`); or convert the"
            f" file with `openssl pkcs12 -in {store.location} -nodes"
            f" -out {Path(store.location or '').with_suffix('.pem')}`, and set ssl.{store.kind}.type=PEM"
        )


def files_of(stores: Iterable[Store]) -> list[str]:
    """The files of the stores that have one."""
    return [store.location for store in stores if store.location is not None]
