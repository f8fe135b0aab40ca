"""Which records a search is for: a field, an operator and a text. Data, never code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from minibroker.console.answers import Refused
from minibroker.protocol.record import Record

FIELDS = ("any", "key", "value", "header")
OPERATORS = ("contains", "is", "begins")
HEX = re.compile(r"0x((?:[0-9a-fA-F]{2})+)")

Matches = Callable[[Record], bool]


class Search(NamedTuple):
    """`header` is the name that a header must have, empty for any. An empty text matches everything."""

    field: str = "any"
    operator: str = "contains"
    text: str = ""
    header: str = ""
    until_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it matches every record."""
        return not self.text and not self.header and self.until_ms is None

    def matcher(self) -> Matches:
        """Raises Refused for an unknown field or operator."""
        if self.field not in FIELDS or self.operator not in OPERATORS:
            raise Refused(400, f"search in {', '.join(FIELDS)} by {', '.join(OPERATORS)}; correct the address")
        compare = comparison(self.operator, self.text)
        until_ms = math.inf if self.until_ms is None else self.until_ms
        return lambda record: record.timestamp_ms <= until_ms and self._is_in(record, compare)

    def _is_in(self, record: Record, compare: Callable[[bytes | None], bool]) -> bool:
        if self.field == "key":
            return compare(record.key)
        if self.field == "value":
            return compare(record.value)
        headers = [(name, data) for name, data in record.headers if not self.header or name == self.header]
        if self.field == "header":
            return any(compare(data) or (not self.header and compare(encoded(name))) for name, data in headers)
        return compare(record.key) or compare(record.value) or any(compare(data) for _, data in headers)


def comparison(operator: str, text: str) -> Callable[[bytes | None], bool]:
    """`contains` and `begins` take either case of ASCII letters; `0x...` is bytes."""
    if not text:
        return lambda data: True
    digits = HEX.fullmatch(text)
    wanted = bytes.fromhex(digits[1]) if digits else encoded(text)
    if operator == "is":
        return lambda data: data == wanted
    lowered = wanted if digits else wanted.lower()
    if operator == "begins":
        return lambda data: data is not None and data[: len(lowered)].lower() == lowered.lower()
    if digits:
        return lambda data: data is not None and wanted in data
    return lambda data: data is not None and lowered in data.lower()


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
