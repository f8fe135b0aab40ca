"""The pairs of schemas in compatibility.txt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROW = re.compile(r"(?P<kind>AVRO|JSON|PROTOBUF) (?P<title>.*): (?P<verdict>BF|B|F|-)(?: (?P<field>\S+))?")


class Pair(NamedTuple):
    kind: str
    title: str
    verdict: str
    field: str | None
    old: str
    new: str


def pairs() -> list[Pair]:
    found = []
    lines = (Path(__file__).parent / "compatibility.txt").read_text().splitlines()
    for place, line in enumerate(lines):
        if row := ROW.fullmatch(line):
            found.append(
                Pair(*row.groups(), *(each.strip().replace("\\n", "\n") for each in lines[place + 1 : place + 3]))
            )
    return found
