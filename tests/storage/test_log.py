"""What is appended to a log, and what is read from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.config import LogConfig
from minibroker.storage.files.records_file import FileSlice
from tests.storage.logs import (
    EPOCH,
    NOW_MS,
    append,
    batch_of,
    batches_of,
    offsets_of,
    open_log,
    read_bytes,
    refusal_of,
    remove_deleted,
    roll_three,
    segment_bases,
    send,
    values_of,
)


class TestAppending:
    def test_offsets_are_dense_across_batches(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)

        first = append(log, "a", "b")
        second = append(log, "c")

        assert (first.first_offset, first.last_offset) == (0, 1)
        assert (second.first_offset, second.last_offset) == (2, 2)
        assert log.log_end_offset == 3
        assert values_of(log) == ["a", "b", "c"]
        assert offsets_of(log) == [0, 1, 2]

    def test_the_leader_epoch_is_stamped_and_noted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)

        send(log, batch_of("a"), leader_epoch=4)
        send(log, batch_of("b"), leader_epoch=4)
        send(log, batch_of("c"), leader_epoch=6)

        assert [batch.partition_leader_epoch for batch in batches_of(log)] == [4, 4, 6]
        assert [tuple(entry) for entry in log.leader_epochs.entries] == [(4, 0), (6, 2)]

    def test_a_memoryview_into_a_request_is_appended_without_its_surroundings(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        batch = batch_of(["a"])
        frame = bytearray(b"head") + batch + bytearray(b"tail")

        log.append_as_leader(memoryview(frame)[4:-4], leader_epoch=EPOCH, now_ms=NOW_MS)

        assert read_bytes(log, 0) == bytes(frame[4:-4])
        assert (bytes(frame[:4]), bytes(frame[-4:])) == (b"head", b"tail")

    def test_the_short_way_writes_what_the_long_way_writes(self, tmp_path: Path) -> None:
        plain, checked = (
            open_log(tmp_path / "plain"),
            open_log(tmp_path / "checked", LogConfig(message_timestamp_difference_max_ms=10**12)),
        )
        batches = [
            batch_of(["a", "b"]),
            build_batch([Record(0, 5, None, b"x" * 500)], codec=Codec.GZIP),
            batch_of(["c"], producer_id=9, sequence=0),
            batch_of(["d"], producer_id=9, sequence=1, is_transactional=True),
        ]

        infos = [(send(plain, bytearray(batch)), send(checked, bytearray(batch))) for batch in batches]

        assert all(short == long for short, long in infos)
        assert read_bytes(plain, 0) == read_bytes(checked, 0)

    def test_nothing_is_appended_of_a_batch_that_is_cut_short(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)

        info = send(log, batch_of(["a"])[:-1])

        assert (info.first_offset, info.shallow_count) == (-1, 0)
        assert log.log_end_offset == 0

    def test_several_batches_in_one_append_are_one_write(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, "a")

        info = send(log, batch_of(["b", "c"]) + batch_of(["d"]))

        assert (info.first_offset, info.last_offset, info.shallow_count) == (1, 3, 2)
        assert offsets_of(log) == [0, 1, 2, 3]

    def test_an_incomplete_batch_behind_good_ones_is_left_out(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)

        info = send(log, batch_of(["a"]) + batch_of(["b"])[:-3])

        assert info.valid_bytes == len(batch_of(["a"]))
        assert values_of(log) == ["a"]

    def test_a_batch_over_the_largest_message_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(max_message_bytes=100))

        assert refusal_of(lambda: append(log, "x" * 100)) is ErrorCode.MESSAGE_TOO_LARGE
        assert log.log_end_offset == 0

    def test_a_set_of_batches_over_a_segment_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(segment_bytes=150))

        assert refusal_of(lambda: send(log, batch_of(["a"]) * 3)) is ErrorCode.RECORD_LIST_TOO_LARGE
        assert log.log_end_offset == 0

    def test_a_flipped_bit_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        batch = batch_of(["a"])
        batch[-2] ^= 1

        assert refusal_of(lambda: send(log, batch)) is ErrorCode.CORRUPT_MESSAGE
        assert log.log_end_offset == 0

    def test_an_append_to_a_closed_log_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.close()

        assert refusal_of(lambda: append(log, "a")) is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal_of(lambda: log.read(0, 100)) is ErrorCode.KAFKA_STORAGE_ERROR


class TestFollowing:
    def test_a_follower_takes_offsets_and_epochs_as_they_are(self, tmp_path: Path) -> None:
        leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
        append(leader, "a", "b")
        send(leader, batch_of(["c"]), leader_epoch=EPOCH + 1)

        follower.append_as_follower(bytearray(read_bytes(leader, 0)), now_ms=NOW_MS)

        assert read_bytes(follower, 0) == read_bytes(leader, 0)
        assert follower.leader_epochs.entries == leader.leader_epochs.entries
        assert follower.log_end_offset == 3

    def test_a_follower_keeps_gaps(self, tmp_path: Path) -> None:
        follower = open_log(tmp_path)
        far = build_batch([Record(100, NOW_MS, None, b"far")], base_offset=100, leader_epoch=EPOCH)

        follower.append_as_follower(far, now_ms=NOW_MS)

        assert follower.log_end_offset == 101
        assert offsets_of(follower) == [100]

    def test_a_follower_refuses_offsets_that_do_not_rise(self, tmp_path: Path) -> None:
        follower = open_log(tmp_path)
        batches = [build_batch([Record(at, NOW_MS, None, b"v")], base_offset=at) for at in (5, 5)]

        code = refusal_of(lambda: follower.append_as_follower(batches[0] + batches[1], now_ms=NOW_MS))

        assert (code, follower.log_end_offset) == (ErrorCode.CORRUPT_MESSAGE, 0)

    @pytest.mark.parametrize("offset", [0, 1])
    def test_a_follower_refuses_offsets_it_has(self, tmp_path: Path, offset: int) -> None:
        follower = open_log(tmp_path)
        append(follower, "a", "b")
        again = build_batch([Record(offset, NOW_MS, None, b"again")], base_offset=offset)

        assert refusal_of(lambda: follower.append_as_follower(again, now_ms=NOW_MS)) is ErrorCode.CORRUPT_MESSAGE
        assert follower.log_end_offset == 2


class TestReading:
    def test_a_read_gives_the_file_and_where(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, "a")
        append(log, "b")

        found = log.read(1, 10_000)

        assert isinstance(found.records, FileSlice)
        size = found.records.size_bytes
        assert found.offset_metadata == (1, 0, size)
        assert found.records.position == size

    def test_the_end_of_the_log_is_no_error_and_one_further_is(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, "a")

        assert log.read(1, 100).records == b""
        assert log.read(1, 100).offset_metadata == log.log_end_offset_metadata
        assert refusal_of(lambda: log.read(2, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert refusal_of(lambda: log.read(-1, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_below_the_log_start_offset_is_out_of_range(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        log.maybe_increment_log_start_offset(2)

        assert refusal_of(lambda: log.read(1, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read(2, 100).size_bytes > 0

    def test_a_read_ends_with_its_segment(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)

        assert [batch.base_offset for batch in batches_of(log)] == list(range(9))
        assert log.read(0, 10_000).size_bytes == log.segments.first.size_bytes

    def test_nothing_is_read_from_max_offset_on(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)

        one = len(read_bytes(log, 0)) // 3

        assert log.read(0, 10_000, max_offset=2).size_bytes == 2 * one
        assert log.read(1, 10_000, max_offset=1).size_bytes == 0
        assert log.read(1, 10_000, max_offset=9).size_bytes == 2 * one

    def test_an_offset_in_a_gap_is_served_by_the_next_segment(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        log.segments.segments[1].truncate_to(4, now_ms=NOW_MS)  # as compaction may leave it

        found = log.read(5, 10_000)

        assert found.offset_metadata.segment_base_offset == 6
        assert found.offset_metadata.message_offset == 5

    def test_a_gap_at_the_end_of_the_log_reads_as_its_end(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        log.segments.active.truncate_to(7, now_ms=NOW_MS)

        found = log.read(8, 10_000)

        assert (found.records, found.offset_metadata) == (b"", log.log_end_offset_metadata)

    def test_a_slice_of_a_deleted_segment_stays_readable(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        records = log.read(0, 10_000).records
        assert isinstance(records, FileSlice)
        before = records.read()

        log.update_high_watermark(9)
        log.maybe_increment_log_start_offset(9)
        log.delete_old_segments(NOW_MS)
        remove_deleted(log, NOW_MS + 1000)

        assert 0 not in segment_bases(log)
        assert not (tmp_path / "00000000000000000000.log.deleted").exists()
        assert records.read() == before

    def test_offset_metadata_counts_bytes_within_a_segment(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)

        first, last = log.convert_to_offset_metadata(6), log.convert_to_offset_metadata(8)

        assert first == (6, 6, 0)
        assert log.log_end_offset_metadata.relative_position - last.relative_position > 0
        assert log.convert_to_offset_metadata(9) == log.log_end_offset_metadata


class TestOffsetsByTime:
    def test_the_first_record_not_older_is_found_in_any_segment(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)

        for number in range(9):
            assert log.fetch_offset_by_timestamp(NOW_MS + number) == (NOW_MS + number, number)
        assert log.fetch_offset_by_timestamp(NOW_MS - 5) == (NOW_MS, 0)
        assert log.fetch_offset_by_timestamp(NOW_MS + 9) is None

    def test_earliest_and_latest_have_no_timestamp(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        log.maybe_increment_log_start_offset(4)

        assert log.fetch_offset_by_timestamp(-2) == (-1, 4)
        assert log.fetch_offset_by_timestamp(-1) == (-1, 9)

    def test_nothing_below_the_log_start_offset_is_found(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        log.maybe_increment_log_start_offset(4)

        assert log.fetch_offset_by_timestamp(NOW_MS) == (NOW_MS + 4, 4)

    def test_format_0_has_no_times_to_search(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(message_format_version="0.9.0"))

        code = refusal_of(lambda: log.fetch_offset_by_timestamp(0))

        assert code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    def test_the_old_answer_goes_by_when_segments_were_written(self, tmp_path: Path) -> None:
        log = roll_three(tmp_path)
        for segment, time_ms in zip(log.segments, (1000, 2000, 3000), strict=True):
            os.utime(segment.path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

        def before(time_ms: int, count: int) -> list[int]:
            return log.legacy_fetch_offsets_before(time_ms, count, now_ms=5000)

        assert before(-1, 1) == [9]
        assert before(-1, 10) == [9, 6, 3, 0]
        assert before(-2, 10) == [0]
        assert before(2500, 10) == [3, 0]
        assert before(2500, 1) == [3]
        assert before(999, 10) == []
        assert before(5000, 2) == [9, 6]
