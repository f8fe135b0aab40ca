"""Replaces error codes that the release of `--act-as` does not have.

Works on finished answers, on the fields that their messages declare as error codes; not used without `--act-as`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from minibroker.protocol.api import API_TABLE
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.schema import Array, Field

Body = Any
# The fields of a row with error codes: the place of each, and the places in its own rows if it is an array.
Places = list[tuple[int, "Places | None"]]


class KnownErrors:
    """Replaces each error code of an answer by `error_code_for`."""

    def __init__(self, error_code_for: Callable[[int], int]) -> None:
        self._error_code_for = error_code_for

    def replaced(self, api_key: int, body: Body) -> Body:
        return self._row(body, places_of_answer(api_key))

    def _row(self, row: Sequence[Any], places: Places) -> Sequence[Any]:
        values = list(row)
        for place, inner in places:
            value = values[place]
            if inner is None:
                values[place] = self._error_code_for(value)
            elif value is not None:
                values[place] = [self._row(each, inner) for each in value]
        return tuple(values)


@cache
def places_of_answer(api_key: int) -> Places:
    return error_places(API_TABLE[api_key].response.fields)


def error_places(fields: Sequence[Field]) -> Places:
    places: Places = []
    for place, field in enumerate(fields):
        if field.meaning is Meaning.ERROR_CODE:
            places.append((place, None))
        elif isinstance(field.kind, Array) and (inner := error_places(field.kind.fields)):
            places.append((place, inner))
    return places
