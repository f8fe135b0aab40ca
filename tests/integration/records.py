"""Records as the tests write and compare them, and the sets every client is given."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from tests.integration.drivers.line_protocol import to_bytes, to_text

Headers = tuple[tuple[str, bytes | None], ...]
CODECS = ("none", "gzip", "snappy", "lz4")
CODECS_OF_TODAY = (*CODECS, "zstd")  # which only the newest format has
CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FIRST_TIMESTAMP_MS = 1_500_000_000_000
ALL_BYTES = bytes(range(256))
LARGE = 200 * 1024


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write (partition, offset and perhaps timestamp are not known yet) or one that was read."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = -1
    offset: int = -1

    def as_json(self) -> dict[str, Any]:
        return {
            "key": to_text(self.key),
            "value": to_text(self.value),
            "headers": [[name, to_text(value)] for name, value in self.headers],
            "timestamp_ms": self.timestamp_ms,
        }

    def written(self, partition: int, offset: int, timestamp_ms: int | None) -> Record:
        return replace(self, partition=partition, offset=offset, timestamp_ms=timestamp_ms)


def records_of(rows: list[dict[str, Any]]) -> list[Record]:
    """The records that a driver has read."""
    return [
        Record(
            key=to_bytes(row["key"]),
            value=to_bytes(row["value"]),
            headers=tuple((name, to_bytes(value)) for name, value in row["headers"]),
            timestamp_ms=row["timestamp_ms"],
            partition=row["partition"],
            offset=row["offset"],
        )
        for row in rows
    ]


def incompressible(size_bytes: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


def every_shape() -> list[Record]:
    """Each shape of key, value, header and timestamp a record can have; one timestamp goes backwards."""
    shapes = [
        Record(key=b"key", value=b"value"),
        Record(key=None, value=b"no key"),
        Record(key=b"tombstone", value=None),
        Record(key=b"", value=b""),
        Record(key=ALL_BYTES, value=ALL_BYTES * 3),
        Record(key=b"headers", value=b"", headers=(("trace", b"1"), ("trace", b"2"), ("", b"unnamed"))),
        Record(key=b"headers", value=None, headers=(("empty", b""), ("ключ", ALL_BYTES))),
        Record(key=b"large", value=incompressible(LARGE)),
        Record(key=b"large and even", value=b"even " * (LARGE // 5)),
        Record(key=b"k" * 5000, value=b"last"),
    ]
    stamped = [replace(record, timestamp_ms=FIRST_TIMESTAMP_MS + 1000 * i) for i, record in enumerate(shapes)]
    stamped[4] = replace(stamped[4], timestamp_ms=1)
    return stamped


def with_null_header() -> list[Record]:
    """A header without a value as well: kafka-python refuses to write one."""
    return [*every_shape(), Record(b"", b"", headers=(("null", None),), timestamp_ms=FIRST_TIMESTAMP_MS)]


def with_null_header_and_nothing() -> list[Record]:
    """A record with neither key nor value as well: kafka-python and aiokafka refuse to write one."""
    return [*with_null_header(), Record(key=None, value=None, timestamp_ms=FIRST_TIMESTAMP_MS)]


def shapes_for_a_command_line() -> list[Record]:
    """Records that kcat can be made to write: keys and headers of text, no timestamps of its own."""
    return [
        Record(key=b"key", value=b"value"),
        Record(key=None, value=ALL_BYTES * 3),
        Record(key=b"tombstone", value=None),
        Record(key="ключ".encode(), value=b"headers", headers=(("trace", b"1"), ("trace", b"2"))),
        Record(key=b"empty", value=b""),
        Record(key=b"large", value=incompressible(LARGE)),
    ]


def numbered(
    count: int, size_bytes: int = 20, *, first: int = 0, first_timestamp_ms: int | None = None
) -> list[Record]:
    """Records that say their place, padded with bytes no codec makes smaller."""
    padding = incompressible(size_bytes)
    return [
        Record(
            key=str(first + i).encode(),
            value=f"{first + i}:".encode() + padding[: size_bytes - len(f"{first + i}:")],
            timestamp_ms=None if first_timestamp_ms is None else first_timestamp_ms + 1000 * i,
        )
        for i in range(count)
    ]
