"""TLS of a listener: its settings, the context they make, and the principal of a client's certificate.

As kafka 2.0.1 SslFactory, on OpenSSL. A context is made anew when its settings or the files of its stores have changed:
connections keep the context that they began with, the next one gets the new one. A change that cannot be read is logged
once, and the old context stays.

Kafka starts with settings under which no client can connect: no key, no protocol or cipher suite that exists, a trust
store without certificates. This broker refuses them.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.principal import ANONYMOUS, USER, Principal
from minibroker.broker.wings.security.cipher_suites import UnknownCipherSuite, openssl_names
from minibroker.broker.wings.security.distinguished_name import subject_of
from minibroker.broker.wings.security.key_stores import (
    Key,
    KeyStoreError,
    Store,
    files_of,
    read_certificates,
    read_key,
)
from minibroker.broker.wings.security.principal_mapping import InvalidRules, parse_rules, user_of

logger = logging.getLogger(__name__)

CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
HTTPS = "https"  # the only way of checking a host's name, beside none
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
OLD_VERSIONS = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")  # known to Java; JDK 17 disables them too
# Names that Java takes, in any case; they choose an implementation, and have no effect here.
JAVA_NAMES = {
    "ssl.protocol": (
        "TLS",
        "TLSv1",
        "TLSv1.1",
        "TLSv1.2",
        "TLSv1.3",
        "SSL",
        "SSLv3",
        *("DTLS", "DTLSv1.0", "DTLSv1.2"),
    ),
    "ssl.keymanager.algorithm": ("SunX509", "NewSunX509", "PKIX"),
    "ssl.trustmanager.algorithm": ("PKIX", "SunPKIX", "SunX509", "X509", "X.509"),
    "ssl.secure.random.implementation": (
        *("NativePRNG", "DRBG", "SHA1PRNG", "NativePRNGBlocking", "NativePRNGNonBlocking", "PKCS11"),
    ),
    "ssl.provider": ("SunJSSE",),
}


class TlsSettings(NamedTuple):
    """The settings of one listener."""

    listener: str
    key_store: Store
    trust_store: Store
    key_password: str | None
    key: str | None
    certificate_chain: str | None
    certificates: str | None
    client_auth: str
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    mapping_rules: str
    host_check: str
    java_names: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, config: KafkaConfig, listener: str) -> TlsSettings:
        def get(name: str) -> Any:
            return config.for_listener(listener, name)

        has_sasl = any(each.name == listener and each.protocol == "SASL_SSL" for each in config.endpoints)
        return cls(
            listener,
            key_store=Store(
                *("keystore", get("ssl.keystore.type"), get("ssl.keystore.location"), get("ssl.keystore.password"))
            ),
            trust_store=Store(
                "truststore",
                *(get("ssl.truststore.type"), get("ssl.truststore.location"), get("ssl.truststore.password")),
            ),
            key_password=get("ssl.key.password"),
            key=get("ssl.keystore.key"),
            certificate_chain=get("ssl.keystore.certificate.chain"),
            certificates=get("ssl.truststore.certificates"),
            client_auth="none" if has_sasl else get("ssl.client.auth"),  # as kafka 2.0.1 SaslChannelBuilder
            enabled_protocols=get("ssl.enabled.protocols"),
            cipher_suites=get("ssl.cipher.suites"),
            mapping_rules=get("ssl.principal.mapping.rules"),
            host_check=get("ssl.endpoint.identification.algorithm") or "",
            java_names=tuple((name, get(name)) for name in JAVA_NAMES),
        )


class TlsListener:
    """A listener with TLS: the context for its next connection. Raises KeyStoreError if the first cannot be made.

    `make` makes a context: that of the listener, or of a broker that connects to those of others (`client_context`).
    """

    def __init__(
        self, config: KafkaConfig, listener: str, make: Callable[[TlsSettings], ssl.SSLContext] | None = None
    ) -> None:
        self._make = make_context if make is None else make
        self._config = config
        self._listener = listener
        self._settings = TlsSettings.of(config, listener)
        self._versions = file_versions(self._settings)
        self._context = self._make(self._settings)
        self._rules = parse_rules(self._settings.mapping_rules)

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection, from the settings and stores as they are now."""
        settings = TlsSettings.of(self._config, self._listener)
        versions = file_versions(settings)
        if (settings, versions) != (self._settings, self._versions):
            try:
                self._context = self._make(settings)
                logger.info("listener %s: TLS settings or key stores have changed, and are used", self._listener)
            except KeyStoreError as error:
                logger.error("listener %s keeps its certificate: %s", self._listener, error)
            self._settings, self._versions = settings, versions
            self._rules = parse_rules(settings.mapping_rules)
        return self._context

    def principal_of(self, tls: ssl.SSLObject) -> Principal:
        """The principal of an established connection. Raises NoMatchingRule."""
        certificate = tls.getpeercert(binary_form=True)
        return ANONYMOUS if certificate is None else Principal(USER, user_of(subject_of(certificate), self._rules))


def tls_listeners(config: KafkaConfig) -> dict[str, TlsListener]:
    """The listeners of a broker that need TLS, by name. Raises KeyStoreError."""
    return {each.name: TlsListener(config, each.name) for each in config.endpoints if each.is_encrypted}


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """Make the context of a server. Raises KeyStoreError, naming the listener."""
    with _naming(settings):
        parse_rules(settings.mapping_rules)
        context, trusted = _context(settings, ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = CLIENT_AUTH[settings.client_auth]
        if context.verify_mode is not ssl.CERT_NONE:
            _trust(context, trusted, ssl.Purpose.CLIENT_AUTH)
        context.options |= ssl.OP_NO_RENEGOTIATION
        return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Make the context of a broker that connects to this listener of another one. Raises KeyStoreError, naming it."""
    with _naming(settings):
        if settings.host_check.lower() not in ("", HTTPS):
            name = "ssl.endpoint.identification.algorithm"
            raise KeyStoreError(f"{name} {settings.host_check} is unknown; use {HTTPS}, or leave it empty")
        context, trusted = _context(settings, ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = settings.host_check != ""
        _trust(context, trusted, ssl.Purpose.SERVER_AUTH)
        return context


def check_own_key(settings: TlsSettings) -> None:
    """Check that a broker trusts its own certificate, as that of the others. Raises KeyStoreError, naming the listener.

    As kafka 2.0.1 SslFactory, for the listener between brokers.
    """
    context = client_context(settings._replace(host_check=""))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server)
    server = make_context(settings).wrap_bio(to_server, to_client, server_side=True)
    with _naming(settings):
        try:
            while not (_has_shaken_hands(client) & _has_shaken_hands(server)):
                pass
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", None) or error.reason
            raise KeyStoreError(
                f"it does not trust its own certificate ({reason}), which brokers need to connect to each other; set"
                " ssl.truststore.location"
            ) from error


def _has_shaken_hands(tls: ssl.SSLObject) -> bool:
    """Go on with a handshake; return whether it is over. Raises SSLError."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


@contextmanager
def _naming(settings: TlsSettings) -> Iterator[None]:
    """Name the listener in an error."""
    try:
        yield
    except (KeyStoreError, UnknownCipherSuite, InvalidRules) as error:
        raise KeyStoreError(f"listener {settings.listener}: {error}") from error


def _context(settings: TlsSettings, protocol: ssl._SSLMethod) -> tuple[ssl.SSLContext, str | None]:
    """A context with the key of the key store, and the certificates to trust."""
    _check_java_names(settings)
    key = read_key(settings.key_store, settings.key_password, settings.key, settings.certificate_chain)
    trusted = read_certificates(settings.trust_store, settings.certificates)
    if key is None:
        raise KeyStoreError("it has no certificate; set ssl.keystore.location")
    context = ssl.SSLContext(protocol)
    _choose_versions(context, settings)
    _load_key(context, key, settings)
    return context, trusted


def _check_java_names(settings: TlsSettings) -> None:
    for name, value in settings.java_names:
        allowed = JAVA_NAMES[name]
        if value is not None and value.upper() not in map(str.upper, allowed):
            raise KeyStoreError(f"Invalid value {value} for configuration {name} (allowed: {', '.join(allowed)})")


def _choose_versions(context: ssl.SSLContext, settings: TlsSettings) -> None:
    unknown = [each for each in settings.enabled_protocols if each not in (*VERSIONS, *OLD_VERSIONS)]
    if unknown:
        raise KeyStoreError(f"ssl.enabled.protocols: {', '.join(unknown)} is unknown; use {', '.join(VERSIONS)}")
    versions = [VERSIONS[each] for each in VERSIONS if each in settings.enabled_protocols]
    if settings.cipher_suites:
        suites, has_of_tls_1_3 = openssl_names(settings.cipher_suites)
        usable = {ssl.TLSVersion.TLSv1_2: bool(suites), ssl.TLSVersion.TLSv1_3: has_of_tls_1_3}
        versions = [each for each in versions if usable[each]]
        if suites:
            context.set_ciphers(":".join(suites))
    if not versions:
        raise KeyStoreError(
            "ssl.enabled.protocols and ssl.cipher.suites leave no protocol; enable TLSv1.2 or TLSv1.3, with its suites"
        )
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _load_key(context: ssl.SSLContext, key: Key, settings: TlsSettings) -> None:
    """Give OpenSSL the key, which it reads from a file only: one in memory. Raises KeyStoreError."""
    descriptor = os.memfd_create("key")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(key.pem)
        # Always with a password: without one, OpenSSL asks the terminal for that of an encrypted key.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=key.password or "")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        what = settings.key_store.location or "ssl.keystore.key"
        raise KeyStoreError(
            f"{what} has no usable private key and certificate ({reason}); check ssl.key.password"
        ) from error
    finally:
        os.close(descriptor)


def _trust(context: ssl.SSLContext, trusted: str | None, purpose: ssl.Purpose) -> None:
    """Trust each given certificate by itself, as Java does; without any, those of the system. Raises KeyStoreError."""
    if trusted is None:
        context.load_default_certs(purpose)
        return
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=trusted)
    except ssl.SSLError as error:
        raise KeyStoreError(f"the certificates of the trust store are not usable ({error.reason})") from error


def file_versions(settings: TlsSettings) -> tuple[object, ...]:
    """The versions of the files of the stores, which change when a file does."""
    return tuple(map(_version, files_of((settings.key_store, settings.trust_store))))


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def problems_of(config: KafkaConfig) -> list[str]:
    """Why listeners cannot encrypt with these settings: a line each."""
    problems = []
    for endpoint in config.endpoints:
        try:
            if endpoint.is_encrypted:
                make_context(TlsSettings.of(config, endpoint.name))
        except KeyStoreError as error:
            problems.append(str(error))
    return problems
