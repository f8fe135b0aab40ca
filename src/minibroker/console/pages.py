"""One page of a list: filtered, sorted and cut here, so that a browser never gets 10,000 rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request

from minibroker.console.answers import Refused, in_query, number_in_query

ROWS = 50
ROWS_MAX = 100

T = TypeVar("T")


class Wanted(NamedTuple):
    """The page that a request asks for: `sort` is a column, `descending` its direction."""

    filter: str
    sort: str
    descending: bool
    start: int
    size: int


def wanted_page(request: Request, *, default: str, columns: Sequence[str]) -> Wanted:
    """Raises Refused for a column that the list does not have."""
    sort = in_query(request, "sort", default)
    column = sort.removeprefix("-")
    if column not in columns:
        raise Refused(400, f"the list has no column {column[:30]}; sort by {', '.join(columns)}")
    return Wanted(
        in_query(request, "filter").casefold(),
        column,
        sort.startswith("-"),
        number_in_query(request, "from", 0),
        number_in_query(request, "n", ROWS, most=ROWS_MAX),
    )


def matching(names: Iterable[str], text: str) -> list[str]:
    """Names that contain each word of the text, in any case."""
    words = text.split()
    return [name for name in names if all(word in name.casefold() for word in words)]


def cut(rows: Sequence[T], wanted: Wanted, key: Callable[[T], Any]) -> list[T]:
    """The rows of the page; those without a value come last."""
    known = sorted((row for row in rows if key(row) is not None), key=key, reverse=wanted.descending)
    unknown = [row for row in rows if key(row) is None]
    return [*known, *unknown][wanted.start : wanted.start + wanted.size]


def page_of(
    rows: Sequence[T], wanted: Wanted, text: Callable[[T], str], key: Callable[[T], Any], shown: Callable[[T], Any]
) -> dict[str, Any]:
    """The page of a list that is all here: `text` is what its filter looks in, `shown` the JSON of a row."""
    words = wanted.filter.split()
    matched = [row for row in rows if all(word in text(row).casefold() for word in words)]
    page = [shown(row) for row in cut(matched, wanted, key)]
    return {"total": len(matched), "all": len(rows), "from": wanted.start, "rows": page}
