"""How a command logs in to a secured cluster, by its client properties: TLS, SASL, and what a refusal means.

Certificates and keys are files in PEM or PKCS#12, or PEM in the property itself. No message has a password or a key.
"""

from __future__ import annotations

import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from minibroker.any_cluster.bootstrap import Cluster, Properties
from minibroker.any_cluster.client_properties import HOST_CHECK, jks, normalized
from minibroker.client.address import Address
from minibroker.client.login import CertificateRefused, Login, NotTrusted, WrongMechanism, WrongProtocol
from minibroker.errors import BadValue
from minibroker.protocol.sasl_client import MECHANISMS, OAUTHBEARER, LoginError, unsecured_token

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
JKS_MAGIC = b"\xfe\xed\xfe\xed"
PKCS12_MAGIC = b"\x30"
TLS_VERSIONS = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
STORES = {  # and the property with the password of a PKCS#12 file
    "ssl.ca": "ssl.truststore.password",
    "ssl.certificate": "ssl.keystore.password",
    "ssl.key": "ssl.keystore.password",
}
JAVAS = {"ssl.ca": "ssl.truststore", "ssl.certificate": "ssl.keystore", "ssl.key": "ssl.keystore"}
STORE_PASSWORDS = set(STORES.values())
TOKEN_SECONDS = 60.0  # until the file is read again
PRINCIPAL = "principal="
TOKEN_FILE = "sasl.oauthbearer.token.endpoint.url"
USER_AND_PASSWORD = "sasl.jaas.config, or sasl.username and sasl.password"
NO_CRYPTOGRAPHY = (
    "is PKCS#12, which needs cryptography: pip install cryptography (the extra `tls`), or make PEM of it: "
    "`openssl pkcs12 -nodes -in {path} -out {path}.pem`"
)


class Pem(NamedTuple):
    """Texts in PEM; empty where there is none."""

    authorities: str = ""
    certificate: str = ""
    key: str = ""


def protocol_of(properties: Properties) -> str:
    """Raises BadValue."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise BadValue(f"security.protocol={protocol} is none of {', '.join(PROTOCOLS)}")
    return protocol


def login_of(properties: Properties) -> Login | None:
    """The login in these normalized properties; None in PLAINTEXT. Raises BadValue."""
    protocol = protocol_of(properties)
    if protocol == "PLAINTEXT":
        return None
    tls = context_of(properties) if protocol.endswith("SSL") else None
    return sasl_login(properties, tls) if protocol.startswith("SASL") else Login(tls=tls)


def login_to(cluster: Cluster) -> Login | None:
    """As `login_of`, by the properties that were given. Raises BadValue."""
    return login_of(normalized(cluster.properties))


def sasl_login(properties: Properties, tls: ssl.SSLContext | None) -> Login:
    """Raises BadValue."""
    protocol, mechanism = protocol_of(properties), properties.get("sasl.mechanisms", "")
    if mechanism not in MECHANISMS:
        raise BadValue(
            f"security.protocol={protocol} needs one of these as sasl.mechanism: {', '.join(MECHANISMS)}"
            + (f"; {mechanism} is none of them" if mechanism else "")
        )
    if mechanism == OAUTHBEARER:
        user, token = bearer_of(properties)
        return Login(mechanism, user, tls=tls, token=token)
    user, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
    if not user or not password:
        missing = "user" if not user else "password"
        raise BadValue(f"sasl.mechanism={mechanism} needs a {missing}: set {USER_AND_PASSWORD}")
    return Login(mechanism, user, password, tls)


def bearer_of(properties: Mapping[str, Any]) -> tuple[str, Callable[[], str]]:
    """A user, as far as it is known, and what makes its tokens. Raises BadValue."""
    url = urlsplit(properties.get(TOKEN_FILE, ""))
    if url.scheme == "file":
        return "", lambda: token_in(Path(unquote(url.path)))
    parts = str(properties.get("sasl.oauthbearer.config", "")).split()
    user = next((part.removeprefix(PRINCIPAL) for part in parts if part.startswith(PRINCIPAL)), "")
    if user:
        return user, lambda: unsecured_token(user)
    raise BadValue(
        f"sasl.mechanism={OAUTHBEARER} needs a token in a file, {TOKEN_FILE}=file:///path, or for an unsecured one "
        'unsecuredLoginStringClaim_sub="USER" in sasl.jaas.config'
    )


def token_in(path: Path) -> str:
    """Raises BadValue."""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(f"cannot read the token in {path}: {reason_of(error)}") from error


# -- TLS ------------------------------------------------------------------------------------------------------


def context_of(properties: Properties) -> ssl.SSLContext:
    """Raises BadValue."""
    pem = pem_of(properties)
    context = ssl.create_default_context()
    if pem.authorities:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = properties.get(HOST_CHECK, "https").lower() == "https"
    try:
        if pem.authorities:
            context.load_verify_locations(cadata=pem.authorities)
        if "ssl.crl.location" in properties:
            context.load_verify_locations(properties["ssl.crl.location"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if "ssl.cipher.suites" in properties:
            context.set_ciphers(properties["ssl.cipher.suites"])
        if pem.certificate:
            with in_a_file(pem.key if pem.key == pem.certificate else f"{pem.key}\n{pem.certificate}") as path:
                context.load_cert_chain(path, password=properties.get("ssl.key.password", ""))
    except (ssl.SSLError, OSError) as error:
        raise BadValue(f"the certificates of ssl.* cannot be used: {reason_of(error)}") from error
    limit_versions(context, properties.get("ssl.enabled.protocols", ""))
    return context


def limit_versions(context: ssl.SSLContext, names: str) -> None:
    versions = [TLS_VERSIONS[name.strip()] for name in names.split(",") if name.strip() in TLS_VERSIONS]
    if versions:
        context.minimum_version, context.maximum_version = min(versions), max(versions)
    elif names:
        raise BadValue(f"ssl.enabled.protocols={names} has none of {', '.join(TLS_VERSIONS)}")


@contextmanager
def in_a_file(text: str) -> Iterator[str]:
    """The text in a file that only this user can read, which is gone afterwards: OpenSSL reads keys from files."""
    descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def pem_of(properties: Properties) -> Pem:
    """The stores of the properties. Raises BadValue."""
    trusted, certificate, key = (opened(properties, name, password) for name, password in STORES.items())
    if bool(certificate) != bool(key):
        missing = "ssl.keystore.key" if certificate else "ssl.keystore.certificate.chain"
        raise BadValue(f"a client's certificate needs its key too, and only one of them is set: set {missing}")
    return Pem(trusted, certificate, key)


def opened(properties: Mapping[str, Any], name: str, password: str) -> str:
    """PEM of `<name>.pem`, or of the file `<name>.location`; empty where neither is set. Raises BadValue."""
    if f"{name}.pem" in properties:
        return str(properties[f"{name}.pem"]).replace("\\n", "\n")
    if f"{name}.location" not in properties:
        return ""
    path = properties[f"{name}.location"]
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise BadValue(f"cannot read {path} ({JAVAS[name]}.location): {reason_of(error)}") from error
    if data.startswith(JKS_MAGIC):
        raise jks(path)
    if data.startswith(PKCS12_MAGIC):
        return pem_of_pkcs12(path, data, properties.get(password, ""))
    text = data.decode(errors="replace")
    if "-----BEGIN " not in text:
        raise BadValue(f"{path} is neither PEM nor PKCS#12; correct {name}.location")
    return text


def pem_of_pkcs12(path: str, data: bytes, password: str) -> str:
    """The key and the certificates in it. Raises BadValue."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise BadValue(f"{path} {NO_CRYPTOGRAPHY.format(path=path)}") from None
    try:
        store = pkcs12.load_pkcs12(data, password.encode() or None)
    except ValueError:
        raise BadValue(f"cannot open {path}; correct its password, ssl.*store.password") from None
    parts = [each.certificate.public_bytes(Encoding.PEM) for each in (store.cert, *store.additional_certs) if each]
    if store.key is not None:
        parts.insert(0, store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return b"".join(parts).decode()


def reason_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (getattr(error, "reason", None) or str(error.args[0])).replace("_", " ").lower().strip(" .()")
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


# -- client libraries -----------------------------------------------------------------------------------------


def for_librdkafka(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as librdkafka takes them: PKCS#12 as PEM, a token in a file by a callback.

    Raises ValueError where it does not take them, and BadValue.
    """
    if "ssl.enabled.protocols" in settings:
        raise ValueError("librdkafka chooses the version of TLS itself")
    found = {name: value for name, value in settings.items() if name not in STORE_PASSWORDS}
    if str(found.get(TOKEN_FILE, "")).startswith("file:"):
        _, token = bearer_of(found)
        del found[TOKEN_FILE]
        found["oauth_cb"] = lambda config: (token(), time.time() + TOKEN_SECONDS)
    for name, password in STORES.items():
        path = found.get(f"{name}.location")
        if path is not None and is_pkcs12(path):
            found[f"{name}.pem"] = opened(settings, name, password)
            del found[f"{name}.location"]
    return found


def is_pkcs12(path: str) -> bool:
    """Whether it is a file that begins as one; librdkafka complains about a missing file itself."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(1) == PKCS12_MAGIC
    return False


# -- refusals -------------------------------------------------------------------------------------------------


def refusal(error: LoginError, address: Address, properties: Properties) -> str:
    """A refused login in one line, with the next step."""
    protocol = protocol_of(properties)
    unanswered = f"no Kafka broker answers in {protocol} at {address} ({error})"
    if isinstance(error, NotTrusted):
        return f"{unanswered}; {how_to_trust(str(error))}"
    if isinstance(error, CertificateRefused):
        return f"{unanswered}; set ssl.keystore.location to a certificate of this client that the broker trusts"
    if isinstance(error, WrongProtocol):
        return f"{unanswered}; correct security.protocol, or the port: each listener of a broker has its own"
    if isinstance(error, WrongMechanism):
        return f"{unanswered}; correct sasl.mechanism"
    mechanism, user = properties.get("sasl.mechanisms", ""), properties.get("sasl.username", "")
    if mechanism == OAUTHBEARER:
        return f"the broker at {address} refused the token ({error}); correct sasl.jaas.config or {TOKEN_FILE}"
    return (
        f"the broker at {address} refused the login of {user} with {mechanism} ({error}); correct {USER_AND_PASSWORD}"
    )


def how_to_trust(reason: str) -> str:
    if "mismatch" in reason:
        return f"connect by a name in the certificate, or set {HOST_CHECK}= to nothing"
    return "set ssl.truststore.location to the certificate of the broker's authority (PEM or PKCS#12)"
