"""Client properties under the names of Apache Kafka's clients, for kafka-python and for librdkafka.

Pure. What encrypts and authenticates has one name here, which is librdkafka's: `ssl.ca.location` for Java's
`ssl.truststore.location`, `sasl.username` for what Java has inside `sasl.jaas.config`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from minibroker.any_cluster.bootstrap import Properties
from minibroker.errors import BadValue
from minibroker.protocol.jaas import JaasError, parse_jaas

HOST_CHECK = "ssl.endpoint.identification.algorithm"
# Java's name, and the one here.
RENAMED = {
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
}
KAFKA_PYTHON_NAMES = {
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
    "ssl.cipher.suites": "ssl_ciphers",
    HOST_CHECK: "ssl_check_hostname",
}
# Which classes Java loads, and what has no meaning for a command.
WITHOUT_MEANING = re.compile(
    r"(key|value)\.(de)?serializer|interceptor\.classes|metric\.reporters|partitioner\.class|group\.id"
    r"|enable\.auto\.commit|ssl\.(truststore|keystore)\.type|ssl\.protocol|sasl\.(client|login)\.callback\.handler\.class"
)
UNSECURED_SUBJECT = "unsecuredLoginStringClaim_sub"
# What `logins` alone reads; the others are properties of a client library too.
OF_LOGINS = {
    "ssl.truststore.password",
    "ssl.keystore.password",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.key.pem",
    "ssl.enabled.protocols",
    "sasl.oauthbearer.config",
    "enable.sasl.oauthbearer.unsecure.jwt",
    "sasl.oauthbearer.token.endpoint.url",
}
# Of the consumer protocol (KIP-848), which kafka-python lacks.
OF_LIBRDKAFKA = {"group.protocol", "group.remote.assignor"}
BOOLEANS = {"true": True, "false": False}


def normalized(properties: Properties) -> dict[str, str]:
    """The properties under one name each. Raises BadValue for a key store that only Java reads, and for wrong JAAS."""
    found: dict[str, str] = {}
    for name, value in properties.items():
        if name == "sasl.jaas.config":
            found |= in_jaas(value)
        elif name == "ssl.keystore.location":
            found |= {"ssl.certificate.location": not_jks(value), "ssl.key.location": value}
        elif name == "ssl.truststore.location":
            found["ssl.ca.location"] = not_jks(value)
        elif name == HOST_CHECK:
            found[name] = value or "none"
        elif not WITHOUT_MEANING.fullmatch(name):
            found[RENAMED.get(name, name)] = value
    return found


def in_jaas(config: str) -> dict[str, str]:
    """The user, the password, and the subject of an unsecured token. Raises BadValue for a malformed entry."""
    try:
        options = parse_jaas(config).options
    except JaasError as error:
        raise BadValue(f'sasl.jaas.config: {error}; write MODULE required username="USER" password="...";') from None
    found = {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}
    if UNSECURED_SUBJECT in options:
        subject = f"principal={options[UNSECURED_SUBJECT]}"
        found |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": subject}
    return found


def not_jks(path: str) -> str:
    """Raises BadValue for the name of a key store that only Java reads."""
    if path.endswith(".jks"):
        raise jks(path)
    return path


def jks(path: str) -> BadValue:
    target = f"{path.removesuffix('.jks')}.p12"
    return BadValue(
        f"{path} is a JKS key store, which only Java reads; make PKCS#12 of it: "
        f"`keytool -importkeystore -srckeystore {path} -destkeystore {target} -deststoretype pkcs12`"
    )


def for_kafka_python(properties: Properties, known: Mapping[str, Any]) -> dict[str, Any]:
    """Keep those of normalized properties that a client of kafka-python knows, whose defaults are `known`.

    Raises BadValue for a value of another type.
    """
    settings = {
        KAFKA_PYTHON_NAMES.get(name, name.replace(".", "_")): (name, value) for name, value in properties.items()
    }
    return {
        setting: typed(name, value, known[setting]) for setting, (name, value) in settings.items() if setting in known
    }


def unknown_of(properties: Properties, known: Iterable[Mapping[str, Any]]) -> list[str]:
    """List those of normalized properties that no client knows: of kafka-python, or of librdkafka alone."""
    names = {setting for defaults in known for setting in defaults}
    return [
        name
        for name in properties
        if name not in OF_LOGINS | OF_LIBRDKAFKA and KAFKA_PYTHON_NAMES.get(name, name.replace(".", "_")) not in names
    ]


def typed(name: str, value: str, default: Any) -> Any:
    """The value with the type of the default; text where there is none."""
    if (name, value) == ("acks", "all"):
        return value
    if (name, value) == ("compression.type", "none"):
        return None
    if name == HOST_CHECK:
        return value.lower() == "https"
    try:
        if isinstance(default, bool):
            return BOOLEANS[value.lower()]
        if isinstance(default, int | float):
            return int(value)
    except (KeyError, ValueError):
        kind = "true or false" if isinstance(default, bool) else "a whole number"
        raise BadValue(f"{name}={value}: the value is not {kind}") from None
    return value
