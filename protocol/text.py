"""Bytes, times and values as text, for JSON and for terminals.

Bytes that are not UTF-8 are base64 after `base64:`, and so is text that begins with it: `read_back` inverts `shown`.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable
from typing import Any

BASE64 = "base64:"
# Terminals obey these in any encoding, and JSON does not escape them.
CONTROL_CHARACTERS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def shown(data: bytes | None) -> str | None:
    """Text as text, other bytes as base64 after `base64:`; None stays None."""
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = BASE64
    return BASE64 + base64.b64encode(data).decode() if text.startswith(BASE64) else text


def read_back(text: str | None) -> bytes | None:
    """The bytes that `shown` returned this text for. Raises ValueError for invalid base64."""
    if text is None:
        return None
    if text.startswith(BASE64):
        return base64.b64decode(text.removeprefix(BASE64), validate=True)
    return text.encode()


def json_text(value: Any) -> str:
    """The value as JSON, also with the control characters escaped that JSON allows in strings."""
    return json.dumps(value, ensure_ascii=False).translate(CONTROL_CHARACTERS)


def utf16_length(text: str) -> int:
    """The length as Java's String.length counts it, in UTF-16 units: Kafka's limits of text are in these."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def counted(count: int, noun: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def ranges(numbers: Iterable[int]) -> str:
    """`0,2-4`: ascending numbers, with runs of them shortened."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def as_utc(timestamp_ms: int) -> str:
    date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(timestamp_ms // 1000))
    return f"{date}.{timestamp_ms % 1000:03d}Z"
