"""A record as `minibroker consume` prints it: as JSON, or in a format string of kcat or rpk (`%k: %v\\n`)."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from minibroker.errors import BadValue
from minibroker.protocol.record import NO_TIMESTAMP
from minibroker.protocol.text import header_name_shown, shown

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
TOKEN = re.compile(
    r"%(?P<percent>%)|%(?P<field>.?)(?:\{(?P<encoding>\w*)\})?|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)",
    re.DOTALL,
)
FIELDS_HELP = (
    "%t topic, %p partition, %o offset, %k key, %v or %s value, %h headers, %T or %d timestamp in ms, "
    "%K, %V and %S the sizes of key and value, %R the size of the value as 4 bytes, %H the number of headers, "
    "%e leader epoch, %% a percent sign; %k and %v also as %k{hex}, %v{base64}; \\x7b is a brace behind a field"
)
NULL = b"NULL"  # a header's value, as kcat prints it
BINARY_SIZE = struct.Struct(">i")  # kcat's %R
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
    leader_epoch: int = -1


Render = Callable[[Any], bytes]
Encode = Callable[[bytes], bytes]


class Access(NamedTuple):
    """How to get each field of a record, which is an attribute with one client and a method with another."""

    topic: Callable[[Any], Any]
    partition: Callable[[Any], Any]
    offset: Callable[[Any], Any]
    timestamp: Callable[[Any], Any]
    key: Callable[[Any], Any]
    value: Callable[[Any], Any]
    headers: Callable[[Any], Any]
    leader_epoch: Callable[[Any], Any]


ATTRIBUTES = Access(*map(attrgetter, Access._fields))._replace(
    timestamp=lambda record: NO_TIMESTAMP if record.timestamp is None else record.timestamp
)


def json_renderer(access: Access = ATTRIBUTES) -> Render:
    """A function that renders a record as a line of JSON, which `minibroker produce --json` reads."""

    def as_json(record: Any) -> bytes:
        row = {
            "topic": access.topic(record),
            "partition": access.partition(record),
            "offset": access.offset(record),
            "timestamp": access.timestamp(record),
            "key": shown(access.key(record)),
            "value": shown(access.value(record)),
            "headers": [[header_name_shown(name), shown(value)] for name, value in access.headers(record)],
        }
        # The name of a header may be no UTF-8: its bytes are surrogates, which JSON escapes.
        return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"

    return as_json


as_json = json_renderer()


def fields_of(access: Access) -> dict[str, Render]:
    """The fields of a format: kcat's letters, and rpk's where kcat has none."""
    topic, partition, offset, timestamp, key, value, headers, leader_epoch = access

    def headers_text(record: Any) -> bytes:
        return b",".join(
            name.encode(errors="surrogateescape") + b"=" + (NULL if data is None else data)
            for name, data in headers(record)
        )

    fields: dict[str, Render] = {
        "t": lambda record: str(topic(record)).encode(),
        "p": lambda record: b"%d" % partition(record),
        "o": lambda record: b"%d" % offset(record),
        "k": lambda record: key(record) or b"",
        "v": lambda record: value(record) or b"",
        "h": headers_text,
        "T": lambda record: b"%d" % timestamp(record),
        "K": lambda record: b"%d" % size_of(key(record)),
        "V": lambda record: b"%d" % size_of(value(record)),
        "R": lambda record: BINARY_SIZE.pack(size_of(value(record))),
        "H": lambda record: b"%d" % len(headers(record)),
        "e": lambda record: b"%d" % leader_epoch(record),
    }
    return fields | {"s": fields["v"], "d": fields["T"], "S": fields["V"]}


BYTES_FIELDS = ("k", "v", "s")
ENCODINGS: dict[str, Encode] = {"hex": lambda data: data.hex().encode(), "base64": base64.b64encode}


def size_of(data: bytes | None) -> int:
    """The size in bytes; -1 for None, as on the wire."""
    return -1 if data is None else len(data)


def compile_format(text: str, access: Access = ATTRIBUTES) -> Render:
    """A function that renders a record in this format. Raises BadValue."""
    fields = fields_of(access)
    parts = [part_of(match, fields) for match in TOKEN.finditer(text)]
    if len(parts) == 2 and callable(parts[0]) and isinstance(parts[1], bytes):  # such as `%v\\n`, the default
        field, end = parts[0], parts[1]
        return lambda record: field(record) + end
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])


def part_of(token: re.Match[str], fields: dict[str, Render]) -> bytes | Render:
    if token["text"] is not None:
        return token["text"].encode(errors="surrogateescape")
    if token["percent"] is not None:
        return b"%"
    if token["hex"] is not None:
        return bytes.fromhex(token["hex"])
    known: dict[str, Any] = ESCAPES if token["escape"] is not None else fields
    name = token["escape"] if token["escape"] is not None else token["field"]
    encoding = token["encoding"]
    if name not in known or (encoding is not None and (name not in BYTES_FIELDS or encoding not in ENCODINGS)):
        raise BadValue(f"{token[0]!r} is not a format token; the tokens are {FIELDS_HELP}, \\n, \\t, \\xNN")
    part: bytes | Render = known[name]
    return part if encoding is None else encoded(known[name], ENCODINGS[encoding])


def encoded(field: Render, encode: Encode) -> Render:
    return lambda record: encode(field(record))


def harmless(line: bytes) -> bytes:
    """The line with what a terminal would interpret escaped."""
    return CONTROL.sub(lambda match: f"\\x{match[0][-1]:02x}".encode(), line)
