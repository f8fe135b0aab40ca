"""The options that commands share, and how their values are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import typer

from minibroker.cli.address import Address, parse_address

BOOTSTRAP_VARIABLE = "MINIBROKER_BOOTSTRAP"


@dataclass(frozen=True)
class Bootstrap:
    """The addresses of a cluster's brokers that were given, in order."""

    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


DEFAULT_BOOTSTRAP = Bootstrap((Address("127.0.0.1", 9092),))


def parse_bootstrap(value: str | Bootstrap) -> Bootstrap:
    """Read addresses separated by commas; typer passes the default through here too."""
    try:
        return Bootstrap(tuple(parse_address(part) for part in str(value).strip().strip(",").split(",")))
    except ValueError as error:
        raise typer.BadParameter(f"{error}, such as {DEFAULT_BOOTSTRAP}") from error


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


Output = Literal["text", "json"]

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Text for people, or JSON for programs.")]
BootstrapOption = Annotated[
    Bootstrap,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        parser=parse_bootstrap,
        envvar=BOOTSTRAP_VARIABLE,
        help="A broker of the cluster, or several separated by commas.",
    ),
]


def show_help_if_alone(context: typer.Context) -> None:
    """Show the help of a command group that is given without a command; this is not an error."""
    if context.invoked_subcommand is None:
        print(context.get_help())
