"""Avro: parsed and compared by the package avro; the canonical text is that of Java's `Schema.toString`."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
    merge,
)
from avro.errors import AvroException
from avro.io import BinaryDecoder, BinaryEncoder, DatumReader, DatumWriter
from avro.name import Names
from avro.schema import make_avsc_object

from minibroker.schemas.schema import Reason, SchemaError

NAMED = ("record", "error", "enum", "fixed")
# The attributes that Java writes in this order, before and behind those that Avro does not define.
FIRST = ("type", "name", "namespace", "doc", "fields", "symbols", "size", "items", "values", "default")
FIRST_OF_FIELD = ("name", "type", "doc", "default", "order")
LAST = ("aliases",)
ERRORS = (AvroException, ValueError, TypeError, KeyError, AttributeError, RecursionError)

logging.getLogger("avro").setLevel(logging.ERROR)  # it warns of each logical type that it does not know


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Raises SchemaError."""
    try:
        named = Names()
        for each in references.values():
            make_avsc_object(json.loads(each), named)
        definition = json.loads(text) if text.lstrip()[:1] in ("{", "[", '"') else text.strip()
        return AvroSchema(definition, make_avsc_object(definition, named), list(references.values()))
    except ERRORS as error:
        raise SchemaError(str(error) or repr(error)) from error


class AvroSchema:
    """`references` are the texts of the schemas with the names that it uses."""

    def __init__(self, definition: Any, schema: Any, references: Sequence[str]) -> None:
        self._definition = definition
        self._schema = schema
        self._references = references
        self._raw: Any = None

    @property
    def text(self) -> str:
        return as_json(java_form(self._definition))

    @property
    def identity(self) -> str:
        return self.text

    @property
    def whole(self) -> str:
        """The text with the schemas that it refers to in their places."""
        return as_json(java_form(self._schema.to_json() if self._references else self._definition))

    def normalized(self) -> str:
        return as_json(java_form(self._definition, is_sorted=True))

    def unreadable(self, writer: AvroSchema) -> Sequence[Reason]:
        checker: Any = Checker
        found = checker().get_compatibility(self._schema, writer._schema)
        if found.compatibility is not SchemaCompatibilityType.incompatible:
            return []
        kinds = ",".join(sorted({each.name.upper() for each in found.incompatibilities}))
        messages = "; ".join(sorted(map(message_of, found.messages)))
        places = ", ".join(sorted(place_of(self._schema, each) for each in found.locations))
        return [Reason(kinds, f"{messages} ({places})")]

    def decode(self, data: memoryview) -> Any:
        try:
            return jsonable(DatumReader(self._plain(), self._plain()).read(BinaryDecoder(io.BytesIO(data))))
        except ERRORS as error:
            raise SchemaError(f"not of this Avro schema: {error!r}") from error

    def encode(self, value: Any) -> bytes:
        data = io.BytesIO()
        try:
            schema = self._plain()
            DatumWriter(schema).write(of_json(schema, value), BinaryEncoder(data))
        except ERRORS as error:
            raise SchemaError(" ".join(str(error).split())) from error
        return data.getvalue()

    def _plain(self) -> Any:
        """The schema without logical types: dates and decimals are then the numbers and bytes of Avro's JSON."""
        if self._raw is None:
            named = Names()
            for each in self._references:
                make_avsc_object(without_logical_types(json.loads(each)), named)
            self._raw = make_avsc_object(without_logical_types(self._definition), named)
        return self._raw


class Checker(ReaderWriterCompatibilityChecker):
    """The package's checker, which names the place in the reader also below a union of the writer."""

    def calculate_compatibility(self, reader: Any, writer: Any, location: list[str]) -> SchemaCompatibilityResult:
        if writer.type != "union" or reader.type == "union":
            return super().calculate_compatibility(reader, writer, location)
        found = SchemaCompatibilityResult(SchemaCompatibilityType.compatible)
        for each in writer.schemas:
            found = merge(found, self.calculate_compatibility(reader, each, location))
        return found


def message_of(message: str) -> str:
    """The checker's message; that of a field without a default is the field's name alone."""
    if " " in message or "{" in message:
        return message
    return f"field {message} of the reader has no default, and the writer lacks it"


def place_of(schema: Any, location: str) -> str:
    """The field at a place of the checker, such as /fields/1/type, by the names of the reader."""
    names: list[str] = []
    steps = iter(location.strip("/").split("/"))
    for step in steps:
        fields = getattr(schema, "fields", None)
        if step == "fields" and fields is not None:
            field = fields[int(next(steps))]
            names.append(field.name)
            schema = field.type
        elif step in ("items", "values"):
            schema = getattr(schema, step, schema)
    return f"{'field ' + '.'.join(names) + ' at ' if names else 'at '}{location}"


def without_logical_types(definition: Any) -> Any:
    if isinstance(definition, list):
        return [without_logical_types(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    return {
        name: value if name in ("default", "symbols", "doc") else without_logical_types(value)
        for name, value in definition.items()
        if name != "logicalType"
    }


def jsonable(value: Any) -> Any:
    """Bytes as Avro's JSON has them: a character for each."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {name: jsonable(each) for name, each in value.items()}
    return [jsonable(each) for each in value] if isinstance(value, list) else value


def of_json(schema: Any, value: Any) -> Any:
    """The value for the package's writer, of one that JSON has: bytes of characters, whole numbers for a float."""
    kind = schema.type
    if kind in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("latin-1")
    if kind in ("record", "error") and isinstance(value, dict):
        names = {each.name: each for each in schema.fields}
        unknown = [name for name in value if name not in names]
        if unknown:
            raise SchemaError(f"the schema has no field {unknown[0]}; it has {', '.join(names)}")
        given = {name: of_json(names[name].type, each) for name, each in value.items()}
        defaults = {name: of_json(each.type, each.default) for name, each in names.items() if each.has_default}
        missing = [name for name in names if name not in given and name not in defaults]
        if missing:
            raise SchemaError(f"field {missing[0]} is missing, and has no default")
        return defaults | given
    if kind == "array" and isinstance(value, list):
        return [of_json(schema.items, each) for each in value]
    if kind == "map" and isinstance(value, dict):
        return {name: of_json(schema.values, each) for name, each in value.items()}
    return of_branch(schema.schemas, value) if kind == "union" else value


def of_branch(branches: Sequence[Any], value: Any) -> Any:
    """The value of the first branch that takes it."""
    for branch in branches:
        try:
            found = of_json(branch, value)
        except ERRORS:
            continue
        if branch.validate(found):
            return found
    return value


# -- the text -------------------------------------------------------------------------------------------------


def as_json(definition: Any) -> str:
    return json.dumps(definition, separators=(",", ":"), ensure_ascii=False)


def java_form(definition: Any, space: str | None = None, is_sorted: bool = False) -> Any:
    """A definition as Java writes it: names without the namespace around them, attributes in Java's order."""
    if isinstance(definition, str):
        return short_name(definition, space)
    if isinstance(definition, list):
        return [java_form(each, space, is_sorted) for each in definition]
    kind = definition.get("type")
    if set(definition) == {"type"}:
        return short_name(kind, space)
    inner = dict(definition)
    if kind in NAMED:
        head, _, name = inner["name"].rpartition(".")
        own = head or inner.get("namespace", space)
        inner["name"] = name
        inner.pop("namespace", None)
        if own != space and (own or space):
            inner["namespace"] = own or ""
        space = own
    if "fields" in inner:
        inner["fields"] = [field_form(each, space, is_sorted) for each in inner["fields"]]
    for part in ("items", "values"):
        if part in inner:
            inner[part] = java_form(inner[part], space, is_sorted)
    return dict(ordered(inner, FIRST, is_sorted))


def field_form(field: Mapping[str, Any], space: str | None, is_sorted: bool) -> dict[str, Any]:
    inner = {**field, "type": java_form(field["type"], space, is_sorted)}
    if inner.get("order") == "ascending":
        del inner["order"]
    return dict(ordered(inner, FIRST_OF_FIELD, is_sorted))


def ordered(parts: Mapping[str, Any], first: Sequence[str], is_sorted: bool) -> Iterator[tuple[str, Any]]:
    others = [name for name in parts if name not in first and name not in LAST]
    for name in (*first, *(sorted(others) if is_sorted else others), *LAST):
        if name in parts:
            yield name, parts[name]


def short_name(name: str, space: str | None) -> str:
    head, _, last = name.rpartition(".")
    return last if head and head == space else name
