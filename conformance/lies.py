"""A request that lies about one of its lengths, or has a text that is not UTF-8."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from minibroker.protocol.primitives import Sized, format_of
from minibroker.protocol.schema import Array, Field, Message

NOT_UTF8 = 0xFF


class Prefix(NamedTuple):
    """A length or count in an encoded message."""

    position: int
    form: str  # of `struct`
    has_text: bool


@dataclass(frozen=True)
class Lie:
    """Another number in the prefix at a `place`, modulo how many there are; 1 and -1 are added to the true one.

    Without a number, the text behind a prefix is spoiled.
    """

    place: int
    number: int | None

    def told(self, message: Message, version: int, value: Sequence[Any]) -> bytes:
        """Return the encoded message with the lie in it. Only for versions without compact types."""
        told = bytearray().join(bytes(chunk) for chunk in message.encode(version, value))
        places = [each for each in prefixes(message, version, value) if self.number is not None or each.has_text]
        if not places:
            return bytes(told)
        position, form, _ = places[self.place % len(places)]
        if self.number is None:
            told[position + struct.calcsize(form)] = NOT_UTF8
        else:
            (length,) = struct.unpack_from(form, told, position)
            number = length + self.number if abs(self.number) == 1 else self.number
            largest = (1 << 8 * struct.calcsize(form) - 1) - 1
            struct.pack_into(form, told, position, max(-largest - 1, min(number, largest)))
        return bytes(told)


def prefixes(message: Message, version: int, value: Sequence[Any]) -> list[Prefix]:
    """Every length and count of the encoded message, in order."""
    assert not message.is_flexible(version)
    found: list[Prefix] = []
    _walk(message.fields, version, value, 0, found)
    return found


def _walk(fields: Sequence[Field], version: int, row: Sequence[Any], position: int, found: list[Prefix]) -> int:
    for field, value in zip(fields, row, strict=True):
        if field.is_in(version):
            position = _after(field.kind_in(version), version, value, position, found)
    return position


def _after(kind: Any, version: int, value: Any, position: int, found: list[Prefix]) -> int:
    if isinstance(kind, Sized):
        is_text = kind.kind == "string"
        form = ">h" if is_text else ">i"
        found.append(Prefix(position, form, is_text and bool(value)))
        return position + struct.calcsize(form) + len((value.encode() if is_text else value) if value else b"")
    if not isinstance(kind, Array):
        return position + struct.calcsize(">" + str(format_of(kind)))
    found.append(Prefix(position, ">i", False))
    position += struct.calcsize(">i")
    for each in value or ():
        if kind.element is None:
            position = _walk(kind.fields, version, each, position, found)
        else:
            position = _after(kind.element, version, each, position, found)
    return position
