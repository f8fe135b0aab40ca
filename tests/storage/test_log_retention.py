"""What leaves a log: by age, by size, by request; and what new settings and a full disk do."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.storage.config import LogConfig
from tests.storage.file_limits import no_file_beyond
from tests.storage.logs import (
    NOW_MS,
    SMALL,
    append,
    batch_of,
    names_in,
    open_log,
    read_bytes,
    refusal_of,
    remove_deleted,
    roll_three,
    segment_bases,
    send,
    values_of,
)


class TestRetention:
    def test_segments_go_by_the_age_of_their_youngest_record(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path, replace(SMALL, retention_ms=1000))
        log.update_high_watermark(9)

        assert log.delete_old_segments(NOW_MS + 2 + 1000) == 0
        assert log.delete_old_segments(NOW_MS + 2 + 1001) == 1
        assert (segment_bases(log), log.log_start_offset) == ([3, 6], 3)

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

    def test_nothing_goes_that_is_not_committed(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path, replace(SMALL, retention_ms=0))
        log.update_high_watermark(5)

        assert log.delete_old_segments(NOW_MS + 10_000) == 1
        assert segment_bases(log) == [3, 6]

    def test_when_all_go_an_empty_segment_takes_their_place(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path, replace(SMALL, retention_ms=0))
        log.update_high_watermark(9)

        assert log.delete_old_segments(NOW_MS + 10_000) == 3
        assert (segment_bases(log), log.log_start_offset, log.log_end_offset) == ([9], 9, 9)
        assert log.delete_old_segments(NOW_MS + 20_000) == 0
        assert append(log, "a").first_offset == 9

    def test_a_compacted_log_keeps_everything(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path, replace(SMALL, retention_ms=0, cleanup_policy=("compact",)))
        log.update_high_watermark(9)

        assert log.delete_old_segments(NOW_MS + 10_000) == 0

    def test_segments_below_the_log_start_offset_go(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path, replace(SMALL, retention_ms=-1))
        log.update_high_watermark(9)

        log.maybe_increment_log_start_offset(5)
        assert log.delete_old_segments(NOW_MS) == 1
        assert (segment_bases(log), log.log_start_offset) == ([3, 6], 5)

    def test_files_stay_for_the_delay(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        log.update_high_watermark(9)
        log.maybe_increment_log_start_offset(3)
        log.delete_old_segments(NOW_MS)

        assert "00000000000000000000.log.deleted" in names_in(tmp_path)
        assert remove_deleted(log, NOW_MS + 999) == 0
        assert remove_deleted(log, NOW_MS + 1000) == 1
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
    def test_what_is_deleted_is_out_of_range(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        log.update_high_watermark(9)

        assert log.delete_records(4) == 4
        assert log.delete_records(2) == 4
        assert refusal_of(lambda: log.read(3, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert values_of(log) == [f"v{number}" for number in range(4, 9)]

    def test_minus_one_deletes_all_that_is_committed(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        log.update_high_watermark(7)

        assert log.delete_records(-1) == 7

    @pytest.mark.parametrize("offset", [8, -2])
    def test_nothing_uncommitted_can_be_deleted(self, tmp_path: Path, offset: int) -> None:
        log = roll_three(tmp_path)
        log.update_high_watermark(7)

        assert refusal_of(lambda: log.delete_records(offset)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.log_start_offset == 0

    def test_a_compacted_log_refuses(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(cleanup_policy=("compact",)))

        assert refusal_of(lambda: log.delete_records(0)) is ErrorCode.POLICY_VIOLATION


class TestSettings:
    def test_new_settings_count_for_the_next_append(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, "x" * 200)

        log.update_config(LogConfig(max_message_bytes=100))

        assert refusal_of(lambda: append(log, "x" * 200)) is ErrorCode.MESSAGE_TOO_LARGE

    def test_a_full_disk_changes_nothing_and_passes(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, "a")
        before = read_bytes(log, 0)

        with no_file_beyond(len(before) + 40), pytest.raises(OSError, match="File too large"):
            append(log, "b" * 50)

        assert (log.log_end_offset, read_bytes(log, 0)) == (1, before)
        assert append(log, "b").first_offset == 1
        assert values_of(log) == ["a", "b"]
