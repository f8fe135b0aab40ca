"""Reading one segment: by offset as Kafka 2.0.1 does, and by time."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from minibroker.protocol.batches import scan_batches
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.config import LogConfig
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.index.fetch_data import LogOffsetMetadata, OffsetPosition
from minibroker.storage.index.indexes import TimestampOffset
from tests.storage.segments import Batch, batch_at, batches_of_three, data_of, fill, open_segment

SMALL_INTERVAL = LogConfig(index_interval_bytes=400)


def test_a_read_returns_the_file_from_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 100)
    batches = batches_of_three(4, first=100)
    fill(segment, batches)

    found = segment.read(104, max_size=10_000)

    assert found is not None
    assert isinstance(found.records, FileSlice)
    position = len(batches[0].data)
    assert found.offset_metadata == LogOffsetMetadata(104, 100, position)
    assert data_of(found) == b"".join(batch.data for batch in batches[1:])
    assert not found.first_entry_incomplete
    assert found.aborted_transactions is None


def test_a_read_is_cut_at_the_byte(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    batches = batches_of_three(3)
    fill(segment, batches)
    size = len(batches[0].data)

    whole = segment.read(0, max_size=size)
    more = segment.read(0, max_size=size + 1)
    less = segment.read(0, max_size=size - 1)

    assert data_of(whole) == batches[0].data
    assert data_of(more) == batches[0].data + batches[1].data[:1]
    assert data_of(less) == batches[0].data[:-1]
    assert [found.first_entry_incomplete for found in (whole, more, less) if found] == [False, False, True]


def test_at_least_the_first_batch_is_given_where_one_must_be(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    batches = batches_of_three(3)
    fill(segment, batches)

    found = segment.read(4, max_size=1, min_one_message=True)

    assert data_of(found) == batches[1].data
    assert found is not None
    assert not found.first_entry_incomplete


def test_a_read_of_no_bytes_still_tells_where_it_stands(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    fill(segment, batches_of_three(3))

    found = segment.read(4, max_size=0)

    assert found is not None
    assert (found.records, found.size_bytes) == (b"", 0)
    assert found.offset_metadata == LogOffsetMetadata(4, 0, len(batch_at(0, 3).data))
    with pytest.raises(ValueError, match="-1 bytes"):
        segment.read(4, max_size=-1)


def test_there_is_nothing_past_the_end(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    assert segment.read(0, max_size=100) is None
    fill(segment, batches_of_three(3))

    assert segment.read(9, max_size=100) is None
    assert segment.translate_offset(9) is None


def test_an_offset_in_a_gap_is_read_from_the_batch_after_it(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    fill(segment, [batch_at(0), batch_at(10)])

    found = segment.read(5, max_size=1000)

    assert data_of(found) == batch_at(10).data
    assert found is not None
    assert found.offset_metadata.message_offset == 5


@pytest.mark.parametrize(
    ("max_offset", "read_batches"), [(2, 0), (3, 0), (4, 0), (5, 0), (6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (99, 3)]
)
def test_nothing_is_read_from_the_batch_on_that_holds_the_highest_offset(
    tmp_path: Path, max_offset: int, read_batches: int
) -> None:
    segment = open_segment(tmp_path)
    batches = batches_of_three(4)
    fill(segment, batches)

    found = segment.read(3, max_size=10_000, max_offset=max_offset)

    assert data_of(found) == b"".join(batch.data for batch in batches[1 : 1 + read_batches])
    assert found is not None
    assert found.offset_metadata == LogOffsetMetadata(3, 0, len(batches[0].data))


def test_a_highest_offset_below_the_start_gives_nothing_rather_than_a_part(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    fill(segment, batches_of_three(4))

    found = segment.read(7, max_size=1, max_offset=6)

    assert found is not None
    assert (found.records, found.first_entry_incomplete) == (b"", False)
    assert found.offset_metadata == LogOffsetMetadata(7, 0, 2 * len(batch_at(0, 3).data))


def test_nothing_is_read_past_the_highest_position(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    batches = batches_of_three(4)
    fill(segment, batches)
    size = len(batches[0].data)

    assert data_of(segment.read(3, max_size=10_000, max_position=3 * size)) == batches[1].data + batches[2].data
    assert data_of(segment.read(3, max_size=10_000, max_position=3 * size, max_offset=6)) == batches[1].data
    assert data_of(segment.read(3, max_size=10_000, max_position=size)) == b""
    assert data_of(segment.read(3, max_size=10_000, max_position=1)) == b""


@pytest.mark.parametrize("sizes", [(10, 60), (3000, 9000), (5, 30_000)])
@pytest.mark.parametrize("reopened", [False, True])
def test_every_offset_is_found_however_large_the_batches(
    tmp_path: Path, sizes: tuple[int, int], reopened: bool
) -> None:
    chance = random.Random(11)
    segment = open_segment(tmp_path, config=LogConfig(index_interval_bytes=2000))
    expected: list[OffsetPosition] = []
    offset = position = 0
    for _ in range(80):
        magic = chance.choice((0, 1, 2)) if chance.random() < 0.3 else 2
        batch = batch_at(
            offset, chance.randint(1, 4) if magic == 2 else 1, magic=magic, size_bytes=chance.randint(*sizes)
        )
        fill(segment, [batch])
        while len(expected) <= batch.last_offset:
            expected.append(OffsetPosition(batch.base_offset, position, len(batch.data)))
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


def test_what_was_appended_last_is_found_without_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = open_segment(tmp_path)
    older, newest = batches_of_three(2)
    together = older.data + newest.data
    monkeypatch.delattr(os, "pread")

    segment.append(newest.last_offset, newest.max_timestamp_ms, newest.last_offset, together)

    expected = OffsetPosition(3, len(older.data), len(newest.data))
    assert [segment.translate_offset(offset) for offset in (3, 4, 5)] == [expected] * 3


@pytest.mark.parametrize("size_bytes", [10, 400])
def test_what_was_truncated_and_written_anew_is_found_where_it_is_now(tmp_path: Path, size_bytes: int) -> None:
    segment = open_segment(tmp_path)
    fill(segment, batches_of_three(3))
    segment.truncate_to(4, now_ms=0)

    assert segment.translate_offset(7) is None
    anew = batch_at(3, 5, size_bytes=size_bytes)
    fill(segment, [anew])

    size = len(batch_at(0, 3).data)
    assert segment.translate_offset(7) == OffsetPosition(3, size, len(anew.data))
    assert segment.translate_offset(2) == OffsetPosition(0, 0, size)
    assert segment.translate_offset(8) is None


def test_a_lookup_can_begin_further_on(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    fill(segment, batches_of_three(3))
    size = len(batch_at(0, 3).data)

    assert segment.translate_offset(1, starting_position=size) == OffsetPosition(3, size, size)


def test_one_large_message_set_makes_one_entry_at_its_start(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, config=SMALL_INTERVAL)
    fill(segment, batches_of_three(4))
    position = segment.size_bytes
    batches = batches_of_three(20, first=12)

    segment.append(71, 71, 71, b"".join(batch.data for batch in batches))

    assert segment.offset_index.lookup(71) == (71, position)
    assert segment.offset_index.entries == 1
    assert segment.translate_offset(40) == OffsetPosition(39, position + 9 * len(batches[0].data), len(batches[0].data))


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


def test_a_record_inside_a_batch_is_found_by_its_own_time(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    fill(segment, [batch_at(100, 50), batch_at(150, 50)])

    assert segment.find_offset_by_timestamp(137) == TimestampOffset(137, 137)
    assert segment.find_offset_by_timestamp(151, 170) == TimestampOffset(170, 170)


def test_without_record_times_a_segment_is_as_young_as_its_file(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    fill(segment, [batch_at(0, magic=0)])
    os.utime(segment.path, ns=(0, 123_456_789_000_000))

    assert segment.largest_timestamp_ms == segment.last_modified_ms == 123_456_789
    assert segment.find_offset_by_timestamp(0) is None


def test_batches_of_a_control_record_are_just_batches(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    marker = bytes(build_batch([Record(5, 5, b"\0\0\0\0", b"\0\0\0\0\0\0")], base_offset=5, is_control=True))
    fill(segment, [batch_at(0, 5), Batch(marker, 5, 5, 5)])

    (view,) = scan_batches(data_of(segment.read(5, max_size=1000)), 0, len(marker))
    assert view.is_control
