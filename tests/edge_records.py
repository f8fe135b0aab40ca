"""Records at the edges of what Kafka stores, which go through every tool as they are; batches that none can read."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from minibroker.any_cluster.batch_fetching import read_partition
from minibroker.any_cluster.bootstrap import parse_bootstrap
from minibroker.any_cluster.cluster import connected
from minibroker.any_cluster.record_lines import NewRecord
from minibroker.protocol.batches import scan_batches

ABOVE_64_KIB = bytes(range(256)) * 300  # bytes that are not UTF-8
WHEN = 1_357_020_000_000

EDGES = {
    "plain": NewRecord(b"k", b"v", [("source", b"tower"), ("source", b"radar")], None, WHEN),
    "neither key nor value": NewRecord(None, None, [], None, WHEN),
    "a tombstone": NewRecord(b"k", None, [], None, WHEN),
    "empty": NewRecord(b"", b"", [("", b"")], None, WHEN),
    "null header": NewRecord(b"k", b"v", [("a", None), ("a", b""), ("a", None)], None, WHEN),
    "bytes that are not UTF-8": NewRecord(b"\xff\0", b"\xfe\xff", [("n", b"\xff")], None, WHEN),
    "a name that is not UTF-8": NewRecord(b"k", b"v", [("a\udcff", b"x"), ("a\udcff", None)], None, WHEN),
    "a name with NUL": NewRecord(b"k", b"v", [("ends\0not here", b"x")], None, WHEN),
    "what looks like our base64": NewRecord(b"base64:", b"base64:!", [("base64:", b"base64:eA==")], None, WHEN),
    "ends of lines": NewRecord(b"a\r\n", b"\r\nb\rc\n\r", [("l\r\n", b"x\r\ny\n")], None, WHEN),
    "control characters": NewRecord(b"\x1b[2J\0", "\x7f\x9b\u2028\ufeff".encode(), [("\t", b"\x08")], None, WHEN),
    "above 64 KiB": NewRecord(ABOVE_64_KIB, ABOVE_64_KIB * 2, [("h", ABOVE_64_KIB)], None, WHEN),
    "64 KiB of text": NewRecord(b"k", ("\N{SNOWMAN}\r\n" * 20_000).encode(), [("h" * 70_000, b"v")], None, WHEN),
} | {
    f"the time {timestamp_ms}": NewRecord(b"k", b"v", [], None, timestamp_ms)
    for timestamp_ms in (0, 1, -1, -2, -62_135_596_800_000, 1_730_176_462_000_000_000, 2**63 - 1, -(2**63))
}
# It returns the name up to a NUL, as if there were no more.
SHORTENED_BY_LIBRDKAFKA = {"a name with NUL": NewRecord(b"k", b"v", [("ends", b"x")], None, WHEN)}


def named(records: list[NewRecord]) -> dict[str, NewRecord]:
    """The records under the names of the edges that they should be."""
    return dict(zip(EDGES, records, strict=True))


def stored(bootstrap: str, topic: str) -> list[NewRecord]:
    """The records of the topic's partition 0, decoded from the batches that its leader has."""
    records: list[NewRecord] = []
    position = 0
    with connected(parse_bootstrap(bootstrap)) as client:
        while True:
            fetched = read_partition(client, topic, 0, position, committed=False)
            assert (fetched.failure, fetched.unreadable) == (None, ())
            if fetched.next == position:
                return records
            position = fetched.next
            for _, record, _ in fetched.records:
                records.append(NewRecord(record.key, record.value, list(record.headers), None, record.timestamp_ms))


def damage(log: Path, base_offset: int, how: str) -> None:
    """Overwrite a byte of the batch at that offset: its CRC is wrong then, or right with a record of a wrong length."""
    data = bytearray(log.read_bytes())
    view = next(each for each in scan_batches(data, 0, len(data)) if each.base_offset == base_offset)
    start, end = view.position, view.position + view.size_bytes
    if how == "its CRC is wrong":
        data[end - 1] ^= 0xFF
    else:
        data[start + 61] = 0x7E
        data[start + 17 : start + 21] = crc32c(bytes(data[start + 21 : end])).to_bytes(4, "big")
    with log.open("r+b") as file:
        file.seek(start)
        file.write(data[start:end])
