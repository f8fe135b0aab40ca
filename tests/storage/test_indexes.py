"""The offset and time index of a segment: Kafka's bytes, look-ups, room on disk, truncation."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from minibroker.storage.files.file_names import parse_segment_file
from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.indexes import IndexEntry, OffsetIndex, TimeIndex, TimestampOffset
from tests.storage.file_limits import no_file_beyond
from tests.storage.open_files import descriptors_in
from tests.storage.recorded_logs import recorded_files

BASE = 5_000_000_000  # beyond int32: only relative offsets fit into the files
MAX_BYTES = 1 << 20


def offset_index(directory: Path, max_bytes: int = MAX_BYTES) -> OffsetIndex:
    return OffsetIndex(directory / "0.index", BASE, max_bytes)


def time_index(directory: Path, max_bytes: int = MAX_BYTES) -> TimeIndex:
    return TimeIndex(directory / "0.timeindex", BASE, max_bytes)


def filled(directory: Path, entries: int) -> OffsetIndex:
    """Return an index with an entry at every tenth offset from BASE + 10 on, 4,096 bytes apart."""
    index = offset_index(directory)
    for number in range(1, entries + 1):
        index.append(BASE + 10 * number, 4096 * number)
    return index


@pytest.mark.parametrize(("kind", "least_entries"), [(OffsetIndex, 3), (TimeIndex, 21)])
def test_an_index_of_kafka_is_read_and_written_the_same(
    tmp_path: Path, kind: type[OffsetIndex | TimeIndex], least_entries: int
) -> None:
    rewritten_entries = 0
    for number, path in enumerate(recorded_files(tmp_path, "*.index" if kind is OffsetIndex else "*.timeindex")):
        name = parse_segment_file(path.name)
        assert name is not None
        recorded = kind(path, name.base_offset, MAX_BYTES)
        recorded.sanity_check()
        rewritten = kind(tmp_path / f"{number}.rewritten", name.base_offset, MAX_BYTES)

        # There is at most one entry in each of the recorded files.
        if isinstance(recorded, OffsetIndex) and isinstance(rewritten, OffsetIndex):
            entry = recorded.lookup(recorded.last_offset)
            if entry.position > 0:
                rewritten.append(*entry)
        elif isinstance(recorded, TimeIndex) and isinstance(rewritten, TimeIndex):
            rewritten.maybe_append(*recorded.last_entry)
        rewritten_entries += rewritten.entries
        rewritten.trim()

        assert rewritten.path.read_bytes() == path.read_bytes()
    assert rewritten_entries >= least_entries


def test_entries_are_big_endian_and_relative(tmp_path: Path) -> None:
    offsets, times = offset_index(tmp_path), time_index(tmp_path)
    offsets.append(BASE + 3, 0x01020304)
    times.maybe_append(1_700_000_000_000, BASE + 2)
    offsets.trim()
    times.trim()

    assert offsets.path.read_bytes() == bytes.fromhex("00000003 01020304")
    assert times.path.read_bytes() == bytes.fromhex("0000018bcfe56800 00000002")


@pytest.mark.parametrize("entries", [0, 1, 2, 7, 8, 9, 64, 1000])
def test_a_lookup_finds_the_last_entry_not_beyond_the_offset(tmp_path: Path, entries: int) -> None:
    index = filled(tmp_path, entries)

    for target in (*range(BASE - 1, BASE + 10 * min(entries, 30) + 15), BASE + 10 * entries - 1, BASE + 2**40):
        number = min(max(target - BASE, 0) // 10, entries)
        expected = IndexEntry(BASE + 10 * number, 4096 * number)
        assert index.lookup(target) == expected
        assert index.position_before(target) == expected.position


def test_lookups_between_appends_and_truncations_stay_right(tmp_path: Path) -> None:
    chance = random.Random(7)
    index = offset_index(tmp_path)
    entries: list[IndexEntry] = []
    for _ in range(600):
        if entries and chance.random() < 0.05:
            cut = chance.choice(entries).offset + chance.randint(-1, 1)
            index.truncate_to(cut)
            entries = [entry for entry in entries if entry.offset < cut]
        else:
            offset = (entries[-1].offset if entries else BASE) + chance.randint(1, 50)
            entries.append(IndexEntry(offset, chance.randint(0, 2**31 - 1)))
            index.append(*entries[-1])
        target = BASE + chance.randint(0, 15_000)
        below = [entry for entry in entries if entry.offset <= target]
        assert index.lookup(target) == (below[-1] if below else IndexEntry(BASE, 0))
        assert index.last_offset == (entries[-1].offset if entries else BASE)


def test_a_reopened_index_is_mapped_for_a_lookup_and_appended_to(tmp_path: Path) -> None:
    filled(tmp_path, 100).trim()
    held = descriptors_in(tmp_path)

    reopened = offset_index(tmp_path)
    reopened.sanity_check()
    assert reopened.last_offset == BASE + 1000
    assert (reopened.is_mapped, descriptors_in(tmp_path)) == (False, held)

    assert reopened.lookup(BASE + 555) == IndexEntry(BASE + 550, 4096 * 55)
    assert (reopened.is_mapped, descriptors_in(tmp_path)) == (True, held + 1)
    reopened.unmap()
    assert descriptors_in(tmp_path) == held
    assert reopened.lookup(BASE + 555) == IndexEntry(BASE + 550, 4096 * 55)

    reopened.append(BASE + 2000, 7)
    reopened.trim()
    assert reopened.path.stat().st_size == 101 * 8
    assert reopened.path.read_bytes()[-8:] == struct.pack(">ii", 2000, 7)


@pytest.mark.parametrize("offset", [BASE + 99, BASE + 100])
def test_an_offset_that_is_not_beyond_the_last_is_refused(tmp_path: Path, offset: int) -> None:
    index = filled(tmp_path, 10)

    with pytest.raises(ValueError, match="cannot follow"):
        index.append(offset, 1)
    assert index.entries == 10


# Kafka's search ends before it has looked at the first of several: an entry right there is then passed over.
@pytest.mark.parametrize(
    ("entries", "end", "expected"),
    [
        (3, 4095, BASE + 10),
        (3, 4096, BASE + 20),
        (3, 4097, BASE + 20),
        (3, 8192, BASE + 20),
        (3, 8193, BASE + 30),
        (3, 12288, BASE + 30),
        (3, 12289, None),
        (1, 4095, BASE + 10),
        (1, 4096, None),
        (0, 1, None),
    ],
)
def test_the_upper_bound_of_a_fetch_is_an_entry(tmp_path: Path, entries: int, end: int, expected: int | None) -> None:
    index = filled(tmp_path, entries)

    assert index.fetch_upper_bound_offset(end - 1, 1) == expected


def test_room_is_on_disk_before_it_is_used(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    for number in range(3000):
        index.append(BASE + 1 + number, number)
        stat = index.path.stat()
        assert stat.st_blocks * 512 >= stat.st_size >= index.size_bytes

    assert index.path.stat().st_size < 3 * index.size_bytes
    index.trim()
    assert index.path.stat().st_size == 3000 * 8


def test_a_full_disk_is_an_error_and_no_signal(tmp_path: Path) -> None:
    index = filled(tmp_path, 512)  # the first step of room, used up
    size_before = index.path.stat().st_size

    with no_file_beyond(size_before + 100), pytest.raises(OSError, match="too large"):
        index.append(BASE + 9999, 1)

    assert (index.entries, index.last_offset) == (512, BASE + 5120)
    assert index.path.stat().st_size == size_before
    index.append(BASE + 9999, 1)
    assert index.lookup(BASE + 10_000) == IndexEntry(BASE + 9999, 1)


def test_room_that_cannot_be_mapped_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(tmp_path, 512)
    size_before = index.path.stat().st_size

    def no_memory(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr("minibroker.storage.files.disk.map_file", no_memory)
        with pytest.raises(OSError, match="Cannot allocate"):
            index.append(BASE + 9999, 1)

    assert index.path.stat().st_size == size_before
    assert index.lookup(BASE + 9999) == IndexEntry(BASE + 5120, 4096 * 512)


def test_a_full_index_takes_no_more(tmp_path: Path) -> None:
    index = offset_index(tmp_path, 17)  # two entries and a rest
    index.append(BASE + 1, 0)
    assert not index.is_full
    index.append(BASE + 2, 0)

    assert index.is_full
    with pytest.raises(ValueError, match="full"):
        index.append(BASE + 3, 0)
    index.resize(24)
    assert not index.is_full


def test_the_last_place_of_a_time_index_is_kept_for_the_roll(tmp_path: Path) -> None:
    index = time_index(tmp_path, 24)
    index.maybe_append(1, BASE)

    assert index.is_full
    with pytest.raises(ValueError, match="full"):
        index.maybe_append(2, BASE + 1)
    index.maybe_append(2, BASE + 1, skip_full_check=True)
    assert index.last_entry == TimestampOffset(2, BASE + 1)
    index.maybe_append(3, BASE + 2, skip_full_check=True)  # as may happen when a segment closes
    index.trim()
    assert index.path.stat().st_size == 36


@pytest.mark.parametrize(("offset", "kept"), [(0, 0), (10, 0), (11, 1), (20, 1), (25, 2), (30, 2), (31, 3)])
def test_truncation_drops_the_offset_and_all_beyond(tmp_path: Path, offset: int, kept: int) -> None:
    offsets, times = filled(tmp_path, 3), time_index(tmp_path)
    for number in (1, 2, 3):
        times.maybe_append(100 + number, BASE + 10 * number)

    offsets.truncate_to(BASE + offset)
    times.truncate_to(BASE + offset)

    assert (offsets.entries, times.entries) == (kept, kept)
    assert offsets.last_offset == BASE + 10 * kept
    assert times.last_entry == (TimestampOffset(100 + kept, BASE + 10 * kept) if kept else TimestampOffset(-1, BASE))


def test_entries_that_truncation_dropped_are_not_found_after_a_crash(tmp_path: Path) -> None:
    index = filled(tmp_path, 512)  # all the room there is
    index.truncate_to(BASE + 20)
    del index  # without the trim of a clean stop

    left = offset_index(tmp_path)
    assert left.entries > 1
    with pytest.raises(CorruptFileError):
        left.sanity_check()


def test_a_reset_index_is_empty_whatever_it_held(tmp_path: Path) -> None:
    (tmp_path / "0.index").write_bytes(b"\xff" * 13)
    (tmp_path / "0.timeindex").write_bytes(b"\xff" * 13)

    for index in (offset_index(tmp_path), time_index(tmp_path)):
        index.reset()
        assert index.entries == 0
        assert index.path.stat().st_size == 0
    assert offset_index(tmp_path).lookup(BASE + 5) == IndexEntry(BASE, 0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("0.index", b"\x00" * 7),
        ("0.index", b"\x00" * 8),
        ("0.index", b"\x00" * 4096),
        ("0.index", struct.pack(">ii", -1, 0)),
        ("0.timeindex", b"\x00" * 13),
        ("0.timeindex", b"\x00" * 24),
        ("0.timeindex", struct.pack(">qi", 5, -1)),
        ("0.timeindex", struct.pack(">qiqi", 5, 1, 4, 2)),
        ("0.timeindex", struct.pack(">qiqi", 5, 1, 0, 0)),
    ],
)
def test_an_index_that_cannot_be_is_found_out(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    index = offset_index(tmp_path) if name == "0.index" else time_index(tmp_path)

    with pytest.raises(CorruptFileError):
        index.sanity_check()


def test_only_younger_timestamps_make_an_entry_and_older_ones_are_refused(tmp_path: Path) -> None:
    index = time_index(tmp_path)
    index.maybe_append(-1, BASE)
    assert index.entries == 0
    index.maybe_append(100, BASE + 5)
    index.maybe_append(100, BASE + 9)

    assert index.entries == 1
    assert index.last_entry == TimestampOffset(100, BASE + 5)
    for timestamp_ms, offset in ((99, BASE + 9), (101, BASE + 4)):
        with pytest.raises(ValueError, match="cannot follow"):
            index.maybe_append(timestamp_ms, offset)


def test_a_time_lookup_finds_the_last_entry_not_younger(tmp_path: Path) -> None:
    index = time_index(tmp_path)
    assert index.lookup(5) == TimestampOffset(-1, BASE)
    for number in range(1, 100):
        index.maybe_append(10 * number, BASE + number)

    assert index.lookup(9) == TimestampOffset(-1, BASE)
    assert index.lookup(10) == TimestampOffset(10, BASE + 1)
    assert index.lookup(555) == TimestampOffset(550, BASE + 55)
    assert index.lookup(10**6) == TimestampOffset(990, BASE + 99)


def test_offsets_beyond_the_relative_range_are_known_as_such(tmp_path: Path) -> None:
    index = offset_index(tmp_path)

    assert [index.can_append_offset(BASE + each) for each in (-1, 0, 2**31 - 1, 2**31)] == [False, True, True, False]


def test_a_renamed_index_goes_on_at_its_new_place(tmp_path: Path) -> None:
    index = filled(tmp_path, 3)
    index.rename(tmp_path / "0.index.deleted")
    index.append(BASE + 40, 1)
    index.flush()
    index.trim()

    assert not (tmp_path / "0.index").exists()
    assert (tmp_path / "0.index.deleted").stat().st_size == 32
    index.flush()
    index.delete()
    index.delete()
    assert not (tmp_path / "0.index.deleted").exists()
