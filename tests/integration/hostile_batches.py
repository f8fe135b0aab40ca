"""Record batches as no honest client writes them, each with what Apache Kafka 2.0.1 answers to it.

From version 3 on Produce carries exactly one batch of magic 2 a partition: a request that does not is malformed, and
the connection is closed. Before, it carried whatever there was, and what has no whole batch in it is nothing to do.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from typing import NamedTuple

import crc32c

from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import BATCH_HEADER_FORMAT, BatchHeader, build_batch, read_header

HEADER = struct.Struct(BATCH_HEADER_FORMAT)
CRC_COVERS_FROM = 21  # the bytes from `attributes` on
TIMESTAMP_MS = 1_500_000_000_000


def records(count: int = 3, size_bytes: int = 10) -> list[Record]:
    return [Record(i, TIMESTAMP_MS + i, b"key %d" % i, b"v" * size_bytes) for i in range(count)]


def valid(size_bytes: int = 10) -> bytes:
    return bytes(build_batch(records(size_bytes=size_bytes)))


def forged(*, section: bytes | None = None, **fields: int) -> bytes:
    """A valid batch with other header fields or another records section; length and CRC are made right for it."""
    batch = valid()
    header = read_header(batch)
    body = batch[HEADER.size :] if section is None else section
    header = BatchHeader(**{**header._asdict(), "batch_length": HEADER.size - 12 + len(body), **fields})
    data = bytearray(HEADER.pack(*header) + body)
    struct.pack_into(">I", data, CRC_COVERS_FROM - 4, crc32c.crc32c(data[CRC_COVERS_FROM:]))
    return bytes(data)


def patched(position: int, format_: str, value: int) -> bytes:
    """A valid batch with a field overwritten and the CRC left as it was."""
    data = bytearray(valid())
    struct.pack_into(format_, data, position, value)
    return bytes(data)


def one_record(section: bytes) -> bytes:
    """A batch that says it holds one record."""
    return forged(section=section, records_count=1, last_offset_delta=0)


def sized(body: bytes) -> bytes:
    """The bytes of a record with its length in front."""
    assert len(body) < 64
    return bytes([len(body) * 2]) + body


OK = 0
CORRUPT_MESSAGE = 2
UNKNOWN_SERVER_ERROR = -1
CLOSED = "closed"
Outcome = int | str


class Case(NamedTuple):
    """The bytes, and what is answered in versions 3 and later; in version 2 where that differs."""

    build: Callable[[], bytes]
    outcome: Outcome
    outcome_v2: Outcome | None = None


# What the header, the CRC and the bytes' number show; more of it is recorded, in
# tests/golden/conversations/kafka-2.0.1/producing.txt.
HEADER_CASES: dict[str, Case] = {
    "length one less": Case(lambda: patched(8, ">i", len(valid()) - 13), CORRUPT_MESSAGE),
    "length one more": Case(lambda: patched(8, ">i", len(valid()) - 11), CLOSED, OK),
    "half a header": Case(lambda: valid()[:30], CLOSED, OK),
    "a header alone": Case(lambda: valid()[:61], CLOSED, OK),
    "trailing zeros": Case(lambda: valid() + bytes(40), CLOSED, CORRUPT_MESSAGE),
    "record count 2 Gi": Case(lambda: forged(records_count=0x7FFFFFFF), CORRUPT_MESSAGE),
    "last offset delta the largest": Case(lambda: forged(last_offset_delta=0x7FFFFFFF), CORRUPT_MESSAGE),
    "codec 4": Case(lambda: forged(attributes=4), UNKNOWN_SERVER_ERROR),
    "codec 5": Case(lambda: forged(attributes=5), UNKNOWN_SERVER_ERROR),
    "codec 7": Case(lambda: forged(attributes=7), UNKNOWN_SERVER_ERROR),
    "unknown attribute bits": Case(lambda: forged(attributes=0x7FC0), OK),
    "timestamps far from now": Case(lambda: forged(base_timestamp=2**62, max_timestamp=2**62), OK),
}
# What only a look at the records shows.
RECORD_CASES: dict[str, Case] = {
    "gzip that is not": Case(lambda: forged(attributes=1), UNKNOWN_SERVER_ERROR),
    "snappy that is not": Case(lambda: forged(attributes=2), UNKNOWN_SERVER_ERROR),
    "lz4 that is not": Case(lambda: forged(attributes=3), UNKNOWN_SERVER_ERROR),
    "gzip cut short": Case(lambda: forged(attributes=1, section=gzip.compress(valid()[61:])[:-10]), CORRUPT_MESSAGE),
    "gzip of nothing": Case(lambda: forged(attributes=1, section=gzip.compress(b"")), CORRUPT_MESSAGE),
    "a record fewer than the header says": Case(lambda: forged(records_count=4, last_offset_delta=3), CORRUPT_MESSAGE),
    "a record more than the header says": Case(lambda: forged(records_count=2, last_offset_delta=1), CORRUPT_MESSAGE),
    "bytes after the last record": Case(lambda: forged(section=valid()[61:] + b"xx"), CORRUPT_MESSAGE),
    "a record longer than the batch": Case(lambda: one_record(b"\xfe\x7f" + bytes(20)), CORRUPT_MESSAGE),
    "a record of negative length": Case(lambda: one_record(b"\x01" + bytes(20)), CORRUPT_MESSAGE),
    "a varint that never ends": Case(lambda: one_record(b"\xff" * 30), UNKNOWN_SERVER_ERROR),
    "a key longer than its record": Case(lambda: one_record(sized(b"\0\0\0\x7e" + bytes(10))), CORRUPT_MESSAGE),
    "a header count larger than the record": Case(
        lambda: one_record(sized(b"\0\0\0\x01\x01\xfe\xff\xff\xff\x0f")), UNKNOWN_SERVER_ERROR
    ),
    "a negative header count": Case(lambda: one_record(sized(b"\0\0\0\x01\x01\x01")), CORRUPT_MESSAGE),
    "a null header name": Case(lambda: one_record(sized(b"\0\0\0\x01\x01\x02\x01\x01")), CORRUPT_MESSAGE),
}
