"""Error codes for clients of an older release: one that came later is not answered by a broker that acts as it.

Works on finished answers, by the fields their messages declare; without `--act-as` no answer comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from minibroker.protocol.api import Api
from minibroker.protocol.schema import Array, Field

ERROR_FIELD = "error_code"

Body = Any
# Where error codes are in a row: the place of the field, and where they are in the rows there, if it has rows.
Places = list[tuple[int, "Places | None"]]


class KnownErrors:
    """Answers with the codes of `error_said` in place of those this broker gives."""

    def __init__(self, apis: Iterable[Api], error_said: Callable[[int], int]) -> None:
        self._places: dict[int, Places] = {api.key: error_places(api.response.fields) for api in apis}
        self._error_said = error_said

    def said(self, api_key: int, body: Body) -> Body:
        return self._row(body, self._places[api_key])

    def _row(self, row: Sequence[Any], places: Places) -> Sequence[Any]:
        values = list(row)
        for place, inner in places:
            value = values[place]
            if inner is None:
                values[place] = self._error_said(value)
            elif value is not None:
                values[place] = [self._row(each, inner) for each in value]
        return tuple(values)


def error_places(fields: Sequence[Field]) -> Places:
    places: Places = []
    for place, field in enumerate(fields):
        if field.name == ERROR_FIELD:
            places.append((place, None))
        elif isinstance(field.kind, Array) and (inner := error_places(field.kind.fields)):
            places.append((place, inner))
    return places
