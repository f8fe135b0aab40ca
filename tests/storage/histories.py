"""Histories of a log: what is done to it and to its files, and what it is then.

`tests/golden/histories/*.txt` have them, each under a title that states a behaviour, in the format of the conversations
of tests/broker. `python -m tests.storage.histories [FILE...]` takes the steps again and writes down what is seen: read
the diff of the files. Settings are those of the log; a step is a verb, which is a method of `History`. Times are
milliseconds since the log was made, files are named by base offset and suffix: `3.log`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.config import LogConfig
from minibroker.storage.files.file_names import parse_segment_file
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.log.log import Log
from tests.books import GOLDEN, Book, Script, as_recorded, record_books
from tests.protocol.batch_bytes import records_in
from tests.storage.cleaning import aborted_in, assert_sound, commit, shown, take
from tests.storage.logs import (
    EPOCH,
    NOW_MS,
    append,
    batch_of,
    end_transaction,
    names_in,
    open_log,
    records_of,
    remove_deleted,
    segment_bases,
    send,
)

FOLDER = GOLDEN / "histories"
LONG = 20  # of a value
OF_A_SEGMENT = (".log", ".index", ".timeindex")
# How a directory may be opened: after which stop, and whether all of it was flushed.
WAYS = {"after a clean stop": (True, True), "after a crash": (False, True), "nothing was flushed": (False, False)}


class History:
    """A log with its directory. Public methods are the verbs of steps; what they return is seen."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self._directory = directory / "log"
        self._config = LogConfig.from_props(settings, LogConfig())
        self._log = open_log(self._directory, self._config)

    def step(self, text: str) -> list[str]:
        verb, _, rest = text.partition(" ")
        names = {"batch": batch_of, "at": batch_at}
        arguments, options = eval(f"(lambda *args, **options: (args, options))({rest})", {}, names)
        try:
            seen = getattr(self, verb)(*arguments, **options)
        except KafkaError as refused:
            return [refused.code.name]
        return [] if seen is None else seen if isinstance(seen, list) else [str(seen)]

    # -- what a log is asked to do --------------------------------------------------------------------------------

    def append(self, *values: str, time_ms: int = 0) -> None:
        """Append a batch of records."""
        append(self._log, *values, timestamp_ms=-1 if time_ms < 0 else NOW_MS + time_ms)

    def three(self) -> None:
        """Append nine records, each a millisecond younger, to segments at 0, 3 and 6."""
        for number in range(9):
            if number in (3, 6):
                self.roll()
            self.append(f"v{number}", time_ms=number)

    def send(self, data: bytearray, leader_epoch: int = EPOCH) -> str:
        info = send(self._log, data, leader_epoch=leader_epoch)
        return f"{'again ' * info.is_duplicate}{info.first_offset} to {info.last_offset}"

    def write(self, values: str, producer: int, sequence: int, *, time_ms: int = 0, **options: Any) -> str:
        """Send a batch of a producer, of a record for each word."""
        times: dict[str, Any] = {"timestamp_ms": NOW_MS + time_ms}
        return self.send(batch_of(values.split(), producer_id=producer, sequence=sequence, **times, **options))

    def follow(self, *batches: bytearray) -> None:
        """Append as a follower, in one piece."""
        self._log.append_as_follower(bytearray().join(batches), now_ms=NOW_MS)

    def end(self, producer: int, *, commit: bool, **epochs: int) -> None:
        end_transaction(self._log, producer, is_commit=commit, **epochs)

    def expire(self, time_ms: int) -> None:
        """Forget producers that were idle for a week."""
        self._log.producer_state.remove_expired(NOW_MS + time_ms)

    def producers(self) -> list[str]:
        return [
            f"{number}: epoch {each.epoch}, last sequence {each.last_sequence}, {len(each.batches)} batches"
            + (f", open from {each.current_txn_first_offset}" if each.current_txn_first_offset is not None else "")
            for number, each in sorted(self._log.producer_state.producers.items())
        ]

    def roll(self) -> None:
        self._log.roll(NOW_MS)

    def watermark(self, offset: int) -> bool:
        return self._log.update_high_watermark(offset)

    def move_watermark(self, offset: int) -> bool:
        """Move it to where a leader knows it to be."""
        return self._log.move_high_watermark(LogOffsetMetadata(offset, 0, 0))

    def start_at(self, offset: int) -> None:
        self._log.maybe_increment_log_start_offset(offset)

    def flush(self, offset: int | None = None) -> str:
        self._log.flush(offset)
        return self.unflushed()

    def unflushed(self) -> str:
        due = ", a flush is due" if self._log.is_flush_due else ""
        rolled = ", segments" if self._log.has_unflushed_segments else ""
        durable = self._log.durable_end_metadata.message_offset
        return f"durable to {durable}, {self._log.unflushed_messages} more{rolled}{due}"

    def truncate(self, offset: int) -> bool:
        return self._log.truncate_to(offset, now_ms=NOW_MS)

    def begin_anew(self, offset: int) -> None:
        self._log.truncate_fully_and_start_at(offset, now_ms=NOW_MS)

    def truncate_segment(self, place: int, offset: int) -> None:
        """Leave a gap in the log, as compaction may."""
        self._log.segments.segments[place].truncate_to(offset, now_ms=NOW_MS)

    def delete_records(self, offset: int) -> int:
        return self._log.delete_records(offset)

    def configure(self, **props: object) -> None:
        given = {name.replace("_", "."): str(value) for name, value in props.items()}
        self._log.update_config(LogConfig.from_props(given, self._config))

    def retain(self, time_ms: int) -> str:
        """Let retention go over the log."""
        return f"{self._log.delete_old_segments(NOW_MS + time_ms)} gone"

    def remove(self, time_ms: int) -> str:
        """Remove files of segments that are gone for long enough."""
        return f"{remove_deleted(self._log, NOW_MS + time_ms)} removed"

    def read(self, offset: int, max_bytes: int = 10_000, **options: Any) -> str:
        found = self._log.read(offset, max_bytes, **options)
        metadata = found.offset_metadata
        records = found.records if isinstance(found.records, bytes) else found.records.read()
        aborted = found.aborted_transactions
        listed = "" if aborted is None else f", aborted {[(txn.producer_id, txn.first_offset) for txn in aborted]}"
        where = f"{metadata.message_offset} in {metadata.segment_base_offset}"
        return f"{where} at byte {metadata.relative_position}: {told(records_in(records, control=False))}{listed}"

    def find(self, *times_ms: int) -> str:
        """Search by time; -1 and -2 are the latest and the earliest."""
        asked = [time_ms if time_ms < 0 else NOW_MS + time_ms for time_ms in times_ms]
        found = map(self._log.fetch_offset_by_timestamp, asked)
        return ", ".join("nothing" if each is None else f"{each.offset}" for each in found)

    def find_segments(self, time_ms: int, count: int) -> str:
        """Search by when files were written, as ListOffsets 0."""
        return str(self._log.legacy_fetch_offsets_before(time_ms, count, now_ms=5000))

    def look(self) -> list[str]:
        return told_of(self._log)

    def compacted(self, steps: str) -> list[str]:
        """Take the steps. Show the batches that remain, and the aborted transactions in fetch answers."""
        take(self._log, steps)
        assert_sound(self._log)
        left, aborted, stable = shown(self._log), aborted_in(self._log), self._log.last_stable_offset
        self._log.close()
        for is_after_clean_stop in (True, False):
            self._log = open_log(self._directory, self._config, is_after_clean_stop=is_after_clean_stop)
            commit(self._log)
            assert (shown(self._log), self._log.last_stable_offset >= stable) == (left, True)
            # After a crash the transaction index is made again, of the batches that are left.
            assert not is_after_clean_stop or aborted_in(self._log) == aborted
            self._log.close()
        return [left or "nothing", *([f"aborted {aborted}"] if aborted else [])]

    # -- what becomes of its directory ----------------------------------------------------------------------------

    def close(self) -> None:
        self._log.close()

    def open(self, *, clean: bool = False, recovery_point: int = 0, start: int = 0) -> list[str]:
        given: dict[str, Any] = {
            "is_after_clean_stop": clean,
            "recovery_point": recovery_point,
            "log_start_offset": start,
        }
        self._log = open_log(self._directory, self._config, **given)
        return self.look()

    def load(self, end: int = 9) -> list[str]:
        """Open copies of the directory in each way, append, and open them once more."""
        seen = {}
        for name, (is_clean, is_flushed) in WAYS.items():
            copy = shutil.copytree(self._directory, self._directory.with_name(name))
            given: dict[str, Any] = {"is_after_clean_stop": is_clean, "recovery_point": end * is_flushed}
            log = open_log(copy, self._config, **given)
            seen[name] = told_of(log, recovery_point=False)
            before = records_of(log)
            append(log, "more")
            again = open_log(copy, self._config, recovery_point=log.recovery_point)
            assert [each.value for each in records_of(again)] == [*(each.value for each in before), b"more"]
            shutil.rmtree(copy)
        if len({tuple(lines) for lines in seen.values()}) == 1:
            return seen.popitem()[1]
        lines = []
        for lines_of_way, names in groupby(seen, key=seen.__getitem__):
            lines += [f"{', '.join(names)}:", *(f"  {line}" for line in lines_of_way)]
        return lines

    def file(self, name: str, data: bytes) -> None:
        self._path(name).write_bytes(data)

    def add(self, name: str, data: bytes) -> None:
        path = self._path(name)
        path.write_bytes(path.read_bytes() + data)

    def cut(self, name: str, size_bytes: int) -> None:
        os.truncate(self._path(name), size_bytes)

    def flip(self, name: str, position: int) -> None:
        """Flip a bit."""
        data = bytearray(self._path(name).read_bytes())
        data[position] ^= 0x40
        self._path(name).write_bytes(data)

    def unlink(self, name: str) -> None:
        self._path(name).unlink()

    def move(self, name: str, extra: str) -> None:
        """Give the files of a segment names that end in this."""
        for suffix in OF_A_SEGMENT:
            self._path(f"{name}{suffix}").rename(self._path(f"{name}{suffix}{extra}"))

    def rename(self, name: str, to: str) -> None:
        self._path(name).rename(self._path(to))

    def copy(self, name: str, to: str) -> None:
        shutil.copyfile(self._path(name), self._path(to))

    def replacement(self, extra: str) -> None:
        """Put one segment of all nine records beside the three, under names that end in this."""
        new = open_log(self._directory.with_name("new"), LogConfig())
        for number in range(9):
            append(new, f"v{number}", timestamp_ms=NOW_MS + number)
        new.close()
        for suffix in OF_A_SEGMENT:
            name = f"{0:020d}{suffix}"
            shutil.copyfile(self._directory.with_name("new") / name, self._directory / f"{name}{extra}")

    def written(self, name: str, time_ms: int) -> None:
        """Set when a file was written."""
        os.utime(self._path(name), ns=(time_ms * 1_000_000,) * 2)

    def sizes(self, *names: str) -> str:
        return ", ".join(f"{each} {self._path(each).stat().st_size}" for each in names)

    def _path(self, name: str) -> Path:
        base, dot, suffix = name.partition(".")
        return self._directory / (f"{int(base):020d}{dot}{suffix}" if base.isdecimal() else name)


def batch_at(offset: int, *values: str) -> bytearray:
    """A batch as a leader has it; of one record unless values are given."""
    records = [Record(number, NOW_MS, None, value.encode()) for number, value in enumerate(values or ("v",), offset)]
    return build_batch(records, base_offset=offset)


def told(records: Sequence[Record] | Iterator[Record]) -> str:
    """Values, after the offset of each that does not follow the one before."""
    parts, expected = [], -1
    for each in records:
        value = (each.value or b"").decode()
        value = f"{value[0]}*{len(value)}" if len(value) > LONG and value == value[0] * len(value) else value
        parts.append(value if each.offset == expected else f"{each.offset}: {value}")
        expected = each.offset + 1
    return " ".join(parts) or "nothing"


def told_of(log: Log, *, recovery_point: bool = True) -> list[str]:
    """Describe a log: its bounds, its records, and what lies in its directory beside its segments."""
    bases = segment_bases(log)
    facts = [f"segments {' '.join(map(str, bases))}", f"{log.log_start_offset} to {log.log_end_offset}"]
    facts += [f"high watermark {log.high_watermark}"]
    facts += [f"stable {log.last_stable_offset}"] if log.last_stable_offset != log.high_watermark else []
    facts += [f"recovery point {log.recovery_point}"] if recovery_point else []
    epochs = [f"{epoch}@{start}" for epoch, start in log.leader_epochs.entries]
    facts += [f"epochs {' '.join(epochs)}"] if epochs else []
    producers = log.producer_state.producers
    facts += [f"producers {' '.join(map(str, sorted(producers)))}"] if producers else []
    records = records_of(log)
    lines = [", ".join(facts), told(records)]
    records = [each for each in records if each.offset >= log.log_start_offset]
    lost = [each.offset for each in records if not is_found(log, records, each)]
    lines += [f"not found: {lost}"] if lost else []
    plain = {f"{base:020d}{suffix}" for base in bases for suffix in OF_A_SEGMENT} | {"leader-epoch-checkpoint"}
    beside = [short(name) for name in sorted(names_in(log.directory) - plain)]
    return [*lines, f"beside: {' '.join(beside)}"] if beside else lines


def is_found(log: Log, records: Sequence[Record], record: Record) -> bool:
    """Whether the indexes lead to a record, by offset and by time."""
    segment = max(base for base in log.segments.bases if base <= record.offset)
    first = next(each.offset for each in records if each.timestamp_ms >= record.timestamp_ms)
    by_time = log.fetch_offset_by_timestamp(record.timestamp_ms) if record.timestamp_ms >= 0 else None
    is_first = by_time is None or by_time.offset == first
    return is_first and log.convert_to_offset_metadata(record.offset).segment_base_offset == segment


def short(name: str) -> str:
    found = parse_segment_file(name)
    return name if found is None else f"{found.base_offset}{found.suffix}{found.extra}"


def taken(directory: Path, book: Book, script: Script) -> str:
    """The history with what is seen now, as a file has it."""
    history = History(directory, book.settings | script.settings)
    for step in book.steps_before(script):
        history.step(step)
    return as_recorded(script, map(history.step, script.steps))


def taken_again(book: Book) -> Iterator[str]:
    for script in book.scripts.values():
        with tempfile.TemporaryDirectory() as directory:
            yield taken(Path(directory), book, script)


if __name__ == "__main__":
    record_books(FOLDER, taken_again)
