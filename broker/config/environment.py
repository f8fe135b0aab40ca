"""Reads settings from KAFKA_* environment variables, as the apache/kafka image does.

After `KAFKA_`, in lower case, `_` stands for a dot, `__` for an underscore, `___` for a dash:
KAFKA_LOG_RETENTION_MS is log.retention.ms. As kafka 4.0 KafkaDockerWrapper.getServerConfigsFromEnv. Variables of other
images, and of that one's JVM (such as KAFKA_HEAP_OPTS), are in other_images.py.

A compose file for that image works here: KRaft's settings and the controllers' listeners are left out, since this
broker has no quorum of controllers, and node.id is broker.id.

In Kubernetes a pod has the addresses of the services in its namespace as variables. Those of a service `kafka` begin as
settings do (KAFKA_PORT=tcp://10.0.35.234:9092), and are none. As kubernetes 1.31 envvars.FromServices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from minibroker.broker.config.other_images import is_of_another_image, translated, warning_of_variables

PREFIX = "KAFKA_"
OF_A_SERVICE = re.compile(r"KAFKA\w*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
ADDRESS_OF_A_SERVICE = re.compile(r"(tcp|udp|sctp)://.+:\d+")
UNDERSCORES = re.compile("_{1,3}")
STANDS_FOR = {1: ".", 2: "_", 3: "-"}
CONTROLLER_LISTENERS = "controller.listener.names"
LISTENERS = "listeners"


class EnvironmentSettings(NamedTuple):
    """The value and the variable of each setting, by its name; and what there is to say about other variables."""

    settings: dict[str, tuple[str, str]]
    warnings: list[str]
    notes: list[str]


def settings_of_environment(environment: Mapping[str, str]) -> EnvironmentSettings:
    """Read the settings in the environment. Raises VariableError."""
    variables = {variable: value for variable, value in environment.items() if not is_of_a_service(variable, value)}
    found = {
        setting_name(variable): (value, variable)
        for variable, value in variables.items()
        if variable.startswith(PREFIX) and not is_of_another_image(variable, value)
    }
    settings = translated(variables, found)
    warning, note = warning_of_variables(variables, settings), note_of_services(environment)
    return EnvironmentSettings(
        without_quorum(settings), [] if warning is None else [warning], [] if note is None else [note]
    )


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
    name = variable.removeprefix(PREFIX).lower()
    return UNDERSCORES.sub(lambda match: STANDS_FOR[len(match[0])], name)


def without_quorum(found: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Drop the settings of a quorum of controllers: this broker is its own controller.

    `found` has the value and the source of each setting: variables, or lines of a server.properties of Kafka 4.
    """
    controllers = {name.strip().upper() for name in found.get(CONTROLLER_LISTENERS, ("", ""))[0].split(",")}
    settings = {
        name: each for name, each in found.items() if name != "process.roles" and not name.startswith("controller.")
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
