"""A position in a partition as a person writes it: `beginning`, `end`, an offset, a distance from either, a time.

Pure: `partition_offsets` asks a broker for the offset of a position. The notations are those of
kcat (`beginning`, `end`, `-5`) and of rpk (`start`, `+5`, `@TIME`, `@-1h`).
"""

from __future__ import annotations

import datetime
import re
import time
from typing import Literal, NamedTuple

from minibroker.errors import BadValue

Kind = Literal["beginning", "end", "offset", "time"]

WORDS: dict[str, Kind] = {
    **dict.fromkeys(("beginning", "start", "earliest"), "beginning"),
    **dict.fromkeys(("end", "latest"), "end"),
}
HOW = "beginning, end, an offset (42), -5 (five before the end), +5 (five after the beginning), @TIME, or @-1h"
OFFSET_MAX = 2**63 - 1
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
DURATION = re.compile(r"(?:[0-9]{1,12}(?:ms|[smhdw]))+")
PART_OF_DURATION = re.compile(r"([0-9]+)(ms|[smhdw])")


class Position(NamedTuple):
    """`value` is an offset, a time in ms since 1970, or the distance from the beginning (>= 0) or the end (<= 0)."""

    kind: Kind
    value: int = 0


BEGINNING = Position("beginning")
END = Position("end")


def parse_position(value: str | Position) -> Position:
    """Read a position; typer passes the default through here too. Raises BadValue."""
    if isinstance(value, Position):
        return value
    text = value.strip()
    try:
        if text in WORDS:
            return Position(WORDS[text])
        if text.startswith(("@", "s@")):
            return Position("time", parse_time_ms(text.partition("@")[2]))
        if text.startswith("-"):
            return Position("end", -whole_number(text[1:]))
        if text.startswith("+"):
            return Position("beginning", whole_number(text[1:]))
        return Position("offset", whole_number(text))
    except ValueError:
        from minibroker.protocol.guesses import next_step

        how = f"write {HOW}, such as @2013-01-01T06:00:00Z or @1357020000000"
        raise BadValue(f"{value!r} is not a position; {next_step(text, WORDS, how)}") from None


def whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > OFFSET_MAX:
        raise ValueError(text)
    return int(text)


def parse_time_ms(text: str) -> int:
    """ISO 8601, in local time unless it names a zone, milliseconds since 1970, or `-1h30m` ago. Raises ValueError."""
    if text.startswith("-"):
        return max(0, int(time.time() * 1000) - duration_ms(text[1:]))
    if text.isdecimal():
        return whole_number(text)
    milliseconds = datetime.datetime.fromisoformat(text).timestamp() * 1000
    if milliseconds < 0:
        raise ValueError(text)
    return int(milliseconds)


def duration_ms(text: str) -> int:
    """A duration as rpk and Go write it, such as 90s or 1h30m, also in days and weeks. Raises ValueError."""
    if not DURATION.fullmatch(text):
        raise ValueError(text)
    return sum(int(number) * UNITS_MS[unit] for number, unit in PART_OF_DURATION.findall(text))
