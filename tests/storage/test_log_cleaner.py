"""What compaction takes out of a log, and what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.batches import batch_is_valid, iter_all_records, scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.log.log import Log
from tests.storage.cleaning import (
    COMPACTED,
    age_segments,
    clean,
    commit,
    config_of,
    put,
    roll,
    roll_and_clean,
    survivors,
)
from tests.storage.logs import (
    NOW_MS,
    UNBOUNDED,
    batches_of,
    open_log,
    records_of,
    send,
)

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "log", COMPACTED)


class TestWhatStays:
    def test_the_newest_value_of_each_key_stays_at_its_offset(self, log: Log) -> None:
        put(log, ("a", "1"), ("b", "1"), ("a", "2"))
        put(log, ("c", "1"), ("b", "2"))

        roll_and_clean(log)

        assert survivors(log) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2")]

    def test_the_active_segment_is_left_alone(self, log: Log) -> None:
        put(log, ("a", "1"))
        roll(log)
        put(log, ("a", "2"), ("a", "3"))

        clean(log)

        assert survivors(log) == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]

    def test_what_was_compacted_before_loses_what_has_a_newer_value_now(self, log: Log) -> None:
        put(log, ("a", "1"), ("b", "1"))
        roll_and_clean(log)
        put(log, ("a", "2"))

        roll_and_clean(log)

        assert survivors(log) == [(1, "b", "1"), (2, "a", "2")]

    def test_every_offset_can_still_be_read_from(self, log: Log) -> None:
        for number in range(30):
            put(log, (f"k{number % 3}", str(number)))
        roll_and_clean(log)

        for offset in range(31):
            data = log.read(offset, UNBOUNDED, min_one_message=True).records
            data = data.read() if isinstance(data, FileSlice) else data
            first = next(iter(scan_batches(data, 0, len(data))), None)
            assert (first is None) == (offset == 30)
            assert first is None or first.base_offset == max(offset, 27)
        assert (log.log_start_offset, log.log_end_offset) == (0, 30)

    def test_a_log_goes_on_where_it_was(self, log: Log) -> None:
        put(log, ("a", "1"), ("a", "2"))
        roll_and_clean(log)

        assert put(log, ("a", "3")).first_offset == 2
        assert survivors(log) == [(1, "a", "2"), (2, "a", "3")]

    def test_records_without_a_key_go_and_are_counted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(cleanup_policy=("delete",)))
        put(log, (None, "1"), ("a", "1"), (None, "2"))
        log.update_config(COMPACTED)

        stats = roll_and_clean(log)

        assert survivors(log) == [(1, "a", "1")]
        assert stats.invalid_records == 2

    @pytest.mark.parametrize("size", [0, 1, 16, 31, 32, 33, 127, 128, 5000])
    def test_keys_of_any_length_are_told_apart(self, tmp_path: Path, size: int) -> None:
        log = open_log(tmp_path / "log", config_of(segment_bytes=100_000))
        one, other = "x" * size, "x" * max(size - 1, 0) + "y"
        put(log, (one, "1"), (other, "1"), (one, "2"))

        roll_and_clean(log)

        assert [offset for offset, _, _ in survivors(log)] == [1, 2]

    def test_headers_and_timestamps_of_what_stays_are_as_they_were(self, log: Log) -> None:
        batch = build_batch(
            Record(number, NOW_MS + number * 1000 - 2500, b"k%d" % (number % 4), b"v", (("h", b"%d" % number),))
            for number in range(6)
        )
        send(log, batch)
        commit(log)
        before = {record.offset: record for record in records_of(log)}

        roll_and_clean(log)

        assert records_of(log) == [before[offset] for offset in (2, 3, 4, 5)]
        (left,) = batches_of(log)
        assert (left.base_offset, left.last_offset, left.max_timestamp_ms) == (0, 5, NOW_MS + 2500)

    def test_the_youngest_timestamp_of_a_batch_is_that_of_what_stays(self, log: Log) -> None:
        send(log, build_batch([Record(0, NOW_MS + 9, b"a", b"1"), Record(1, NOW_MS, b"b", b"1")]))
        put(log, ("a", "2"), timestamp_ms=NOW_MS - 5)

        roll_and_clean(log)

        assert [batch.max_timestamp_ms for batch in batches_of(log)] == [NOW_MS, NOW_MS - 5]
        assert log.fetch_offset_by_timestamp(NOW_MS) == (NOW_MS, 1)
        assert log.fetch_offset_by_timestamp(NOW_MS + 1) is None

    def test_log_append_time_stays(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(message_timestamp_type="LogAppendTime"))
        put(log, ("a", "1"), ("b", "1"), ("a", "2"), timestamp_ms=5)

        roll_and_clean(log)

        assert [(record.offset, record.timestamp_ms) for record in records_of(log)] == [(1, NOW_MS), (2, NOW_MS)]

    def test_the_times_of_offsets_are_still_found(self, log: Log) -> None:
        for number in range(60):
            put(log, (f"k{number % 20}", "v"), timestamp_ms=NOW_MS + number)
        roll_and_clean(log)

        for number in range(60):
            expected = max(number, 40)
            assert log.fetch_offset_by_timestamp(NOW_MS + number) == (NOW_MS + expected, expected)


class TestTombstones:
    def test_a_tombstone_stays_and_its_key_goes(self, log: Log) -> None:
        put(log, ("a", "1"), ("b", "1"), ("a", None))

        roll_and_clean(log)

        assert survivors(log) == [(1, "b", "1"), (2, "a", None)]

    def test_it_goes_when_it_is_older_by_the_retention_than_what_was_compacted_last(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(segment_bytes=120))  # one batch each
        put(log, ("a", "1"), ("a", None))
        roll_and_clean(log)
        age_segments(log, 2 * DAY_MS)
        put(log, ("b", "1"))
        roll_and_clean(log)
        assert survivors(log) == [(1, "a", None), (2, "b", "1")]

        put(log, ("c", "1"))
        roll_and_clean(log)

        assert survivors(log) == [(2, "b", "1"), (3, "c", "1")]

    def test_the_age_of_a_segment_outlives_its_compaction(self, log: Log) -> None:
        put(log, ("a", "1"))
        roll(log)
        age_segments(log, DAY_MS)
        age = log.segments.first.last_modified_ms

        clean(log)

        assert log.segments.first.last_modified_ms == age

    def test_a_tombstone_in_what_is_not_compacted_yet_stays(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(delete_retention_ms=0))
        put(log, ("a", None))
        roll_and_clean(log)

        assert survivors(log) == [(0, "a", None)]


class TestFormats:
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    @pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "2.0"])
    def test_batches_keep_format_and_codec(self, tmp_path: Path, version: str, codec: Codec) -> None:
        log = open_log(tmp_path / "log", config_of(message_format_version=version, segment_bytes=1 << 16))
        put(log, *((f"k{number}", "x" * 50) for number in range(40)), codec=codec)
        put(log, *((f"k{number}", "y" * 50) for number in range(0, 40, 2)), codec=codec)
        put(log, *((f"k{number}", "z" * 50) for number in range(40)), codec=codec, timestamp_ms=NOW_MS + 1)
        roll(log)
        put(log, ("other", "1"), codec=codec)

        clean(log)

        assert [record.offset for record in records_of(log)] == [*range(60, 100), 100]
        assert {(batch.magic, batch.codec) for batch in batches_of(log)} == {(log.config.magic, codec)}
        assert_sound(log)

    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    @pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "2.0"])
    @pytest.mark.parametrize("kept", [(0,), (4,), (9,), (0, 9), (3, 4, 5), tuple(range(1, 10))])
    def test_any_part_of_a_compressed_batch_may_stay(
        self, tmp_path: Path, version: str, codec: Codec, kept: tuple[int, ...]
    ) -> None:
        log = open_log(tmp_path / "log", config_of(message_format_version=version, segment_bytes=1 << 16))
        put(log, ("first", "1"))
        put(log, *((f"k{number}", f"v{number}") for number in range(10)), codec=codec)
        put(log, *((f"k{number}", None) for number in range(10) if number not in kept), codec=codec)
        roll(log)

        clean(log)

        assert survivors(log)[1 : 1 + len(kept)] == [(1 + number, f"k{number}", f"v{number}") for number in kept]
        assert_sound(log)

    def test_wrappers_with_log_append_time_keep_it(self, tmp_path: Path) -> None:
        config = config_of(message_format_version="0.10.2", message_timestamp_type="LogAppendTime")
        log = open_log(tmp_path / "log", config)
        put(log, ("a", "1"), ("b", "1"), ("a", "2"), codec=Codec.GZIP, timestamp_ms=5)

        roll_and_clean(log)

        assert [(record.offset, record.timestamp_ms) for record in records_of(log)] == [(1, NOW_MS), (2, NOW_MS)]

    def test_a_log_of_several_formats_is_compacted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(message_format_version="0.9.0"))
        for version in ("0.9.0", "0.10.2", "2.0"):
            log.update_config(config_of(message_format_version=version))
            put(log, ("a", version), (version, "1"))

        roll_and_clean(log)

        assert survivors(log) == [(1, "0.9.0", "1"), (3, "0.10.2", "1"), (4, "a", "2.0"), (5, "2.0", "1")]
        assert [batch.magic for batch in batches_of(log)] == [0, 1, 2]


def assert_sound(log: Log) -> None:
    """Every batch has a right CRC and records at rising offsets inside it."""
    last_offset = -1
    for segment in log.segments:
        data = segment.path.read_bytes()
        for view in scan_batches(data, 0, len(data)):
            assert batch_is_valid(data, view)
            for record in iter_all_records(data, view, max_decompressed_bytes=UNBOUNDED):
                assert last_offset < record.offset <= view.last_offset
                last_offset = record.offset
        for index in (segment.offset_index, segment.time_index, segment.transaction_index):
            index.sanity_check()
