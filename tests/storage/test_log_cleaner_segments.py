"""The segments compaction makes of others, and the memory and buffers it makes them with."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.batches import scan_batches
from minibroker.storage.compaction.cleaner_offset_map import BYTES_PER_KEY
from minibroker.storage.compaction.log_cleaner import MOST_SEGMENTS_IN_A_GROUP, CleanerConfig
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.log.log import Log
from tests.storage.cleaning import (
    COMPACTED,
    clean,
    config_of,
    put,
    roll,
    roll_and_clean,
    survivors,
)
from tests.storage.logs import (
    NOW_MS,
    UNBOUNDED,
    names_in,
    offsets_of,
    open_log,
    read_bytes,
    remove_deleted,
    segment_bases,
)

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "log", COMPACTED)


class TestSegments:
    def test_small_neighbours_become_one(self, log: Log) -> None:
        for number in range(10):
            put(log, (f"k{number}", "v"))
            roll(log)

        clean(log)

        assert segment_bases(log) == [0, 10]
        assert offsets_of(log) == list(range(10))

    def test_no_segment_grows_beyond_segment_bytes(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(segment_bytes=400))
        for number in range(12):
            put(log, (f"k{number}", "v" * 40))

        roll_and_clean(log)

        assert len(segment_bases(log)) > 3
        assert all(segment.size_bytes <= 400 for segment in log.segments)
        assert offsets_of(log) == list(range(12))

    def test_so_many_are_replaced_in_one_go_that_others_do_not_wait(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(segment_bytes=1 << 20))
        for number in range(MOST_SEGMENTS_IN_A_GROUP + 1):
            put(log, ("k", str(number)))
            roll(log)

        clean(log)

        assert segment_bases(log) == [0, MOST_SEGMENTS_IN_A_GROUP, MOST_SEGMENTS_IN_A_GROUP + 1]

    def test_old_files_stay_for_the_delay_and_readers_of_them_to_their_end(self, log: Log) -> None:
        put(log, ("a", "1"), ("a", "2"))
        roll(log)
        records = log.read(0, UNBOUNDED).records
        assert isinstance(records, FileSlice)
        before = records.read()

        clean(log)

        assert "00000000000000000000.log.deleted" in names_in(log.directory)
        assert remove_deleted(log, NOW_MS + 999) == 0
        assert remove_deleted(log, NOW_MS + 1000) == 1
        assert not [name for name in names_in(log.directory) if not name.endswith((".log", "index", ".snapshot", "t"))]
        assert records.read() == before

    def test_a_reopened_log_is_what_it_was(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(index_interval_bytes=0))
        for number in range(40):
            put(log, (f"k{number % 7}", str(number)), timestamp_ms=NOW_MS + number)
        roll_and_clean(log)
        put(log, ("k1", "last"))
        expected = survivors(log)
        log.close()

        for is_after_clean_stop in (True, False):
            again = open_log(tmp_path / "log", COMPACTED, is_after_clean_stop=is_after_clean_stop)
            assert survivors(again) == expected
            assert again.fetch_offset_by_timestamp(NOW_MS + 36) == (NOW_MS + 36, 36)
            again.close()

    def test_indexes_lead_to_every_batch(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(index_interval_bytes=0, segment_bytes=1 << 20))
        for number in range(300):
            put(log, (f"k{number % 150}", str(number)))

        roll_and_clean(log)

        assert log.segments.first.offset_index.entries >= 100
        for offset in range(150, 300):
            assert log.convert_to_offset_metadata(offset).message_offset == offset
            data = read_bytes(log, offset, max_length=1)
            assert next(iter(scan_batches(data, 0, len(data)))).base_offset == offset

    def test_more_index_entries_than_a_segment_may_have_end_nothing(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(segment_index_bytes=1 << 20, index_interval_bytes=4096))
        for number in range(20):
            put(log, (f"k{number}", "v" * 100))
        roll(log)
        log.update_config(config_of(segment_index_bytes=24, index_interval_bytes=0))

        clean(log)

        assert offsets_of(log) == list(range(20))


class TestMemory:
    def test_more_keys_than_memory_take_several_rounds(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", COMPACTED)
        for number in range(40):
            put(log, (f"k{number % 20}", str(number)))
        roll(log)
        config = CleanerConfig(dedupe_buffer_size=BYTES_PER_KEY * 10, io_buffer_load_factor=0.7)

        rounds = [clean(log, config=config).keys for _ in range(6)]

        assert rounds == [7, 7, 7, 7, 7, 5]
        assert log.cleaned_offset == 40
        assert survivors(log) == [(20 + number, f"k{number}", str(20 + number)) for number in range(20)]

    def test_what_a_round_does_not_reach_stays_as_it_is(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(cleanup_policy=("delete",)))
        put(log, ("a", "1"), ("b", "1"))
        put(log, (None, "1"))
        log.update_config(COMPACTED)
        roll(log)

        stats = clean(log, config=CleanerConfig(dedupe_buffer_size=2 * BYTES_PER_KEY, io_buffer_load_factor=1.0))

        assert survivors(log) == [(0, "a", "1"), (1, "b", "1"), (2, None, "1")]
        assert stats.records_read == 2
        clean(log)
        assert survivors(log) == [(0, "a", "1"), (1, "b", "1")]

    def test_a_batch_of_more_keys_than_memory_is_taken_whole(self, log: Log) -> None:
        put(log, *((f"k{number % 50}", str(number)) for number in range(100)))
        put(log, ("k1", "last"))
        roll(log)

        clean(log, config=CleanerConfig(dedupe_buffer_size=BYTES_PER_KEY, io_buffer_load_factor=1.0))

        assert log.cleaned_offset == 100
        assert [offset for offset, _, _ in survivors(log)] == [*range(50, 100), 100]

    @pytest.mark.parametrize("size", [17, 64, 100, 1000])
    def test_batches_larger_than_the_buffer_are_read(self, tmp_path: Path, size: int) -> None:
        log = open_log(tmp_path / "log", config_of(segment_bytes=1 << 16))
        for number in range(20):
            put(log, (f"k{number % 4}", "v" * number * 20))
        roll(log)

        clean(log, config=CleanerConfig(io_buffer_size=2 * size))

        assert offsets_of(log) == [16, 17, 18, 19]
