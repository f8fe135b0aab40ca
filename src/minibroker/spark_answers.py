"""Compares the rows of a query with the expected ones, and names the records of each row that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

PLACE = ("topic", "partition", "offset")
SHOWN = 20  # differences


class StreamTestFailure(AssertionError):
    """A stream did not do what its test expects; the message names the action, and rows with their records."""


class Place(NamedTuple):
    """The place of a record in Kafka."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class Came(NamedTuple):
    """A row without the place of its record; None where the query does not keep it, or the batch is not known."""

    row: tuple[Any, ...]
    place: Place | None = None
    batch: int | None = None


def rows_of(columns: Sequence[str], collected: Sequence[Any], batch: int | None = None) -> list[Came]:
    """Rows as they are compared."""
    rows = [tuple(map(plain, row)) for row in collected]
    kept = [at for at, name in enumerate(columns) if name not in PLACE]
    if len(columns) - len(kept) < len(PLACE) or not kept:
        return [Came(row, None, batch) for row in rows]
    place = [list(columns).index(name) for name in PLACE]
    return [Came(tuple(row[at] for at in kept), Place(*(row[at] for at in place)), batch) for row in rows]


def plain(value: Any) -> Any:
    """A value of a row as it is compared: one that can be counted."""
    match value:
        case bytearray():
            return bytes(value)
        case list() | tuple():
            return tuple(map(plain, value))
        case Mapping():
            return tuple(sorted(((key, plain(each)) for key, each in value.items()), key=repr))
        case datetime() if value.tzinfo is not None:
            return value.astimezone().replace(tzinfo=None)  # as Spark gives its timestamps to Python
    return value


def differences(
    expected: Sequence[Came], came: Sequence[Came], origins_of: Callable[[tuple[Any, ...]], Sequence[Place]]
) -> list[str]:
    """A line for each row that is lost, doubled or unexpected; none if these are the expected rows, in any order.

    Places are compared if the expected rows have them. `origins_of` returns the records that a row may be of.
    """
    has_places = any(each.place for each in expected)
    wanted = Counter((each.row, each.place if has_places else None) for each in expected)
    found: dict[tuple[Any, Place | None], list[Came]] = {}
    for each in came:
        found.setdefault((each.row, each.place if has_places else None), []).append(each)
    differing = [each for each in {**wanted, **found} if wanted[each] != len(found.get(each, []))]
    lines = []
    for row, place in differing[:SHOWN]:
        there = found.get((row, place), [])
        count = wanted[row, place]
        places = Counter(each.place for each in there if each.place is not None)
        if len(there) < count:
            label, of = "lost", [place] if place else [each for each in origins_of(row) if each not in places]
        else:
            twice = [each for each, number in places.items() if number > 1]
            label = "doubled" if twice or (count and not places) else "unexpected"
            of = twice or list(places) or list(origins_of(row))
        batches = sorted({each.batch for each in there if each.batch is not None})
        lines.append(
            f"{label}: {row if len(row) > 1 else repr(*row)}"
            + (f", of {' or '.join(map(str, of))}" if of else "")
            + (f", {len(there)} times instead of {count}" if max(len(there), count) > 1 else "")
            + (f", in batch {' and '.join(map(str, batches))}" if batches and label != "lost" else "")
        )
    return [*lines, *([f"and {len(differing) - SHOWN} rows more"] if len(differing) > SHOWN else [])]
