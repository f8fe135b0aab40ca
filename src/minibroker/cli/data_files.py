"""The files of a data directory as rows of facts; those of minibroker and of Apache Kafka are the same.

A row is a dict under Kafka's names in snake_case. Damage becomes a row of its own with `error`, after the rows before
it; nothing is repaired or written. Files are mapped, not loaded: a segment may have gigabytes.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from minibroker.errors import CommandFailed
from minibroker.protocol.batches import BatchView, batch_is_valid, iter_all_records, scan_batches
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.facts import Row, batch_row, crc_of, record_row
from minibroker.protocol.text import counted
from minibroker.storage.files.checkpoints import OffsetCheckpointFile
from minibroker.storage.files.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
)
from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.indexes import OffsetIndex, TimeIndex
from minibroker.storage.index.leader_epochs import LeaderEpochCache
from minibroker.storage.index.transaction_index import TransactionIndex
from minibroker.storage.producers.producer_snapshot import read_snapshot

MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024
OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)

Rows = Iterator[Row]


def rows_of(path: Path, *, with_records: bool) -> Rows:
    """One row per batch, record, entry or property. Raises CommandFailed for an unknown kind of file."""
    return rows_and_damage(path, reader_of(path, with_records=with_records))


def rows_and_damage(path: Path, reader: Callable[[Path], Rows]) -> Rows:
    try:
        yield from reader(path)
    except (CorruptFileError, KafkaError) as error:
        yield {"error": str(error).removeprefix(f"{path}: ")}
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}; run this as its owner") from error


def reader_of(path: Path, *, with_records: bool) -> Callable[[Path], Rows]:
    """Raises CommandFailed."""
    segment_file = parse_segment_file(path.name)
    readers: dict[str, Callable[[Path], Rows]] = {
        LOG_SUFFIX: lambda log: log_rows(log, with_records=with_records),
        OFFSET_INDEX_SUFFIX: offset_index_rows,
        TIME_INDEX_SUFFIX: time_index_rows,
        TRANSACTION_INDEX_SUFFIX: transaction_index_rows,
        SNAPSHOT_SUFFIX: snapshot_rows,
        LEADER_EPOCH_CHECKPOINT: leader_epoch_rows,
        META_PROPERTIES: property_rows,
        **dict.fromkeys(OFFSET_CHECKPOINTS, checkpoint_rows),
    }
    reader = readers.get(path.name if segment_file is None else segment_file.suffix)
    if reader is None:
        raise CommandFailed(
            f"{path}: unknown kind of file; this command reads .log, .index, .timeindex, .txnindex and .snapshot "
            "files, checkpoints and meta.properties"
        )
    return reader


# -- segments -------------------------------------------------------------------------------------------------


def log_rows(path: Path, *, with_records: bool) -> Rows:
    buffer = mapped(path)
    size, end = len(buffer), 0
    try:
        for view in scan_batches(buffer, 0, size):
            end = view.end_position
            yield from batch_rows(buffer, view, with_records=with_records)
    except KafkaError as error:  # the next batch may begin anywhere
        yield {"error": str(error), "position": end}
        return
    if end < size:
        yield {"error": f"ends in a partial batch of {counted(size - end, 'byte')}", "position": end}


def mapped(path: Path) -> mmap.mmap | bytes:
    if path.stat().st_size == 0:
        return b""  # cannot be mapped
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def batch_rows(buffer: mmap.mmap | bytes, view: BatchView, *, with_records: bool) -> Rows:
    """The batch, its damage if any, and its records if it is whole."""
    row = batch_row(view, crc_of(buffer, view))
    if not batch_is_valid(buffer, view):
        yield row | {"is_valid": False}
        yield {"error": "the CRC of the batch is wrong", "position": view.position}
        return
    yield row | {"is_valid": True}
    if not with_records:
        return
    try:
        for record in iter_all_records(buffer, view, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
            yield record_row(record, is_control=view.is_control)
    except KafkaError as error:
        yield {"error": str(error), "position": view.position}


# -- indexes and snapshots ------------------------------------------------------------------------------------


def offset_index_rows(path: Path) -> Rows:
    base_offset = base_offset_of(path)
    for relative_offset, position in index_entries(path, OffsetIndex.ENTRY):
        yield {"offset": base_offset + relative_offset, "position": position}


def time_index_rows(path: Path) -> Rows:
    base_offset = base_offset_of(path)
    for timestamp_ms, relative_offset in index_entries(path, TimeIndex.ENTRY):
        yield {"timestamp": timestamp_ms, "offset": base_offset + relative_offset}


def base_offset_of(path: Path) -> int:
    segment_file = parse_segment_file(path.name)
    assert segment_file is not None  # reader_of chose by it
    return segment_file.base_offset


def index_entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, ...]]:
    """The entries, up to the zeros that fill the index of a segment in use. Raises CorruptFileError at the end."""
    content = path.read_bytes()
    whole = len(content) // entry.size * entry.size
    for values in entry.iter_unpack(content[:whole]):
        # A closed index has no spare room, so a lone entry of zeros in it is an entry.
        if not any(values) and len(content) > entry.size:
            return
        yield values
    if whole < len(content):
        raise CorruptFileError(f"ends in a partial entry of {counted(len(content) - whole, 'byte')}")


def transaction_index_rows(path: Path) -> Rows:
    size_bytes = path.stat().st_size  # first: a broker that runs may append
    index = TransactionIndex(path, base_offset_of(path))
    for aborted in index.entries():
        yield {
            "producer_id": aborted.producer_id,
            "first_offset": aborted.first_offset,
            "last_offset": aborted.last_offset,
            "last_stable_offset": aborted.last_stable_offset,
        }
    rest = size_bytes - index.size_bytes
    if rest > 0:
        raise CorruptFileError(f"ends in a partial entry of {counted(rest, 'byte')}")


def snapshot_rows(path: Path) -> Rows:
    for entry in read_snapshot(path):
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "offset_delta": entry.offset_delta,
            "timestamp": entry.timestamp_ms,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": entry.current_txn_first_offset,
        }


# -- checkpoints ----------------------------------------------------------------------------------------------


def checkpoint_rows(path: Path) -> Rows:
    for topic_partition, offset in OffsetCheckpointFile(path).read().items():
        yield {"topic": topic_partition.topic, "partition": topic_partition.partition, "offset": offset}


def leader_epoch_rows(path: Path) -> Rows:
    for entry in LeaderEpochCache(path).entries:
        yield {"leader_epoch": entry.epoch, "start_offset": entry.start_offset}


def property_rows(path: Path) -> Rows:
    for line in path.read_text("latin-1").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            yield {name.strip(): value.strip()}
