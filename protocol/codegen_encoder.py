"""The statements that encode a message: from NamedTuples, or plain tuples of their order, to chunks.

What follows a value that may be null is written in both branches, if it is little: there the null, or the length,
joins it in one `struct` call. That is the row of a Fetch response: hundreds of them, nearly all without aborted
transactions, records or tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from minibroker.protocol.codegen import Source, fixed_format
from minibroker.protocol.primitives import Sized
from minibroker.protocol.schema import Array, Encoder, Field, Message, Row

MAX_REPEATED_FIELDS = 2  # that are not fixed-size; each may double the code once more


def generate_encoder(message: Message, version: int) -> Encoder:
    """A function value -> [bytes | records object, ...]."""
    encode: Encoder = encoder_source(message, version).function("encode")
    return encode


def encoder_source(message: Message, version: int) -> Source:
    source = Source()
    has_records = any(getattr(field.kind, "kind", None) == "records" for _, field in message.walk())
    source.line(0, "def encode(value):")
    source.line(1, "parts = []")
    if has_records:
        source.line(1, "out = []")
    EncoderWriter(source, version, is_flexible=message.is_flexible(version)).row(message.fields, "value", 1)
    if has_records:
        source.line(1, "if parts: out.append(b''.join(parts))")
        source.line(1, "return out")
    else:
        source.line(1, "return [b''.join(parts)]")
    return source


class TaggedFields:
    """The tagged fields, as one more item to write after the fields."""

    def __init__(self, fields: Sequence[tuple[Field, str]]) -> None:
        self.fields = fields


class EncoderWriter:
    """Writes the statements that encode a row; `pending` are fixed-size values not yet packed."""

    def __init__(self, source: Source, version: int, *, is_flexible: bool) -> None:
        self._source = source
        self._version = version
        self._is_flexible = is_flexible
        self._pending: list[tuple[str, str]] = []

    def row(self, fields: Sequence[Field], value: str, depth: int) -> None:
        names = [self._source.fresh("v") for _ in fields]
        self._source.line(depth, f"{', '.join(names)}, = {value}")
        version = self._version
        live = [(field, name) for field, name in zip(fields, names, strict=True) if field.is_in(version)]
        parts: list[tuple[Any, str]] = [(field.kind_in(version), name) for field, name in live if field.tag is None]
        if self._is_flexible:
            parts.append((TaggedFields([(field, name) for field, name in live if field.tag is not None]), ""))
        self._parts(parts, depth)
        self._flush(depth)

    def _parts(self, parts: Sequence[tuple[Any, str]], depth: int) -> None:
        for index, (kind, name) in enumerate(parts):
            rest = parts[index + 1 :]
            if getattr(kind, "is_nullable", False) and is_little(rest):
                self._null_or_not_then(kind, name, rest, depth)
                return
            if is_records(kind) and is_little(rest):
                self._records_then(name, rest, depth)
                return
            self._field(kind, name, depth)

    def _null_or_not_then(self, kind: Any, name: str, rest: Sequence[tuple[Any, str]], depth: int) -> None:
        with_null = self._open_branches(f"if {name} is None:", depth)
        self._pending.append(self._null(kind))
        self._parts(rest, depth + 1)
        self._close_branch(with_null, depth)
        if is_records(kind):
            self._records_then(name, rest, depth + 1)
        else:
            self._value(kind, name, depth + 1)
            self._parts(rest, depth + 1)
        self._flush(depth + 1)

    def _records_then(self, name: str, rest: Sequence[tuple[Any, str]], depth: int) -> None:
        """Write empty records as a length only; return others as they are, between the encoded chunks."""
        size = self._source.fresh("n")
        self._source.line(depth, f"{size} = records_size({name}) if {name} else 0")
        without = self._open_branches(f"if not {size}:", depth)
        self._pending.append(("1", "B") if self._is_flexible else ("0", "i"))
        self._parts(rest, depth + 1)
        self._close_branch(without, depth)
        self._prefix(size, "i", depth + 1)
        self._source.line(depth + 1, f"out.append(b''.join(parts)); parts.clear(); out.append({name})")
        self._parts(rest, depth + 1)
        self._flush(depth + 1)

    def _open_branches(self, condition: str, depth: int) -> list[tuple[str, str]]:
        self._source.line(depth, condition)
        return list(self._pending)

    def _close_branch(self, pending: list[tuple[str, str]], depth: int) -> None:
        """End the first branch and begin the other, with the values that were pending before both."""
        self._flush(depth + 1)
        self._pending = pending
        self._source.line(depth, "else:")

    def _field(self, kind: Any, name: str, depth: int) -> None:
        fixed = fixed_format(kind)
        if fixed is not None:
            self._pending.append((name, fixed))
        elif isinstance(kind, TaggedFields):
            self._tagged_fields(kind.fields, depth)
        elif isinstance(kind, Row) and not kind.is_nullable:
            self.row(kind.fields, name, depth)
        elif kind.is_nullable or is_records(kind):
            self._parts_alone(kind, name, depth)
        else:
            self._value(kind, name, depth)

    def _parts_alone(self, kind: Any, name: str, depth: int) -> None:
        """A value with branches, and nothing written in them behind it."""
        if kind.is_nullable:
            self._null_or_not_then(kind, name, (), depth)
        else:
            self._records_then(name, (), depth)

    def _null(self, kind: Any) -> tuple[str, str]:
        if isinstance(kind, Row):
            return (str((kind.null or 0) & 0xFF), "B")
        if self._is_flexible:
            return ("0", "B")
        return ("-1", "h" if isinstance(kind, Sized) and kind.kind == "string" else "i")

    def _prefix(self, expression: str, fixed: str, depth: int) -> None:
        """Write a length or count together with the pending values; a varint of one byte as that byte."""
        if not self._is_flexible:
            self._pending.append((expression, fixed))
            self._flush(depth)
            return
        length = self._source.fresh("n")
        self._source.line(depth, f"{length} = {expression} + 1")
        if not self._pending:
            self._source.line(depth, f"parts.append(one_byte[{length}] if {length} < 128 else write_uvarint({length}))")
            return
        alone = self._packed()
        self._pending.append((length, "B"))
        self._source.line(
            depth, f"parts.append({self._packed()} if {length} < 128 else {alone} + write_uvarint({length}))"
        )
        self._pending.clear()

    def _value(self, kind: Any, name: str, depth: int) -> None:
        """Write a value that has a length or count and is not null."""
        if isinstance(kind, Array):
            self._elements(kind, name, depth)
            return
        if isinstance(kind, Row):
            self._pending.append(("1", "B"))
            self.row(kind.fields, name, depth)
            return
        if kind.kind == "string":
            self._source.line(depth, f"{name} = {name}.encode()")
        self._prefix(f"len({name})", "h" if kind.kind == "string" else "i", depth)
        self._source.line(depth, f"parts.append({name})")

    def _elements(self, kind: Array, name: str, depth: int) -> None:
        self._prefix(f"len({name})", "i", depth)
        element = self._source.fresh("e")
        self._source.line(depth, f"for {element} in {name}:")
        if kind.element is not None:
            self._field(kind.element, element, depth + 1)
            self._flush(depth + 1)
        else:
            self.row(kind.fields, element, depth + 1)

    def _tagged_fields(self, fields: Sequence[tuple[Field, str]], depth: int) -> None:
        """Write the tagged fields. They are nearly always the count 0, packed with the value before it."""
        if not fields:
            self._pending.append(("0", "B"))
            return
        names = [name for _, name in fields]
        tags = self._source.inner("tags", self._tags_function(fields))
        alone = f"{self._packed()} + " if self._pending else ""
        self._pending.append(("0", "B"))
        is_given = " or ".join(is_not_default(self._source, field, name) for field, name in fields)
        self._source.line(depth, f"parts.append({alone}{tags}({', '.join(names)}) if {is_given} else {self._packed()})")
        self._pending.clear()

    def _tags_function(self, fields: Sequence[tuple[Field, str]]) -> Source:
        """A function that encodes tagged fields: how many there are, and each with its tag and size."""
        source = Source(self._source)
        writer = EncoderWriter(source, self._version, is_flexible=True)
        source.line(0, f"def encode({', '.join(name for _, name in fields)}):")
        source.line(1, "encoded = []")
        for field, name in sorted(fields, key=lambda each: each[0].tag or 0):
            source.line(1, f"if {is_not_default(source, field, name)}:")
            source.line(2, "parts = []")
            writer._field(field.kind_in(self._version), name, 2)
            writer._flush(2)
            source.line(2, "data = b''.join(parts)")
            source.line(2, f"encoded.append(write_uvarint({field.tag}) + write_uvarint(len(data)) + data)")
        source.line(1, "return write_uvarint(len(encoded)) + b''.join(encoded)")
        return source

    def _packed(self) -> str:
        layout = struct.Struct(">" + "".join(fixed for _, fixed in self._pending))
        if all(name.isdigit() for name, _ in self._pending):
            return repr(layout.pack(*(int(name) for name, _ in self._pending)))
        pack = self._source.layout(layout, "pack")
        return f"{pack}({', '.join(name for name, _ in self._pending)})"

    def _flush(self, depth: int) -> None:
        if self._pending:
            self._source.line(depth, f"parts.append({self._packed()})")
            self._pending.clear()


def is_records(kind: Any) -> bool:
    return isinstance(kind, Sized) and kind.kind == "records"


def is_little(parts: Sequence[tuple[Any, str]]) -> bool:
    """Whether the fields after a value may be written twice."""
    varying = [kind for kind, _ in parts if fixed_format(kind) is None]
    return len(varying) <= MAX_REPEATED_FIELDS and not any(isinstance(kind, Array | Row) for kind in varying)


def is_not_default(source: Source, field: Field, name: str) -> str:
    """The expression for whether a tagged field is written."""
    if field.default is None:
        return f"{name} is not None"
    if isinstance(field.kind, Array):
        return name
    return f"{name} != {source.constant('default', field.default, repr(field.default))}"
