"""What is appended to a log and read from it, with producers and transactions."""

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
from minibroker.storage.log.log import Log
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
    refusal_of,
    remove_deleted,
    segment_bases,
    send,
    send_transactional,
    values_of,
)


class TestAppending:
    def test_offsets_are_dense_across_batches(self, log: Log) -> None:
        first = append(log, "a", "b")
        second = append(log, "c")

        assert (first.first_offset, first.last_offset) == (0, 1)
        assert (second.first_offset, second.last_offset) == (2, 2)
        assert log.log_end_offset == 3
        assert values_of(log) == ["a", "b", "c"]
        assert offsets_of(log) == [0, 1, 2]

    def test_the_leader_epoch_is_stamped_and_noted(self, log: Log) -> None:
        send(log, batch_of("a"), leader_epoch=4)
        send(log, batch_of("b"), leader_epoch=4)
        send(log, batch_of("c"), leader_epoch=6)

        assert [batch.partition_leader_epoch for batch in batches_of(log)] == [4, 4, 6]
        assert [tuple(entry) for entry in log.leader_epochs.entries] == [(4, 0), (6, 2)]

    def test_a_memoryview_into_a_request_is_appended_without_its_surroundings(self, log: Log) -> None:
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

    def test_nothing_is_appended_of_a_batch_that_is_cut_short(self, log: Log) -> None:
        info = send(log, batch_of(["a"])[:-1])

        assert (info.first_offset, info.shallow_count) == (-1, 0)
        assert log.log_end_offset == 0

    def test_several_batches_in_one_append_are_one_write(self, log: Log) -> None:
        append(log, "a")

        info = send(log, batch_of(["b", "c"]) + batch_of(["d"]))

        assert (info.first_offset, info.last_offset, info.shallow_count) == (1, 3, 2)
        assert offsets_of(log) == [0, 1, 2, 3]

    def test_an_incomplete_batch_behind_good_ones_is_left_out(self, log: Log) -> None:
        info = send(log, batch_of(["a"]) + batch_of(["b"])[:-3])

        assert info.valid_bytes == len(batch_of(["a"]))
        assert values_of(log) == ["a"]

    def test_a_set_of_batches_over_a_segment_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(segment_bytes=150))

        assert refusal_of(lambda: send(log, batch_of(["a"]) * 3)) is ErrorCode.RECORD_LIST_TOO_LARGE
        assert log.log_end_offset == 0

    def test_an_append_to_a_closed_log_is_refused(self, log: Log) -> None:
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

    @pytest.mark.parametrize("offsets", [(5, 5), (0,), (1,)])
    def test_a_follower_refuses_offsets_that_do_not_rise_from_its_end_on(
        self, log: Log, offsets: tuple[int, ...]
    ) -> None:
        append(log, "a", "b")
        batches = [build_batch([Record(at, NOW_MS, None, b"v")], base_offset=at) for at in offsets]

        code = refusal_of(lambda: log.append_as_follower(bytearray().join(batches), now_ms=NOW_MS))

        assert (code, log.log_end_offset) == (ErrorCode.CORRUPT_MESSAGE, 2)


class TestReading:
    def test_a_read_gives_the_file_and_where(self, log: Log) -> None:
        append(log, "a")
        append(log, "b")

        found = log.read(1, 10_000)

        assert isinstance(found.records, FileSlice)
        size = found.records.size_bytes
        assert found.offset_metadata == (1, 0, size)
        assert found.records.position == size

    def test_the_end_of_the_log_is_no_error_and_one_further_is(self, log: Log) -> None:
        append(log, "a")

        assert log.read(1, 100).records == b""
        assert log.read(1, 100).offset_metadata == log.log_end_offset_metadata
        assert refusal_of(lambda: log.read(2, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert refusal_of(lambda: log.read(-1, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_below_the_log_start_offset_is_out_of_range(self, rolled: Log) -> None:
        rolled.maybe_increment_log_start_offset(2)

        assert refusal_of(lambda: rolled.read(1, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert rolled.read(2, 100).size_bytes > 0

    def test_a_read_ends_with_its_segment(self, rolled: Log) -> None:
        assert [batch.base_offset for batch in batches_of(rolled)] == list(range(9))
        assert rolled.read(0, 10_000).size_bytes == rolled.segments.first.size_bytes

    def test_nothing_is_read_from_max_offset_on(self, rolled: Log) -> None:
        one = len(read_bytes(rolled, 0)) // 3

        assert rolled.read(0, 10_000, max_offset=2).size_bytes == 2 * one
        assert rolled.read(1, 10_000, max_offset=1).size_bytes == 0
        assert rolled.read(1, 10_000, max_offset=9).size_bytes == 2 * one

    def test_an_offset_in_a_gap_is_served_by_the_next_segment(self, rolled: Log) -> None:
        rolled.segments.segments[1].truncate_to(4, now_ms=NOW_MS)  # as compaction may leave it

        found = rolled.read(5, 10_000)

        assert found.offset_metadata.segment_base_offset == 6
        assert found.offset_metadata.message_offset == 5

    def test_a_gap_at_the_end_of_the_log_reads_as_its_end(self, rolled: Log) -> None:
        rolled.segments.active.truncate_to(7, now_ms=NOW_MS)

        found = rolled.read(8, 10_000)

        assert (found.records, found.offset_metadata) == (b"", rolled.log_end_offset_metadata)

    def test_a_slice_of_a_deleted_segment_stays_readable(self, rolled: Log, tmp_path: Path) -> None:
        records = rolled.read(0, 10_000).records
        assert isinstance(records, FileSlice)
        before = records.read()

        rolled.update_high_watermark(9)
        rolled.maybe_increment_log_start_offset(9)
        rolled.delete_old_segments(NOW_MS)
        remove_deleted(rolled, NOW_MS + 1000)

        assert 0 not in segment_bases(rolled)
        assert not (tmp_path / "00000000000000000000.log.deleted").exists()
        assert records.read() == before

    def test_offset_metadata_counts_bytes_within_a_segment(self, rolled: Log) -> None:
        first, last = rolled.convert_to_offset_metadata(6), rolled.convert_to_offset_metadata(8)

        assert first == (6, 6, 0)
        assert rolled.log_end_offset_metadata.relative_position - last.relative_position > 0
        assert rolled.convert_to_offset_metadata(9) == rolled.log_end_offset_metadata


class TestOffsetsByTime:
    def test_the_first_record_not_older_is_found_in_any_segment(self, rolled: Log) -> None:
        for number in range(9):
            assert rolled.fetch_offset_by_timestamp(NOW_MS + number) == (NOW_MS + number, number)
        assert rolled.fetch_offset_by_timestamp(NOW_MS - 5) == (NOW_MS, 0)
        assert rolled.fetch_offset_by_timestamp(NOW_MS + 9) is None

    def test_nothing_below_the_log_start_offset_is_found_and_its_ends_have_no_timestamp(self, rolled: Log) -> None:
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

    @pytest.mark.parametrize(
        ("producer_id", "sequence", "epoch", "code"),
        [
            pytest.param(1, 2, 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, id="gap"),
            pytest.param(1, 1, 1, ErrorCode.INVALID_PRODUCER_EPOCH, id="older epoch"),
            pytest.param(9, 5, 0, ErrorCode.UNKNOWN_PRODUCER_ID, id="unknown producer"),
        ],
    )
    def test_a_batch_that_does_not_follow_is_refused(
        self, log: Log, producer_id: int, sequence: int, epoch: int, code: ErrorCode
    ) -> None:
        send(log, batch_of(["a"], producer_id=1, sequence=0, epoch=2))
        wrong = batch_of(["c"], producer_id=producer_id, sequence=sequence, epoch=epoch)

        assert refusal_of(lambda: send(log, wrong)) is code
        assert send(log, batch_of(["b"], producer_id=1, sequence=1, epoch=2)).first_offset == 1

    def test_a_producer_is_known_again_after_a_restart(self, log: Log, tmp_path: Path) -> None:
        first = send(log, batch_of(["a"], producer_id=1, sequence=0))
        log.close()

        reopened = open_log(tmp_path, is_after_clean_stop=True)
        again = send(reopened, batch_of(["a"], producer_id=1, sequence=0))
        following = send(reopened, batch_of(["b"], producer_id=1, sequence=1))

        assert (again.is_duplicate, again.first_offset) == (True, first.first_offset)
        assert following.first_offset == 1


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

    def test_aborted_transactions_come_with_a_read_that_asks(self, log: Log) -> None:
        send_transactional(log, 1, 0, "aborted")
        send_transactional(log, 2, 0, "committed")
        end_transaction(log, 1, is_commit=False)
        end_transaction(log, 2, is_commit=True)

        asked = log.read(0, 10_000, include_aborted_txns=True).aborted_transactions
        unasked = log.read(0, 10_000).aborted_transactions

        assert unasked is None
        assert asked is not None
        assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in asked] == [(1, 0, 2)]

    def test_a_transaction_over_two_segments_is_found_from_the_first(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        send_transactional(log, 1, 0, "aborted")
        log.roll(NOW_MS)
        end_transaction(log, 1, is_commit=False)
        append(log, "after")

        in_first = log.read(0, 10_000, include_aborted_txns=True)
        behind = log.read(2, 10_000, include_aborted_txns=True)

        assert [txn.producer_id for txn in in_first.aborted_transactions or ()] == [1]
        assert behind.aborted_transactions == []

    def test_at_the_end_of_the_log_the_list_is_empty_not_absent(self, log: Log) -> None:
        assert log.read(0, 100, include_aborted_txns=True).aborted_transactions == []
        assert log.read(0, 100).aborted_transactions is None

    def test_markers_of_an_older_coordinator_are_refused(self, log: Log) -> None:
        end_transaction(log, 1, is_commit=True, coordinator_epoch=5)

        code = refusal_of(lambda: end_transaction(log, 1, is_commit=False, coordinator_epoch=4))

        assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_an_abort_that_cannot_be_indexed_is_not_in_the_log(self, log: Log) -> None:
        send_transactional(log, 1, 0, "aborted")

        with no_space_in("minibroker.storage.index.transaction_index.TransactionIndex.append"):
            end_transaction(log, 1, is_commit=False)
        log.update_high_watermark(1)

        assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
        end_transaction(log, 1, is_commit=False)
        aborted = log.read(0, 10_000, include_aborted_txns=True).aborted_transactions
        assert [txn.producer_id for txn in aborted or ()] == [1]
