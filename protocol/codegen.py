"""Straight-line codecs, generated from a message's fields: 36 to 75 times faster than interpreting them.

Neighbouring fixed-size fields, and the length or count in front of what follows them, become one `struct` call;
rows of fixed size become one `iter_unpack`. The generated source has no loop over fields and no test of versions.
Flexible versions keep to that: a varint is read and written as the one byte it nearly always is, together with its
neighbours, and so is the count of tagged fields, nearly always 0.

This is what both directions share; `codegen_decoder.py` and `codegen_encoder.py` write the statements.
"""

from __future__ import annotations

import struct
from typing import Any

from minibroker.protocol.primitives import LARGEST_VARINT, LONGEST_STRING_BYTES, Sized, as_int32, format_of

# An unsigned varint by its bytes: the last, and those that another follows.
LAST_BYTE = [bytes((value,)) for value in range(0x80)]
BYTE_BEFORE = [bytes((value,)) for value in range(0x80, 0x100)]


class Malformed(Exception):
    """Raised by generated decoders; the caller makes the message."""


def malformed(reason: str) -> None:
    raise Malformed(reason)


def read_uvarint(buffer: Any, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position behind it."""
    value, position = read_length(buffer, position)
    if value < 0:
        raise Malformed("length out of range")
    return value, position


def read_length(buffer: Any, position: int) -> tuple[int, int]:
    """A length + 1, and the position behind it. Beyond the greatest it is negative, as Kafka reads 32 bits: null."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > LARGEST_VARINT:
                value = as_int32(value)
            return value, position
        shift += 7
        if shift > 28:
            raise Malformed("varint too long")


def read_string_length(buffer: Any, position: int) -> tuple[int, int]:
    """The length + 1 of a string. Its bound is that of other versions, as in Kafka 2.4."""
    value, position = read_length(buffer, position)
    if value - 1 > LONGEST_STRING_BYTES:
        raise Malformed("string too long")
    return value, position


def write_uvarint(value: int) -> bytes:
    if value < 0x80:
        return LAST_BYTE[value]
    if value < 0x4000:
        return BYTE_BEFORE[value & 0x7F] + LAST_BYTE[value >> 7]
    if value < 0x200000:
        return BYTE_BEFORE[value & 0x7F] + BYTE_BEFORE[value >> 7 & 0x7F] + LAST_BYTE[value >> 14]
    return BYTE_BEFORE[value & 0x7F] + write_uvarint(value >> 7)


def skip_tagged_fields(buffer: Any, position: int, end: int) -> int:
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if size > end - position:
            raise Malformed("tagged field too long")
        position += size
    return position


def records_size(records: Any) -> int:
    """Bytes of a payload: bytes-like, or anything with `size_bytes`."""
    # `getattr` would make an AttributeError first, and `bytes | memoryview` an object each time.
    if isinstance(records, (bytes, memoryview)):
        return len(records)
    size = getattr(records, "size_bytes", None)
    return len(records) if size is None else size


class Source:
    """Lines of a function, its constants and fresh names; those of `outer` are not fresh.

    For a module that is written out (`codegen_module.py`), `written` has each constant as source text, and `functions`
    the functions that this one calls.
    """

    def __init__(self, outer: Source | None = None) -> None:
        self.lines: list[str] = []
        self.written: dict[str, str] = {}
        self.functions: dict[str, Source] = {}
        self.names: dict[str, Any] = {
            "malformed": malformed,
            "new": tuple.__new__,
            "one_byte": LAST_BYTE,
            "read_length": read_length,
            "read_string_length": read_string_length,
            "read_uvarint": read_uvarint,
            "records_size": records_size,
            "skip_tagged_fields": skip_tagged_fields,
            "write_uvarint": write_uvarint,
        }
        self._fresh: int = 0 if outer is None else outer._fresh

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, prefix: str) -> str:
        self._fresh += 1
        return f"{prefix}{self._fresh}"

    def constant(self, prefix: str, value: Any, written: str) -> str:
        name = self.fresh(prefix)
        self.names[name] = value
        self.written[name] = written
        return name

    def layout(self, layout: struct.Struct, method: str) -> str:
        """A method of a `struct` layout, as a constant."""
        return self.constant(method, getattr(layout, method), f"struct.Struct({layout.format!r}).{method}")

    def inner(self, prefix: str, source: Source) -> str:
        """Take in a function whose source began with this one as `outer`; return its name."""
        self._fresh = source._fresh
        name = self.fresh(prefix)
        self.names[name] = source.function("encode")
        self.functions[name] = source
        return name

    def function(self, name: str) -> Any:
        exec("\n".join(self.lines), self.names)
        return self.names[name]


def fixed_format(kind: Any) -> str | None:
    """The `struct` format of a kind that has always one size; None for strings, arrays and rows."""
    return None if isinstance(kind, Sized) or hasattr(kind, "fields") else format_of(kind)


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
