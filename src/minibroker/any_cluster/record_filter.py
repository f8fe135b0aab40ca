"""Conditions on records, such as `value.delay>60`: what `consume --where` takes. Data, never code.

A condition is a field, an operator and a text. Fields are key, value, header.NAME, and inside of a value that is JSON
value.FIELD or value.FIELD.FIELD; likewise of a key. `=` and `!=` compare, `~` finds the text in either case of letters,
`<`, `<=`, `>` and `>=` compare numbers. A record without the field only fulfils `!=`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from minibroker.any_cluster.record_text import Access
from minibroker.errors import BadValue

CONDITION = re.compile(
    r"(?P<field>key|value|header)(?:\.(?P<path>[^=!~<>]+?))?\s*(?P<operator>!=|<=|>=|=|~|<|>)\s*(?P<text>.*)", re.DOTALL
)
HOW = "such as key=UA, value~late, header.source=tower or value.delay>60"

Found = str | float | bool | None
Condition = Callable[[Any, Access], bool]


def parse_condition(text: str) -> Condition:
    """Raises BadValue."""
    parts = CONDITION.fullmatch(text.strip())
    if parts is None or (parts["field"] == "header" and not parts["path"]):
        raise BadValue(f"{text!r} is not a condition, {HOW}")
    field_of, compare = field(parts["field"], parts["path"]), comparison(parts["operator"], parts["text"])
    return lambda record, access: compare(field_of(record, access))


def fulfilling(records: Sequence[Any], access: Access, conditions: Sequence[Condition]) -> list[Any]:
    """The records that fulfil all conditions."""
    return [record for record in records if all(condition(record, access) for condition in conditions)]


def field(name: str, path: str | None) -> Callable[[Any, Access], Found]:
    """The function that finds the field of a record; None where it has none."""

    def of_header(record: Any, access: Access) -> Found:
        data = next((data for each, data in access.headers(record) if each == path), None)
        return None if data is None else data.decode(errors="surrogateescape")

    def of_whole(record: Any, access: Access) -> Found:
        data: bytes | None = getattr(access, name)(record)
        return None if data is None else data.decode(errors="surrogateescape")

    def of_json(record: Any, access: Access) -> Found:
        data = getattr(access, name)(record)
        try:
            found = None if data is None else json.loads(data)
        except (ValueError, RecursionError):  # it is not JSON
            return None
        for step in str(path).split("."):
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            else:
                found = found.get(step) if isinstance(found, dict) else None
        return found if isinstance(found, Found) else json.dumps(found, ensure_ascii=False)

    if name == "header":
        return of_header
    return of_whole if path is None else of_json


def comparison(operator: str, text: str) -> Callable[[Found], bool]:
    """Raises BadValue for a comparison of numbers with what is none."""
    if operator in ("=", "!="):
        wanted = operator == "="
        return lambda found: (found is not None and same(found, text)) is wanted
    if operator == "~":
        return lambda found: found is not None and text.lower() in shown(found).lower()
    number = number_in(text)
    if number is None:
        raise BadValue(f"{text!r} is not a number, which {operator} compares; {HOW}")
    compare: Callable[[float, float], bool] = {
        "<": float.__lt__,
        "<=": float.__le__,
        ">": float.__gt__,
        ">=": float.__ge__,
    }[operator]
    return lambda found: (has := number_in(found)) is not None and compare(has, number)


def same(found: Found, text: str) -> bool:
    return shown(found) == text or (not isinstance(found, str | bool) and number_in(found) == number_in(text))


def shown(found: Found) -> str:
    """Text as it is, any other value as JSON."""
    return found if isinstance(found, str) else json.dumps(found)


def number_in(found: Found) -> float | None:
    if found is None or isinstance(found, bool):
        return None
    try:
        return float(found)
    except (ValueError, OverflowError):
        return None
