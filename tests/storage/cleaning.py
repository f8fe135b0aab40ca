"""Compacting logs by hand, for the tests of the log cleaner."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from minibroker.protocol.record import Record
from minibroker.storage.compaction.cleaner_pace import CleanerPace
from minibroker.storage.compaction.log_cleaner import CleanerConfig, CleanerStats, LogCleaning, LogToClean
from minibroker.storage.compaction.log_cleaner_manager import log_to_clean
from minibroker.storage.config import LogConfig
from minibroker.storage.log.appending import LogAppendInfo
from minibroker.storage.log.log import Log
from tests.storage.logs import NOW_MS, SMALL, batch_of_pairs, records_of, send

COMPACTED = replace(SMALL, cleanup_policy=("compact",), segment_bytes=4096, min_cleanable_dirty_ratio=0.0)

Pairs = Iterable[tuple[str | None, str | None]]


def put(log: Log, *pairs: tuple[str | None, str | None], **options: Any) -> LogAppendInfo:
    """Append one batch of these keys and values, in the format of the log; it is committed at once."""
    encoded = [(_bytes(key), _bytes(value)) for key, value in pairs]
    info = send(log, batch_of_pairs(encoded, magic=log.config.magic, **options))
    commit(log)
    return info


def put_segment(log: Log, *pairs: tuple[str | None, str | None], **options: Any) -> None:
    """Append one batch as `put` does, of two keys if none are given, and close its segment."""
    put(log, *(pairs or (("a", "1"), ("b", "1"))), **options)
    roll(log)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def commit(log: Log) -> None:
    log.update_high_watermark(log.log_end_offset)


def roll(log: Log) -> None:
    log.roll(NOW_MS)


def cleaning_of(
    log: Log, *, to_clean: LogToClean | None = None, config: CleanerConfig | None = None, now_ms: int = NOW_MS
) -> LogCleaning:
    return LogCleaning(to_clean or log_to_clean(log, now_ms), config or CleanerConfig(), CleanerPace(), now_ms=now_ms)


def clean(log: Log, *, config: CleanerConfig | None = None, now_ms: int = NOW_MS) -> CleanerStats:
    """Compact all that can be, in this thread."""
    cleaning = cleaning_of(log, config=config, now_ms=now_ms)
    try:
        for work in cleaning.steps():
            work()
    finally:
        cleaning.close()
    return cleaning.stats


def roll_and_clean(log: Log) -> CleanerStats:
    roll(log)
    return clean(log)


def survivors(log: Log) -> list[tuple[int, str | None, str | None]]:
    """Return offset, key and value of all records."""
    return [(record.offset, _text(record.key), _text(record.value)) for record in records_of(log)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def latest_values(records: Iterable[Record]) -> dict[bytes | None, bytes]:
    """Return what a reader who applies records one after the other knows in the end."""
    known: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            known.pop(record.key, None)
        else:
            known[record.key] = record.value
    return known


def age_segments(log: Log, by_ms: int, *, count: int = 0) -> None:
    """Make the first segments, all but the active one without a count, look as if they had been written earlier."""
    for segment in list(log.segments)[: count or -1]:
        segment.last_modified_ms = segment.last_modified_ms - by_ms


def snapshot_of(directory: Path, to: Path) -> Path:
    """Copy a directory as a crash leaves it."""
    to.mkdir()
    for path in directory.iterdir():
        stat = path.stat()
        (to / path.name).write_bytes(path.read_bytes())
        os.utime(to / path.name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return to


def config_of(**changes: object) -> LogConfig:
    return replace(COMPACTED, **changes)  # type: ignore[arg-type]
