"""Gives each client library the settings to log in to a broker, in the form that it takes.

The forms are documented at `Broker.client_settings`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.protocol.jaas import written_jaas
from minibroker.protocol.sasl_client import OAUTHBEARER, PLAIN, unsecured_token

JAAS = "org.apache.kafka.common.security"
JAVA_MODULES = {PLAIN: f"{JAAS}.plain.PlainLoginModule", OAUTHBEARER: f"{JAAS}.oauthbearer.OAuthBearerLoginModule"}
JAVA_SCRAM = f"{JAAS}.scram.ScramLoginModule"


class Access(NamedTuple):
    """A listener, and what one client shows it. Without SASL `mechanism` is empty, without TLS the files are.

    `key_file` has the client's key and its certificate in PEM.
    """

    bootstrap_servers: str
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password: str = ""
    authority_file: str = ""
    key_file: str = ""


def client_settings(library: str, access: Access) -> Any:
    """Raises ValueError for another library."""
    if library not in FORMS:
        raise ValueError(f"{library!r} is none of the libraries {', '.join(FORMS)}")
    return FORMS[library](access)


def present(settings: dict[str, Any]) -> dict[str, Any]:
    """Keep the settings that have a value."""
    return {name: value for name, value in settings.items() if value}


def of_librdkafka(access: Access) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": access.bootstrap_servers,
        "security.protocol": access.protocol,
        "sasl.mechanisms": access.mechanism,
        "ssl.ca.location": access.authority_file,
        "ssl.certificate.location": access.key_file,
        "ssl.key.location": access.key_file,
    }
    if access.mechanism == OAUTHBEARER:
        settings |= {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={access.user}",
        }
    elif access.mechanism:
        settings |= {"sasl.username": access.user, "sasl.password": access.password}
    return present(settings)


def of_kcat(access: Access) -> list[str]:
    settings = of_librdkafka(access)
    words = ["-b", settings.pop("bootstrap.servers")]
    for name, value in settings.items():
        words += ["-X", f"{name}={value}"]
    return words


def sasl_of_python(access: Access, provider: Callable[[str], Any]) -> dict[str, Any]:
    if not access.mechanism:
        return {}
    if access.mechanism == OAUTHBEARER:
        return {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": provider(access.user)}
    return {
        "sasl_mechanism": access.mechanism,
        "sasl_plain_username": access.user,
        "sasl_plain_password": access.password,
    }


def of_kafka_python(access: Access) -> dict[str, Any]:
    settings = {
        "bootstrap_servers": access.bootstrap_servers,
        "security_protocol": access.protocol,
        "ssl_cafile": access.authority_file,
        "ssl_certfile": access.key_file,
        "ssl_keyfile": access.key_file,
    }
    return present(settings) | sasl_of_python(access, token_of_kafka_python)


def token_of_kafka_python(user: str) -> Any:
    from minibroker.any_cluster.kafka_python import TokenProvider

    return TokenProvider(lambda: unsecured_token(user))


def of_aiokafka(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": access.bootstrap_servers,
        "security_protocol": access.protocol,
    }
    if access.authority_file:
        import ssl

        settings["ssl_context"] = context = ssl.create_default_context(cafile=access.authority_file)
        if access.key_file:
            context.load_cert_chain(access.key_file)
    return settings | sasl_of_python(access, token_of_aiokafka)


def token_of_aiokafka(user: str) -> Any:
    from aiokafka.abc import AbstractTokenProvider

    class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return unsecured_token(user)

    return TokenProvider()


def of_java(access: Access) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": access.bootstrap_servers,
        "security.protocol": access.protocol,
        "sasl.mechanism": access.mechanism,
        "sasl.jaas.config": jaas(access) if access.mechanism else "",
    }
    for store, path in (("truststore", access.authority_file), ("keystore", access.key_file)):
        if path:
            settings |= {f"ssl.{store}.type": "PEM", f"ssl.{store}.location": path}
    return present(settings)


def jaas(access: Access) -> str:
    """The login module of a client in Java."""
    options = {"username": access.user, "password": access.password}
    if access.mechanism == OAUTHBEARER:
        options = {"unsecuredLoginStringClaim_sub": access.user}
    return written_jaas(JAVA_MODULES.get(access.mechanism, JAVA_SCRAM), options)


def of_spark(access: Access) -> dict[str, Any]:
    return {f"kafka.{name}": value for name, value in of_java(access).items()}


def of_kafkajs(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {"brokers": access.bootstrap_servers.split(",")}
    if access.authority_file:
        key = Path(access.key_file).read_text() if access.key_file else ""
        settings["ssl"] = present({"ca": [Path(access.authority_file).read_text()], "key": key, "cert": key})
    if access.mechanism == OAUTHBEARER:
        settings["sasl"] = {"mechanism": "oauthbearer", "token": unsecured_token(access.user)}
    elif access.mechanism:
        settings["sasl"] = {
            "mechanism": access.mechanism.lower(),
            "username": access.user,
            "password": access.password,
        }
    return settings


def of_franz_go(access: Access) -> dict[str, Any]:
    settings = {
        "brokers": access.bootstrap_servers.split(","),
        "ca_file": access.authority_file,
        "key_file": access.key_file,
        "mechanism": access.mechanism,
        "user": access.user if access.mechanism else "",
        "password": access.password,
        "token": unsecured_token(access.user) if access.mechanism == OAUTHBEARER else "",
    }
    return present(settings)


FORMS: dict[str, Callable[[Access], Any]] = {
    "confluent-kafka": of_librdkafka,
    "kafka-python": of_kafka_python,
    "aiokafka": of_aiokafka,
    "kcat": of_kcat,
    "kafkajs": of_kafkajs,
    "franz-go": of_franz_go,
    "java": of_java,
    "spark": of_spark,
}
