"""A request body for any API and version, made from its schema: one row in each array, and harmless to carry out."""

from __future__ import annotations

import itertools
import struct
from typing import Any

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.codegen import write_uvarint
from minibroker.protocol.schema import Array, Field, Message
from tests.integration.hostile_batches import valid

NO_SUCH_NAME = "in valid"  # as a topic it exists nowhere and cannot be made
COUNT_MARK = 77  # a count whose bytes appear nowhere else in such a request
COUNT_MARK_BYTES = COUNT_MARK.to_bytes(4, "big")
COMPACT_MARK = bytes([COUNT_MARK + 1])  # as flexible versions write it; in no header, and before the rows
SIZE_BYTES, FIXED_HEADER_BYTES = 4, 10


def sample_body(key: ApiKey, version: int, *, repeated: str | None = None) -> Any:
    """Build a body; the array at path `repeated` gets COUNT_MARK rows instead of one."""
    message = API_TABLE[key].request
    return message.type(**values(message, message.fields, version, "", repeated))


def values(message: Message, fields: tuple[Field, ...], version: int, prefix: str, repeated: str | None) -> Any:
    return {
        field.name: value_of(message, field, version, f"{prefix}{field.name}", repeated)
        for field in fields
        if field.is_in(version)
    }


def value_of(message: Message, field: Field, version: int, path: str, repeated: str | None) -> Any:
    kind = field.kind_in(version)
    if isinstance(kind, Array):
        if kind.element is not None:
            element = simple_value(kind.element, 0)
        else:
            element = message.row(path)(**values(message, kind.fields, version, f"{path}.", repeated))
        return [element] * (COUNT_MARK if path == repeated else 1)
    if field.name == "acks":
        return -1  # 0 would not be answered
    return simple_value(kind, field.default)


def simple_value(kind: Any, default: Any) -> Any:
    what = getattr(kind, "kind", None)
    if what == "records":
        return valid()
    if what == "string":
        return None if kind.is_nullable else NO_SUCH_NAME
    return default


def array_paths(key: ApiKey, version: int) -> list[str]:
    """The paths of the arrays a request of this version has."""
    fields = dict(API_TABLE[key].request.walk())
    return [
        path
        for path, field in fields.items()
        if isinstance(field.kind, Array)
        and all(fields[parent].is_in(version) for parent in itertools.accumulate(path.split("."), "{}.{}".format))
    ]


def is_nullable(key: ApiKey, path: str) -> bool:
    return any(field.kind.is_nullable for at, field in API_TABLE[key].request.walk() if at == path)


def with_count(frame: bytes, key: ApiKey, version: int, count: int) -> bytes:
    """The frame whose one count of COUNT_MARK is another; its size in front stays as it was, or fits."""
    if version < API_TABLE[key].request.first_flexible:
        position = position_of_count(frame)
        return frame[:position] + struct.pack(">i", count) + frame[position + 4 :]
    position = frame.index(COMPACT_MARK, SIZE_BYTES + FIXED_HEADER_BYTES)
    payload = frame[SIZE_BYTES:position] + write_uvarint(count + 1) + frame[position + 1 :]
    return struct.pack(">i", len(payload)) + payload


def position_of_count(frame: bytes) -> int:
    """Where the count of COUNT_MARK is in a frame that has one."""
    position = frame.rindex(COUNT_MARK_BYTES)
    assert frame.count(COUNT_MARK_BYTES[-1:], position) == 1
    return position
