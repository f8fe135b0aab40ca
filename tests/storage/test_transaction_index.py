"""The aborted transactions of a segment: Kafka's bytes, and what a read-committed fetch is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.files.file_names import parse_segment_file
from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.transaction_index import AbortedTxn, CompletedTxn, TransactionIndex, TxnSearchResult
from tests.storage.file_limits import no_file_beyond
from tests.storage.recorded_logs import recorded_files

ABORTED = [AbortedTxn(0, 0, 10, 11), AbortedTxn(1, 5, 15, 13), AbortedTxn(2, 18, 35, 25), AbortedTxn(3, 32, 50, 40)]


def index_of(directory: Path, entries: list[AbortedTxn]) -> TransactionIndex:
    index = TransactionIndex(directory / "0.txnindex", 0)
    for entry in entries:
        index.append(entry)
    return index


def test_an_index_of_kafka_is_read_and_written_the_same(tmp_path: Path) -> None:
    (path,) = recorded_files(tmp_path, "*.txnindex")
    name = parse_segment_file(path.name)
    assert name is not None
    recorded = TransactionIndex(path, name.base_offset)
    recorded.sanity_check()

    rewritten = index_of(tmp_path, list(recorded.entries()))

    assert list(recorded.entries()) == [AbortedTxn(0, 2, 7, 8)]
    assert rewritten.path.read_bytes() == path.read_bytes()


def test_there_is_no_file_until_something_is_aborted(tmp_path: Path) -> None:
    index = TransactionIndex(tmp_path / "0.txnindex", 0)
    index.note(CompletedTxn(1, 0, 9, is_aborted=False), 10)
    index.flush()
    index.truncate_to(0)
    index.reset()
    assert not index.path.exists()
    assert index.collect(0, 100) == TxnSearchResult([], is_complete=False)

    index.note(CompletedTxn(1, 0, 9, is_aborted=True), 10)
    assert list(index.entries()) == [AbortedTxn(1, 0, 9, 10)]


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "found", "is_complete"),
    [
        (0, 100, ABORTED, False),
        (0, 32, ABORTED[:3], True),
        (0, 40, ABORTED, True),
        (0, 35, ABORTED, True),
        (10, 35, ABORTED, True),
        (11, 35, ABORTED[1:], True),
        (20, 41, ABORTED[2:], False),
        (16, 18, [], True),
        (51, 60, [], False),
    ],
)
def test_a_read_learns_of_the_transactions_it_may_meet(
    tmp_path: Path, fetch_offset: int, upper_bound: int, found: list[AbortedTxn], is_complete: bool
) -> None:
    index = index_of(tmp_path, ABORTED)

    assert index.collect(fetch_offset, upper_bound) == TxnSearchResult(found, is_complete)


def test_markers_come_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    index = index_of(tmp_path, ABORTED[:2])

    with pytest.raises(ValueError, match="cannot follow 15"):
        index.append(AbortedTxn(9, 0, 15, 16))
    assert list(index.entries()) == ABORTED[:2]


@pytest.mark.parametrize(("offset", "kept"), [(51, 4), (50, 3), (36, 3), (35, 2), (11, 1), (10, 0), (0, 0)])
def test_truncation_drops_the_markers_at_the_offset_and_beyond(tmp_path: Path, offset: int, kept: int) -> None:
    index = index_of(tmp_path, ABORTED)

    index.truncate_to(offset)

    assert list(index.entries()) == ABORTED[:kept]
    index.append(AbortedTxn(9, 0, max(offset, ABORTED[kept - 1].last_offset + 1 if kept else 0), 99))
    assert list(TransactionIndex(index.path, 0).entries())[:-1] == ABORTED[:kept]


def test_a_full_disk_leaves_no_part_of_an_entry(tmp_path: Path) -> None:
    index = index_of(tmp_path, ABORTED[:2])

    with no_file_beyond(2 * 34 + 10), pytest.raises(OSError, match="part of an entry"):
        index.append(ABORTED[2])

    assert index.path.stat().st_size == 2 * 34
    index.append(ABORTED[2])
    assert list(TransactionIndex(index.path, 0).entries()) == ABORTED[:3]


def test_an_entry_cut_short_by_a_crash_is_passed_over_and_overwritten(tmp_path: Path) -> None:
    path = index_of(tmp_path, ABORTED[:2]).path
    with open(path, "ab") as file:
        file.write(b"\x00" * 20)

    index = TransactionIndex(path, 0)
    assert list(index.entries()) == ABORTED[:2]
    index.append(ABORTED[2])
    assert list(TransactionIndex(path, 0).entries()) == ABORTED[:3]


@pytest.mark.parametrize("entry", [bytes(2) + bytes(16) + b"\xff" * 8 + bytes(8), b"\x00\x01" + bytes(32)])
def test_an_index_that_cannot_be_is_found_out(tmp_path: Path, entry: bytes) -> None:
    (tmp_path / "0.txnindex").write_bytes(entry)

    with pytest.raises(CorruptFileError):
        TransactionIndex(tmp_path / "0.txnindex", 0).sanity_check()


def test_a_renamed_index_goes_on_at_its_new_place(tmp_path: Path) -> None:
    index = index_of(tmp_path, ABORTED[:1])
    index.rename(tmp_path / "0.txnindex.deleted")
    index.append(ABORTED[1])
    index.flush()

    assert list(index.entries()) == ABORTED[:2]
    assert not (tmp_path / "0.txnindex").exists()
    index.delete()
    index.delete()
    assert not index.path.exists()
