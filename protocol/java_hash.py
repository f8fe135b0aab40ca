"""Numbers that Java makes of names, by which Kafka chooses partitions and fetchers."""

from __future__ import annotations

from functools import lru_cache

from minibroker.protocol.group_records import LONG_NAME

NAMES_REMEMBERED = 1024  # groups, transactional ids and topics of which the hash is known


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, as a signed 32-bit integer."""
    return _remembered_hash(text) if len(text) <= LONG_NAME else _java_hash(text)


def _java_hash(text: str) -> int:
    value = 0
    units = memoryview(text.encode("utf-16", "surrogatepass")).cast("H")[1:]  # native byte order, after a mark
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return as_int(value)


_remembered_hash = lru_cache(maxsize=NAMES_REMEMBERED)(_java_hash)


def as_int(value: int) -> int:
    """The signed 32-bit integer with the last 32 bits of a number."""
    return ((value + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def abs_of(value: int) -> int:
    """As kafka 2.0.1 Utils.abs: 0 for the least integer, which has no positive counterpart."""
    return 0 if value == -(2**31) else abs(value)
