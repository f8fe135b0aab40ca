"""Records from lines: each a value, a key and a value, or a JSON object as `consume -o json` prints it.

Or from values with their sizes before them, and from whole files. An unreadable line raises CommandFailed with its
number, after the records of the lines before it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from minibroker.any_cluster.record_text import BINARY_SIZE
from minibroker.errors import CommandFailed
from minibroker.protocol.text import counted, header_name_read_back, read_back

VALUE_MAX_BYTES = 100 * 1024 * 1024
CHUNK_BYTES = 1 << 16
PARTITIONS = range(2**31)
TIMESTAMPS_MS = range(-(2**63), 2**63)
# Those that `consume -o json` prints. A record gets its topic and offset from where it is written.
FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
NO_VALUE = 'no "value"; write "value": null for a tombstone'
NOT_JSON = "leave --json out if the lines are the values"
Headers = list[tuple[str, bytes | None]]
OwnHeaders = Callable[[str, int, int], Headers]  # of a topic, a partition and an offset
Encoding = Literal["text", "hex", "base64"]  # of keys and values in lines


def decode(data: bytes, encoding: Encoding) -> bytes:
    """Return the bytes that are written so. Raises ValueError."""
    if encoding == "hex":
        return bytes.fromhex(data.decode("ascii"))
    return base64.b64decode(data, validate=True) if encoding == "base64" else data


class NewRecord(NamedTuple):
    """A record to be sent; None for the partition and the timestamp leaves them to the client.

    Bytes in a header's name that are not UTF-8 are surrogates, as Python's `surrogateescape` makes them.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp_ms: int | None = None


def is_utf8(name: str) -> bool:
    """Whether a header's name has no bytes but UTF-8."""
    return name.isascii() or not any("\udc80" <= each <= "\udcff" for each in name)


class Template(NamedTuple):
    """The notation of lines, and the values for what they leave out."""

    key: bytes | None = None
    headers: Headers = []  # noqa: RUF012  (never changed)
    partition: int | None = None
    key_separator: bytes | None = None
    is_json: bool = False
    key_encoding: Encoding = "text"  # of keys and values in lines
    value_encoding: Encoding = "text"


class LineError(ValueError):
    """An error in a line, and the next step."""


def pieces_of(source: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """Yield the bytes between delimiters, and those after the last one if there are any."""
    unread = bytearray()
    while chunk := source.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
        looked_at = max(0, len(unread) - len(delimiter) + 1)
        unread += chunk
        if unread.find(delimiter, looked_at) >= 0:
            *pieces, rest = bytes(unread).split(delimiter)
            unread = bytearray(rest)
            yield from pieces
    if unread:
        yield bytes(unread)


def records_with_lengths(source: BinaryIO, template: Template) -> Iterator[NewRecord]:
    """Values, each after its size as kcat's %R prints it; size -1 stands for a null value. Raises CommandFailed."""
    number = 0
    while size_bytes := source.read(BINARY_SIZE.size):
        number += 1
        if len(size_bytes) < BINARY_SIZE.size:
            raise CommandFailed(f"record {number}: the input ends within its size; the input is cut off")
        (size,) = BINARY_SIZE.unpack(size_bytes)
        if not -1 <= size <= VALUE_MAX_BYTES:
            raise CommandFailed(
                f"record {number}: {size} is not the size of a value; check that `consume -f '%R%v'` wrote the input"
            )
        value = None if size < 0 else source.read(size)
        if value is not None and len(value) < size:
            raise CommandFailed(
                f"record {number}: the input ends after {counted(len(value), 'byte')} of {size}; the input is cut off"
            )
        yield NewRecord(template.key, value, template.headers, template.partition)


def records_of_files(files: Iterable[Path], template: Template) -> Iterator[NewRecord]:
    """A record of each file. Raises CommandFailed, before the first record for a file that cannot be opened."""
    for path in (paths := list(files)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise CommandFailed(f"cannot read {path}: {error.strerror}; name another file; nothing was sent") from error
    for path in paths:
        try:
            value = path.read_bytes()
        except OSError as error:
            raise CommandFailed(f"cannot read {path}: {error.strerror}; name another file") from error
        yield NewRecord(template.key, value, template.headers, template.partition)


def records_of(lines: Iterable[bytes], template: Template, *, by_line: bool = True) -> Iterator[NewRecord]:
    r"""A record of each line, without the \n that ends it if they end as lines do. Raises CommandFailed.

    Every other byte is kept: a \r before it too, as kcat keeps it.
    """
    read = read_json if template.is_json else read_plain
    for number, line in enumerate(lines, 1):
        try:
            yield read(line.removesuffix(b"\n") if by_line else line, template)
        except LineError as error:
            raise CommandFailed(f"line {number}: {error}") from None


def read_plain(line: bytes, template: Template) -> NewRecord:
    key, value = template.key, line
    if template.key_separator is not None:
        key, found, value = line.partition(template.key_separator)
        if not found:
            separator = template.key_separator.decode(errors="replace")
            raise LineError(f"no {separator!r} between key and value; correct the line, or --key-separator")
        if template.key_encoding != "text":
            key = decoded(key, "key", template.key_encoding)
    if template.value_encoding != "text":
        value = decoded(value, "value", template.value_encoding)
    return NewRecord(key, value, template.headers, template.partition)


def decoded(data: bytes, name: str, encoding: Encoding) -> bytes:
    """Raises LineError."""
    try:
        return decode(data, encoding)
    except ValueError:
        text = data.decode(errors="replace")
        raise LineError(f"{name} {text!r} is not {encoding}; correct the line, or --{name}-encoding") from None


def read_json(line: bytes, template: Template) -> NewRecord:
    row = json_row(line)
    unknown = [name for name in row if name not in FIELDS]
    if unknown:
        fields = ", ".join(f'"{name}"' for name in FIELDS)
        raise LineError(f'"{unknown[0]}" is not a field of a record ({fields}); correct it, or {NOT_JSON}')
    if "value" not in row:
        raise LineError(NO_VALUE)
    return NewRecord(
        data_of(row["key"], "key") if "key" in row else template.key,
        data_of(row["value"], "value"),
        [*headers_of(row.get("headers", [])), *template.headers],
        template.partition if template.partition is not None else number_of(row, "partition", PARTITIONS),
        number_of(row, "timestamp", TIMESTAMPS_MS),
    )


def json_row(line: bytes) -> dict[str, Any]:
    """The object of a line, if Python's numbers and objects keep all that is in it. Raises LineError."""
    try:
        row = DECODER.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
    except LineError:
        raise
    except (ValueError, RecursionError):
        raise LineError(f"not JSON; {NOT_JSON}") from None
    if not isinstance(row, dict):
        raise LineError(f"not an object with the fields of a record; {NOT_JSON}")
    return row


def exact_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(text):
        raise LineError(f"{text} would be rounded; write the value that it is in as text, in quotes")
    return number


def no_number(text: str) -> float:
    raise LineError(f"{text} is not JSON; write it in quotes")


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise LineError(f'"{twice}" is twice in one object; leave one out, or write headers as [["name", "value"]]')
    return row


DECODER = json.JSONDecoder(  # `json.loads` would make one for each line
    parse_float=exact_number, parse_constant=no_number, object_pairs_hook=without_repeats
)


def data_of(value: Any, name: str) -> bytes | None:
    """Text as it is, base64 decoded, any other value as JSON. Raises LineError."""
    if value is not None and not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="backslashreplace")  # half a surrogate pair, as JSON escapes it
    try:
        return read_back(value)
    except UnicodeEncodeError:
        raise LineError(f'"{name}" has half of a surrogate pair; write its bytes as `base64:` and base64') from None
    except ValueError:
        raise LineError(f'"{name}" is not base64 after `base64:`; correct it') from None


def number_of(row: dict[str, Any], name: str, allowed: range) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        between = f"from {allowed[0]} to {allowed[-1]}"
        raise LineError(f'"{name}" is not a whole number {between}; correct it, or leave it out')
    return value


def headers_of(value: Any) -> Headers:
    """Read an object, or a list of pairs, in which a name may be repeated. Raises LineError."""
    pairs: Sequence[Any] = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or not all(is_header(pair) for pair in pairs):
        raise LineError('"headers" are neither {"name": "value"} nor [["name", "value"]]; correct them')
    return [(name_of(name), data_of(text, "headers")) for name, text in pairs]


def name_of(text: str) -> str:
    data_of(text, "headers")  # refuses what no bytes stand for
    return header_name_read_back(text)


def is_header(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)
