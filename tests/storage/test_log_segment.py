"""One segment: appends, failed appends, rolling, reads by offset and by time, truncation, its files."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.batches import BatchPosition
from minibroker.storage.config import LogConfig
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.fetch_data import FetchDataInfo, LogOffsetMetadata
from minibroker.storage.index.indexes import TimestampOffset
from minibroker.storage.index.transaction_index import AbortedTxn, CompletedTxn
from minibroker.storage.segment.log_segment import LogSegment, SegmentOffsetOverflowError
from tests.storage.file_limits import no_file_beyond, no_space_in
from tests.storage.open_files import descriptors_in, forced_files
from tests.storage.segments import (
    NOW_MS,
    batch_at,
    batches_of_three,
    data_of,
    files_of,
    fill,
    fill_at_once,
    open_segment,
)

SMALL_INTERVAL = LogConfig(index_interval_bytes=400)
SIZE = len(batch_at(0, 3).data)  # of each of `batches_of_three`


def read(segment: LogSegment, offset: int, **bounds: Any) -> FetchDataInfo:
    """Read what must be there."""
    found = segment.read(offset, **bounds)
    assert found is not None
    return found


def test_the_indexes_learn_of_a_batch_once_more_than_the_interval_lies_before_it(tmp_path: Path) -> None:
    size = len(batch_at(0).data)
    segment = open_segment(tmp_path, config=LogConfig(index_interval_bytes=2 * size))

    fill(segment, [batch_at(offset, timestamp_ms=500 + offset) for offset in range(10)])

    entries = [segment.offset_index.lookup(offset) for offset in (2, 3, 5, 6, 8, 9)]
    assert entries == [(0, 0), (3, 3 * size), (3, 3 * size), (6, 6 * size), (6, 6 * size), (9, 9 * size)]
    assert segment.time_index.lookup(505) == TimestampOffset(503, 3)
    assert segment.time_index.entries == 3


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
            fill(segment, [batch_at(offset)])
    assert segment.size_bytes == 0
    fill(segment, [batch_at(100 + 2**31 - 1)])


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


@pytest.mark.parametrize("index", ["OffsetIndex", "TimeIndex"])
@pytest.mark.pure
def test_no_room_for_an_index_entry_leaves_the_records_unwritten(tmp_path: Path, index: str) -> None:
    segment = open_segment(tmp_path, config=SMALL_INTERVAL)
    fill(segment, batches_of_three(4))
    size = segment.size_bytes

    with no_space_in(f"minibroker.storage.index.indexes.{index}.ensure_room"):
        fill(segment, [batch_at(12, 3)])

    assert (segment.size_bytes, segment.max_timestamp_so_far, segment.offset_index.entries) == (size, 11, 0)
    fill(segment, [batch_at(12, 3)])
    assert segment.offset_index.entries == segment.time_index.entries == 1


def test_a_segment_rolls_when_the_next_append_or_its_offset_does_not_fit(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 10, config=LogConfig(segment_bytes=1000))
    fill(segment, [batch_at(10, timestamp_ms=0)])
    room = 1000 - segment.size_bytes

    assert not segment.should_roll(room, 0, 10 + 2**31 - 1, now_ms=NOW_MS)
    assert segment.should_roll(room + 1, 0, 11, now_ms=NOW_MS)
    assert segment.should_roll(1, 0, 10 + 2**31, now_ms=NOW_MS)


def test_a_segment_rolls_by_record_time(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=LogConfig(segment_ms=500))
    assert not segment.should_roll(1, 10**9, 0, now_ms=10**9)
    fill(segment, [batch_at(0, timestamp_ms=1000)])
    segment.close()

    for each in (segment, open_segment(tmp_path, config=LogConfig(segment_ms=500))):
        assert not each.should_roll(1, 1500, 1, now_ms=10**12)
        assert each.should_roll(1, 1501, 1, now_ms=0)


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


def test_a_flush_forces_every_file_of_the_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = open_segment(tmp_path, config=LogConfig(index_interval_bytes=0))
    fill(segment, [batch_at(offset) for offset in range(9)])
    segment.on_become_inactive()
    segment.update_txn_index(CompletedTxn(1, 0, 9, is_aborted=True), 10)
    forced = forced_files(monkeypatch)

    segment.flush()

    assert {Path(name).suffix for name in forced} == {".log", ".index", ".timeindex", ".txnindex"}


def test_truncation_forgets_aborted_transactions_beyond(segment: LogSegment) -> None:
    fill(segment, batches_of_three(4))
    for last_offset in (5, 8):
        segment.update_txn_index(CompletedTxn(1, 0, last_offset, is_aborted=True), last_offset + 1)
    segment.update_txn_index(CompletedTxn(1, 0, 9, is_aborted=False), 10)

    segment.truncate_to(6, now_ms=NOW_MS)

    assert segment.collect_aborted_txns(0, 100).aborted == [AbortedTxn(1, 0, 5, 6)]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_missing_index_is_reported(segment: LogSegment, tmp_path: Path, suffix: str) -> None:
    segment.sanity_check()
    fill(segment, batches_of_three(4))
    segment.close()
    (tmp_path / f"00000000000000000000.{suffix}").unlink()

    with pytest.raises(CorruptFileError, match="does not exist"):
        open_segment(tmp_path).sanity_check()


def test_renamed_files_go_on_in_their_new_place_until_they_are_deleted(tmp_path: Path) -> None:
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
    segment.delete_if_exists()
    segment.delete_if_exists()
    assert files_of(tmp_path / "after") == {}


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


def test_a_read_returns_the_file_from_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 100)
    batches = batches_of_three(4, first=100)
    fill(segment, batches)

    found = read(segment, 104, max_size=10_000)

    assert isinstance(found.records, FileSlice)
    position = len(batches[0].data)
    assert found.offset_metadata == LogOffsetMetadata(104, 100, position)
    assert data_of(found) == b"".join(batch.data for batch in batches[1:])
    assert not found.first_entry_incomplete
    assert found.aborted_transactions is None


@pytest.mark.parametrize(
    ("offset", "bounds", "begin", "end"),
    [
        # It is cut at the byte, but not within a first batch that must be given.
        *((2, {"max_size": size}, 0, size) for size in (SIZE - 1, SIZE, SIZE + 1)),
        (2, {"max_size": 1, "min_one_message": True}, 0, SIZE),
        (4, {"max_size": 0}, SIZE, SIZE),
        # It ends before the batch that holds the highest offset, and gives nothing rather than a part.
        *((3, {"max_offset": offset}, SIZE, SIZE) for offset in (2, 3, 4, 5)),
        *((3, {"max_offset": offset}, SIZE, 2 * SIZE) for offset in (6, 8)),
        *((3, {"max_offset": offset}, SIZE, 3 * SIZE) for offset in (9, 11)),
        *((3, {"max_offset": offset}, SIZE, 4 * SIZE) for offset in (12, 99)),
        (7, {"max_size": 1, "max_offset": 6}, 2 * SIZE, 2 * SIZE),
        # It does not go past the highest position.
        *((3, {"max_position": position}, SIZE, max(position, SIZE)) for position in (1, SIZE, 3 * SIZE)),
        (3, {"max_position": 3 * SIZE, "max_offset": 6}, SIZE, 2 * SIZE),
    ],
)
def test_a_read_goes_from_the_batch_that_holds_the_offset_as_far_as_its_bounds_allow(
    segment: LogSegment, offset: int, bounds: dict[str, int], begin: int, end: int
) -> None:
    batches = batches_of_three(4)
    fill(segment, batches)

    found = read(segment, offset, **{"max_size": 10_000, **bounds})

    assert data_of(found) == b"".join(batch.data for batch in batches)[begin:end]
    assert (found.size_bytes, found.offset_metadata) == (end - begin, LogOffsetMetadata(offset, 0, begin))
    assert found.first_entry_incomplete == (bounds.get("max_size") == SIZE - 1)


@pytest.mark.parametrize("sizes", [(10, 60), (3000, 9000), (5, 30_000)])
@pytest.mark.parametrize("reopened", [False, True])
def test_every_offset_is_found_whatever_the_batches(tmp_path: Path, sizes: tuple[int, int], reopened: bool) -> None:
    chance = random.Random(11)
    segment = open_segment(tmp_path, config=LogConfig(index_interval_bytes=2000))
    expected: list[BatchPosition] = []
    offset = position = 0
    for _ in range(80):
        magic = chance.choice((0, 1, 2)) if chance.random() < 0.3 else 2
        batch = batch_at(
            offset, chance.randint(1, 4) if magic == 2 else 1, magic=magic, size_bytes=chance.randint(*sizes)
        )
        fill(segment, [batch])
        while len(expected) <= batch.last_offset:
            expected.append(BatchPosition(batch.base_offset, position, len(batch.data)))
        position += len(batch.data)
        offset = batch.last_offset + chance.randint(1, 3)
        for target in chance.sample(range(len(expected)), min(3, len(expected))):
            assert segment.translate_offset(target) == expected[target]
    if reopened:
        segment.close()
        segment = open_segment(tmp_path)

    assert [segment.translate_offset(target) for target in range(len(expected))] == expected
    assert segment.translate_offset(len(expected)) is None
    assert segment.next_offset() == len(expected)


def test_the_last_batch_is_found_without_a_read(segment: LogSegment, monkeypatch: pytest.MonkeyPatch) -> None:
    older, newest = batches_of_three(2)
    monkeypatch.delattr(os, "pread")

    fill_at_once(segment, older, newest)

    expected = BatchPosition(3, len(older.data), len(newest.data))
    assert [segment.translate_offset(offset) for offset in (3, 4, 5)] == [expected] * 3


@pytest.mark.parametrize("size_bytes", [10, 400])
def test_a_batch_written_after_a_truncation_is_found_at_its_new_place(segment: LogSegment, size_bytes: int) -> None:
    fill(segment, batches_of_three(3))
    segment.truncate_to(4, now_ms=0)

    assert segment.translate_offset(7) is None
    anew = batch_at(3, 5, size_bytes=size_bytes)
    fill(segment, [anew])

    size = len(batch_at(0, 3).data)
    assert segment.translate_offset(7) == BatchPosition(3, size, len(anew.data))
    assert segment.translate_offset(2) == BatchPosition(0, 0, size)
    assert segment.translate_offset(8) is None


def test_there_is_nothing_past_the_end_and_a_lookup_can_begin_further_on(segment: LogSegment) -> None:
    assert segment.read(0, max_size=100) is None
    fill(segment, batches_of_three(3))
    size = len(batch_at(0, 3).data)

    assert segment.read(9, max_size=100) is None
    assert segment.translate_offset(9) is None
    assert segment.translate_offset(1, starting_position=size) == BatchPosition(3, size, size)
    with pytest.raises(ValueError, match="-1 bytes"):
        segment.read(4, max_size=-1)


def test_one_large_message_set_makes_one_entry_at_its_start(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=SMALL_INTERVAL)
    fill(segment, batches_of_three(4))
    position = segment.size_bytes
    batches = batches_of_three(20, first=12)

    fill_at_once(segment, *batches)

    assert segment.offset_index.lookup(71) == (71, position)
    assert segment.offset_index.entries == 1
    assert segment.translate_offset(40) == BatchPosition(39, position + 9 * len(batches[0].data), len(batches[0].data))


@pytest.mark.parametrize("interval", [0, 300, 4096])
@pytest.mark.parametrize("magic", [1, 2])
def test_the_first_record_at_least_as_young_is_found(tmp_path: Path, magic: int, interval: int) -> None:
    segment = open_segment(tmp_path, config=LogConfig(index_interval_bytes=interval))
    times = [10, 20, 20, 15, 30, 40, 35, 50]
    fill(segment, [batch_at(offset, magic=magic, timestamp_ms=at) for offset, at in enumerate(times)])

    for at in range(60):
        expected = next((TimestampOffset(each, number) for number, each in enumerate(times) if each >= at), None)
        assert segment.find_offset_by_timestamp(at) == expected
    assert segment.find_offset_by_timestamp(0, 3) == TimestampOffset(15, 3)
    assert segment.find_offset_by_timestamp(20, 3) == TimestampOffset(30, 4)
    assert segment.largest_timestamp_ms == 50


def test_a_record_inside_a_batch_is_found_by_its_own_time(segment: LogSegment) -> None:
    fill(segment, [batch_at(100, 50), batch_at(150, 50)])

    assert segment.find_offset_by_timestamp(137) == TimestampOffset(137, 137)
    assert segment.find_offset_by_timestamp(151, 170) == TimestampOffset(170, 170)


def test_without_record_times_a_segment_is_as_young_as_its_file(segment: LogSegment) -> None:
    fill(segment, [batch_at(0, magic=0)])
    os.utime(segment.path, ns=(0, 123_456_789_000_000))

    assert segment.largest_timestamp_ms == segment.last_modified_ms == 123_456_789
    assert segment.find_offset_by_timestamp(0) is None
