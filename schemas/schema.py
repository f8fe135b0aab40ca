"""A schema of any type, and the compatibility of two.

    schema = parse("AVRO", text, {})
    reasons = schema.unreadable(older)   # why a reader with `schema` cannot read what was written with `older`

Each type has a module, which is imported with the first schema of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
MODULES = {AVRO: "avro_schema", JSON: "json_schema", PROTOBUF: "protobuf_schema"}
HOW_TO_INSTALL = "in the clone of minibroker: pip install -e '.[schemas]'"

NONE = "NONE"
BACKWARD, FORWARD = "BACKWARD", "FORWARD"
TRANSITIVE = "_TRANSITIVE"
LEVELS = (NONE, *(kind + each for kind in (BACKWARD, FORWARD, "FULL") for each in ("", TRANSITIVE)))


class SchemaError(ValueError):
    """The text is not a schema of its type; the message names the place, in the words of the type's library."""


class Reason(NamedTuple):
    """Why a reader cannot read: `kind` as Confluent names it, `what` names the field."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:'{self.what}'}}"


class Schema(Protocol):
    """A schema that was read. `text` is what a registry keeps; schemas with one `identity` are the same."""

    @property
    def text(self) -> str: ...

    @property
    def identity(self) -> str: ...

    def normalized(self) -> str:
        """The text in a form that does not depend on the order in which it was written."""

    def unreadable(self, writer: Any) -> Sequence[Reason]:
        """Why a reader with this schema cannot read what was written with `writer`, of its type; empty if it can."""

    def decode(self, data: memoryview) -> Any:
        """Decode a record behind its framing to a value of JSON. Raises SchemaError."""

    def encode(self, value: Any) -> bytes:
        """Encode a value of JSON, with the framing of the type. Raises SchemaError."""


def parse(kind: str, text: str, references: Mapping[str, str]) -> Schema:
    """Read a schema of a type. `references` has the texts of the schemas that it names, those before others first.

    Raises SchemaError for a text that is none, ModuleNotFoundError without the type's library.
    """
    try:
        module = import_module(f"minibroker.schemas.{MODULES[kind]}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("minibroker"):
            raise
        raise ModuleNotFoundError(f"schemas of type {kind} need {error.name}; {HOW_TO_INSTALL}") from error
    make: Callable[[str, Mapping[str, str]], Schema] = module.parse
    try:
        return make(text, references)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None


def incompatible(level: str, new: Schema, previous: Sequence[Schema]) -> tuple[int, Sequence[Reason]] | None:
    """The place in `previous` of the newest schema with which `new` is not compatible, and why; None if it is with all.

    `previous` begins with the oldest. A level that is not transitive looks at the newest alone.
    """
    kind = level.removesuffix(TRANSITIVE)
    if kind == NONE:
        return None
    first = 0 if level.endswith(TRANSITIVE) else max(0, len(previous) - 1)
    for place in range(len(previous) - 1, first - 1, -1):
        old = previous[place]
        if type(old) is not type(new):
            return place, [Reason("TYPE_CHANGED", "the new schema has another schemaType than the old one")]
        reasons = [] if kind == FORWARD else list(new.unreadable(old))
        if kind != BACKWARD:
            reasons += [each for each in old.unreadable(new) if each not in reasons]
        if reasons:
            return place, reasons
    return None
