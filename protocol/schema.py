"""One declaration of a message for all its versions: a field and its life on one line.

    FetchRequest = versions("FetchRequest", 0, 8,
        "replica_id" / Int32sb,
        "max_bytes" / Int32sb @ since(3, default=2**31 - 1),
        "topics" / array("topic" / TopicName, "partitions" / array(...)),
        "cluster_id" / NullableString @ tagged(0, since=12),
        flexible=12,
    )

`message.struct(version)` is the construct of a version: the readable reference. `codegen_decoder.py` and
`codegen_encoder.py` generate the codecs that run from the same fields, when a version is first used, or when the
compiled form is built; tests compare all of them. Values are NamedTuples with every field of every version; an absent
field decodes to its default, and is not encoded.

The type of a field declares its `meaning` too (an error code, a topic): rules that follow from it are derived from the
messages, and not repeated for each API.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from construct import Construct, Renamed, Struct

from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.primitives import (
    ZERO_UUID,
    ArrayConstruct,
    CompactLength,
    Int32sb,
    Meaning,
    NullableConstruct,
    Semantic,
    Sized,
    TaggedField,
    TaggedFieldsConstruct,
    Uuid,
    format_of,
)

FOREVER = 2**15
WRITTEN_CODECS = "minibroker.protocol.codecs"
# A malformed value up to this size is decoded a second time, slowly, for a better error: this takes 3 ms at most.
MAX_EXPLAINED_BYTES = 8 * 1024


class Life:
    """The versions in which a field is on the wire, its default in all others, its tag if it has one, the first version
    in which it may be null, and the first in which it is of another kind."""

    def __init__(
        self,
        first: int,
        last: int,
        default: Any,
        *,
        tag: int | None = None,
        null_first: int = 0,
        later: tuple[int, Any] = (FOREVER, None),
    ) -> None:
        self.first = first
        self.last = last
        self.default = default
        self.tag = tag
        self.null_first = null_first
        self.later = later

    def __rmatmul__(self, declared: Any) -> Field:
        field = as_field(declared)
        default = field.default if self.default is None else self.default
        return Field(
            field.name,
            field.kind,
            max(field.first, self.first),
            min(field.last, self.last),
            default,
            tag=field.tag if self.tag is None else self.tag,
            null_first=max(field.null_first, self.null_first),
            meaning=field.meaning,
            later=min(field.later, self.later, key=lambda each: each[0]),
        )


def since(first: int, *, default: Any = None, until: int = FOREVER) -> Life:
    """On the wire from version `first` (to `until`); elsewhere `default`."""
    return Life(first, until, default)


def default(value: Any) -> Life:
    """On the wire in every version; `value` if a message is made without it."""
    return Life(0, FOREVER, value)


def until(last: int, *, default: Any = None) -> Life:
    """On the wire up to version `last`; later `default`."""
    return Life(0, last, default)


def tagged(tag: int, *, since: int, default: Any = None, until: int = FOREVER) -> Life:
    """In flexible versions from `since` on: at the end of its struct, and only if it is not `default`.

    A tagged field that this broker neither reads nor sends needs no declaration: unknown tags are skipped.
    """
    return Life(since, until, default, tag=tag)


def null_since(first: int) -> Life:
    """For a nullable kind: not null before version `first`."""
    return Life(0, FOREVER, None, null_first=first)


def id_since(first: int) -> Life:
    """For the name of a topic: its id in place of it from version `first` on."""
    return Life(0, FOREVER, None, later=(first, Uuid))


class Row:
    """A struct of fields, not repeated. As a tagged field it is None if it is absent.

    One that may be null begins with a byte, which is `null` for None, and else 1.
    """

    def __init__(self, fields: tuple[Field, ...], *, null: int | None = None) -> None:
        self.fields = fields
        self.null = null

    @property
    def is_nullable(self) -> bool:
        return self.null is not None

    def __rtruediv__(self, name: str) -> Field:
        return as_field((name, self))


def row(*fields: Any) -> Row:
    return Row(tuple(map(as_field, fields)))


def nullable_row(*fields: Any) -> Row:
    return Row(tuple(map(as_field, fields)), null=-1)


def nullable_tagged_row(*fields: Any) -> Row:
    """A row for a tagged field. Its default is a row, not None, which is on the wire."""
    return Row(tuple(map(as_field, fields)), null=0)


class Array:
    """A repeated row of fields, or of one `element`, whose `meaning` is the array's."""

    def __init__(self, fields: tuple[Field, ...], element: Any, *, is_nullable: bool) -> None:
        self.fields = fields
        self.element, self.meaning = parts_of(element)
        self.is_nullable = is_nullable

    def __rtruediv__(self, name: str) -> Field:
        return as_field((name, self))


def array(*fields: Any) -> Array:
    return Array(tuple(map(as_field, fields)), None, is_nullable=False)


def nullable_array(*fields: Any) -> Array:
    return Array(tuple(map(as_field, fields)), None, is_nullable=True)


def array_of(element: Any, *, is_nullable: bool = False) -> Array:
    """An array of integers or strings."""
    return Array((), element, is_nullable=is_nullable)


class Field:
    """One field: `kind` is a fixed-size construct, a Sized, an Array or a Row; `meaning` is that of its value, or of
    each element; `later` is the first version in which it is of another kind, and that kind."""

    __slots__ = ("default", "first", "kind", "last", "later", "meaning", "name", "null_first", "tag")

    def __init__(
        self,
        name: str,
        kind: Any,
        first: int,
        last: int,
        default: Any,
        *,
        tag: int | None = None,
        null_first: int = 0,
        meaning: Meaning | None = None,
        later: tuple[int, Any] = (FOREVER, None),
    ) -> None:
        self.name = name
        self.kind = kind
        self.first = first
        self.last = last
        self.default = default
        self.tag = tag
        self.null_first = null_first
        self.meaning = meaning
        self.later = later

    def __matmul__(self, life: Life) -> Field:
        return life.__rmatmul__(self)

    def is_in(self, version: int) -> bool:
        return self.first <= version <= self.last

    def kind_in(self, version: int) -> Any:
        """Its kind in a version; not nullable in versions that do not allow null yet."""
        if version >= self.later[0]:
            return self.later[1]
        kind = self.kind
        if version >= self.null_first:
            return kind
        if isinstance(kind, Array):
            return Array(kind.fields, kind.element, is_nullable=False)
        return Sized(kind.kind, is_nullable=False)

    def construct(self, version: int, *, is_flexible: bool) -> Renamed:
        return self.name / construct_of(self.kind_in(version), version, is_flexible=is_flexible)


def as_field(declared: Any) -> Field:
    """Turn the result of `"name" / kind` into a Field."""
    if isinstance(declared, Field):
        return declared
    name, given = (declared.name, declared.subcon) if isinstance(declared, Renamed) else declared
    kind, meaning = parts_of(given)
    return Field(name, kind, 0, FOREVER, default_of(kind), meaning=meaning)


def parts_of(given: Any) -> tuple[Any, Meaning | None]:
    """Split a type into its wire type and its meaning."""
    if isinstance(given, Semantic):
        return given.wire, given.meaning
    return given, given.meaning if isinstance(given, Array) else None


def default_of(kind: Any) -> Any:
    if isinstance(kind, Row):
        return None
    if isinstance(kind, Array):
        return None if kind.is_nullable else ()
    if isinstance(kind, Sized):
        return None if kind.is_nullable else "" if kind.kind == "string" else b""
    if kind is Uuid:
        return ZERO_UUID
    return False if format_of(kind) == "?" else 0


def construct_of(kind: Any, version: int, *, is_flexible: bool) -> Construct:
    if isinstance(kind, Sized):
        return kind.construct(is_flexible=is_flexible)
    if isinstance(kind, Array):
        count = CompactLength() if is_flexible else Int32sb
        if kind.element is not None:
            element = construct_of(kind.element, version, is_flexible=is_flexible)
        else:
            element = struct_of(kind.fields, version, is_flexible=is_flexible)
        return ArrayConstruct(count, element, is_nullable=kind.is_nullable)
    if isinstance(kind, Row):
        struct = struct_of(kind.fields, version, is_flexible=is_flexible)
        return struct if kind.null is None else NullableConstruct(struct, kind.null)
    return kind


def struct_of(fields: Sequence[Field], version: int, *, is_flexible: bool) -> Struct:
    live = [field for field in fields if field.is_in(version)]
    parts = [field.construct(version, is_flexible=is_flexible) for field in live if field.tag is None]
    if is_flexible:
        by_tag = {
            field.tag: TaggedField(
                field.name, construct_of(field.kind_in(version), version, is_flexible=is_flexible), field.default
            )
            for field in live
            if field.tag is not None
        }
        parts.append("_tagged_fields" / TaggedFieldsConstruct(by_tag))
    return Struct(*parts)


Decoder = Callable[[Any, int, int], tuple[Any, int]]
Encoder = Callable[[Any], list[Any]]


class Message:
    """A message in all its versions. A call with keywords makes a value, with defaults for the other fields."""

    def __init__(self, name: str, first: int, last: int, fields: tuple[Field, ...], first_flexible: int | None) -> None:
        self.name = name
        self.first_version = first
        self.last_version = last
        self.fields = fields
        self.first_flexible = FOREVER if first_flexible is None else first_flexible
        self._rows: dict[str, Any] = {}
        self._decoders: dict[int, Decoder] = {}
        self._encoders: dict[int, Encoder] = {}
        self._remembered: Any = None
        self._remembered_chunks: dict[int, list[Any]] = {}

    def __repr__(self) -> str:
        return f"<{self.name} v{self.first_version}-v{self.last_version}>"

    def __call__(self, **values: Any) -> Any:
        return self.type(**values)

    @property
    def type(self) -> Any:
        """The NamedTuple of the message itself."""
        return self.row("")

    def row(self, path: str) -> Any:
        """The NamedTuple of an array's rows, or of a Row, by path: `row("topics.partitions")`."""
        row = self._rows.get(path)
        if row is None:
            row = self._rows[path] = self._make_row(path)
        return row

    def is_flexible(self, version: int) -> bool:
        return version >= self.first_flexible

    def between(self, first: int, last: int) -> Message:
        """The same message without the versions before `first` and after `last`: the same types and codecs."""
        limited = Message(self.name, first, last, self.fields, self.first_flexible)
        limited._rows, limited._decoders, limited._encoders = self._rows, self._decoders, self._encoders
        return limited

    def struct(self, version: int) -> Struct:
        """The construct of one version: the reference for tests of the generated codecs."""
        return struct_of(self.fields, version, is_flexible=self.is_flexible(version))

    def decode(self, version: int, buffer: Any, position: int = 0) -> tuple[Any, int]:
        """Decode a value; return it with the position after it, and ignore further bytes.

        Raises KafkaProtocolError with the path of the field that is wrong. Records are views of `buffer`.
        """
        decoder = self._decoders.get(version)
        if decoder is None:
            decoder = self._decoders[version] = self._decoder(version)
        try:
            return decoder(buffer, position, len(buffer))
        except Exception as error:
            raise KafkaProtocolError(
                f"{self.name} v{version}: {self._reason(version, buffer, position, error)}"
            ) from None

    def encode(self, version: int, value: Any) -> list[Any]:
        """Encode a value to bytes, and between them the Records objects that are not bytes, unchanged.

        `value` and its rows are the NamedTuples, or plain tuples of the same order.
        """
        if value is self._remembered and value is not None:
            return self._remembered_encoding(version, value)
        encoder = self._encoders.get(version)
        if encoder is None:
            encoder = self._encoders[version] = self._encoder(version)
        return encoder(value)

    def remember(self, value: Any) -> None:
        """Encode this value, which has no records, only once for each version: it is sent again and again."""
        self._remembered, self._remembered_chunks = value, {}

    def _remembered_encoding(self, version: int, value: Any) -> list[Any]:
        chunks = self._remembered_chunks.get(version)
        if chunks is None:
            chunks = self._remembered_chunks[version] = self._encoder(version)(value)
        return chunks

    def _decoder(self, version: int) -> Decoder:
        self._check_has(version)
        written: Decoder | None = written_codecs(self.name, "DECODERS").get((self.name, version))
        if written is not None:
            return written
        from minibroker.protocol.codegen_decoder import generate_decoder

        return generate_decoder(self, version)

    def _encoder(self, version: int) -> Encoder:
        self._check_has(version)
        written: Encoder | None = written_codecs(self.name, "ENCODERS").get((self.name, version))
        if written is not None:
            return written
        from minibroker.protocol.codegen_encoder import generate_encoder

        return generate_encoder(self, version)

    def _check_has(self, version: int) -> None:
        if not self.first_version <= version <= self.last_version:
            raise KafkaProtocolError(f"{self.name} has no version {version}")

    def _reason(self, version: int, buffer: Any, position: int, error: Exception) -> str:
        """Explain why a value does not decode, by the interpreted construct, which knows the field's path.

        Only for small values: interpreting a request of 100 MB would stop the broker for half a minute.
        """
        if len(buffer) - position > MAX_EXPLAINED_BYTES:
            return str(error)
        try:
            self.struct(version).parse(bytes(memoryview(buffer)[position:]))
        except Exception as explained:
            return " ".join(str(explained).split())
        return str(error)

    def _make_row(self, path: str) -> Any:
        fields = self.fields_at(path)
        title = self.name + "".join(part.title().replace("_", "") for part in path.split("."))
        return namedtuple(title, [f.name for f in fields], defaults=[f.default for f in fields])

    def field(self, path: str) -> Field:
        """The field at `path`: its type, its versions."""
        around, _, name = path.rpartition(".")
        (field,) = (field for field in self.fields_at(around) if field.name == name)
        return field

    def fields_at(self, path: str) -> tuple[Field, ...]:
        """The fields of an array's rows, or of a Row, by path; those of the message for the empty one."""
        fields: tuple[Field, ...] = self.field(path).kind.fields if path else self.fields
        return fields

    def walk(self) -> Iterator[tuple[str, Field]]:
        """Every field with its path, depth first."""
        yield from walk_fields("", self.fields)


def written_codecs(message: str, table: str) -> dict[tuple[str, int], Any]:
    """The codecs that were written out for the compiled form (`codegen_module.py`); the pure form has none."""
    home = homes_of_written_codecs().get(message)
    return {} if home is None else getattr(import_module(f"{WRITTEN_CODECS}.{home}"), table)


@cache
def homes_of_written_codecs() -> dict[str, str]:
    """The module of each message, in WRITTEN_CODECS."""
    try:
        return dict(import_module(f"{WRITTEN_CODECS}.index").MODULES)
    except ModuleNotFoundError:
        return {}


def walk_fields(prefix: str, fields: Sequence[Field]) -> Iterator[tuple[str, Field]]:
    for field in fields:
        path = f"{prefix}.{field.name}" if prefix else field.name
        yield path, field
        if isinstance(field.kind, Array | Row):
            yield from walk_fields(path, field.kind.fields)


def contains(fields: Sequence[Field], meaning: Meaning) -> bool:
    """Whether one of the fields has this meaning, at any depth."""
    return any(field.meaning is meaning for _, field in walk_fields("", fields))


def versions(name: str, first: int, last: int, *fields: Any, flexible: int | None = None) -> Message:
    """Declare a message; `flexible` is the first version with compact types and tagged fields."""
    return Message(name, first, last, tuple(map(as_field, fields)), flexible)
