"""Every message of the API table, values for them, and the interpreted codec as a second opinion.

`interpreted_encode` and `interpreted_decode` run the plain construct of a version (`Message.struct`) and speak the
same values as the generated codec, so that both can be held against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from construct import Construct, ConstructError
from hypothesis import strategies as st

from minibroker.protocol.api import ASKED_TABLE
from minibroker.protocol.primitives import Sized, Uuid, format_of
from minibroker.protocol.schema import Array, Field, Message, Row


class Slice:
    """Stands for a part of a file: all that the codec may know of it is its size."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


VERSIONS = [
    (message, version)
    for api in ASKED_TABLE.values()
    for message in (api.request, api.response)
    for version in range(message.first_version, message.last_version + 1)
]


def name_of(case: Any) -> str:
    """A message and version as the id of a test case."""
    return case.name if isinstance(case, Message) else str(case)


@cache
def construct_of_version(message: Message, version: int) -> Construct:
    return message.struct(version)


def interpreted_encode(message: Message, version: int, value: Any) -> bytes:
    built: bytes = construct_of_version(message, version).build(as_mapping(message.fields, value))
    return built


def interpreted_decode(message: Message, version: int, data: bytes) -> Any:
    """The value at the start of `data`. Raises ConstructError."""
    return as_value(message, "", construct_of_version(message, version).parse(data), version)


def interpreted_rejects(message: Message, version: int, data: bytes) -> bool:
    try:
        construct_of_version(message, version).parse(data)
    except ConstructError:
        return True
    return False


def as_mapping(fields: Sequence[Field], row: Sequence[Any]) -> dict[str, Any]:
    """A row as construct builds it."""
    named = {field.name: as_built(field.kind, value) for field, value in zip(fields, row, strict=True)}
    return {**named, "_tagged_fields": named}


def as_built(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Row):
        return as_mapping(kind.fields, value)
    if isinstance(kind, Array) and kind.element is None:
        return [as_mapping(kind.fields, inner) for inner in value]
    return value


def as_value(message: Message, path: str, parsed: Any, version: int) -> Any:
    """Convert what construct parsed to the NamedTuples of the generated codec."""
    values = {}
    for field in message.fields_at(path):
        if not field.is_in(version):
            continue
        value = parsed[field.name] if field.tag is None else parsed["_tagged_fields"][field.name]
        inner = f"{path}.{field.name}" if path else field.name
        if isinstance(field.kind, Array) and field.kind.element is None and isinstance(value, list):
            value = [as_value(message, inner, row, version) for row in value]
        elif isinstance(field.kind, Row) and value is not None and value is not field.default:
            value = as_value(message, inner, value, version)
        values[field.name] = value
    return message.row(path)(**values)


INTEGERS = {"b": 8, "h": 16, "H": 16, "l": 32, "L": 32, "i": 32, "q": 64}


def values(message: Message, version: int, path: str = "") -> st.SearchStrategy[Any]:
    """Values of a version, or of its rows at a path; fields it does not have are at their defaults."""
    make = message.row(path)
    live = {}
    for field in message.fields_at(path):
        if field.is_in(version):
            chosen = values_of(message, f"{path}.{field.name}" if path else field.name, field.kind_in(version), version)
            if field.tag is not None:  # an empty array comes back as the default
                chosen = st.just(field.default) | chosen.filter(lambda value: value != [])
            live[field.name] = chosen
    return st.fixed_dictionaries(live).map(lambda chosen: make(**chosen))


def values_of(message: Message, path: str, kind: Any, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, Sized):
        chosen: st.SearchStrategy[Any] = st.text(max_size=5) if kind.kind == "string" else st.binary(max_size=9)
        return st.none() | chosen if kind.is_nullable else chosen
    if isinstance(kind, Row):
        return values(message, version, path)
    if isinstance(kind, Array):
        element = (
            values(message, version, path) if kind.element is None else values_of(message, path, kind.element, version)
        )
        chosen = st.lists(element, max_size=2)
        return st.none() | chosen if kind.is_nullable else chosen
    fixed = str(format_of(kind))
    if fixed == "?":
        return st.booleans()
    if fixed.endswith("s"):
        return st.binary(min_size=int(fixed[:-1]), max_size=int(fixed[:-1]))
    if fixed == "d":
        return st.floats(allow_nan=False)
    half = 1 << (INTEGERS[fixed] - 1)
    return st.integers(0, 2 * half - 1) if fixed.isupper() else st.integers(-half, half - 1)


def sample(message: Message, version: int, path: str = "", counter: Iterator[int] | None = None) -> Any:
    """One value with every field there and no two neighbours alike: arrays of two rows, no nulls."""
    counter = counter or iter(range(1, 10_000))
    live = {
        field.name: sample_of(
            message, f"{path}.{field.name}" if path else field.name, field.kind_in(version), version, counter
        )
        for field in message.fields_at(path)
        if field.is_in(version)
    }
    return message.row(path)(**live)


def sample_of(message: Message, path: str, kind: Any, version: int, counter: Iterator[int]) -> Any:
    if isinstance(kind, Sized):
        text = f"é{next(counter)}"
        return text if kind.kind == "string" else text.encode()
    if isinstance(kind, Row):
        return sample(message, version, path, counter)
    if isinstance(kind, Array) and kind.element is None:
        return [sample(message, version, path, counter) for _ in range(2)]
    if isinstance(kind, Array):
        return [sample_of(message, path, kind.element, version, counter) for _ in range(2)]
    if kind is Uuid:
        return bytes((next(counter) % 127,)) * 16
    return True if format_of(kind) == "?" else next(counter) % 127
