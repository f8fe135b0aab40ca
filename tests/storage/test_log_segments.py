"""A log and its segments: rolling, flushing, truncating, deleting."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.files.storage_errors import LogFlushError, map_storage_errors
from minibroker.storage.log.log import Log
from tests.refusals import refusal_of
from tests.storage.file_limits import failing
from tests.storage.logs import (
    NOW_MS,
    SMALL,
    append,
    end_transaction,
    names_in,
    open_log,
    remove_deleted,
    roll_three,
    segment_bases,
    send_transactional,
    values_of,
)
from tests.storage.managers import crash, log_in, opened
from tests.storage.open_files import descriptors_in, forced_files


class TestRolling:
    @pytest.mark.pure
    def test_a_failed_roll_leaves_the_segment(self, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        append(log, "a")

        def leave_a_file(*_: object, **__: object) -> None:
            (tmp_path / "00000000000000000001.log").touch()
            raise OSError(errno.ENOSPC, "no space")

        with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
            patch.setattr("minibroker.storage.segment.log_segment.LogSegment.open", leave_a_file)
            log.roll(NOW_MS)
        append(log, "b")

        assert segment_bases(log) == [0]
        assert "00000000000000000001.log" not in names_in(tmp_path)
        assert values_of(open_log(tmp_path)) == ["a", "b"]


class TestFlushing:
    def test_only_new_segments_are_forced(self, rolled: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = descriptors_in(tmp_path)
        rolled.flush()
        append(rolled, "new")
        forced = forced_files(monkeypatch)

        rolled.flush()

        assert forced == ["00000000000000000006.log"]
        assert descriptors_in(tmp_path) == before

    def test_a_clean_stop_forces_what_flushes_left_out_and_once_is_enough(
        self, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send_transactional(log, 0, 0, "a")
        end_transaction(log, 0, is_commit=False)
        log.flush()
        forced = forced_files(monkeypatch)

        log.close()

        assert {"00000000000000000000.txnindex", "00000000000000000002.snapshot"} <= set(forced)
        forced.clear()
        open_log(tmp_path, is_after_clean_stop=True).close()
        assert forced == []

    def test_a_clean_stop_forces_nothing_of_a_log_that_never_had_a_record(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        forced = forced_files(monkeypatch)

        open_log(tmp_path).close()
        assert forced == []

        open_log(tmp_path).close()  # what an unclean stop left may have had records, which the start has cut off
        assert tmp_path.name in forced

    @pytest.mark.parametrize("moment", ["fsync", "fdatasync"])
    def test_a_log_may_go_amid_a_flush(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
        directory = tmp_path / "orders-0"
        directory.mkdir()
        log = roll_three(directory)

        def delete_first(fd: int) -> None:
            monkeypatch.undo()
            log.rename_and_refuse(tmp_path / "orders-0.0-delete")
            shutil.rmtree(tmp_path / "orders-0.0-delete")

        monkeypatch.setattr(f"minibroker.storage.files.disk.{moment}", delete_first)
        log.flush()

        assert not directory.exists()

    @pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
    def test_no_descriptor_is_no_failed_fsync(self, rolled: Log, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        with monkeypatch.context() as patch, pytest.raises(OSError, match=os.strerror(number)) as refused:
            patch.setattr("minibroker.storage.files.disk.open_file", failing(number))
            rolled.flush()

        assert not isinstance(refused.value, LogFlushError)
        assert rolled.recovery_point == 0
        append(rolled, "goes on")
        rolled.flush()
        assert rolled.recovery_point == rolled.log_end_offset

    def test_a_failed_fsync_is_never_acknowledged_again(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        append(log, "a")

        with monkeypatch.context() as patch, pytest.raises(LogFlushError):
            patch.setattr("minibroker.storage.files.disk.fdatasync", failing(errno.EIO))
            log.flush()

        assert log.recovery_point == 0
        assert refusal_of(lambda: append(log, "b")) is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal_of(lambda: log.read(0, 100)) is ErrorCode.KAFKA_STORAGE_ERROR


class TestRenamesThatFail:
    """A full disk may refuse one of the renames of a segment's files."""

    @contextmanager
    def failing_at(self, number: int) -> Iterator[None]:
        real, count = os.replace, itertools.count(1)

        def replace_file(source: Path, target: Path) -> None:
            if next(count) == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(source, target)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("minibroker.storage.files.disk.replace", replace_file)
            yield

    def test_a_segment_that_retention_cannot_rename_is_hidden_and_tried_again(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path / "log", replace(SMALL, retention_ms=1))
        log.update_high_watermark(log.log_end_offset)
        names = names_in(log.directory)

        with self.failing_at(3), pytest.raises(OSError, match="No space"):  # the second file of the first segment
            log.delete_old_segments(NOW_MS + 10)

        assert log.log_start_offset == 9
        assert names <= names_in(log.directory)
        assert segment_bases(log) == [0, 3, 6, 9]
        assert log.delete_old_segments(NOW_MS + 10) == 3
        assert segment_bases(log) == [9]

    @pytest.mark.parametrize("number", [1, 2])
    def test_a_log_that_is_cut_in_part_is_offline(self, tmp_path: Path, number: int) -> None:
        manager = opened(tmp_path, SMALL)
        log = log_in(manager)
        for _ in range(9):
            append(log, "a")

        with self.failing_at(number), pytest.raises(KafkaError, match="half way"), map_storage_errors(manager):
            manager.truncate_log(log, 1, now_ms=NOW_MS)

        assert manager.is_offline
        crash(manager)
        assert values_of(log_in(opened(tmp_path, SMALL)))[:1] == ["a"]


class TestFlushingMeanwhile:
    """`flush` runs in another thread: the owner goes on between any two of its steps."""

    def flush_while(self, log: Log, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
        """Flush, and have the owner act as the first file is being forced."""
        real, acts = os.fdatasync, [meanwhile]

        def fdatasync(fd: int) -> None:
            if acts:
                acts.pop()()
            real(fd)

        with monkeypatch.context() as patch:
            patch.setattr("minibroker.storage.files.disk.fdatasync", fdatasync)
            log.flush()

    def test_records_appended_during_a_flush_are_flushed_again(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        append(log, "a")
        self.flush_while(log, monkeypatch, lambda: append(log, "b"))
        assert (log.recovery_point, log.unflushed_messages) == (1, 1)

        self.flush_while(log, monkeypatch, lambda: log.roll(NOW_MS))
        assert log.has_unflushed_segments

    def test_a_segment_that_was_flushed_before_it_was_rolled_is_flushed_again_with_its_indexes(
        self, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send_transactional(log, 0, 0, "a")
        end_transaction(log, 0, is_commit=False)
        log.flush()
        log.roll(NOW_MS)
        assert log.recovery_point == 0  # a start after a crash makes the indexes from here on again

        forced = forced_files(monkeypatch)
        log.flush()

        assert "00000000000000000000.txnindex" in forced
        assert log.recovery_point == log.log_end_offset

    def test_records_cut_off_during_a_flush_are_not_counted(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        append(log, "a", "b")
        append(log, "c")

        self.flush_while(log, monkeypatch, lambda: log.truncate_to(2, now_ms=NOW_MS))
        append(log, "d")

        assert log.recovery_point == 0

    @pytest.mark.pure
    def test_records_cut_off_during_a_flush_are_not_below_the_recovery_point(self, log: Log) -> None:
        append(log, "a", "b", "c")
        segments = log.segments
        cutting = threading.Thread(target=log.truncate_to, args=[0], kwargs={"now_ms": NOW_MS})

        class CutWhenAskedAgain:
            """The active segment is asked for before a flush, and when it says how far it came."""

            asked = 0

            def __getattr__(self, name: str) -> object:
                self.asked += name == "active"
                if self.asked == 2 and not cutting.is_alive():
                    cutting.start()
                    cutting.join(0.2)
                return getattr(segments, name)

        log.segments = CutWhenAskedAgain()  # type: ignore[assignment]
        log.flush()
        log.segments = segments
        cutting.join(10)

        assert (log.log_end_offset, log.recovery_point) == (0, 0)

    def test_segments_deleted_meanwhile_do_no_harm(self, rolled: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        rolled.update_high_watermark(9)
        rolled.maybe_increment_log_start_offset(9)

        def delete() -> None:
            rolled.delete_old_segments(NOW_MS)
            remove_deleted(rolled, NOW_MS + 1000)

        self.flush_while(rolled, monkeypatch, delete)

        assert (segment_bases(rolled), rolled.recovery_point) == ([6], 9)


class TestTruncating:
    def test_a_log_without_producers_is_not_read_again(self, rolled: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        replayed: list[object] = []
        monkeypatch.setattr(
            "minibroker.storage.producers.producer_state.ProducerStateManager.replay", lambda *a: replayed.append(a)
        )

        rolled.truncate_to(5, now_ms=NOW_MS)

        assert replayed == []


def test_a_reader_learns_of_the_aborted_transactions_of_every_segment_it_reads(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for producer_id in (7, 8):
        send_transactional(log, producer_id, 0, "a")
        end_transaction(log, producer_id, is_commit=False)
        log.roll(NOW_MS)

    aborted = log.segments.collect_aborted_txns(0, log.log_end_offset, 0)

    assert [txn.producer_id for txn in aborted] == [7, 8]
