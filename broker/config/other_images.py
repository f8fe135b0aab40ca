"""Variables of the images that people leave: bitnami's, wurstmeister's and Confluent's.

    image           variables                                           here
    bitnami         KAFKA_CFG_NUM_PARTITIONS                            num.partitions; wins over KAFKA_NUM_PARTITIONS
                    KAFKA_CLIENT_USERS, KAFKA_CLIENT_PASSWORDS,         users of PLAIN at each SASL listener; with _FILE
                    KAFKA_INTER_BROKER_USER, _PASSWORD                  at the end of a name, the value is in that file
                    KAFKA_TLS_CLIENT_AUTH                               ssl.client.auth
    Confluent       KAFKA_SSL_KEYSTORE_FILENAME and _CREDENTIALS, ...   of files in /etc/kafka/secrets, as apache/kafka
                    KAFKA_LISTENER_NAME_X_SCRAM__SHA__256_...           two underscores are a dash in a mechanism
    wurstmeister    KAFKA_CREATE_TOPICS                                 as --create-topics

A variable without effect that may be missed is named in one warning, with what to set instead. Left out in silence: the
options of JVMs, the identity of a quorum of controllers, and permission for what this broker permits anyway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from minibroker.broker.config.sasl import MECHANISMS, MODULES, OAUTHBEARER, PLAIN, SCRAM_MODULE
from minibroker.protocol.jaas import written_jaas
from minibroker.protocol.text import reason_of

CREATE_TOPICS = "KAFKA_CREATE_TOPICS"
CREATE_TOPICS_SEPARATOR = "KAFKA_CREATE_TOPICS_SEPARATOR"
CFG = "KAFKA_CFG_"
SECRETS = Path("/etc/kafka/secrets")

SILENT = {
    *(
        "KAFKA_VERSION",
        "KAFKA_HOME",
        "KAFKA_DEBUG",
        "KAFKA_HEAP_OPT",
        "KAFKA_HEAP_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
    ),
    *("KAFKA_JMX_PORT", "KAFKA_JMX_HOSTNAME", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_LOG4J_OPTS"),
    *("KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_LOG4J_LOGGERS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_LOG", CREATE_TOPICS),
    *("KAFKA_ENABLE_KRAFT", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_SKIP_KRAFT_STORAGE_INIT"),
    *("KAFKA_CONTROLLER_USER", "KAFKA_CONTROLLER_PASSWORD", CREATE_TOPICS_SEPARATOR),
}
USERS, PASSWORDS = "KAFKA_CLIENT_USERS", "KAFKA_CLIENT_PASSWORDS"
BROKERS_USER, BROKERS_PASSWORD = "KAFKA_INTER_BROKER_USER", "KAFKA_INTER_BROKER_PASSWORD"
OF_PASSWORDS = {*MECHANISMS} - {OAUTHBEARER}
OF_LOGINS = (USERS, PASSWORDS, BROKERS_USER, BROKERS_PASSWORD)

OF_KEY_STORES = "ssl.keystore.location, ssl.keystore.password and their like"
OF_ADDRESSES = "KAFKA_LISTENERS and KAFKA_ADVERTISED_LISTENERS"
OF_ZOOKEEPER = "--zookeeper"
ADDS_USERS = "`minibroker users add`"
# What has no effect, and what to use instead.
INSTEAD = {
    "HOSTNAME_COMMAND": "KAFKA_ADVERTISED_LISTENERS",
    "PORT_COMMAND": "KAFKA_ADVERTISED_LISTENERS",
    "BROKER_ID_COMMAND": "KAFKA_BROKER_ID",
    "RACK_COMMAND": "KAFKA_BROKER_RACK",
    "CUSTOM_INIT_SCRIPT": "a `command` of the container",
    "KAFKA_ADVERTISED_PROTOCOL_NAME": OF_ADDRESSES,
    "KAFKA_PROTOCOL_NAME": OF_ADDRESSES,
    "KAFKA_INTER_BROKER_PORT": OF_ADDRESSES,
    "KAFKA_PORT_NUMBER": OF_ADDRESSES,
    "KAFKA_CLIENT_LISTENER_NAME": OF_ADDRESSES,
    "KAFKA_EXTERNAL_LISTENER_NAME": OF_ADDRESSES,
    "KAFKA_CERTIFICATE_PASSWORD": OF_KEY_STORES,
    "KAFKA_TLS_TYPE": OF_KEY_STORES,
    "KAFKA_TLS_TRUSTSTORE_FILE": OF_KEY_STORES,
    "KAFKA_ZOOKEEPER_PROTOCOL": OF_ZOOKEEPER,
    "KAFKA_ZOOKEEPER_USER": OF_ZOOKEEPER,
    "KAFKA_ZOOKEEPER_PASSWORD": OF_ZOOKEEPER,
    "KAFKA_KRAFT_BOOTSTRAP_SCRAM_USERS": ADDS_USERS,
}
OF_ZOOKEEPERS_TLS = "KAFKA_ZOOKEEPER_TLS_"
OF_CONFLUENT = ("KAFKA_CONFLUENT_", "CONFLUENT_")
A_CLASS_OF_CONFLUENT = "io.confluent."
A_COMMANDS_RESULT = re.compile(r"_\{(?:HOSTNAME|PORT)_COMMAND\}")
SCRAM = re.compile(r"\.scram_sha_(256|512)\.")

# Names of files in SECRETS: `credentials` are files with a password.
FILES = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
}
CREDENTIALS = {
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
}

Found = dict[str, tuple[str, str]]  # the value and the variable of a setting


class VariableError(ValueError):
    """The broker cannot start with a variable; the message has its name, and what to do."""


def is_of_another_image(variable: str, value: str) -> bool:
    """Whether a variable that begins as a setting does is none."""
    return (
        variable in SILENT
        or variable in INSTEAD
        or variable in FILES
        or variable in CREDENTIALS
        or variable.removesuffix("_FILE") in OF_LOGINS
        or variable.startswith((CFG, OF_ZOOKEEPERS_TLS, *OF_CONFLUENT))
        or variable == "KAFKA_TLS_CLIENT_AUTH"
        or A_CLASS_OF_CONFLUENT in value
    )


def translated(environment: Mapping[str, str], found: Found) -> Found:
    """Return the settings `found` by the rule of apache/kafka, with those of other images' variables.

    Raises VariableError.
    """
    settings = {SCRAM.sub(r".scram-sha-\1.", name): each for name, each in found.items()}
    for variable, value in environment.items():
        if variable.startswith(CFG):
            settings[variable.removeprefix(CFG).lower().replace("_", ".")] = value, variable
        elif variable in FILES:
            settings[FILES[variable]] = str(SECRETS / value), variable
        elif variable in CREDENTIALS:
            settings[CREDENTIALS[variable]] = content_of(SECRETS / value, variable), variable
        elif variable == "KAFKA_TLS_CLIENT_AUTH":
            settings.setdefault("ssl.client.auth", (value, variable))
    for value, variable in settings.values():
        if A_COMMANDS_RESULT.search(value):
            raise VariableError(f"{variable}={value}: commands are not run; write the address itself")
    add_users(environment, settings)
    return settings


def add_users(environment: Mapping[str, str], settings: Found) -> None:
    """Have the users of bitnami's image log in by PLAIN at each SASL listener; those of SCRAM are in no setting."""
    users = accounts_of(environment)
    map_of_protocols = settings.get("listener.security.protocol.map", ("", ""))[0]
    protocols = dict(each.strip().split(":", 1) for each in map_of_protocols.split(",") if ":" in each)
    addresses = settings.get("listeners", ("", ""))[0].split(",")
    names = [each.partition("://")[0].strip() for each in addresses]
    secured = [each for each in names if protocols.get(each, each).startswith("SASL_")]
    if not users or not secured:
        return
    settings.setdefault("sasl.enabled.mechanisms", (PLAIN, USERS))
    settings.setdefault("sasl.mechanism.inter.broker.protocol", (PLAIN, USERS))
    own = own_account(environment)
    options_of = {PLAIN: own | {f"user_{name}": password for name, password in users.items()}}
    for mechanism in split(settings["sasl.enabled.mechanisms"][0]):
        if mechanism in OF_PASSWORDS:
            jaas = written_jaas(MODULES.get(mechanism, SCRAM_MODULE), options_of.get(mechanism, own))
            for name in secured:
                setting = f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"
                settings.setdefault(setting, (jaas, USERS))


def accounts_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The users and passwords of clients and of brokers. Raises VariableError."""
    users, passwords = (split(value_of(environment, each)) for each in (USERS, PASSWORDS))
    if len(users) != len(passwords):
        raise VariableError(f"{USERS} has {len(users)} users, {PASSWORDS} has {len(passwords)}: give each user one")
    own = own_account(environment)
    return dict(zip(users, passwords, strict=True)) | ({own["username"]: own["password"]} if own else {})


def own_account(environment: Mapping[str, str]) -> dict[str, str]:
    """The options of a login module by which the broker itself logs in; none if it has no user."""
    user, password = value_of(environment, BROKERS_USER), value_of(environment, BROKERS_PASSWORD)
    return {"username": user, "password": password} if user else {}


def value_of(environment: Mapping[str, str], variable: str) -> str:
    """The value of a variable, or the content of the file that VARIABLE_FILE names. Raises VariableError."""
    file = environment.get(f"{variable}_FILE")
    return environment.get(variable, "") if file is None else content_of(Path(file), f"{variable}_FILE")


def content_of(path: Path, variable: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise VariableError(f"{variable}: cannot read {path}: {reason_of(error)}") from error


def split(text: str) -> list[str]:
    return [each.strip() for each in re.split("[,;]", text) if each.strip()]


def warning_of_variables(environment: Mapping[str, str], settings: Found) -> str | None:
    """The line that names the variables without effect, and what to use instead; None if there are none."""
    instead: dict[str, list[str]] = {}
    for variable, value in sorted(environment.items()):
        if variable in INSTEAD:
            instead.setdefault(INSTEAD[variable], []).append(variable)
        elif variable.startswith(OF_ZOOKEEPERS_TLS):
            instead.setdefault(OF_ZOOKEEPER, []).append(variable)
        elif variable.startswith(OF_CONFLUENT) or (variable.startswith("KAFKA_") and A_CLASS_OF_CONFLUENT in value):
            instead.setdefault("", []).append(variable)
    if USERS in {variable for _, variable in settings.values()} and "SCRAM" in settings["sasl.enabled.mechanisms"][0]:
        instead.setdefault(f"{ADDS_USERS} for SCRAM", []).append(USERS)
    if not instead:
        return None
    parts = (", ".join(names) + (f" (use {use})" if use else "") for use, names in sorted(instead.items()))
    return f"variables of other images without effect here: {'; '.join(parts)}"
