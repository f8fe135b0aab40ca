"""Records from lines: each a value, a key and a value, or a JSON object as `consume -o json` prints it.

Pure. An unreadable line raises CommandFailed with its number, after the records of the lines before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from minibroker.cli.failures import CommandFailed
from minibroker.protocol.text import read_back

TIMESTAMP_MAX = 2**63 - 1
Headers = list[tuple[str, bytes | None]]


class NewRecord(NamedTuple):
    """A record to be sent; None for the partition and the timestamp leaves them to the client."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp_ms: int | None = None


class Template(NamedTuple):
    """What applies where a line gives nothing."""

    key: bytes | None = None
    headers: Headers = []  # noqa: RUF012  (never changed)
    partition: int | None = None
    key_separator: bytes | None = None
    is_json: bool = False


class LineError(ValueError):
    """An error in a line, and the next step."""


def records_of(lines: Iterable[bytes], template: Template) -> Iterator[NewRecord]:
    """Raises CommandFailed."""
    read = read_json if template.is_json else read_plain
    for number, line in enumerate(lines, 1):
        try:
            yield read(line.removesuffix(b"\n").removesuffix(b"\r"), template)
        except LineError as error:
            raise CommandFailed(f"line {number}: {error}") from None


def read_plain(line: bytes, template: Template) -> NewRecord:
    key, value = template.key, line
    if template.key_separator is not None:
        key, found, value = line.partition(template.key_separator)
        if not found:
            separator = template.key_separator.decode(errors="replace")
            raise LineError(f"no {separator!r} between key and value; correct the line, or --key-separator")
    return NewRecord(key, value, template.headers, template.partition)


def read_json(line: bytes, template: Template) -> NewRecord:
    try:
        row = json.loads(line)
    except ValueError:
        raise LineError("not JSON; leave --json out if the lines are the values") from None
    if not isinstance(row, dict) or not row.keys() & {"key", "value"}:
        raise LineError('not an object with "key" or "value"; leave --json out if the lines are the values')
    return NewRecord(
        data_of(row, "key") if "key" in row else template.key,
        data_of(row, "value"),
        [*headers_of(row.get("headers", [])), *template.headers],
        template.partition if template.partition is not None else number_of(row, "partition"),
        number_of(row, "timestamp"),
    )


def data_of(row: dict[str, Any], name: str) -> bytes | None:
    """Text as it is, base64 decoded, any other value as JSON."""
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    try:
        return read_back(value)
    except ValueError:
        raise LineError(f'"{name}" is not base64 after `base64:`; correct it') from None


def number_of(row: dict[str, Any], name: str) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= TIMESTAMP_MAX:
        raise LineError(f'"{name}" is not a whole number of at least 0; correct it, or leave it out')
    return value


def headers_of(value: Any) -> Headers:
    """Read an object, or a list of pairs, in which a name may be repeated."""
    pairs: Sequence[Any] = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or not all(is_header(pair) for pair in pairs):
        raise LineError('"headers" are neither {"name": "value"} nor [["name", "value"]]; correct them')
    return [(name, data_of({"headers": text}, "headers")) for name, text in pairs]


def is_header(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)
