"""What becomes of a compaction when the log is damaged or changed meanwhile, or the disk is full."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.compaction.cleaner_pace import LogCleaningAbortedError
from minibroker.storage.compaction.log_cleaner_manager import log_to_clean
from minibroker.storage.log.log import Log
from tests.storage.cleaning import (
    COMPACTED,
    clean,
    cleaning_of,
    config_of,
    put,
    roll,
    roll_and_clean,
    survivors,
)
from tests.storage.logs import (
    NOW_MS,
    names_in,
    open_log,
    refusal_of,
    segment_bases,
)

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "log", COMPACTED)


class TestWhatGoesWrong:
    def test_a_wrong_crc_is_found_before_anything_is_built_of_it(self, log: Log) -> None:
        put(log, ("a", "1"), ("a", "2"))
        roll(log)
        segment = log.segments.first
        with segment.path.open("r+b") as file:
            file.seek(segment.size_bytes - 2)
            assert file.read(1) == b"2"
            file.seek(segment.size_bytes - 2)
            file.write(b"3")

        assert refusal_of(lambda: clean(log)) is ErrorCode.CORRUPT_MESSAGE
        assert not [name for name in names_in(log.directory) if name.endswith((".cleaned", ".swap"))]
        assert segment_bases(log) == [0, 2]

    def test_a_segment_that_ends_within_a_batch_is_refused(self, log: Log) -> None:
        put(log, ("a", "1"), ("a", "2"))
        put(log, ("a", "3"))
        roll(log)
        segment = log.segments.first
        segment.records.truncate(segment.size_bytes - 10)

        assert refusal_of(lambda: clean(log)) is ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("at", range(4))
    def test_a_log_that_is_truncated_meanwhile_keeps_what_truncation_left(self, log: Log, at: int) -> None:
        put(log, ("a", "1"))
        put(log, ("a", "2"))
        roll(log)
        put(log, ("a", "3"))
        cleaning = cleaning_of(log)

        for number, work in enumerate(steps := cleaning.steps()):
            if number == at:
                log.truncate_to(1, now_ms=NOW_MS)
            try:
                work()
            except (LogCleaningAbortedError, KafkaError):
                break
            if number == at and number < 3:
                with pytest.raises(LogCleaningAbortedError):
                    next(steps)
                break
        cleaning.close()

        assert (log.log_end_offset, survivors(log)) == (1, [(0, "a", "1")] if at < 3 else [])
        assert not [name for name in names_in(log.directory) if name.endswith((".cleaned", ".swap"))]
        assert put(log, ("b", "1")).first_offset == 1

    @pytest.mark.parametrize("at", range(3))
    def test_a_log_that_is_deleted_meanwhile_is_given_up(self, log: Log, at: int) -> None:
        put(log, ("a", "1"))
        put(log, ("a", "2"))
        roll(log)
        cleaning = cleaning_of(log)
        target = log.directory.with_name("orders-0.0-delete")

        with pytest.raises((LogCleaningAbortedError, FileNotFoundError)):
            for number, work in enumerate(cleaning.steps()):
                if number == at:
                    log.rename_and_refuse(target)
                work()
        cleaning.close()

        assert cleaning.is_log_changed
        assert not target.with_name("log").exists()

    def test_what_is_written_next_to_a_deleted_log_harms_no_new_one(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", COMPACTED)
        put(log, ("a", "1"), ("a", "2"))
        roll(log)
        cleaning = cleaning_of(log)
        steps = cleaning.steps()
        next(steps)()
        copy = next(steps)
        log.rename_and_refuse(tmp_path / "log.0-delete")
        new = open_log(tmp_path / "log", COMPACTED)
        put(new, ("b", "1"))

        with pytest.raises(LogCleaningAbortedError):
            copy()
        cleaning.close()

        assert survivors(new) == [(0, "b", "1")]
        assert not [name for name in names_in(tmp_path / "log") if name.endswith((".cleaned", ".swap"))]

    def test_a_full_disk_leaves_the_log_as_it_was(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        put(log, ("a", "1"), ("a", "2"), ("b", "3"))
        roll(log)
        before = survivors(log)

        def full(*_: object) -> Iterator[int]:
            raise OSError(28, "no space")

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="no space"):
            clean(log)
        monkeypatch.undo()

        assert survivors(log) == before
        assert not [name for name in names_in(log.directory) if name.endswith((".cleaned", ".swap"))]
        clean(log)
        assert survivors(log) == [(1, "a", "2"), (2, "b", "3")]

    def test_a_flush_may_come_while_a_copy_takes_its_names(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        put(log, ("a", "1"), ("a", "2"))
        roll(log)
        put(log, ("b", "1"))
        roll(log)
        replace_file = os.replace

        def replace_and_flush(source: Path, target: Path) -> None:
            replace_file(source, target)
            if target.suffix == ".timeindex":
                log.flush()  # as another thread would, just then

        monkeypatch.setattr(os, "replace", replace_and_flush)
        clean(log)

        assert not log.is_refusing
        assert log.recovery_point == log.log_end_offset
        assert survivors(log) == [(1, "a", "2"), (2, "b", "1")]

    def test_a_segment_that_was_compacted_is_forced_again_once_it_is_cut(
        self, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(log, ("a", "1"), ("a", "2"))
        put(log, ("b", "1"))
        roll_and_clean(log)
        log.truncate_to(2, now_ms=NOW_MS)
        put(log, ("c", "1"))
        roll(log)
        forced: list[str] = []
        monkeypatch.setattr(os, "fdatasync", lambda fd: forced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))

        log.flush()

        assert "00000000000000000000.log" in forced

    def test_retention_waits_while_a_log_is_compacted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(cleanup_policy=("compact", "delete"), retention_ms=0))
        put(log, ("a", "1"))
        roll(log)
        log.is_being_cleaned = True

        assert log.delete_old_segments(NOW_MS + 10) == 0
        log.is_being_cleaned = False
        assert log.delete_old_segments(NOW_MS + 10) == 1

    def test_compact_and_delete_do_both(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(cleanup_policy=("compact", "delete"), retention_ms=1000))
        put(log, ("old", "1"), ("old", "2"))
        roll_and_clean(log)
        put(log, ("a", "1"), ("a", "2"), timestamp_ms=NOW_MS + 5000)
        roll(log)

        assert log.delete_old_segments(NOW_MS + 5000) == 1
        clean(log)

        assert (log.log_start_offset, survivors(log)) == (2, [(3, "a", "2")])

    def test_nothing_to_compact_is_no_work(self, log: Log) -> None:
        assert log_to_clean(log, NOW_MS).cleanable_ratio == 0.0
        clean(log)
        assert survivors(log) == []
