"""What a log does with its segments: rolling, flushing, truncating."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.storage.config import LogConfig
from minibroker.storage.files.storage_errors import LogFlushError
from minibroker.storage.log.log import Log
from tests.storage.logs import (
    NOW_MS,
    SMALL,
    append,
    batch_of,
    names_in,
    offsets_of,
    open_log,
    refusal_of,
    remove_deleted,
    roll_three,
    segment_bases,
    send,
    values_of,
)
from tests.storage.open_files import descriptors_in


class TestRolling:
    def test_a_full_segment_is_followed_by_one_at_the_next_offset(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)

        for number in range(12):
            append(log, f"value {number:03}")

        assert len(segment_bases(log)) > 2
        assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)
        assert offsets_of(log) == list(range(12))

    def test_batches_that_are_looked_into_roll_it_too(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, replace(SMALL, cleanup_policy=("compact",)))

        for number in range(12):
            append(log, f"value {number:03}")

        assert len(segment_bases(log)) > 2
        assert offsets_of(log) == list(range(12))

    def test_a_segment_is_closed_by_the_age_of_its_records(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(segment_ms=1000))
        append(log, "a", timestamp_ms=NOW_MS)
        append(log, "b", timestamp_ms=NOW_MS + 1000)
        append(log, "c", timestamp_ms=NOW_MS + 1001)

        assert segment_bases(log) == [0, 2]

    def test_each_roll_leaves_a_snapshot_of_the_producers(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        send(log, batch_of(["a"], producer_id=1, sequence=0))
        log.roll(NOW_MS)

        assert "00000000000000000001.snapshot" in names_in(tmp_path)

    def test_an_empty_segment_is_not_rolled(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.roll(NOW_MS)

        assert segment_bases(log) == [0]

    def test_a_roll_that_fails_leaves_the_old_segment_in_use(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = open_log(tmp_path)
        append(log, "a")

        def full(*_: object, **__: object) -> None:
            (tmp_path / "00000000000000000001.log").touch()
            raise OSError(errno.ENOSPC, "no space")

        monkeypatch.setattr("minibroker.storage.segment.log_segment.LogSegment.open", full)
        with pytest.raises(OSError, match="no space"):
            log.roll(NOW_MS)
        monkeypatch.undo()
        append(log, "b")

        assert segment_bases(log) == [0]
        assert "00000000000000000001.log" not in names_in(tmp_path)
        assert values_of(open_log(tmp_path)) == ["a", "b"]

    def test_a_stray_file_in_the_way_of_a_roll_is_replaced(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, "a")
        (tmp_path / "00000000000000000001.log").write_bytes(b"stray")
        log.roll(NOW_MS)
        append(log, "b")

        assert values_of(log) == ["a", "b"]


class TestCommitting:
    def test_the_high_watermark_only_rises_and_not_beyond_the_end(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, "a", "b")

        assert log.update_high_watermark(1)
        assert not log.update_high_watermark(0)
        assert log.update_high_watermark(99)
        assert log.high_watermark == 2
        assert not log.update_high_watermark(99)


class TestFlushing:
    def test_the_recovery_point_follows_a_flush(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)

        assert (log.recovery_point, log.unflushed_messages, log.has_unflushed_segments) == (0, 9, True)
        log.flush(6)
        assert (log.recovery_point, log.unflushed_messages, log.has_unflushed_segments) == (6, 3, False)
        log.flush()
        assert (log.recovery_point, log.unflushed_messages) == (9, 0)

    def test_flush_messages_asks_for_a_flush_before_the_ack(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(flush_messages=3))

        assert [append(log, "a").needs_flush for _ in range(4)] == [False, False, True, True]
        log.flush()
        assert not append(log, "a").needs_flush

    def test_a_duplicate_waits_for_the_flush_of_the_first_time(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(flush_messages=1))
        batch = batch_of(["a"], producer_id=1, sequence=0)
        send(log, bytearray(batch))

        assert send(log, bytearray(batch)).needs_flush
        log.flush()
        assert not send(log, bytearray(batch)).needs_flush

    def test_only_files_with_something_new_are_forced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = roll_three(tmp_path)
        log.flush()
        append(log, "new")
        forced: list[str] = []
        monkeypatch.setattr(os, "fdatasync", lambda fd: forced.append(os.readlink(f"/proc/self/fd/{fd}")))
        monkeypatch.setattr(os, "fsync", lambda fd: forced.append(os.readlink(f"/proc/self/fd/{fd}")))

        log.flush()

        assert forced == [str(tmp_path / "00000000000000000006.log")]

    def test_flushing_keeps_no_descriptor_open(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        before = descriptors_in(tmp_path)

        log.flush()

        assert descriptors_in(tmp_path) == before

    @pytest.mark.parametrize("moment", ["fsync", "fdatasync"])
    def test_a_log_may_be_deleted_while_another_thread_flushes_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
    ) -> None:
        directory = tmp_path / "orders-0"
        directory.mkdir()
        log = roll_three(directory)

        def delete_first(fd: int) -> None:
            monkeypatch.undo()
            log.rename_and_refuse(tmp_path / "orders-0.0-delete")
            shutil.rmtree(tmp_path / "orders-0.0-delete")

        monkeypatch.setattr(os, moment, delete_first)
        log.flush()

        assert not directory.exists()

    @pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
    def test_no_descriptor_for_an_index_is_no_failed_fsync(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        log = roll_three(tmp_path)

        def none_left(*_: object, **__: object) -> int:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch, pytest.raises(OSError, match=os.strerror(number)) as refused:
            patch.setattr(os, "open", none_left)
            log.flush()

        assert not isinstance(refused.value, LogFlushError)
        assert log.recovery_point == 0
        append(log, "goes on")
        log.flush()
        assert log.recovery_point == log.log_end_offset

    def test_a_failed_fsync_is_never_acknowledged_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = open_log(tmp_path)
        append(log, "a")

        def broken(fd: int) -> None:
            raise OSError(errno.EIO, "input/output error")

        monkeypatch.setattr(os, "fdatasync", broken)
        with pytest.raises(LogFlushError):
            log.flush()
        monkeypatch.undo()

        assert log.recovery_point == 0
        assert refusal_of(lambda: append(log, "b")) is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal_of(lambda: log.read(0, 100)) is ErrorCode.KAFKA_STORAGE_ERROR


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
            patch.setattr(os, "fdatasync", fdatasync)
            log.flush()

    def test_what_is_appended_meanwhile_is_not_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = open_log(tmp_path)
        append(log, "a")

        self.flush_while(log, monkeypatch, lambda: append(log, "b"))

        assert (log.recovery_point, log.unflushed_messages) == (1, 1)

    def test_what_is_cut_off_meanwhile_is_not_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = open_log(tmp_path)
        append(log, "a", "b")
        append(log, "c")

        self.flush_while(log, monkeypatch, lambda: log.truncate_to(2, now_ms=NOW_MS))
        append(log, "d")

        assert log.recovery_point == 0

    def test_what_is_cut_off_while_a_flush_says_how_far_it_came_is_not_counted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
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

    def test_a_segment_rolled_meanwhile_is_flushed_again_with_its_indexes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = open_log(tmp_path)
        append(log, "a")

        self.flush_while(log, monkeypatch, lambda: log.roll(NOW_MS))

        assert log.has_unflushed_segments

    def test_segments_deleted_meanwhile_do_no_harm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = roll_three(tmp_path)
        log.update_high_watermark(9)
        log.maybe_increment_log_start_offset(9)

        def delete() -> None:
            log.delete_old_segments(NOW_MS)
            remove_deleted(log, NOW_MS + 1000)

        self.flush_while(log, monkeypatch, delete)

        assert (segment_bases(log), log.recovery_point) == ([6], 9)


class TestTruncating:
    def test_everything_from_the_offset_on_is_gone(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        log.update_high_watermark(9)

        assert log.truncate_to(4, now_ms=NOW_MS)

        assert (log.log_end_offset, log.high_watermark, segment_bases(log)) == (4, 4, [0, 3])
        assert append(log, "again").first_offset == 4
        assert values_of(log) == ["v0", "v1", "v2", "v3", "again"]

    def test_at_or_beyond_the_end_nothing_happens(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)

        assert not log.truncate_to(9, now_ms=NOW_MS)
        assert log.log_end_offset == 9

    def test_producers_are_taken_back_too(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        send(log, batch_of(["a"], producer_id=1, sequence=0))
        send(log, batch_of(["b"], producer_id=1, sequence=1))

        log.truncate_to(1, now_ms=NOW_MS)

        assert not send(log, batch_of(["b"], producer_id=1, sequence=1)).is_duplicate

    def test_producers_are_taken_back_to_the_start_of_a_segment(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, "a")
        log.roll(NOW_MS)
        send(log, batch_of(["b"], producer_id=1, sequence=0))

        log.truncate_to(1, now_ms=NOW_MS)

        assert not send(log, batch_of(["b"], producer_id=1, sequence=0)).is_duplicate

    def test_a_log_without_producers_is_not_read_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = roll_three(tmp_path)
        replayed: list[object] = []
        monkeypatch.setattr(
            "minibroker.storage.producers.producer_state.ProducerStateManager.replay", lambda *a: replayed.append(a)
        )

        log.truncate_to(5, now_ms=NOW_MS)

        assert replayed == []

    def test_epochs_that_began_behind_it_are_forgotten(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        send(log, batch_of(["a"]), leader_epoch=1)
        send(log, batch_of(["b"]), leader_epoch=2)

        log.truncate_to(1, now_ms=NOW_MS)

        assert log.leader_epochs.latest_epoch == 1

    def test_the_recovery_point_does_not_stay_behind_the_cut(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        log.flush()

        log.truncate_to(4, now_ms=NOW_MS)

        assert log.recovery_point == 4

    def test_a_log_begun_anew_starts_and_ends_at_the_offset(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)

        log.truncate_fully_and_start_at(100, now_ms=NOW_MS)

        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
        assert append(log, "a").first_offset == 100
        assert values_of(open_log(tmp_path)) == ["a"]
