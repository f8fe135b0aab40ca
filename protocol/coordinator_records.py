"""Records by which a coordinator keeps its state: a numbered type, the names that make the key, and a value.

key: type: int16 | the names
value: version: int16 | the fields of that version; null deletes the earlier value of the key
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.group_records import UnreadableRecordError
from minibroker.protocol.record import Record
from minibroker.protocol.schema import Message

VALUE_VERSION = 0

_number = struct.Struct(">h")


class Found(NamedTuple):
    """A record that was read; a `value` of None deletes the earlier one."""

    type: int
    names: tuple[Any, ...]
    value: Any


class RecordTypes:
    """The types of a coordinator's records: the message of each key, and of each value."""

    def __init__(self, keys: Mapping[int, Message], values: Mapping[int, Message]) -> None:
        self._keys = keys
        self._values = values

    def key(self, number: int, *names: Any) -> bytes:
        """The key. Raises struct.error for a name of more than 32767 bytes."""
        message = self._keys[number]
        return encoded(message, number, names[: len(message.fields)])

    def value(self, number: int, value: Any) -> bytes | None:
        return None if value is None else encoded(self._values[number], VALUE_VERSION, value)

    def read(self, record: Record) -> Found | None:
        """Decode a record; None for one of another type. Raises UnreadableRecordError."""
        key = record.key or b""
        if len(key) < _number.size:
            return None
        (number,) = _number.unpack_from(key)
        message = self._keys.get(number)
        if message is None:
            return None
        names = tuple(decoded(message, key))
        if record.value is None:
            return Found(number, names, None)
        message = self._values.get(number)  # without one, its contents have no use any more
        return Found(number, names, True if message is None else decoded(message, record.value))


def encoded(message: Message, number: int, value: Any) -> bytes:
    return b"".join((_number.pack(number), *message.encode(0, value)))


def decoded(message: Message, data: bytes) -> Any:
    try:
        if len(data) < _number.size:
            raise UnreadableRecordError(f"a value of {len(data)} bytes")
        return message.decode(0, data, _number.size)[0]
    except KafkaProtocolError as error:
        raise UnreadableRecordError(str(error)) from None
