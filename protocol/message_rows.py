"""The fields of a message that have a meaning, each with the way to its values: the one walk over a declaration.

    for path, place, meaning in rows(FetchResponse, 11):
        ...         # (1,), 0, TOPIC: the first value in each row of the array that is the message's second value

All that the broker derives from declarations starts here: error codes, resources, the rows of a failure or a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from minibroker.protocol.primitives import Meaning
from minibroker.protocol.schema import Array, Field, Message


class Column(NamedTuple):
    """A field with a meaning. `path` has the places of the arrays around it, outermost first; `place` is that of the
    value in its row, None if the row is the value."""

    path: tuple[int, ...]
    place: int | None
    meaning: Meaning

    def values(self, body: Any) -> list[Any]:
        """The values of a message, in their order; none of a null array."""
        found = rows_at(body, self.path)
        return found if self.place is None else [row[self.place] for row in found]

    def replaced(self, body: Any, change: Callable[[Any], Any]) -> Any:
        """Return the message with `change` of each value. The values are in rows."""
        assert self.place is not None
        return changed(body, (*self.path, self.place), change)


@cache
def rows(message: Message, version: int | None = None) -> Sequence[Column]:
    """The columns of a version, or of all versions; those of a row before those of the arrays in it."""
    return tuple(walk(message.fields, version, ()))


@cache
def columns(message: Message, meaning: Meaning) -> Sequence[Column]:
    """The columns of one meaning, of all versions."""
    return tuple(column for column in rows(message) if column.meaning is meaning)


def walk(fields: Sequence[Field], version: int | None, path: tuple[int, ...]) -> Iterator[Column]:
    arrays = []
    for place, field in enumerate(fields):
        if version is not None and not field.is_in(version):
            continue
        is_array = isinstance(field.kind, Array)
        if is_array:
            arrays.append(((*path, place), field.kind.fields))
        if field.meaning is not None:
            is_of_elements = is_array and field.kind.element is not None
            yield Column((*path, place), None, field.meaning) if is_of_elements else Column(path, place, field.meaning)
    for inner, inner_fields in arrays:
        yield from walk(inner_fields, version, inner)


def rows_at(body: Any, path: Sequence[int]) -> list[Any]:
    """The rows of an array of a message, of all arrays at this path; the message itself for the empty path."""
    found = [body]
    for place in path:
        found = [row for around in found for row in around[place] or ()]
    return found


def changed(row: Any, places: Sequence[int], change: Callable[[Any], Any]) -> Any:
    """Return a row, a NamedTuple or a tuple, with `change` made at the last of `places`, through arrays before it."""
    place, *inner = places
    value = row[place]
    if not inner:
        value = change(value)
    elif value is not None:
        value = [changed(each, inner, change) for each in value]
    values = (*row[:place], value, *row[place + 1 :])
    return row._make(values) if hasattr(row, "_make") else values
