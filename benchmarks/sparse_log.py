"""A data directory with a long log, as a broker leaves it after a clean stop: 50 GB of it take a few hundred MB.

Each mebibyte is a batch of a kilobyte, which is whole, and one of the rest, of which only the header is written: the
file system makes up the zeros. So an offset is found as in a real log, and nothing but the short batches can be
checked.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.data_dir.log_checkpoints import LogCheckpoints
from minibroker.storage.files.file_names import CLEAN_SHUTDOWN_MARKER

GIBIBYTE = 1 << 30
PAIR_BYTES = 1 << 20
SHORT_VALUE_BYTES = 900
OFFSETS_A_PAIR = 2
TIMESTAMP_MS = 1_700_000_000_000
HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_COUNTS_FROM = 12  # bytes of the base offset and of the length itself
MAGIC_2, NOT_CHECKED, NO_PRODUCER = 2, 0, -1


def write_sparse_log(data_dir: Path, topic: str, *, gibibytes: int) -> int:
    """Write partition 0 of a topic, a segment for each gibibyte; return the log end offset."""
    directory = data_dir / f"{topic}-0"
    directory.mkdir(parents=True)
    pairs = GIBIBYTE // PAIR_BYTES
    for number in range(gibibytes):
        write_segment(directory, number * pairs * OFFSETS_A_PAIR, pairs)
    end = gibibytes * pairs * OFFSETS_A_PAIR
    partition = {TopicPartition(topic, 0): end}
    checkpoints = LogCheckpoints.of(data_dir)
    for file in (checkpoints.recovery_points, checkpoints.high_watermarks):
        file.write(file.read() | partition)
    (data_dir / CLEAN_SHUTDOWN_MARKER).touch()
    return end


def write_segment(directory: Path, base_offset: int, pairs: int) -> None:
    """Write a segment with its indexes, of which an entry leads to each short batch."""
    stem = directory / f"{base_offset:020}"
    short = build_batch([Record(offset=0, timestamp_ms=TIMESTAMP_MS, key=None, value=bytes(SHORT_VALUE_BYTES))])
    body = bytes(short)[8:]  # behind the base offset, which no checksum covers
    filler_bytes = PAIR_BYTES - len(short)
    entries = bytearray()
    with stem.with_suffix(".log").open("wb") as log:
        log.truncate(pairs * PAIR_BYTES)
        for pair in range(pairs):
            position, relative = pair * PAIR_BYTES, pair * OFFSETS_A_PAIR
            offset = base_offset + relative
            os.pwrite(log.fileno(), struct.pack(">q", offset) + body, position)
            os.pwrite(log.fileno(), filler(offset + 1, filler_bytes), position + len(short))
            if pair:
                entries += struct.pack(">ii", relative, position)
    stem.with_suffix(".index").write_bytes(entries)
    last = (pairs - 1) * OFFSETS_A_PAIR + 1
    stem.with_suffix(".timeindex").write_bytes(struct.pack(">qi", TIMESTAMP_MS, last))


def filler(offset: int, size_bytes: int) -> bytes:
    """The header of a batch of one record that is never read."""
    return HEADER.pack(
        offset,
        size_bytes - LENGTH_COUNTS_FROM,
        0,
        MAGIC_2,
        NOT_CHECKED,
        0,
        0,
        TIMESTAMP_MS,
        TIMESTAMP_MS,
        NO_PRODUCER,
        NO_PRODUCER,
        NO_PRODUCER,
        1,
    )
