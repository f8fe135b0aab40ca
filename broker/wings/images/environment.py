"""Reads settings from KAFKA_* environment variables, as the apache/kafka image does.

After `KAFKA_`, in lower case, `_` stands for a dot, `__` for an underscore, `___` for a dash:
KAFKA_LOG_RETENTION_MS is log.retention.ms. As kafka 4.0 KafkaDockerWrapper.getServerConfigsFromEnv. Variables of other
images, and of that one's JVM (such as KAFKA_HEAP_OPTS), are in other_images.py.

A compose file of one container for that image works here: node.id is broker.id, and KRaft's settings and the listeners
of controllers are left out, since this broker has no quorum. A quorum of several nodes is refused: each container would
be a cluster of its own.

In Kubernetes a pod has the addresses of the services in its namespace as variables. Those of a service `kafka` begin as
settings do (KAFKA_PORT=tcp://10.0.35.234:9092), and are none. As kubernetes 1.31 envvars.FromServices.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from minibroker.broker.config.kafka_config import ConfigError
from minibroker.broker.wings.images.other_images import (
    CFG,
    LISTENERS,
    is_of_another_image,
    note_of_variables,
    split,
    translated,
    warning_of_variables,
    with_values_of_files,
    without_defaults,
)

PREFIX = "KAFKA_"
OF_A_SERVICE = re.compile(r"KAFKA\w*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
ADDRESS_OF_A_SERVICE = re.compile(r"(tcp|udp|sctp)://.+:\d+")
UNDERSCORES = re.compile("_{1,3}")
STANDS_FOR = {1: ".", 2: "_", 3: "-"}
SCRAM = re.compile(r"\.scram_sha_(256|512)\.")
ROLES, CONTROLLER = "process.roles", "controller"
CONTROLLER_LISTENERS = "controller.listener.names"
# The nodes of a quorum: ID@HOST:PORT, or without ids.
QUORUMS = ("controller.quorum.voters", "controller.quorum.bootstrap.servers", "initial.controllers")
NODE = re.compile(r"([0-9]+)@")
A_CLUSTER = (
    "`serve --brokers 3` starts a cluster in one container (profile `cluster` of minibroker's docker-compose.yml)"
)


class EnvironmentSettings(NamedTuple):
    """The value and the variable of each setting, by its name; and what there is to say about other variables."""

    settings: dict[str, tuple[str, str]]
    warnings: list[str]
    notes: list[str]


def settings_of_environment(
    environment: Mapping[str, str], *, is_alone: bool = True, of_file: Collection[str] = ()
) -> EnvironmentSettings:
    """Read the settings in the environment. Raises ConfigError.

    `is_alone`: the broker is to be a cluster of its own. `of_file` are the names of settings in its file.
    """
    variables = with_values_of_files(
        {variable: value for variable, value in environment.items() if not is_of_a_service(variable, value)}
    )
    found = {
        setting_name(variable): (variables[variable], variable)
        for variable in sorted(variables, key=lambda each: each.startswith(CFG))
        if variable.startswith(PREFIX) and not is_of_another_image(variable, variables[variable])
    }
    settings = translated(variables, without_defaults(found, of_file))
    check_quorum(settings, is_alone=is_alone)
    warnings = filter(None, [warning_of_variables(variables, settings)])
    notes = filter(None, [note_of_variables(variables), note_of_services(environment)])
    return EnvironmentSettings(without_quorum(settings), list(warnings), list(notes))


def is_of_a_service(variable: str, value: str) -> bool:
    """Whether Kubernetes sets this variable for a service."""
    # `KAFKA_PORT=9092` is a setting.
    is_address = variable.endswith("_PORT") and ADDRESS_OF_A_SERVICE.fullmatch(value) is not None
    return is_address or OF_A_SERVICE.fullmatch(variable) is not None


def note_of_services(environment: Mapping[str, str]) -> str | None:
    """A line about the variables of services, if there are any."""
    names = [
        variable
        for variable, value in sorted(environment.items())
        if variable.startswith(PREFIX) and is_of_a_service(variable, value)
    ]
    if not names:
        return None
    return (
        f"{', '.join(names)}: no effect, Kubernetes sets them to addresses of services; "
        "`enableServiceLinks: false` keeps them out of a pod"
    )


def setting_name(variable: str) -> str:
    name = variable.removeprefix(CFG).removeprefix(PREFIX).lower()
    return SCRAM.sub(r".scram-sha-\1.", UNDERSCORES.sub(lambda match: STANDS_FOR[len(match[0])], name))


def check_quorum(found: Mapping[str, tuple[str, str]], *, is_alone: bool) -> None:
    """Raises ConfigError for a controller, and for a broker that is to be one of several."""

    def shown(name: str) -> str:
        value, source = found[name]
        return f"{source}={value}" if source.isidentifier() else f"{source}: {name}={value}"

    roles = split(found[ROLES][0]) if ROLES in found else []
    if roles == [CONTROLLER]:
        raise ConfigError(
            f"{shown(ROLES)}: a controller alone, which minibroker does not need: its brokers control themselves. "
            f"Remove it, and what waits for it. {A_CLUSTER}"
        )
    own = found.get("node.id") or found.get("broker.id")
    for name in QUORUMS if is_alone else ():
        nodes = {*split(found[name][0])} if name in found else set()
        others = {*NODE.findall(" ".join(nodes))} - ({own[0].strip()} if own else set())
        if len(nodes) > 1 or (nodes and own and others) or (nodes and roles and CONTROLLER not in roles):
            raise ConfigError(
                f"{shown(name)}: a quorum with other nodes, which minibroker does not join: each container would be a "
                f"cluster of its own. {A_CLUSTER}; for one broker leave the quorum out"
            )


def without_quorum(found: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Drop the settings of a quorum of controllers: this broker is its own controller.

    `found` has the value and the source of each setting: variables, or lines of a server.properties of Kafka 4.
    """
    controllers = {name.strip().upper() for name in found.get(CONTROLLER_LISTENERS, ("", ""))[0].split(",")}
    settings = {
        name: each
        for name, each in found.items()
        if name not in (ROLES, *QUORUMS) and not name.startswith(f"{CONTROLLER}.")
    }
    if "node.id" in settings:
        node_id = settings.pop("node.id")
        settings.setdefault("broker.id", node_id)
    for name in (LISTENERS, f"advertised.{LISTENERS}"):
        if name in settings:
            text, variable = settings[name]
            kept = [each for each in text.split(",") if each.partition("://")[0].strip().upper() not in controllers]
            settings[name] = ",".join(kept), variable
    return settings
