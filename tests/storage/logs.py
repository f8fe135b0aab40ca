"""Logs on a temporary directory, for the tests of what a log does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minibroker.protocol.batches import BatchView
from minibroker.protocol.compression import Codec
from minibroker.protocol.control_records import ControlType, build_end_txn_marker
from minibroker.protocol.conversion import build_records
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.storage.config import LogConfig
from minibroker.storage.data_dir.log_manager import PendingDeletions
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.log.appending import LogAppendInfo
from minibroker.storage.log.log import Log
from minibroker.storage.log.log_loader import load_log
from tests.protocol.batch_bytes import records_in, views_of

NOW_MS = 1_000_000
EPOCH = 3
PARTITION = TopicPartition("orders", 0)
UNBOUNDED = 1 << 24

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=64, file_delete_delay_ms=1000)


def open_log(
    directory: Path,
    config: LogConfig | None = None,
    *,
    topic: str = "orders",
    now_ms: int = NOW_MS,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    is_after_clean_stop: bool = False,
) -> Log:
    """Open the log of a directory; as after a crash, unless said otherwise."""
    directory.mkdir(exist_ok=True)
    return load_log(
        TopicPartition(topic, 0),
        directory,
        config or LogConfig(),
        now_ms=now_ms,
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        is_after_clean_stop=is_after_clean_stop,
    )


def batch_of_pairs(
    pairs: Iterable[tuple[bytes | None, bytes | None]],
    *,
    magic: int = 2,
    codec: Codec = Codec.NONE,
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    sequence: int = -1,
    epoch: int = 0,
    is_transactional: bool = False,
) -> bytearray:
    """Return a batch of keys and values as a client sends it: offsets from 0 on."""
    return build_records(
        [Record(number, timestamp_ms, *pair) for number, pair in enumerate(pairs)],
        magic=magic,
        base_offset=0,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def batch_of(values: Iterable[str], *, key: bytes | None = b"k", **options: Any) -> bytearray:
    return batch_of_pairs([(key, value.encode()) for value in values], **options)


def append(log: Log, *values: str, now_ms: int = NOW_MS, timestamp_ms: int = NOW_MS) -> LogAppendInfo:
    """Append one batch of these values, as the leader of a client's."""
    return send(log, batch_of(values, timestamp_ms=timestamp_ms), now_ms=now_ms)


def send(
    log: Log, records: bytearray, *, now_ms: int = NOW_MS, leader_epoch: int = EPOCH, is_from_client: bool = True
) -> LogAppendInfo:
    return log.append_as_leader(records, leader_epoch=leader_epoch, now_ms=now_ms, is_from_client=is_from_client)


def send_transactional(log: Log, producer_id: int, sequence: int, *values: str) -> LogAppendInfo:
    batch = batch_of(values, producer_id=producer_id, sequence=sequence, is_transactional=True)
    return send(log, batch)


def end_transaction(
    log: Log, producer_id: int, *, is_commit: bool, epoch: int = 0, coordinator_epoch: int = 0
) -> LogAppendInfo:
    marker = build_end_txn_marker(
        ControlType.COMMIT if is_commit else ControlType.ABORT,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=NOW_MS,
    )
    return send(log, marker, is_from_client=False)


def read_bytes(log: Log, offset: int, *, max_offset: int | None = None, max_length: int = UNBOUNDED) -> bytes:
    """Return what one read gives."""
    records = log.read(offset, max_length, max_offset=max_offset, min_one_message=True).records
    return records.read() if isinstance(records, FileSlice) else records


def batches_of(log: Log) -> list[BatchView]:
    """Return all batches from the log's start on, read as a consumer does."""
    return [batch for data in _reads(log) for batch in views_of(data)]


def records_of(log: Log) -> list[Record]:
    """Return all records from the log's start on, markers left out."""
    return [record for data in _reads(log) for record in records_in(data, control=False)]


def _reads(log: Log) -> Iterable[bytes]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = read_bytes(log, offset)
        if not data:
            return
        yield data
        offset = max(batch.last_offset for batch in views_of(data)) + 1


def values_of(log: Log) -> list[str]:
    return [(record.value or b"").decode() for record in records_of(log)]


def offsets_of(log: Log) -> list[int]:
    return [record.offset for record in records_of(log)]


def remove_deleted(log: Log, now_ms: int) -> int:
    """Remove the files of segments that left the log long enough ago; return how many segments."""
    deletions = PendingDeletions([], log.segments.take_deleted(now_ms))
    count = len(deletions)
    deletions.run()
    return count


def segment_bases(log: Log) -> list[int]:
    return list(log.segments.bases)


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def roll_three(directory: Path, config: LogConfig = SMALL) -> Log:
    """Open a log of segments at 0, 3 and 6, each of three records; the last one is active."""
    log = open_log(directory, config)
    for first in (0, 3, 6):
        for number in range(first, first + 3):
            append(log, f"v{number}", timestamp_ms=NOW_MS + number)
        if first < 6:
            log.roll(NOW_MS)
    return log
