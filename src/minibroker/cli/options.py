"""The values of options that commands share, and how they are read; `parameters` declares the options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import typer

from minibroker.cli.address import Address, parse_address

BOOTSTRAP_VARIABLE = "MINIBROKER_BOOTSTRAP"
BOOTSTRAP_PROPERTY = "bootstrap.servers"
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
HEX_DIGITS = 2

Output = Literal["text", "json"]
Properties = Mapping[str, str]


@dataclass(frozen=True)
class Cluster:
    """The addresses of a cluster's brokers in the order given, and client properties under Kafka's names."""

    addresses: tuple[Address, ...]
    properties: Properties = field(default_factory=dict)

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


DEFAULT_CLUSTER = Cluster((Address("127.0.0.1", 9092),))


def parse_bootstrap(value: str) -> Cluster:
    """Read addresses separated by commas. Raises typer.BadParameter."""
    try:
        return Cluster(tuple(parse_address(part) for part in value.strip().strip(",").split(",")))
    except ValueError as error:
        raise typer.BadParameter(f"{error}, such as {DEFAULT_CLUSTER}") from error


class Setting(NamedTuple):
    key: str
    value: str


def parse_setting(text: str) -> Setting:
    """KEY=VALUE in two parts."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as retention.ms=60000")
    return Setting(key.strip(), value.strip())


def parse_header(text: str) -> Setting:
    """NAME=VALUE in two parts, the value as it stands."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE, such as source=tower")
    return Setting(name, value)


def parse_delimiter(text: str | bytes) -> bytes:
    r"""Read text with \n, \t, \r, \0, \\ and \xNN. Raises typer.BadParameter."""
    if isinstance(text, bytes):
        return text
    head, *parts = text.replace("\\\\", "\\x5c").split("\\")
    delimiter = os.fsencode(head)
    for part in parts:
        try:
            if part.startswith("x"):
                delimiter += bytes.fromhex(part[1 : 1 + HEX_DIGITS].ljust(HEX_DIGITS, "-"))
                rest = part[1 + HEX_DIGITS :]
            else:
                delimiter += ESCAPES[part[:1]].encode()
                rest = part[1:]
        except (KeyError, ValueError):
            raise typer.BadParameter(f"{text!r} has an escape other than \\n, \\t, \\r, \\0, \\\\ and \\xNN") from None
        delimiter += os.fsencode(rest)
    if not delimiter:
        raise typer.BadParameter("a delimiter has at least one byte")
    return delimiter


def read_properties(path: Path) -> dict[str, str]:
    """The properties of a file, as Java's clients read it. Raises typer.BadParameter for an unreadable file."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        from minibroker.protocol.text import reason_of

        raise typer.BadParameter(f"cannot read {path}: {reason_of(error)}") from error
    properties = {}
    line = ""
    for part in text.splitlines():
        line += part.lstrip()
        if line.startswith(("#", "!")):
            line = ""
        elif line.endswith("\\") and not line.endswith("\\\\"):
            line = line[:-1]
        else:
            name, equals, value = line.partition("=")
            if equals:
                properties[name.strip()] = value.strip().replace("\\\\", "\\")
            line = ""
    return properties


def cluster_of(
    bootstrap: Cluster | None, settings: list[Setting] | None = None, command_config: Path | None = None
) -> Cluster:
    """The cluster that the options name: the command line before the file, both before the environment.

    Raises typer.BadParameter.
    """
    properties = {} if command_config is None else read_properties(command_config)
    properties.update(settings or ())
    named = properties.pop(BOOTSTRAP_PROPERTY, None) or os.environ.get(BOOTSTRAP_VARIABLE)
    if bootstrap is None:
        bootstrap = parse_bootstrap(named) if named else DEFAULT_CLUSTER
    return replace(bootstrap, properties=properties)


def show_help_if_alone(context: typer.Context) -> None:
    """Show the help of a command group that is given without a command; this is not an error."""
    if context.invoked_subcommand is None:
        print(context.get_help())
