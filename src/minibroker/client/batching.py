"""Chooses the partition of each record, and divides the records of a partition into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

BATCH_MAX_BYTES = 500_000  # half of what a broker accepts by default
RECORD_OVERHEAD_BYTES = 70  # at most, in any format, besides headers
HEADER_OVERHEAD_BYTES = 10


def partition_for(key: bytes | None, index: int, count: int) -> int:
    """As kafka 2.0.1 DefaultPartitioner with a key; without, by turns."""
    return index % count if key is None else (murmur2(key) & 0x7FFFFFFF) % count


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of kafka 2.0.1 Utils.murmur2, unsigned."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    whole = len(data) // 4 * 4
    hashed = 0x9747B28C ^ len(data)
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        hashed = hashed * m & mask ^ (k ^ k >> 24) * m & mask
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * m & mask
    hashed = (hashed ^ hashed >> 13) * m & mask
    return hashed ^ hashed >> 15


class Sendable(Protocol):
    """A record before it is in a log."""

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def batches_of(
    records: Sequence[Sendable], indexes: Sequence[int], max_bytes: int = BATCH_MAX_BYTES
) -> Iterator[list[int]]:
    """Split the indexes into batches within those bytes, by default such as a broker accepts by default.

    A record above them is a batch alone.
    """
    piece: list[int] = []
    size = 0
    for index in indexes:
        more = size_of(records[index])
        if piece and size + more > max_bytes:
            yield piece
            piece, size = [], 0
        piece.append(index)
        size += more
    if piece:
        yield piece


def size_of(record: Sendable) -> int:
    """Return the most bytes that the record takes in a batch."""
    headers = sum(len(name) * 4 + len(value or b"") + HEADER_OVERHEAD_BYTES for name, value in record.headers)
    return RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers
