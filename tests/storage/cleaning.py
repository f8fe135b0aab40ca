"""Compacting logs by hand, for the tests of the log cleaner."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from minibroker.protocol.batches import batch_is_valid, iter_all_records
from minibroker.protocol.record import Record
from minibroker.storage.compaction.cleaner_pace import CleanerPace
from minibroker.storage.compaction.log_cleaner import CleanerConfig, CleanerStats, LogCleaning, LogToClean
from minibroker.storage.compaction.log_cleaner_manager import log_to_clean
from minibroker.storage.config import LogConfig
from minibroker.storage.log.appending import LogAppendInfo
from minibroker.storage.log.log import Log
from tests.protocol.batch_bytes import views_of
from tests.storage.logs import (
    NOW_MS,
    SMALL,
    UNBOUNDED,
    batch_of,
    batch_of_pairs,
    batches_of,
    end_transaction,
    records_of,
    send,
)

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


DAY_MS = 24 * 60 * 60 * 1000


def assert_sound(log: Log) -> None:
    """Every batch has a right CRC and records at rising offsets inside it."""
    last_offset = -1
    for segment in log.segments:
        data = segment.path.read_bytes()
        for view in views_of(data):
            assert batch_is_valid(data, view)
            for record in iter_all_records(data, view, max_decompressed_bytes=UNBOUNDED):
                assert last_offset < record.offset <= view.last_offset
                last_offset = record.offset
        for index in (segment.offset_index, segment.time_index, segment.transaction_index):
            index.sanity_check()


def take(log: Log, steps: str) -> None:
    """Take the steps, as `tests/golden/histories/compaction.txt` describes them."""
    for step in steps.split("; "):
        match step.split():
            case ["roll"]:
                roll(log)
            case ["clean"]:
                roll_and_clean(log)
            case ["compact"]:
                clean(log)
            case ["age", *count]:
                age_segments(log, 2 * DAY_MS, count=int((count or "0")[0]))
            case ["forget"]:
                log.producer_state.remove_expired(1 << 60)
            case ["sweep"]:
                log.producer_state.remove_expired(0)
            case ["uncommitted"]:
                send(log, batch_of(["2"], key=b"a"))
            case [producer, "commits" | "aborts" as end, *epoch]:
                end_transaction(log, int(producer), is_commit=end == "commits", epoch=int((epoch or "0")[0]))
                commit(log)
            case [producer, *pairs] if producer[:1].isdigit():
                number, _, epoch_of = producer.rstrip(":").partition(".")
                known = log.producer_state.producers.get(int(number))
                epoch_number = int(epoch_of or "0")
                is_known = known is not None and known.epoch == epoch_number
                put(
                    log,
                    *map(pair_of, pairs),
                    producer_id=int(number),
                    sequence=known.last_sequence + 1 if known is not None and is_known else 0,
                    epoch=epoch_number,
                    is_transactional=producer.endswith(":"),
                )
            case pairs:
                put(log, *map(pair_of, pairs))


def pair_of(text: str) -> tuple[str, str | None]:
    key, is_given, value = text.partition("=")
    return key, value.replace("V", "v" * 60) if is_given else None


def shown(log: Log) -> str:
    """Return the batches of a log, as `tests/golden/histories/compaction.txt` describes them."""
    texts, records = [], records_of(log)
    for batch in batches_of(log):
        of_batch = [each for each in records if batch.base_offset <= each.offset <= batch.last_offset]
        empty = f"{batch.base_offset}!" if batch.is_control else f"{batch.base_offset}()"
        texts.append(" ".join(map(text_of, of_batch)) or empty)
    return "; ".join(texts)


def text_of(record: Record) -> str:
    value = "" if record.value is None else "=" + record.value.decode().replace("v" * 60, "V")
    return f"{record.offset}{(record.key or b'').decode()}{value}"


def aborted_in(log: Log) -> str:
    """Return the aborted transactions that a read_committed fetch of everything gets."""
    found = log.segments.collect_aborted_txns(log.log_start_offset, log.log_end_offset, 0)
    return ", ".join(f"{txn.producer_id} {txn.first_offset}-{txn.last_offset}" for txn in found)
