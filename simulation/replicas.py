"""Compares the replicas of a partition: their common content, from the files of their logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minibroker.protocol.batches import BatchView, scan_batches
from minibroker.protocol.framing import LENGTH_BYTES
from minibroker.protocol.record_batch import iter_records

MAX_DECOMPRESSED = 1 << 20
SIZE_AT = 8  # of a batch: how many bytes follow its size


def batches_of(files: Mapping[str, bytes]) -> Iterator[tuple[BatchView, bytes]]:
    """Yield the batches of a log in their order, each with the content of its file."""
    for name in sorted(files):
        if name.endswith(".log"):
            for view in scan_batches(files[name], 0, written_size(files[name])):
                yield view, files[name]


def written_size(content: bytes) -> int:
    """The bytes of a segment that are written: zeros follow, where it took its space at once."""
    position = 0
    while size := int.from_bytes(content[position + SIZE_AT : position + SIZE_AT + LENGTH_BYTES]):
        position += SIZE_AT + LENGTH_BYTES + size
    return position


def content_of(files: Mapping[str, bytes], log_start_offset: int) -> bytes:
    """The bytes of a log from its start on: what is before it goes at another time in each replica."""
    return b"".join(
        content[view.position : view.position + view.size_bytes]
        for view, content in batches_of(files)
        if view.last_offset >= log_start_offset
    )


def newest_by_key(files: Mapping[str, bytes]) -> dict[bytes, tuple[int, bytes]]:
    """The last value of each key with its offset: what a compacted log keeps, however often it was compacted.

    Without tombstones, which go at another time in each replica, and transactions, whose aborted records do.
    """
    newest: dict[bytes, tuple[int, bytes]] = {}
    for view, content in batches_of(files):
        if view.is_transactional:
            continue
        for record in iter_records(content, view.position, max_decompressed_bytes=MAX_DECOMPRESSED):
            if record.value is None:
                newest.pop(record.key or b"", None)
            else:
                newest[record.key or b""] = record.offset, record.value
    return newest
