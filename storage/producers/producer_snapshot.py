"""The `.snapshot` file: the last batch of every producer before the offset in the file's name.

    version: int16 = 1 | crc: uint32 | count: int32 | entries
    entry: producer id: int64 | epoch: int16 | last sequence: int32 | last offset: int64 | offset delta: int32
           | timestamp: int64 | coordinator epoch: int32 | first offset of the open transaction: int64

The CRC is a CRC32C of what follows it. Absent numbers are -1 (offset delta 0). A snapshot that a crash cut short has a
wrong CRC and is ignored: it only saves reading the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from minibroker.protocol.checksums import crc32c
from minibroker.storage.files import disk
from minibroker.storage.files.storage_errors import CorruptFileError

_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class SnapshotEntry(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def write_snapshot(path: Path, entries: Iterable[SnapshotEntry]) -> None:
    """Write the file. Raises OSError; no file is left then."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    try:
        disk.write_file(path, _HEAD.pack(_VERSION, crc32c(body, 0)) + body)
    except OSError:
        disk.unlink(path)
        raise


def flush_snapshot(path: Path) -> None:
    """Force the file to disk, if it is still there. Raises OSError."""
    with suppress(FileNotFoundError):
        fd = disk.open_file(path, disk.READ_WRITE)
        try:
            disk.sync_data(fd)
        finally:
            disk.close(fd)


def read_snapshot(path: Path) -> list[SnapshotEntry]:
    """Return the producers. Raises CorruptFileError, OSError."""
    data = disk.read_file(path)
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptFileError(f"{path}: {len(data)} bytes are too few for a snapshot")
    version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if version != _VERSION:
        raise CorruptFileError(f"{path}: unrecognized version {version}")
    if crc != crc32c(body, 0):
        raise CorruptFileError(f"{path}: the CRC is not {crc:#010x}")
    (count,) = _COUNT.unpack_from(body)
    if count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptFileError(f"{path}: {count} entries in {len(body)} bytes")
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]
