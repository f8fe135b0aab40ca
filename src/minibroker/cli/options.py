"""The values of options that commands share, and how they are read; `parameters` declares the options."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import typer

from minibroker.any_cluster.bootstrap import Setting
from minibroker.errors import BadValue

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
HEX_DIGITS = 2
NUMBER_OR_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
RANGE_MAX = 100_000

Output = Literal["text", "json"]


def parse_header(text: str) -> Setting:
    """NAME=VALUE in two parts, the value as it stands."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadValue(f"{text!r} is not NAME=VALUE, such as source=tower")
    return Setting(name, value)


def parse_delimiter(text: str | bytes) -> bytes:
    r"""Read text with \n, \t, \r, \0, \\ and \xNN. Raises BadValue."""
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
            raise BadValue(f"{text!r} has an escape other than \\n, \\t, \\r, \\0, \\\\ and \\xNN") from None
        delimiter += os.fsencode(rest)
    if not delimiter:
        raise BadValue("a delimiter has at least one byte")
    return delimiter


class Partitions(NamedTuple):
    numbers: tuple[int, ...]


def parse_partitions(text: str) -> Partitions:
    """Read numbers and ranges of them, such as 0,2-4. Raises BadValue."""
    numbers: list[int] = []
    for part in text.split(","):
        found = NUMBER_OR_RANGE.fullmatch(part.strip())
        if found is None:
            raise BadValue(f"{text!r} is not a partition, or several such as 0,2-4")
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < first + RANGE_MAX:
            raise BadValue(f"{text!r} has a range of {RANGE_MAX} partitions or more, or from high to low")
        numbers += range(first, last + 1)
    return Partitions(tuple(numbers))


class BrokerIds(NamedTuple):
    ids: tuple[int, ...]


def parse_broker_ids(text: str) -> BrokerIds:
    """Read the ids of brokers in an order, such as 2,3,1. Raises BadValue."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() for part in parts) or len(set(parts)) < len(parts):
        raise BadValue(f"{text!r} is not the ids of brokers, each once, such as 2,3,1")
    return BrokerIds(tuple(map(int, parts)))


def numbers_of(given: Sequence[Partitions] | None) -> list[int]:
    """The partitions that options name, each once, in order."""
    return sorted({number for each in given or () for number in each.numbers})


def noun(**texts: str) -> typer.Typer:
    """Make a group of commands, whose help is shown for the noun alone."""
    app = typer.Typer(**texts)  # type: ignore[arg-type]
    app.callback(invoke_without_command=True)(show_help_if_alone)
    return app


def show_help_if_alone(context: typer.Context) -> None:
    """Show the help of a command group that is given without a command; this is not an error."""
    if context.invoked_subcommand is None:
        print(context.get_help())
