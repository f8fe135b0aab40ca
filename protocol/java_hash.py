"""Numbers that Java makes of names and ids, by which Kafka chooses partitions and fetchers; the order of its tables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import TypeVar

from minibroker.protocol.group_records import LONG_NAME

K = TypeVar("K", bound=Hashable)

NAMES_REMEMBERED = 1024  # groups, transactional ids and topics of which the hash is known
LEAST_BUCKETS = 16
LOAD_FACTOR = 0.75


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


def uuid_hash(topic_id: bytes) -> int:
    """UUID.hashCode."""
    most, least = int.from_bytes(topic_id[:8], "big"), int.from_bytes(topic_id[8:], "big")
    both = most ^ least
    return as_int((both >> 32) ^ both)


def java_order(keys: Iterable[K], hash_of: Callable[[K], int], *, copied: bool = False) -> list[K]:
    """The order in which a HashMap has these keys: by buckets. `copied`: one made of a collection is larger at times.

    Those of one bucket are in the order in which they were added, for which this has their own order.
    """
    ordered = sorted(keys)  # type: ignore[type-var]
    if len(ordered) < 2:  # the topics, and the partitions, of most members of a large group
        return ordered
    buckets = LEAST_BUCKETS
    if copied:
        while buckets < int(len(ordered) / LOAD_FACTOR) + 1:
            buckets *= 2
    else:
        while len(ordered) > LOAD_FACTOR * buckets:
            buckets *= 2

    def bucket(key: K) -> int:
        value = hash_of(key) & 0xFFFFFFFF
        return (value ^ (value >> 16)) & (buckets - 1)

    return sorted(ordered, key=bucket)
