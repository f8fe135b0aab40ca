"""Error codes for clients of an older release: one that came later is not answered by a broker that acts as it.

Works on finished answers, by the error codes that their messages declare; without `--act-as` no answer comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from minibroker.protocol.api import API_TABLE
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.schema import Array, Field

Body = Any
# Where error codes are in a row: the place of the field, and where they are in the rows there, if it has rows.
Places = list[tuple[int, "Places | None"]]


class KnownErrors:
    """Answers with the codes of `error_code_for` in place of those this broker gives."""

    def __init__(self, error_code_for: Callable[[int], int]) -> None:
        self._error_code_for = error_code_for

    def said(self, api_key: int, body: Body) -> Body:
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
