"""What is appended to a log and read from it, with producers and transactions."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.config import LogConfig
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.log.log import Log
from tests.refusals import refusal_of
from tests.storage.file_limits import no_space_in
from tests.storage.logs import (
    EPOCH,
    NOW_MS,
    SMALL,
    append,
    batch_of,
    batches_of,
    end_transaction,
    offsets_of,
    open_log,
    read_bytes,
    send,
    send_transactional,
    values_of,
)


class TestAppending:
    def test_offsets_are_dense_across_batches_and_nothing_around_one_in_a_request_is_written(self, log: Log) -> None:
        frame = bytearray(b"head") + batch_of(["c"]) + bytearray(b"tail")

        first = append(log, "a", "b")
        second = log.append_as_leader(memoryview(frame)[4:-4], leader_epoch=EPOCH, now_ms=NOW_MS)

        assert (first.first_offset, first.last_offset) == (0, 1)
        assert (second.first_offset, second.last_offset) == (2, 2)
        assert log.log_end_offset == 3
        assert (values_of(log), offsets_of(log)) == (["a", "b", "c"], [0, 1, 2])
        assert (bytes(frame[:4]), bytes(frame[-4:])) == (b"head", b"tail")

    def test_the_leader_epoch_is_stamped_and_noted(self, log: Log) -> None:
        send(log, batch_of("a"), leader_epoch=4)
        send(log, batch_of("b"), leader_epoch=4)
        send(log, batch_of("c"), leader_epoch=6)

        assert [batch.partition_leader_epoch for batch in batches_of(log)] == [4, 4, 6]
        assert [tuple(entry) for entry in log.leader_epochs.entries] == [(4, 0), (6, 2)]

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

    def test_nothing_is_appended_of_a_batch_that_is_cut_short(self, log: Log) -> None:
        info = send(log, batch_of(["a"])[:-1])

        assert (info.first_offset, info.shallow_count) == (-1, 0)
        assert log.log_end_offset == 0

    def test_whole_batches_of_one_append_are_one_write_and_an_incomplete_one_is_left_out(self, log: Log) -> None:
        append(log, "a")
        whole = batch_of(["b", "c"]) + batch_of(["d"])

        info = send(log, whole + batch_of(["e"])[:-3])

        assert (info.first_offset, info.last_offset, info.shallow_count) == (1, 3, 2)
        assert info.valid_bytes == len(whole)
        assert values_of(log) == ["a", "b", "c", "d"]

    def test_a_set_of_batches_over_a_segment_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(segment_bytes=150))

        assert refusal_of(lambda: send(log, batch_of(["a"]) * 3)) is ErrorCode.RECORD_LIST_TOO_LARGE
        assert log.log_end_offset == 0

    def test_an_append_to_a_closed_log_is_refused(self, log: Log) -> None:
        log.close()

        assert refusal_of(lambda: append(log, "a")) is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal_of(lambda: log.read(0, 100)) is ErrorCode.KAFKA_STORAGE_ERROR


class TestFollowing:
    def test_a_follower_takes_offsets_gaps_and_epochs_as_they_are(self, tmp_path: Path) -> None:
        leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
        append(leader, "a", "b")
        send(leader, batch_of(["c"]), leader_epoch=EPOCH + 1)
        far = build_batch([Record(100, NOW_MS, None, b"far")], base_offset=100, leader_epoch=EPOCH + 1)

        follower.append_as_follower(bytearray(read_bytes(leader, 0)), now_ms=NOW_MS)
        follower.append_as_follower(far, now_ms=NOW_MS)

        assert read_bytes(follower, 0, max_offset=3) == read_bytes(leader, 0)
        assert follower.leader_epochs.entries == leader.leader_epochs.entries
        assert (offsets_of(follower), follower.log_end_offset) == ([0, 1, 2, 100], 101)

    @pytest.mark.parametrize("offsets", [(5, 5), (0,), (1,)])
    def test_a_follower_refuses_offsets_that_do_not_rise_from_its_end(self, log: Log, offsets: tuple[int, ...]) -> None:
        append(log, "a", "b")
        batches = [build_batch([Record(at, NOW_MS, None, b"v")], base_offset=at) for at in offsets]

        code = refusal_of(lambda: log.append_as_follower(bytearray().join(batches), now_ms=NOW_MS))

        assert (code, log.log_end_offset) == (ErrorCode.CORRUPT_MESSAGE, 2)


class TestReading:
    def test_a_read_gives_the_file_and_where_and_nothing_at_the_end_of_the_log(self, log: Log) -> None:
        append(log, "a")
        append(log, "b")

        found, end = log.read(1, 10_000), log.read(2, 100)

        assert isinstance(found.records, FileSlice)
        size = found.records.size_bytes
        assert found.offset_metadata == (1, 0, size)
        assert found.records.position == size
        assert (end.records, end.offset_metadata) == (b"", log.log_end_offset_metadata)
        for outside in (3, -1):
            assert refusal_of(partial(log.read, outside, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_a_read_ends_with_its_segment_or_before_max_offset(self, rolled: Log) -> None:
        one = len(read_bytes(rolled, 0)) // 3

        assert [batch.base_offset for batch in batches_of(rolled)] == list(range(9))
        assert rolled.read(0, 10_000).size_bytes == rolled.segments.first.size_bytes
        assert rolled.read(0, 10_000, max_offset=2).size_bytes == 2 * one
        assert rolled.read(1, 10_000, max_offset=1).size_bytes == 0
        assert rolled.read(1, 10_000, max_offset=9).size_bytes == 2 * one

    def test_an_offset_in_a_gap_is_served_by_the_next_segment_or_reads_as_the_end(self, rolled: Log) -> None:
        rolled.segments.segments[1].truncate_to(4, now_ms=NOW_MS)  # as compaction may leave it
        rolled.segments.active.truncate_to(7, now_ms=NOW_MS)

        between, at_the_end = rolled.read(5, 10_000), rolled.read(8, 10_000)

        assert between.offset_metadata.segment_base_offset == 6
        assert between.offset_metadata.message_offset == 5
        assert (at_the_end.records, at_the_end.offset_metadata) == (b"", rolled.log_end_offset_metadata)

    def test_offset_metadata_counts_bytes_within_a_segment(self, rolled: Log) -> None:
        first, last = rolled.convert_to_offset_metadata(6), rolled.convert_to_offset_metadata(8)

        assert first == (6, 6, 0)
        assert rolled.log_end_offset_metadata.relative_position - last.relative_position > 0
        assert rolled.convert_to_offset_metadata(9) == rolled.log_end_offset_metadata


class TestOffsetsByTime:
    def test_the_first_record_not_older_is_found_in_any_segment_from_the_log_start_offset_on(self, rolled: Log) -> None:
        for number in range(9):
            assert rolled.fetch_offset_by_timestamp(NOW_MS + number) == (NOW_MS + number, number)
        assert rolled.fetch_offset_by_timestamp(NOW_MS - 5) == (NOW_MS, 0)
        assert rolled.fetch_offset_by_timestamp(NOW_MS + 9) is None

        rolled.maybe_increment_log_start_offset(4)
        assert rolled.fetch_offset_by_timestamp(NOW_MS) == (NOW_MS + 4, 4)
        assert rolled.fetch_offset_by_timestamp(-2) == (-1, 4)
        assert rolled.fetch_offset_by_timestamp(-1) == (-1, 9)

    def test_format_0_has_no_times_to_search(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(message_format_version="0.9.0"))

        code = refusal_of(lambda: log.fetch_offset_by_timestamp(0))

        assert code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    def test_the_old_answer_goes_by_when_segments_were_written(self, rolled: Log) -> None:
        for segment, time_ms in zip(rolled.segments, (1000, 2000, 3000), strict=True):
            os.utime(segment.path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

        def before(time_ms: int, count: int) -> list[int]:
            return rolled.legacy_fetch_offsets_before(time_ms, count, now_ms=5000)

        assert before(-1, 1) == [9]
        assert before(-1, 10) == [9, 6, 3, 0]
        assert before(-2, 10) == [0]
        assert before(2500, 10) == [3, 0]
        assert before(2500, 1) == [3]
        assert before(999, 10) == []
        assert before(5000, 2) == [9, 6]


class TestProducers:
    def test_a_batch_sent_again_gets_its_offsets_of_the_first_time(self, log: Log) -> None:
        first = send(log, batch_of(["a", "b"], producer_id=1, sequence=0))
        send(log, batch_of(["c"], producer_id=1, sequence=2))

        again = send(log, batch_of(["a", "b"], producer_id=1, sequence=0))

        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (0, 1)
        assert values_of(log) == ["a", "b", "c"]


class TestTransactions:
    def test_the_last_stable_offset_waits_for_the_open_transaction(self, log: Log) -> None:
        append(log, "plain")
        send_transactional(log, 1, 0, "open")
        append(log, "behind it")
        log.update_high_watermark(3)

        assert (log.last_stable_offset, log.high_watermark) == (1, 3)

        end_transaction(log, 1, is_commit=True)
        assert log.last_stable_offset == 1, "the marker is not committed yet"
        log.update_high_watermark(4)
        assert log.last_stable_offset == 4

    def test_aborted_transactions_come_with_a_read_that_asks_and_may_meet_them(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        send_transactional(log, 1, 0, "aborted")
        log.roll(NOW_MS)
        send_transactional(log, 2, 0, "committed")
        end_transaction(log, 1, is_commit=False)
        end_transaction(log, 2, is_commit=True)

        def aborted(offset: int, **asked: bool) -> object:
            found = log.read(offset, 10_000, **asked).aborted_transactions
            return found and [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in found]

        assert aborted(0, include_aborted_txns=True) == [(1, 0, 2)]
        assert aborted(3, include_aborted_txns=True) == aborted(4, include_aborted_txns=True) == []
        assert aborted(0) is aborted(4) is None

    @pytest.mark.pure
    def test_an_abort_that_cannot_be_indexed_is_not_in_the_log(self, log: Log) -> None:
        send_transactional(log, 1, 0, "aborted")

        with no_space_in("minibroker.storage.index.transaction_index.TransactionIndex.append"):
            end_transaction(log, 1, is_commit=False)
        log.update_high_watermark(1)

        assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
        end_transaction(log, 1, is_commit=False)
        aborted = log.read(0, 10_000, include_aborted_txns=True).aborted_transactions
        assert [txn.producer_id for txn in aborted or ()] == [1]
