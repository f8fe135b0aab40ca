"""The log of ZooKeeper: the writes of all its clients, in their order.

file: magic, version: int32 | database: int64 | transactions, then zeros
transaction: checksum: int64 | size: int32 | header | change | "B"
header: session: int64 | number in it: int32 | number: int64 | time: int64 | type: int32
multi: count: int32 | each: type: int32 | size: int32 | change
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

HEAD = struct.Struct(">qi")
TYPE_AT, BODY_AT = 28, 32
FILE_HEAD_BYTES = 16
CREATE, CREATE_2, SET_DATA, MULTI = 1, 15, 5, 14


def written(logs: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the data of each create and setData, those within a multi too."""
    for log in logs:
        data, at = log.read_bytes(), FILE_HEAD_BYTES
        while at + HEAD.size <= len(data):
            _, size = HEAD.unpack_from(data, at)
            at += HEAD.size
            if not size:
                break
            yield from written_by(int32(data, at + TYPE_AT), data[at + BODY_AT : at + size])
            at += size + 1


def written_by(kind: int, change: bytes) -> Iterator[tuple[str, bytes]]:
    if kind in (CREATE, CREATE_2, SET_DATA):
        path, at = buffer(change, 0)
        yield path.decode(), buffer(change, at)[0]
    elif kind == MULTI:
        at = 4
        for _ in range(int32(change, 0)):
            part, after = buffer(change, at + 4)
            yield from written_by(int32(change, at), part)
            at = after


def int32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def buffer(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes with their size in front, and where they end; none if it is -1."""
    size = max(0, int32(data, at))
    return data[at + 4 : at + 4 + size], at + 4 + size
