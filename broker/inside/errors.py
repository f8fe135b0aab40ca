"""Finds the first error code in a response, by its declaration: that of any API, at any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.schema import Array, Field, contains

Find = Callable[[Any], int]


def first_error(api_key: int, body: Any) -> str:
    """Return Kafka's name of the first error in a response; empty if it has none."""
    code = 0 if body is None else finder(api_key)(body)
    return name_of(code) if code else ""


def name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


@cache
def finder(api_key: int) -> Find:
    """The function that finds the first error code in the responses of an API, 0 for none."""
    if api_key == ApiKey.FETCH:
        return lambda body: int(body.error_code or error_of_rows(body.topics))
    if api_key == ApiKey.PRODUCE:
        return lambda body: int(error_of_rows(body.topics))
    return find_in(API_TABLE[api_key].response.fields)


def error_of_rows(topics: Iterable[Any]) -> int:
    """The same for the topics of a Produce or a Fetch, the most frequent requests."""
    for _, rows in topics:
        for row in rows:
            if row[1]:
                return int(row[1])
    return 0


def find_in(fields: Sequence[Field]) -> Find:
    """Make the function for rows with these fields."""
    codes = [place for place, field in enumerate(fields) if field.meaning is Meaning.ERROR_CODE]
    arrays = [
        (place, find_in(field.kind.fields))
        for place, field in enumerate(fields)
        if isinstance(field.kind, Array) and contains(field.kind.fields, Meaning.ERROR_CODE)
    ]

    def find(row: Any) -> int:
        for place in codes:
            if row[place]:
                return int(row[place])
        for place, find_inner in arrays:
            for inner in row[place] or ():
                code = find_inner(inner)
                if code:
                    return code
        return 0

    return find
