"""Variables of the images that people leave: bitnami's, Confluent's, wurstmeister's, and some of apache/kafka's.

    image           variables                                           here
    apache/kafka    KAFKA_OPTS=-Djava.security.auth.login.config=FILE   login modules of SASL listeners
                    KAFKA_ADVERTISED_LISTENERS, no KAFKA_LISTENERS      listens at their ports; as Confluent's
                    /mnt/shared/config/server.properties                as --config; bitnami's in /bitnami/kafka/config
    bitnami         KAFKA_CFG_NUM_PARTITIONS                            num.partitions; wins over KAFKA_NUM_PARTITIONS
                    KAFKA_CLIENT_USERS, KAFKA_CLIENT_PASSWORDS,         users of PLAIN at each SASL listener; with _FILE
                    KAFKA_INTER_BROKER_USER, _PASSWORD                  at the end of a name, the value is in that file
                    KAFKA_TLS_CLIENT_AUTH                               ssl.client.auth
    Confluent       KAFKA_SSL_KEYSTORE_FILENAME and _CREDENTIALS, ...   of files in /etc/kafka/secrets, as apache/kafka
                    KAFKA_LISTENER_NAME_A___B_SCRAM__SHA__256_...       two underscores are a dash, three an underscore
    wurstmeister    KAFKA_CREATE_TOPICS                                 as --create-topics

A variable without effect that may be missed is named in one warning, with what to set instead. A note names the others:
options of JVMs, logging, the identity of a quorum of controllers, and permission for what this broker permits anyway.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from minibroker.broker.config.kafka_config import ConfigError
from minibroker.broker.config.sasl import MECHANISMS, MODULES, OAUTHBEARER, PLAIN, SCRAM_MODULE
from minibroker.broker.config.settings.unused import JAAS_FILE
from minibroker.protocol.jaas import written_jaas
from minibroker.protocol.text import reason_of

CREATE_TOPICS = "KAFKA_CREATE_TOPICS"
CREATE_TOPICS_SEPARATOR = "KAFKA_CREATE_TOPICS_SEPARATOR"
CFG = "KAFKA_CFG_"
SECRETS = Path("/etc/kafka/secrets")

# Variables with options of the JVM, in the order of its command line: the last value of a property counts.
OF_THE_JVM = (
    *("JAVA_TOOL_OPTIONS", "KAFKA_HEAP_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_JMX_OPTS"),
    *("KAFKA_LOG4J_OPTS", "KAFKA_OPTS"),
)
JVM_OPTION = re.compile(r"(-D[^=]+|-javaagent)[=:](.*)")
HARMLESS = {
    *("KAFKA_VERSION", "KAFKA_HOME", "KAFKA_DEBUG", "KAFKA_HEAP_OPT", "KAFKA_LOG", "KAFKA_TOOLS_LOG4J_LOGLEVEL"),
    *(
        "KAFKA_ENABLE_KRAFT",
        "KAFKA_KRAFT_CLUSTER_ID",
        "KAFKA_CLUSTER_ID",
        "CLUSTER_ID",
        "KAFKA_SKIP_KRAFT_STORAGE_INIT",
    ),
    *("KAFKA_CONTROLLER_USER", "KAFKA_CONTROLLER_PASSWORD", "ALLOW_PLAINTEXT_LISTENER"),
}
OF_LOG4J = "KAFKA_LOG4J_"
USERS, PASSWORDS = "KAFKA_CLIENT_USERS", "KAFKA_CLIENT_PASSWORDS"
BROKERS_USER, BROKERS_PASSWORD = "KAFKA_INTER_BROKER_USER", "KAFKA_INTER_BROKER_PASSWORD"
OF_PASSWORDS = {*MECHANISMS} - {OAUTHBEARER}
OF_LOGINS = (USERS, PASSWORDS, BROKERS_USER, BROKERS_PASSWORD)
CLIENT_AUTH = "KAFKA_TLS_CLIENT_AUTH"
# With _FILE at the end they name a file with their value.
IN_FILES = (*OF_LOGINS, *OF_THE_JVM, CLIENT_AUTH)
NO_SETTINGS = {*OF_THE_JVM, *HARMLESS, *IN_FILES, CREATE_TOPICS, CREATE_TOPICS_SEPARATOR, "KAFKA_MOUNTED_CONF_DIR"}

OF_KEY_STORES = "ssl.keystore.location, ssl.keystore.password and their like"
OF_ADDRESSES = "KAFKA_LISTENERS and KAFKA_ADVERTISED_LISTENERS"
OF_ZOOKEEPER = "--zookeeper"
OF_METRICS = "`serve --metrics HOST:PORT`"
ADDS_USERS = "`minibroker users add`"
# What has no effect, and what to use instead.
INSTEAD = {
    "HOSTNAME_COMMAND": "KAFKA_ADVERTISED_LISTENERS",
    "PORT_COMMAND": "KAFKA_ADVERTISED_LISTENERS",
    "BROKER_ID_COMMAND": "KAFKA_BROKER_ID",
    "RACK_COMMAND": "KAFKA_BROKER_RACK",
    "CUSTOM_INIT_SCRIPT": "a `command` of the container",
    "KAFKA_JMX_PORT": OF_METRICS,
    "KAFKA_JMX_HOSTNAME": OF_METRICS,
    "JMX_PORT": OF_METRICS,
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
JVM_INSTEAD = {"-javaagent": OF_METRICS, "-Djava.security.krb5.conf": "the mechanism PLAIN or SCRAM"}
OF_ZOOKEEPERS_TLS = "KAFKA_ZOOKEEPER_TLS_"
OF_CONFLUENT = ("KAFKA_CONFLUENT_", "CONFLUENT_")
A_CLASS_OF_CONFLUENT = "io.confluent."
A_COMMANDS_RESULT = re.compile(r"_\{(?:HOSTNAME|PORT)_COMMAND\}")

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

LISTENERS, LOG_DIRS = "listeners", "log.dirs"
ADVERTISED_VARIABLE = "KAFKA_ADVERTISED_LISTENERS"
# Set by this project's Dockerfile; no choice of the user's, who may choose by other settings.
OF_THE_DOCKERFILE = {
    LISTENERS: ("PLAINTEXT://0.0.0.0:9092", "KAFKA_LISTENERS"),
    LOG_DIRS: ("/var/lib/minibroker", "KAFKA_LOG_DIRS"),
}
CHOSEN_BY = {LISTENERS: {LISTENERS, "host.name", "port"}, LOG_DIRS: {LOG_DIRS, "log.dir"}}
HOST = re.compile("://[^,]*:")
MOUNTED_FILE = "server.properties"
MOUNTED_IN = ("/mnt/shared/config", "/bitnami/kafka/config")

Found = dict[str, tuple[str, str]]  # the value and the variable of a setting


def is_of_another_image(variable: str, value: str) -> bool:
    """Whether a variable that begins as a setting does is none."""
    return (
        variable in NO_SETTINGS
        or variable in INSTEAD
        or variable in FILES
        or variable in CREDENTIALS
        or variable.startswith((OF_LOG4J, OF_ZOOKEEPERS_TLS, *OF_CONFLUENT))
        or A_CLASS_OF_CONFLUENT in value
    )


def with_values_of_files(environment: Mapping[str, str]) -> dict[str, str]:
    """Replace variables that name a file by those whose value it has. Raises ConfigError."""
    values = dict(environment)
    for variable in IN_FILES:
        file = values.pop(f"{variable}_FILE", None)
        if file is not None:
            values[variable] = content_of(Path(file), f"{variable}_FILE")
    return values


def mounted_file(environment: Mapping[str, str]) -> Path | None:
    """The server.properties that a user of another image mounts into its container."""
    folders = (*MOUNTED_IN, environment.get("KAFKA_MOUNTED_CONF_DIR", MOUNTED_IN[0]))
    return next((file for folder in folders if (file := Path(folder, MOUNTED_FILE)).is_file()), None)


def without_defaults(found: Found, of_file: Collection[str]) -> Found:
    """Leave out what this image sets by itself, where the user or a file chooses."""
    own = {name for name, each in found.items() if OF_THE_DOCKERFILE.get(name) == each}
    chosen = {*of_file, *found.keys() - own}
    return {name: each for name, each in found.items() if name not in own or not chosen & CHOSEN_BY[name]}


def translated(environment: Mapping[str, str], found: Found) -> Found:
    """Return the settings `found` by the rule of apache/kafka, with those of other images' variables.

    Raises ConfigError.
    """
    settings = dict(found)
    for variable, value in environment.items():
        if variable in FILES:
            settings[FILES[variable]] = str(SECRETS / value), variable
        elif variable in CREDENTIALS:
            settings[CREDENTIALS[variable]] = content_of(SECRETS / value, variable), variable
        elif variable == CLIENT_AUTH:
            settings.setdefault("ssl.client.auth", (value, variable))
    for value, variable in settings.values():
        if A_COMMANDS_RESULT.search(value):
            raise ConfigError(f"{variable}={value}: commands are not run; write the address itself")
    for option, value, variable in jvm_options(environment):
        if option == f"-D{JAAS_FILE}":
            settings[JAAS_FILE] = value, variable
    add_listeners(environment, settings)
    add_users(environment, settings)
    return with_names_of_listeners(settings)


def jvm_options(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The options with a value in the variables that have some: the option, the value and the variable."""
    for variable in OF_THE_JVM:
        for option in map(JVM_OPTION.fullmatch, environment.get(variable, "").split()):
            if option is not None:
                yield option[1], option[2], variable


def add_listeners(environment: Mapping[str, str], settings: Found) -> None:
    """Listen at the advertised ports, unless the user says where."""
    default = OF_THE_DOCKERFILE[LISTENERS]
    advertised = environment.get(ADVERTISED_VARIABLE)
    if advertised and settings.get(LISTENERS, default) == default and not settings.keys() & {"host.name", "port"}:
        settings[LISTENERS] = HOST.sub("://0.0.0.0:", advertised), ADVERTISED_VARIABLE


def names_of_listeners(settings: Found) -> list[str]:
    return [each.partition("://")[0].strip() for each in settings.get(LISTENERS, ("", ""))[0].split(",")]


def with_names_of_listeners(settings: Found) -> Found:
    """Give `listener.name.A-B`, which Confluent's image writes with three underscores, the listener's name `A_B`."""
    for name in map(str.lower, names_of_listeners(settings)):
        written, meant = (f"listener.name.{each}." for each in (name.replace("_", "-"), name))
        settings = {
            meant + each.removeprefix(written) if each.startswith(written) else each: value
            for each, value in settings.items()
        }
    return settings


def add_users(environment: Mapping[str, str], settings: Found) -> None:
    """Have the users of bitnami's image log in by PLAIN at each SASL listener; those of SCRAM are in no setting."""
    users = accounts_of(environment)
    map_of_protocols = settings.get("listener.security.protocol.map", ("", ""))[0]
    protocols = dict(each.strip().split(":", 1) for each in map_of_protocols.split(",") if ":" in each)
    secured = [each for each in names_of_listeners(settings) if protocols.get(each, each).startswith("SASL_")]
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
    """The users and passwords of clients and of brokers. Raises ConfigError."""
    users, passwords = (split(environment.get(each, "")) for each in (USERS, PASSWORDS))
    if len(users) != len(passwords):
        raise ConfigError(f"{USERS} has {len(users)} users, {PASSWORDS} has {len(passwords)}: give each user one")
    own = own_account(environment)
    return dict(zip(users, passwords, strict=True)) | ({own["username"]: own["password"]} if own else {})


def own_account(environment: Mapping[str, str]) -> dict[str, str]:
    """The options of a login module by which the broker itself logs in; none if it has no user."""
    user = environment.get(BROKERS_USER)
    return {"username": user, "password": environment.get(BROKERS_PASSWORD, "")} if user else {}


def content_of(path: Path, variable: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{variable}: cannot read {path}: {reason_of(error)}") from error


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
    for option, _, variable in jvm_options(environment):
        if option in JVM_INSTEAD:
            instead.setdefault(JVM_INSTEAD[option], []).append(f"{variable} {option}")
    if USERS in {variable for _, variable in settings.values()} and "SCRAM" in settings["sasl.enabled.mechanisms"][0]:
        instead.setdefault(f"{ADDS_USERS} for SCRAM", []).append(USERS)
    if not instead:
        return None
    parts = (", ".join(names) + (f" (use {use})" if use else "") for use, names in sorted(instead.items()))
    return f"variables of other images without effect here: {'; '.join(parts)}"


def note_of_variables(environment: Mapping[str, str]) -> str | None:
    """The line that names the variables that nobody misses; None if there are none."""
    names = [each for each in sorted(environment) if each in HARMLESS or each.startswith(OF_LOG4J)]
    for variable in OF_THE_JVM:
        options = [option for option, _, its in jvm_options(environment) if its == variable]
        without_effect = [each for each in options if each not in JVM_INSTEAD and each != f"-D{JAAS_FILE}"]
        if without_effect:
            names.append(f"{variable} ({', '.join(without_effect)})")
        elif variable in environment and not options:
            names.append(variable)
    return (
        f"{', '.join(names)}: no effect, this broker has no JVM, and an id of its own for its cluster"
        if names
        else None
    )
