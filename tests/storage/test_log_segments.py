"""What a log does with its segments: rolling, flushing, truncating, deleting."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.storage.config import LogConfig
from minibroker.storage.files.storage_errors import LogFlushError
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.log.log import Log
from tests.refusals import refusal_of
from tests.storage.file_limits import failing
from tests.storage.logs import (
    EPOCH,
    NOW_MS,
    SMALL,
    append,
    batch_of,
    end_transaction,
    names_in,
    offsets_of,
    open_log,
    remove_deleted,
    roll_three,
    segment_bases,
    send,
    send_transactional,
    values_of,
)
from tests.storage.open_files import descriptors_in, forced_files


class TestRolling:
    @pytest.mark.parametrize("policy", ["delete", "compact"])  # batches are decoded for the latter
    def test_a_full_segment_is_followed_by_one_at_the_next_offset(self, tmp_path: Path, policy: str) -> None:
        log = open_log(tmp_path, replace(SMALL, cleanup_policy=(policy,)))

        for number in range(12):
            append(log, f"value {number:03}")

        assert len(segment_bases(log)) > 2
        assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)
        assert offsets_of(log) == list(range(12))

    def test_a_segment_is_closed_by_the_age_of_its_records(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(segment_ms=1000))
        append(log, "a", timestamp_ms=NOW_MS)
        append(log, "b", timestamp_ms=NOW_MS + 1000)
        append(log, "c", timestamp_ms=NOW_MS + 1001)

        assert segment_bases(log) == [0, 2]

    def test_a_roll_of_a_segment_with_records_leaves_a_snapshot_of_producers(self, log: Log, tmp_path: Path) -> None:
        log.roll(NOW_MS)
        assert segment_bases(log) == [0]

        send(log, batch_of(["a"], producer_id=1, sequence=0))
        log.roll(NOW_MS)

        assert segment_bases(log) == [0, 1]
        assert "00000000000000000001.snapshot" in names_in(tmp_path)

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

    def test_a_stray_file_in_the_way_of_a_roll_is_replaced(self, log: Log, tmp_path: Path) -> None:
        append(log, "a")
        (tmp_path / "00000000000000000001.log").write_bytes(b"stray")
        log.roll(NOW_MS)
        append(log, "b")

        assert values_of(log) == ["a", "b"]


class TestCommitting:
    def test_the_high_watermark_only_rises_and_not_beyond_the_end(self, log: Log) -> None:
        append(log, "a", "b")

        assert log.update_high_watermark(1)
        assert not log.update_high_watermark(0)
        assert not log.move_high_watermark(LogOffsetMetadata(0, 0, 0))
        assert log.update_high_watermark(99)
        assert log.high_watermark == 2
        assert not log.update_high_watermark(99)


class TestFlushing:
    def test_the_recovery_point_follows_a_flush(self, rolled: Log) -> None:
        assert (rolled.recovery_point, rolled.unflushed_messages, rolled.has_unflushed_segments) == (0, 9, True)
        rolled.flush(6)
        assert (rolled.recovery_point, rolled.unflushed_messages, rolled.has_unflushed_segments) == (6, 3, False)
        rolled.flush()
        assert (rolled.recovery_point, rolled.unflushed_messages) == (9, 0)

    def test_flush_messages_asks_for_a_flush_before_the_ack_of_a_duplicate_too(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(flush_messages=3))
        batch = batch_of(["a"], producer_id=1, sequence=0)

        append(log, "a")
        append(log, "a")
        assert (log.is_flush_due, log.durable_end_metadata.message_offset) == (False, 2)
        send(log, bytearray(batch))
        assert (log.is_flush_due, log.durable_end_metadata.message_offset) == (True, 0)
        assert send(log, bytearray(batch)).is_duplicate
        assert log.is_flush_due
        log.flush()
        assert send(log, bytearray(batch)).is_duplicate
        assert (log.is_flush_due, log.durable_end_metadata.message_offset) == (False, 3)

    def test_only_what_is_new_is_forced(self, rolled: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = descriptors_in(tmp_path)
        rolled.flush()
        append(rolled, "new")
        forced = forced_files(monkeypatch)

        rolled.flush()

        assert forced == ["00000000000000000006.log"]
        assert descriptors_in(tmp_path) == before

    @pytest.mark.parametrize("moment", ["fsync", "fdatasync"])
    def test_a_log_may_go_amid_a_flush(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
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
    def test_no_descriptor_is_no_failed_fsync(self, rolled: Log, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        with monkeypatch.context() as patch, pytest.raises(OSError, match=os.strerror(number)) as refused:
            patch.setattr(os, "open", failing(number))
            rolled.flush()

        assert not isinstance(refused.value, LogFlushError)
        assert rolled.recovery_point == 0
        append(rolled, "goes on")
        rolled.flush()
        assert rolled.recovery_point == rolled.log_end_offset

    def test_a_failed_fsync_is_never_acknowledged_again(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        append(log, "a")

        with monkeypatch.context() as patch, pytest.raises(LogFlushError):
            patch.setattr(os, "fdatasync", failing(errno.EIO))
            log.flush()

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

    def test_what_is_new_meanwhile_is_flushed_again(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        append(log, "a")
        self.flush_while(log, monkeypatch, lambda: append(log, "b"))
        assert (log.recovery_point, log.unflushed_messages) == (1, 1)

        self.flush_while(log, monkeypatch, lambda: log.roll(NOW_MS))
        assert log.has_unflushed_segments

    def test_what_is_cut_off_meanwhile_is_not_counted(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
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
    def test_everything_from_the_offset_on_is_gone(self, rolled: Log) -> None:
        rolled.update_high_watermark(9)
        rolled.flush()

        assert not rolled.truncate_to(9, now_ms=NOW_MS)
        assert rolled.truncate_to(4, now_ms=NOW_MS)

        assert (rolled.log_end_offset, rolled.high_watermark, segment_bases(rolled)) == (4, 4, [0, 3])
        assert rolled.recovery_point == 4
        assert append(rolled, "again").first_offset == 4
        assert values_of(rolled) == ["v0", "v1", "v2", "v3", "again"]

    @pytest.mark.parametrize("is_rolled", [False, True])
    def test_producers_and_epochs_are_taken_back_too(self, log: Log, is_rolled: bool) -> None:
        append(log, "a")
        if is_rolled:
            log.roll(NOW_MS)
        batch = batch_of(["b"], producer_id=1, sequence=0)
        send(log, bytearray(batch), leader_epoch=EPOCH + 1)

        log.truncate_to(1, now_ms=NOW_MS)

        assert log.leader_epochs.latest_epoch == EPOCH
        assert not send(log, batch).is_duplicate

    def test_a_log_without_producers_is_not_read_again(self, rolled: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        replayed: list[object] = []
        monkeypatch.setattr(
            "minibroker.storage.producers.producer_state.ProducerStateManager.replay", lambda *a: replayed.append(a)
        )

        rolled.truncate_to(5, now_ms=NOW_MS)

        assert replayed == []

    def test_a_log_begun_anew_starts_and_ends_at_the_offset(self, rolled: Log, tmp_path: Path) -> None:
        rolled.truncate_fully_and_start_at(100, now_ms=NOW_MS)

        assert (rolled.log_start_offset, rolled.log_end_offset, rolled.high_watermark) == (100, 100, 100)
        assert append(rolled, "a").first_offset == 100
        assert values_of(open_log(tmp_path)) == ["a"]


class TestRetention:
    @pytest.mark.parametrize(
        ("settings", "committed", "start", "passed_ms", "bases"),
        [
            pytest.param({"retention_ms": 1000}, 9, 0, 1002, [0, 3, 6], id="not yet too old"),
            pytest.param({"retention_ms": 1000}, 9, 0, 1003, [3, 6], id="the youngest record is too old"),
            pytest.param({"retention_ms": 0}, 5, 0, 10_000, [3, 6], id="what is not committed stays"),
            pytest.param({"retention_ms": -1}, 9, 5, 0, [3, 6], id="below the log start offset"),
            pytest.param({"retention_ms": 0, "cleanup_policy": ("compact",)}, 9, 0, 10_000, [0, 3, 6], id="compacted"),
        ],
    )
    def test_only_the_oldest_segments_go(
        self, tmp_path: Path, settings: dict[str, Any], committed: int, start: int, passed_ms: int, bases: list[int]
    ) -> None:
        log = roll_three(tmp_path, replace(SMALL, **settings))
        log.update_high_watermark(committed)
        log.maybe_increment_log_start_offset(start)

        assert log.delete_old_segments(NOW_MS + passed_ms) == 3 - len(bases)
        assert (segment_bases(log), log.log_start_offset) == (bases, max(start, bases[0]))

    def test_records_without_a_time_are_as_old_as_their_file(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, replace(SMALL, retention_ms=1000))
        append(log, "a", timestamp_ms=-1)
        log.roll(NOW_MS)
        log.update_high_watermark(1)
        os.utime(log.segments.first.path, ns=(NOW_MS * 1_000_000, NOW_MS * 1_000_000))

        assert log.delete_old_segments(NOW_MS + 1000) == 0
        assert log.delete_old_segments(NOW_MS + 1001) == 1

    def test_the_oldest_segments_go_until_the_size_is_reached(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path, replace(SMALL, retention_ms=-1))
        log.update_high_watermark(9)
        one = log.segments.first.size_bytes

        log.update_config(replace(SMALL, retention_ms=-1, retention_bytes=2 * one + 1))
        assert log.delete_old_segments(NOW_MS) == 0
        log.update_config(replace(SMALL, retention_ms=-1, retention_bytes=2 * one))
        assert log.delete_old_segments(NOW_MS) == 1
        assert segment_bases(log) == [3, 6]

    def test_when_all_go_an_empty_segment_takes_their_place_and_files_stay_for_the_delay(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path, replace(SMALL, retention_ms=0))
        log.update_high_watermark(9)

        assert [log.delete_old_segments(NOW_MS + passed_ms) for passed_ms in (10_000, 20_000)] == [3, 0]
        assert (segment_bases(log), log.log_start_offset, log.log_end_offset) == ([9], 9, 9)
        assert append(log, "a").first_offset == 9
        assert "00000000000000000000.log.deleted" in names_in(tmp_path)
        assert [remove_deleted(log, NOW_MS + passed_ms) for passed_ms in (10_999, 11_000)] == [0, 3]
        assert not [name for name in names_in(tmp_path) if name.endswith(".deleted")]

    def test_producers_of_deleted_records_are_forgotten(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        send(log, batch_of(["a"], producer_id=1, sequence=0))
        log.roll(NOW_MS)
        append(log, "b")
        log.update_high_watermark(2)

        log.delete_records(1)

        late = batch_of(["c"], producer_id=1, sequence=1)
        assert refusal_of(lambda: send(log, late)) is ErrorCode.UNKNOWN_PRODUCER_ID


class TestDeletingRecords:
    def test_deleted_offsets_are_out_of_range_and_minus_one_deletes_all_that_is_committed(self, rolled: Log) -> None:
        rolled.update_high_watermark(7)

        assert rolled.delete_records(4) == 4
        assert rolled.delete_records(2) == 4
        assert refusal_of(lambda: rolled.read(3, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert values_of(rolled) == [f"v{number}" for number in range(4, 9)]
        assert rolled.delete_records(-1) == 7

    @pytest.mark.parametrize("offset", [8, -2])
    def test_nothing_uncommitted_can_be_deleted(self, rolled: Log, offset: int) -> None:
        rolled.update_high_watermark(7)

        assert refusal_of(lambda: rolled.delete_records(offset)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert rolled.log_start_offset == 0

    def test_a_compacted_log_refuses(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(cleanup_policy=("compact",)))

        assert refusal_of(lambda: log.delete_records(0)) is ErrorCode.POLICY_VIOLATION


def test_a_reader_learns_of_the_aborted_transactions_of_every_segment_it_reads(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for producer_id in (7, 8):
        send_transactional(log, producer_id, 0, "a")
        end_transaction(log, producer_id, is_commit=False)
        log.roll(NOW_MS)

    aborted = log.segments.collect_aborted_txns(0, log.log_end_offset, 0)

    assert [txn.producer_id for txn in aborted] == [7, 8]
