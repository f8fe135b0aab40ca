"""Compaction of what producers with an identity wrote: committed, aborted, undecided, and their last batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.batches import BatchView
from minibroker.protocol.errors import ErrorCode
from minibroker.storage.compaction.cleaner_offset_map import BYTES_PER_KEY
from minibroker.storage.compaction.log_cleaner import CleanerConfig
from minibroker.storage.index.transaction_index import AbortedTxn
from minibroker.storage.log.log import Log
from tests.refusals import refusal_of
from tests.storage.cleaning import (
    COMPACTED,
    age_segments,
    clean,
    commit,
    config_of,
    put,
    put_segment,
    roll,
    roll_and_clean,
    survivors,
)
from tests.storage.logs import UNBOUNDED, batch_of, batches_of, end_transaction, open_log, segment_bases, send

DAY_MS = 24 * 60 * 60 * 1000
PID, OTHER = 7, 8


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "log", COMPACTED)


def put_in_transaction(log: Log, producer_id: int, sequence: int, *pairs: tuple[str | None, str | None]) -> None:
    put(log, *pairs, producer_id=producer_id, sequence=sequence, is_transactional=True)


def end(log: Log, producer_id: int, *, is_commit: bool, epoch: int = 0) -> None:
    end_transaction(log, producer_id, is_commit=is_commit, epoch=epoch)
    commit(log)


def aborted_in(log: Log) -> list[AbortedTxn]:
    """What a read_committed fetch of everything is told."""
    first = log.log_start_offset
    return log.segments.collect_aborted_txns(first, log.log_end_offset, 0)


def shape(batch: BatchView) -> tuple[int, int, int]:
    return batch.base_offset, batch.last_offset, batch.records_count


def forget_producers(log: Log) -> None:
    """As if they had written nothing for a week."""
    log.producer_state.remove_expired(1 << 60)


class TestCommitted:
    def test_the_newest_committed_value_stays_with_its_marker(self, log: Log) -> None:
        put_in_transaction(log, PID, 0, ("a", "1"), ("a", "2"))
        put_in_transaction(log, PID, 2, ("b", "1"))
        end(log, PID, is_commit=True)

        roll_and_clean(log)

        assert survivors(log) == [(1, "a", "2"), (2, "b", "1")]
        assert [shape(batch) for batch in batches_of(log)] == [(0, 1, 1), (2, 2, 1), (3, 3, 1)]
        assert batches_of(log)[-1].is_control

    def test_a_commit_marker_stays_while_there_is_a_batch_of_it_in_another_segment(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(delete_retention_ms=0, segment_bytes=100))
        put_in_transaction(log, PID, 0, ("a", "1"))
        roll(log)
        end(log, PID, is_commit=True)
        roll_and_clean(log)
        age_segments(log, DAY_MS)
        for number in range(3):
            put(log, (f"k{number}", "1"))
            roll_and_clean(log)

        assert [batch.base_offset for batch in batches_of(log) if batch.is_control] == [1]
        log.close()
        again = open_log(tmp_path / "log", COMPACTED)
        commit(again)
        assert again.last_stable_offset == again.log_end_offset

    def test_a_commit_marker_goes_when_nothing_is_left_and_the_retention_is_over(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(segment_bytes=140))
        put_in_transaction(log, PID, 0, ("a", "1"))
        end(log, PID, is_commit=True)
        put(log, ("a", "2"))
        roll_and_clean(log)
        forget_producers(log)
        for number in range(3):
            put(log, (f"k{number}", "v" * 60))
            roll_and_clean(log)
        assert next(batch.is_control for batch in batches_of(log))

        log.segments.first.last_modified_ms -= 2 * DAY_MS
        put(log, ("k9", "1"))
        roll_and_clean(log)

        assert not [batch for batch in batches_of(log) if batch.is_control]
        assert survivors(log)[0] == (2, "a", "2")


class TestAborted:
    def test_the_marker_and_its_index_entry_stay_as_long_as_there_was_a_batch(self, log: Log) -> None:
        put_in_transaction(log, PID, 0, ("a", "aborted"))
        end(log, PID, is_commit=False)
        before = aborted_in(log)

        roll_and_clean(log)

        assert aborted_in(log) == before == [AbortedTxn(PID, 0, 1, 2)]
        # The producer's last batch stays without its records.
        assert [shape(batch) for batch in batches_of(log)] == [(0, 0, 0), (1, 1, 1)]

    def test_the_index_entry_goes_with_the_last_batch_and_the_marker_after_the_retention(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(segment_bytes=140))
        put(log, ("a", "1"))
        put_in_transaction(log, PID, 0, ("a", "aborted"))
        end(log, PID, is_commit=False)
        roll_and_clean(log)
        forget_producers(log)
        put(log, ("k0", "v" * 60))
        roll_and_clean(log)
        put(log, ("k1", "v" * 60))
        roll_and_clean(log)
        assert (aborted_in(log), [batch.base_offset for batch in batches_of(log) if batch.is_control]) == ([], [2])

        age_segments(log, 0)
        for segment in list(log.segments)[:2]:
            segment.last_modified_ms -= 2 * DAY_MS
        put(log, ("k2", "1"))
        roll_and_clean(log)

        assert not [batch for batch in batches_of(log) if batch.is_control]
        assert next(value for _, _, value in survivors(log)) == "1"

    def test_an_aborted_transaction_whose_marker_is_in_the_active_segment_goes(self, log: Log) -> None:
        put_in_transaction(log, PID, 0, ("a", "aborted"), ("b", "aborted"))
        put_in_transaction(log, PID, 2, ("c", "aborted"))
        put_segment(log, ("a", "1"))
        end(log, PID, is_commit=False)

        clean(log)

        assert survivors(log) == [(3, "a", "1")]
        assert aborted_in(log) == [AbortedTxn(PID, 0, 4, 5)]

    def test_transactions_of_several_producers_and_the_next_of_each_are_told_apart(self, log: Log) -> None:
        put_in_transaction(log, PID, 0, ("a", "7"))
        put_in_transaction(log, OTHER, 0, ("a", "8"), ("b", "8"))
        put_in_transaction(log, PID, 1, ("b", "7"))
        end(log, OTHER, is_commit=False)
        roll_and_clean(log)
        put_in_transaction(log, OTHER, 2, ("c", "8"))
        end(log, PID, is_commit=True)
        end(log, OTHER, is_commit=True)

        roll_and_clean(log)

        assert survivors(log) == [(0, "a", "7"), (3, "b", "7"), (5, "c", "8")]

    def test_what_lies_behind_the_memory_of_a_round_stays_aborted(self, log: Log) -> None:
        put(log, *((f"k{number}", "1") for number in range(10)))
        put_in_transaction(log, PID, 0, ("a", "aborted"))
        end(log, PID, is_commit=False)
        put_segment(log, ("b", "1"))

        clean(log, config=CleanerConfig(dedupe_buffer_size=BYTES_PER_KEY, io_buffer_load_factor=1.0))

        assert log.cleaned_offset == 10
        assert aborted_in(log) == [AbortedTxn(PID, 10, 11, 12)]
        assert [offset for offset, _, _ in survivors(log)] == [*range(10), 12]

    def test_a_reopened_log_knows_what_was_aborted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", COMPACTED)
        put_in_transaction(log, PID, 0, ("a", "aborted"), ("b", "aborted"))
        end(log, PID, is_commit=False)
        put_in_transaction(log, PID, 2, ("a", "1"))
        end(log, PID, is_commit=True)
        roll_and_clean(log)
        expected = survivors(log)
        log.close()

        for is_after_clean_stop in (True, False):
            again = open_log(tmp_path / "log", COMPACTED, is_after_clean_stop=is_after_clean_stop)
            commit(again)
            assert survivors(again) == expected == [(3, "a", "1")]
            assert again.last_stable_offset == 5
            again.close()


class TestUndecided:
    def test_nothing_is_compacted_from_the_segment_of_an_open_transaction_on_until_it_has_ended(self, log: Log) -> None:
        put_segment(log, ("a", "1"), ("a", "2"))
        put(log, ("a", "3"), ("a", "4"))
        put_in_transaction(log, PID, 0, ("a", "open"))
        put_segment(log, ("a", "5"))
        put(log, ("a", "6"))

        roll_and_clean(log)
        assert log.cleaned_offset == 2
        assert [offset for offset, _, _ in survivors(log)] == [1, 2, 3, 4, 5, 6]

        end(log, PID, is_commit=True)
        roll_and_clean(log)
        assert survivors(log) == [(6, "a", "6")]

    def test_nothing_is_compacted_that_is_not_committed(self, log: Log) -> None:
        put_segment(log, ("a", "1"))
        send(log, batch_of(["2"], key=b"a"))
        roll(log)

        clean(log)

        assert [offset for offset, _, _ in survivors(log)] == [0, 1]
        commit(log)
        clean(log)
        assert [offset for offset, _, _ in survivors(log)] == [1]


class TestProducers:
    def test_the_producer_goes_on_where_it_was_even_when_the_log_is_opened_anew(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", COMPACTED)
        put(log, ("a", "1"), producer_id=PID, sequence=0)
        put(log, ("a", "2"), producer_id=PID, sequence=1)
        put(log, ("a", "3"))
        roll_and_clean(log)
        log.close()
        for path in (tmp_path / "log").glob("*.snapshot"):
            path.unlink()

        again = open_log(tmp_path / "log", COMPACTED)

        assert refusal_of(lambda: put(again, ("a", "x"), producer_id=PID, sequence=3)) is (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
        assert put(again, ("a", "4"), producer_id=PID, sequence=2).first_offset == 3

    def test_it_goes_when_the_producer_wrote_another_or_is_forgotten(self, log: Log) -> None:
        put(log, ("a", "1"), producer_id=PID, sequence=0)
        put(log, ("a", "2"))
        roll_and_clean(log)
        assert shape(batches_of(log)[0]) == (0, 0, 0)

        put(log, ("a", "3"), producer_id=PID, sequence=1)
        roll_and_clean(log)
        assert [batch.base_offset for batch in batches_of(log)] == [2]

        put(log, ("a", "4"))
        forget_producers(log)
        roll_and_clean(log)
        assert [batch.base_offset for batch in batches_of(log)] == [3]

    def test_a_batch_with_the_same_number_of_an_older_epoch_goes(self, log: Log) -> None:
        put(log, ("a", "1"), producer_id=PID, sequence=0)
        put(log, ("a", "2"), producer_id=PID, sequence=0, epoch=1)
        put(log, ("a", "3"))

        roll_and_clean(log)

        assert [shape(batch) for batch in batches_of(log)] == [(1, 1, 0), (2, 2, 1)]

    @pytest.mark.parametrize("is_swept", [False, True])
    def test_a_marker_that_alone_has_the_epoch_of_a_producer_stays_whole(self, tmp_path: Path, is_swept: bool) -> None:
        log = open_log(tmp_path / "log", config_of(delete_retention_ms=0, segment_bytes=140))
        put_in_transaction(log, PID, 0, ("a", "1"))
        end(log, PID, is_commit=False, epoch=1)
        if is_swept:
            log.producer_state.remove_expired(0)
        for number in range(4):
            put(log, (f"k{number}", "v" * 60))
            roll_and_clean(log)
            age_segments(log, DAY_MS * (4 - number))

        (marker,) = [batch for batch in batches_of(log) if batch.is_control]
        assert (shape(marker), marker.producer_epoch) == ((1, 1, 1), 1)
        assert segment_bases(log)[0] == 0

    def test_the_last_batch_of_a_producer_stays_without_records_and_fetches_go_on_over_it(self, log: Log) -> None:
        put(log, ("a", "1"), producer_id=PID, sequence=0)
        put(log, ("a", "2"), ("b", "1"), producer_id=PID, sequence=1)
        put(log, ("a", "3"), ("b", "2"))

        roll_and_clean(log)

        assert survivors(log) == [(3, "a", "3"), (4, "b", "2")]
        empty = batches_of(log)[0]
        assert shape(empty) == (1, 2, 0)
        assert (empty.producer_id, empty.base_sequence, empty.last_sequence) == (PID, 1, 2)
        fetched = log.read(0, UNBOUNDED, include_aborted_txns=True)
        assert (fetched.size_bytes > 0, fetched.aborted_transactions) == (True, [])
