"""The values of options that commands share, and how they are read; `parameters` declares the options."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import typer

from minibroker.cli.address import Address, parse_address

BOOTSTRAP_VARIABLE = "MINIBROKER_BOOTSTRAP"
BOOTSTRAP_PROPERTY = "bootstrap.servers"
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
HEX_DIGITS = 2
NUMBER_OR_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
RANGE_MAX = 100_000

Output = Literal["text", "json"]
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
    """Read addresses separated by commas; the default port is Kafka's. Raises typer.BadParameter."""
    try:
        parts = value.strip().strip(",").split(",")
        return Cluster(tuple(parse_address(part, default_port=DEFAULT_PORT) for part in parts))
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


Encoding = Literal["text", "hex", "base64"]


def decode(data: bytes, encoding: Encoding) -> bytes:
    """The bytes that are written so. Raises ValueError."""
    if encoding == "hex":
        return bytes.fromhex(data.decode("ascii"))
    return base64.b64decode(data, validate=True) if encoding == "base64" else data


class Partitions(NamedTuple):
    numbers: tuple[int, ...]


def parse_partitions(text: str) -> Partitions:
    """Read numbers and ranges of them, such as 0,2-4. Raises typer.BadParameter."""
    numbers: list[int] = []
    for part in text.split(","):
        found = NUMBER_OR_RANGE.fullmatch(part.strip())
        if found is None:
            raise typer.BadParameter(f"{text!r} is not a partition, or several such as 0,2-4")
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < first + RANGE_MAX:
            raise typer.BadParameter(f"{text!r} has a range of {RANGE_MAX} partitions or more, or from high to low")
        numbers += range(first, last + 1)
    return Partitions(tuple(numbers))


def numbers_of(given: Sequence[Partitions] | None) -> list[int]:
    """The partitions that options name, each once, in order."""
    return sorted({number for each in given or () for number in each.numbers})


def read_properties(path: Path) -> dict[str, str]:
    """The properties of a file, as Java's clients read it. Raises typer.BadParameter for an unreadable file."""
    try:
        text = path.read_text("utf-8-sig")
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
