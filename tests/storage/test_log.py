"""Appends to a log and reads from it, with producers and transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.compression import Codec
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.config import LogConfig
from minibroker.storage.log.log import Log
from tests.protocol.batch_bytes import views_of
from tests.storage.file_limits import no_space_in
from tests.storage.logs import (
    EPOCH,
    NOW_MS,
    append,
    batch_of,
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

    def test_the_short_way_writes_the_same_bytes_as_the_long_way(self, tmp_path: Path) -> None:
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


class TestReading:
    def test_offset_metadata_counts_bytes_within_a_segment(self, rolled: Log) -> None:
        first, last = rolled.convert_to_offset_metadata(6), rolled.convert_to_offset_metadata(8)

        assert first == (6, 6, 0)
        assert rolled.log_end_offset_metadata.relative_position - last.relative_position > 0
        assert rolled.convert_to_offset_metadata(9) == rolled.log_end_offset_metadata


class TestTransactions:
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


def test_a_place_in_a_segment_has_the_offset_of_its_batch(rolled: Log) -> None:
    places = {}
    for segment in rolled.segments:
        for view in views_of(segment.records.read(0, segment.size_bytes)):
            places[segment.base_offset, view.position] = view.base_offset
            places[segment.base_offset, view.end_position - 1] = view.base_offset
        places[segment.base_offset, segment.size_bytes] = segment.base_offset + 3

    assert len(places) == 3 * 7
    assert {place: rolled.offset_at(*place) for place in places} == places
    assert [rolled.offset_at(1, 0), rolled.offset_at(-1, 0)] == [None, None]
    rolled.note_cleaned(3)
    assert [rolled.offset_at(base, 0) for base in (0, 3)] == [None, 3]
