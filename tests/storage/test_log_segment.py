"""One segment: appends, failed appends, rolling, truncation, its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.config import LogConfig
from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.indexes import TimestampOffset
from minibroker.storage.index.transaction_index import AbortedTxn, CompletedTxn
from minibroker.storage.segment.log_segment import SegmentOffsetOverflowError
from tests.storage.file_limits import no_file_beyond
from tests.storage.open_files import descriptors_in
from tests.storage.segments import NOW_MS, batch_at, batches_of_three, data_of, files_of, fill, open_segment

SMALL_INTERVAL = LogConfig(index_interval_bytes=400)


def test_the_indexes_learn_of_a_batch_once_enough_bytes_lie_before_it(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=LogConfig(index_interval_bytes=200))
    size = len(batch_at(0).data)
    assert 100 > size > 67

    fill(segment, [batch_at(offset, timestamp_ms=500 + offset) for offset in range(10)])

    # The fourth, seventh and tenth batch have more than 200 bytes before them.
    entries = [segment.offset_index.lookup(offset) for offset in (2, 3, 5, 6, 8, 9)]
    assert entries == [(0, 0), (3, 3 * size), (3, 3 * size), (6, 6 * size), (6, 6 * size), (9, 9 * size)]
    assert segment.time_index.lookup(505) == TimestampOffset(503, 3)
    assert segment.time_index.entries == 3


def test_exactly_enough_bytes_are_not_yet_enough(tmp_path: Path) -> None:
    size = len(batch_at(0).data)
    segment = open_segment(tmp_path, config=LogConfig(index_interval_bytes=2 * size))

    fill(segment, [batch_at(offset) for offset in range(3)])
    assert segment.offset_index.entries == 0
    fill(segment, [batch_at(3)])
    assert segment.offset_index.lookup(9) == (3, 3 * size)


def test_a_closed_segment_is_trimmed_and_reads_the_same_again(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=LogConfig(index_interval_bytes=300, preallocate=True))
    batches = batches_of_three(40)
    fill(segment, batches)
    entries = segment.offset_index.entries
    segment.flush()
    segment.close()

    files = files_of(tmp_path)
    assert files["00000000000000000000.log"] == b"".join(batch.data for batch in batches)
    assert len(files["00000000000000000000.index"]) == 8 * entries
    assert files["00000000000000000000.timeindex"][-4:] == (119).to_bytes(4, "big")
    assert len(files) == 3
    reopened = open_segment(tmp_path)
    reopened.sanity_check()
    assert (reopened.max_timestamp_so_far, reopened.offset_of_max_timestamp) == (119, 119)
    assert data_of(reopened.read(60, max_size=10**6)) == b"".join(batch.data for batch in batches[20:])


def test_an_offset_too_far_from_the_base_is_refused(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 100)

    for offset in (99, 100 + 2**31):
        with pytest.raises(SegmentOffsetOverflowError):
            segment.append(offset, 0, offset, batch_at(0).data)
    segment.append(100 + 2**31 - 1, 0, 0, b"")
    assert segment.size_bytes == 0


def test_a_full_disk_leaves_all_files_as_they_were(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=SMALL_INTERVAL)
    batches = batches_of_three(300)
    fill(segment, batches[:299])
    reached = (segment.size_bytes, segment.offset_index.entries, segment.max_timestamp_so_far)
    before = files_of(tmp_path)

    with no_file_beyond(segment.size_bytes + 20), pytest.raises(OSError, match="too large"):
        fill(segment, batches[299:])

    assert files_of(tmp_path) == before
    assert (segment.size_bytes, segment.offset_index.entries, segment.max_timestamp_so_far) == reached
    fill(segment, batches[299:])
    assert data_of(segment.read(0, max_size=10**6)) == b"".join(batch.data for batch in batches)


@pytest.mark.parametrize("index", ["offset_index", "time_index"])
def test_no_room_for_an_index_entry_leaves_the_records_unwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    segment = open_segment(tmp_path, config=SMALL_INTERVAL)
    fill(segment, batches_of_three(4))
    size = segment.size_bytes

    def no_space() -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(getattr(segment, index)), "ensure_room", lambda _: no_space())
        with pytest.raises(OSError, match="No space left"):
            fill(segment, [batch_at(12, 3)])

    assert (segment.size_bytes, segment.max_timestamp_so_far, segment.offset_index.entries) == (size, 11, 0)
    fill(segment, [batch_at(12, 3)])
    assert segment.offset_index.entries == segment.time_index.entries == 1


def test_a_segment_rolls_when_the_next_append_does_not_fit(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=LogConfig(segment_bytes=1000))
    segment.append(0, 0, 0, bytes(900))

    assert not segment.should_roll(100, 0, 1, now_ms=NOW_MS)
    assert segment.should_roll(101, 0, 1, now_ms=NOW_MS)


def test_a_segment_rolls_by_record_time(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=LogConfig(segment_ms=500))
    assert not segment.should_roll(1, 10**9, 0, now_ms=10**9)
    fill(segment, [batch_at(0, timestamp_ms=1000)])

    assert not segment.should_roll(1, 1500, 1, now_ms=10**12)
    assert segment.should_roll(1, 1501, 1, now_ms=0)
    segment.close()
    reopened = open_segment(tmp_path, config=LogConfig(segment_ms=500))
    assert not reopened.should_roll(1, 1500, 1, now_ms=10**12)
    assert reopened.should_roll(1, 1501, 1, now_ms=0)


def test_a_segment_without_record_times_rolls_by_its_age(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=LogConfig(segment_ms=500))
    fill(segment, [batch_at(0, magic=0)])

    assert not segment.should_roll(1, -1, 1, now_ms=NOW_MS + 500)
    assert segment.should_roll(1, -1, 1, now_ms=NOW_MS + 501)


def test_jitter_brings_the_roll_forward(tmp_path: Path) -> None:
    rolls_at = set()
    for number in range(20):
        directory = tmp_path / str(number)
        directory.mkdir()
        segment = open_segment(directory, config=LogConfig(segment_ms=100, segment_jitter_ms=50))
        fill(segment, [batch_at(0, timestamp_ms=0)])
        rolls_at.add(next(at for at in range(50, 103) if segment.should_roll(1, at, 1, now_ms=0)))

    assert len(rolls_at) > 5
    assert 51 <= min(rolls_at) <= max(rolls_at) <= 101


@pytest.mark.parametrize(("index_bytes", "entries"), [(24, 1), (40, 2)])
def test_a_segment_rolls_when_an_index_is_full(tmp_path: Path, index_bytes: int, entries: int) -> None:
    segment = open_segment(tmp_path, config=LogConfig(segment_index_bytes=index_bytes, index_interval_bytes=0))
    offset = 0
    while not segment.should_roll(1, offset, offset, now_ms=NOW_MS):
        fill(segment, [batch_at(offset)])
        offset += 1

    assert segment.time_index.entries == entries


def test_a_segment_rolls_before_its_offsets_overflow(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 10)

    assert not segment.should_roll(1, 0, 10 + 2**31 - 1, now_ms=NOW_MS)
    assert segment.should_roll(1, 0, 10 + 2**31, now_ms=NOW_MS)


@pytest.mark.parametrize(("offset", "kept"), [(0, 0), (2, 0), (3, 1), (31, 10), (59, 19), (60, 20), (99, 20)])
def test_truncation_drops_the_batch_that_holds_the_offset_and_all_after(tmp_path: Path, offset: int, kept: int) -> None:
    segment = open_segment(tmp_path, config=SMALL_INTERVAL)
    batches = batches_of_three(20)
    fill(segment, batches)
    lost = sum(len(batch.data) for batch in batches[kept:])

    assert segment.truncate_to(offset, now_ms=NOW_MS + 5) == lost

    assert segment.next_offset() == 3 * kept
    assert segment.max_timestamp_so_far == 3 * kept - 1
    assert segment.created_ms == (NOW_MS + 5 if kept == 0 else NOW_MS)
    again = batches_of_three(20, first=3 * kept)
    fill(segment, again)
    assert data_of(segment.read(0, max_size=10**6)) == b"".join(batch.data for batch in [*batches[:kept], *again])
    assert [segment.translate_offset(at) is not None for at in (0, 3 * kept, 3 * kept + 59)] == [True] * 3


def test_truncation_forgets_aborted_transactions_beyond(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    fill(segment, batches_of_three(4))
    for last_offset in (5, 8):
        segment.update_txn_index(CompletedTxn(1, 0, last_offset, is_aborted=True), last_offset + 1)
    segment.update_txn_index(CompletedTxn(1, 0, 9, is_aborted=False), 10)

    segment.truncate_to(6, now_ms=NOW_MS)

    assert segment.collect_aborted_txns(0, 100).aborted == [AbortedTxn(1, 0, 5, 6)]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_missing_index_is_reported(tmp_path: Path, suffix: str) -> None:
    segment = open_segment(tmp_path)
    segment.sanity_check()
    fill(segment, batches_of_three(4))
    segment.close()
    (tmp_path / f"00000000000000000000.{suffix}").unlink()

    with pytest.raises(CorruptFileError, match="does not exist"):
        open_segment(tmp_path).sanity_check()


def test_renamed_files_go_on_in_their_new_place(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    segment = open_segment(tmp_path / "before", config=SMALL_INTERVAL)
    fill(segment, batches_of_three(10))
    segment.update_txn_index(CompletedTxn(1, 0, 5, is_aborted=True), 6)
    (tmp_path / "before").rename(tmp_path / "after")
    segment.update_directory(tmp_path / "after")
    segment.change_suffixes("", ".swap")
    segment.change_suffixes(".swap", ".deleted")
    fill(segment, batches_of_three(10, first=30))
    segment.close()

    names = [f"00000000000000000000.{suffix}.deleted" for suffix in ("index", "log", "timeindex", "txnindex")]
    assert sorted(files_of(tmp_path / "after")) == names


def test_a_slice_in_flight_outlives_its_segment(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=SMALL_INTERVAL)
    batches = batches_of_three(10)
    fill(segment, batches)
    found = segment.read(0, max_size=10**6)

    segment.delete_if_exists()
    segment.delete_if_exists()
    del segment

    assert files_of(tmp_path) == {}
    assert data_of(found) == b"".join(batch.data for batch in batches)


def test_an_idle_segment_holds_one_descriptor_and_a_busy_one_three(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=SMALL_INTERVAL)
    fill(segment, batches_of_three(2))
    segment.read(4, max_size=100)
    assert descriptors_in(tmp_path) == 1

    fill(segment, batches_of_three(1000, first=6))
    segment.read(2000, max_size=100)
    assert descriptors_in(tmp_path) == 3
    segment.find_offset_by_timestamp(0)
    segment.release_maps()
    assert descriptors_in(tmp_path) == 1

    segment.on_become_inactive()
    segment.close()
    del segment
    assert descriptors_in(tmp_path) == 0
