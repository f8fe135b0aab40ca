"""A record as `minibroker consume` prints it: in a format string, which is kcat's (`%k: %v\\n`), or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import typer

from minibroker.protocol.text import shown

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
TOKEN = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)
FIELDS_HELP = "%t topic, %p partition, %o offset, %k key, %v value, %h headers, %T timestamp, %K and %V their sizes, %%"
# What a terminal would interpret, except newline and tab.
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


class ShownRecord(NamedTuple):
    """A record from a topic; kafka-python's records have these names too."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


Render = Callable[[Any], bytes]


def as_json(record: Any) -> bytes:
    """A record as a line of JSON, which `minibroker produce --json` reads."""
    row = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [[name, shown(value)] for name, value in record.headers],
    }
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def headers_text(record: Any) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


FIELDS: dict[str, Render] = {
    "t": lambda record: str(record.topic).encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "h": headers_text,
    "T": lambda record: b"%d" % record.timestamp,
    "K": lambda record: b"%d" % size_of(record.key),
    "V": lambda record: b"%d" % size_of(record.value),
    "S": lambda record: b"%d" % size_of(record.value),
    "%": lambda record: b"%",
}


def size_of(data: bytes | None) -> int:
    """The size in bytes; -1 for None, as on the wire."""
    return -1 if data is None else len(data)


def compile_format(text: str) -> Render:
    """A function that renders a record in this format. Raises typer.BadParameter."""
    parts = [part_of(match) for match in TOKEN.finditer(text)]
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def part_of(token: re.Match[str]) -> bytes | Render:
    if token["text"] is not None:
        return token["text"].encode()
    if token["hex"] is not None:
        return bytes.fromhex(token["hex"])
    known: dict[str, Any] = ESCAPES if token["escape"] is not None else FIELDS
    name = token["escape"] if token["escape"] is not None else token["field"]
    if name not in known:
        raise typer.BadParameter(f"{token[0]!r} is not a format token; the tokens are {FIELDS_HELP}, \\n, \\t, \\xNN")
    part: bytes | Render = known[name]
    return part


def harmless(line: bytes) -> bytes:
    """The line with what a terminal would interpret escaped."""
    return CONTROL.sub(lambda match: f"\\x{match[0][-1]:02x}".encode(), line)
