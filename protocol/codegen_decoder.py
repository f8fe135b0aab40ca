"""The statements that decode a message: from a buffer to NamedTuples.

Every length and count is checked against the bytes left before its value is made. What a frame lacks at its
end shows as an IndexError or struct.error; the caller takes any exception for a malformed message.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from minibroker.protocol.codegen import Source, fixed_format, join
from minibroker.protocol.primitives import TEXT_ERRORS, Sized
from minibroker.protocol.schema import Array, Decoder, Field, Message, Row

STRING_LENGTH = "h"  # of versions without varints
VARINT_BYTE = "B"  # an unsigned varint's first byte, nearly always all of it


def generate_decoder(message: Message, version: int) -> Decoder:
    """A function (buffer, position, end) -> (value, position)."""
    decode: Decoder = decoder_source(message, version).function("decode")
    return decode


def decoder_source(message: Message, version: int) -> Source:
    source = Source()
    source.line(0, "def decode(buf, pos, end):")
    writer = DecoderWriter(message, version, source)
    value = writer.row("", message.fields, 1)
    source.line(1, f"return {value}, pos")
    return source


class DecoderWriter:
    """Writes the statements that read a row; `pending` are fixed-size fields not yet read."""

    def __init__(self, message: Message, version: int, source: Source) -> None:
        self._message = message
        self._version = version
        self._source = source
        self._is_flexible = message.is_flexible(version)
        self._pending: list[tuple[str, str]] = []

    def row(self, path: str, fields: Sequence[Field], depth: int) -> str:
        """Read the fields of one row; return the expression that makes it."""
        values = []
        tagged = []
        for field in fields:
            if not field.is_in(self._version):
                values.append(self._default(field))
            elif field.tag is None:
                values.append(self._field(field.kind_in(self._version), join(path, field.name), depth))
            else:
                values.append(self._source.fresh("t"))
                tagged.append((field, values[-1]))
        if self._is_flexible:
            self._tagged_fields(path, tagged, depth)
        else:
            self._flush(depth)
        return self._made(path, values)

    def _made(self, path: str, values: Sequence[str]) -> str:
        return f"new({self._row(path)}, ({', '.join(values)},))"

    def _row(self, path: str) -> str:
        return self._source.constant("Row", self._message.row(path), f"{self._message.name}.row({path!r})")

    def _default(self, field: Field) -> str:
        return self._source.constant("default", field.default, repr(field.default))

    def _tagged_fields(self, path: str, tagged: Sequence[tuple[Field, str]], depth: int) -> None:
        """Read the tagged fields. There are nearly always none, so their count is read with the field before it."""
        line, fresh = self._source.line, self._source.fresh
        count = fresh("n")
        self._pending.append((count, VARINT_BYTE))
        self._flush(depth)
        for field, name in tagged:
            line(depth, f"{name} = {self._default(field)}")
        line(depth, f"if {count}:")
        if not tagged:
            line(depth + 1, "pos = skip_tagged_fields(buf, pos - 1, end)")
            return
        tag, size, stop = fresh("tag"), fresh("n"), fresh("stop")
        line(depth + 1, f"{count}, pos = read_uvarint(buf, pos - 1)")
        line(depth + 1, f"for _ in range({count}):")
        line(depth + 2, f"{tag}, pos = read_uvarint(buf, pos); {size}, pos = read_uvarint(buf, pos)")
        line(depth + 2, f"{stop} = pos + {size}")
        line(depth + 2, f"if {stop} > end: malformed('tagged field too long')")
        for field, name in tagged:
            line(depth + 2, f"if {tag} == {field.tag}:")
            self._tagged_field(field, name, join(path, field.name), stop, depth + 3)
        line(depth + 2, f"pos = {stop}")

    def _tagged_field(self, field: Field, name: str, path: str, stop: str, depth: int) -> None:
        value = self._field(field.kind_in(self._version), path, depth)
        self._flush(depth)
        self._source.line(depth, f"{name} = {value}")
        self._source.line(depth, f"if pos != {stop}: malformed({f'size of {path}'!r})")

    def _field(self, kind: Any, path: str, depth: int) -> str:
        fixed = fixed_format(kind)
        if fixed is not None:
            variable = self._source.fresh("v")
            self._pending.append((variable, fixed))
            return variable
        if isinstance(kind, Sized):
            return self._sized(kind, path, depth)
        if isinstance(kind, Row):
            return self._nullable_row(kind, path, depth) if kind.is_nullable else self.row(path, kind.fields, depth)
        return self._array(kind, path, depth)

    def _prefix(self, fixed: str, depth: int) -> str:
        """Read a length or count together with the pending fields; return its variable, negative for null."""
        length = self._source.fresh("n")
        self._pending.append((length, VARINT_BYTE if self._is_flexible else fixed))
        self._flush(depth)
        if self._is_flexible:
            read = "read_string_length" if fixed == STRING_LENGTH else "read_length"
            self._source.line(depth, f"if {length} > 127: {length}, pos = {read}(buf, pos - 1)")
            self._source.line(depth, f"{length} -= 1")
        return length

    def _check(self, length: str, path: str, depth: int, *, is_nullable: bool) -> None:
        reason = f"length of {path}"
        is_possible = f"{length} <= end - pos" if is_nullable else f"0 <= {length} <= end - pos"
        self._source.line(depth, f"if not {is_possible}: malformed({reason!r})")

    def _sized(self, kind: Sized, path: str, depth: int) -> str:
        line = self._source.line
        length = self._prefix(STRING_LENGTH if kind.kind == "string" else "i", depth)
        self._check(length, path, depth, is_nullable=kind.is_nullable)
        value = self._source.fresh("s")
        read = {
            "string": f"str(buf[pos:pos + {length}], 'utf-8', {TEXT_ERRORS!r})",
            "bytes": f"bytes(buf[pos:pos + {length}])",
            "records": f"memoryview(buf)[pos:pos + {length}]",
        }[kind.kind]
        if kind.is_nullable:
            line(depth, f"if {length} < 0: {value} = None")
            line(depth, "else:")
            line(depth + 1, f"{value} = {read}; pos += {length}")
        else:
            line(depth, f"{value} = {read}; pos += {length}")
        return value

    def _nullable_row(self, kind: Row, path: str, depth: int) -> str:
        sign, value = self._source.fresh("v"), self._source.fresh("r")
        self._pending.append((sign, "b"))
        self._flush(depth)
        self._source.line(depth, f"if {sign} <= 0: {value} = None")
        self._source.line(depth, "else:")
        self._source.line(depth + 1, f"{value} = {self.row(path, kind.fields, depth + 1)}")
        return value

    def _array(self, kind: Array, path: str, depth: int) -> str:
        line = self._source.line
        count = self._prefix("i", depth)
        self._check(count, path, depth, is_nullable=kind.is_nullable)
        rows = self._source.fresh("a")
        if kind.is_nullable:
            line(depth, f"if {count} < 0: {rows} = None")
            line(depth, "else:")
            depth += 1
        if kind.element is not None:
            self._elements(kind.element, path, rows, count, depth)
        else:
            self._rows(kind, path, rows, count, depth)
        return rows

    def _elements(self, element: Any, path: str, elements: str, count: str, depth: int) -> None:
        line, fixed = self._source.line, fixed_format(element)
        if fixed is not None and len(fixed) == 1:
            unpack, size = (
                self._source.constant("unpack", struct.unpack_from, "struct.unpack_from"),
                struct.calcsize(">" + fixed),
            )
            line(depth, f"{elements} = list({unpack}('>%d{fixed}' % {count}, buf, pos)); pos += {count} * {size}")
            return
        line(depth, f"{elements} = []")
        line(depth, f"for _ in range({count}):")
        value = self._field(element, path, depth + 1)
        self._flush(depth + 1)
        line(depth + 1, f"{elements}.append({value})")

    def _rows(self, kind: Array, path: str, rows: str, count: str, depth: int) -> None:
        """Read rows of one size at once; in a flexible version, if none of them has tagged fields."""
        line, source = self._source.line, self._source
        live = [field for field in kind.fields if field.is_in(self._version) and field.tag is None]
        formats = [fixed_format(field.kind_in(self._version)) for field in live]
        if live and None not in formats:
            tail = VARINT_BYTE if self._is_flexible else ""
            layout = struct.Struct(">" + "".join(map(str, formats)) + tail)
            stop = source.fresh("stop")
            line(depth, f"{stop} = pos + {count} * {layout.size}")
            if not self._is_flexible:
                line(depth, f"if {stop} > end: malformed({f'rows of {path}'!r})")
                self._rows_at_once(kind, path, rows, layout, stop, depth)
                return
            # The first row's count of tagged fields is in place; if it is 0, so is the second's, and so on.
            is_plain = f"{stop} <= end and not any(buf[pos + {layout.size - 1}:{stop}:{layout.size}])"
            line(depth, f"if {is_plain}:")
            self._rows_at_once(kind, path, rows, layout, stop, depth + 1)
            line(depth, "else:")
            depth += 1
        line(depth, f"{rows} = []")
        line(depth, f"for _ in range({count}):")
        value = self.row(path, kind.fields, depth + 1)
        line(depth + 1, f"{rows}.append({value})")

    def _rows_at_once(self, kind: Array, path: str, rows: str, layout: struct.Struct, stop: str, depth: int) -> None:
        line, source = self._source.line, self._source
        names = [
            source.fresh("v") if field.is_in(self._version) and field.tag is None else None for field in kind.fields
        ]
        values = [name or self._default(field) for name, field in zip(names, kind.fields, strict=True)]
        unpacked = [*filter(None, names), *(["_"] if self._is_flexible else [])]
        iter_unpack = source.constant(
            "iter_unpack", layout.iter_unpack, f"struct.Struct({layout.format!r}).iter_unpack"
        )
        if values == unpacked:
            line(depth, f"{rows} = [new({self._row(path)}, each) for each in {iter_unpack}(buf[pos:{stop}])]")
            line(depth, f"pos = {stop}")
            return
        made = self._made(path, values)
        line(depth, f"{rows} = [{made} for {', '.join(unpacked)}, in {iter_unpack}(buf[pos:{stop}])]")
        line(depth, f"pos = {stop}")

    def _flush(self, depth: int) -> None:
        """Read all pending fixed-size fields at once."""
        if not self._pending:
            return
        if len(self._pending) == 1 and self._pending[0][1] == VARINT_BYTE:
            self._source.line(depth, f"{self._pending[0][0]} = buf[pos]; pos += 1")
        else:
            layout = struct.Struct(">" + "".join(fixed for _, fixed in self._pending))
            unpack = self._source.constant(
                "unpack", layout.unpack_from, f"struct.Struct({layout.format!r}).unpack_from"
            )
            names = ", ".join(name for name, _ in self._pending)
            self._source.line(depth, f"{names}, = {unpack}(buf, pos); pos += {layout.size}")
        self._pending.clear()
