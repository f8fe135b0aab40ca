"""Names a cluster: the addresses of its brokers, and the properties of the clients that connect to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from minibroker.client.address import Address, parse_address
from minibroker.errors import BadValue

BOOTSTRAP_VARIABLE = "MINIBROKER_BOOTSTRAP"
BOOTSTRAP_PROPERTY = "bootstrap.servers"
Properties = Mapping[str, str]


@dataclass(frozen=True)
class Cluster:
    """The addresses of a cluster's brokers in the order given, and client properties under Kafka's names."""

    addresses: tuple[Address, ...]
    properties: Properties = field(default_factory=dict)

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


DEFAULT_PORT = 9092
DEFAULT_CLUSTER = Cluster((Address("127.0.0.1", DEFAULT_PORT),))


def parse_bootstrap(value: str) -> Cluster:
    """Read addresses separated by commas; the default port is Kafka's. Raises BadValue."""
    try:
        parts = value.strip().strip(",").split(",")
        return Cluster(tuple(parse_address(part, default_port=DEFAULT_PORT) for part in parts))
    except ValueError as error:
        raise BadValue(f"{error}, such as {DEFAULT_CLUSTER}") from error


class Setting(NamedTuple):
    key: str
    value: str


def parse_setting(text: str) -> Setting:
    """KEY=VALUE in two parts."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise BadValue(f"{text!r} is not KEY=VALUE, such as retention.ms=60000")
    return Setting(key.strip(), value.strip())


def read_client_properties(path: Path) -> dict[str, str]:
    """The properties of a file, as Java's clients read it. Raises BadValue for an unreadable file."""
    from minibroker.protocol.java_properties import PropertiesError, read_properties
    from minibroker.protocol.text import reason_of

    try:
        properties = read_properties(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(f"cannot read {path}: {reason_of(error)}") from error
    except PropertiesError as error:
        raise BadValue(f"{path}: {error}; correct it") from None
    return {name: value.strip() for name, value in properties.items()}


def cluster_of(
    bootstrap: Cluster | None, settings: list[Setting] | None = None, command_config: Path | None = None
) -> Cluster:
    """The cluster that the options name: the command line before the file, both before the environment.

    Raises BadValue.
    """
    properties = {} if command_config is None else read_client_properties(command_config)
    properties.update(settings or ())
    named = properties.pop(BOOTSTRAP_PROPERTY, None) or os.environ.get(BOOTSTRAP_VARIABLE)
    if bootstrap is None:
        bootstrap = parse_bootstrap(named) if named else DEFAULT_CLUSTER
    return replace(bootstrap, properties=properties)
