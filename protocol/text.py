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


def header_name_shown(name: str) -> str:
    """The name of a header as `shown` shows its bytes; bytes that are not UTF-8 are surrogates in it."""
    return shown(name.encode("utf-8", "surrogateescape")) or ""


def header_name_read_back(text: str) -> str:
    """The name that `header_name_shown` returned this text for. Raises ValueError for invalid base64."""
    return (read_back(text) or b"").decode("utf-8", "surrogateescape")


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


def reason_of(error: Exception) -> str:
    """Why a file or a socket failed, without Python's `[Errno 2]` and the path, which the message has already."""
    if isinstance(error, UnicodeDecodeError):
        return f"not {error.encoding.upper()}"
    return getattr(error, "strerror", None) or str(error)


# The errors of reading a JSON document of another form: one that nests too deep, has a number that Python cannot round,
# lacks a field, or has a value of another type.
OTHER_FORM = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)

# Kafka's messages about a value's type, which end in a type of Java's.
JAVA_TYPES = {
    "Not a number of type SHORT": "not a whole number of 16 bits",
    "Not a number of type INT": "not a whole number of 32 bits",
    "Not a number of type LONG": "not a whole number of 64 bits",
    "Not a number of type DOUBLE": "not a number",
}


def without_java_types(message: str) -> str:
    """A message of Kafka's for people who do not know Java."""
    for theirs, ours in JAVA_TYPES.items():
        message = message.replace(theirs, ours)
    return message


def as_utc(timestamp_ms: int) -> str:
    date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(timestamp_ms // 1000))
    return f"{date}.{timestamp_ms % 1000:03d}Z"


def json_object(data: bytes | bytearray, example: str) -> dict[str, Any]:
    """The object in the body of an HTTP request, an empty one without a body.

    Raises ValueError with what to correct; `example` shows an object.
    """
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON; correct it") from None
    if not isinstance(value, dict):
        raise ValueError(f"the body is not an object, such as {example}; correct it")
    return value
