"""Compaction: the records, markers and producers that stay, the segments it makes, and what interrupts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.compaction.cleaner_offset_map import BYTES_PER_KEY
from minibroker.storage.compaction.cleaner_pace import LogCleaningAbortedError
from minibroker.storage.compaction.log_cleaner import MOST_SEGMENTS_IN_A_GROUP, CleanerConfig
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.log.log import Log
from tests.protocol.batch_bytes import views_of
from tests.refusals import refusal_of
from tests.storage.cleaning import (
    COMPACTED,
    aborted_in,
    age_segments,
    assert_sound,
    clean,
    cleaning_of,
    commit,
    config_of,
    put,
    put_segment,
    roll,
    roll_and_clean,
    shown,
    survivors,
    take,
)
from tests.storage.file_limits import no_space_in
from tests.storage.logs import (
    NOW_MS,
    UNBOUNDED,
    batches_of,
    names_in,
    offsets_of,
    open_log,
    read_bytes,
    records_of,
    remove_deleted,
    segment_bases,
    send,
)
from tests.storage.open_files import forced_files

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "log", COMPACTED)


def unfinished_in(directory: Path) -> list[str]:
    return [name for name in names_in(directory) if name.endswith((".cleaned", ".swap"))]


def test_a_producer_goes_on_where_it_was_even_without_snapshots(log: Log) -> None:
    take(log, "7. a=1; 7. a=2; a=3; clean")
    log.close()
    for path in log.directory.glob("*.snapshot"):
        path.unlink()

    again = open_log(log.directory, COMPACTED)

    assert refusal_of(lambda: put(again, ("a", "x"), producer_id=7, sequence=3)) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert put(again, ("a", "4"), producer_id=7, sequence=2).first_offset == 3


def test_a_transaction_behind_the_memory_of_a_round_stays_aborted(log: Log) -> None:
    take(log, "k0=1 k1=1 k2=1; 7: a=1; 7 aborts; b=1; roll")

    clean(log, config=CleanerConfig(dedupe_buffer_size=BYTES_PER_KEY, io_buffer_load_factor=1.0))

    assert (log.cleaned_offset, aborted_in(log)) == (3, "7 3-4")
    assert shown(log) == "0k0=1 1k1=1 2k2=1; 3(); 4!; 5b=1"


class TestRecords:
    def test_records_without_a_key_go_and_are_counted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(cleanup_policy=("delete",)))
        put(log, (None, "1"), ("a", "1"), (None, "2"))
        log.update_config(COMPACTED)

        stats = roll_and_clean(log)

        assert survivors(log) == [(1, "a", "1")]
        assert stats.invalid_records == 2

    @pytest.mark.parametrize("size", [0, 1, 16, 31, 32, 33, 127, 128, 5000])
    def test_keys_of_any_length_are_different_keys(self, tmp_path: Path, size: int) -> None:
        log = open_log(tmp_path / "log", config_of(segment_bytes=100_000))
        one, other = "x" * size, "x" * max(size - 1, 0) + "y"
        put(log, (one, "1"), (other, "1"), (one, "2"))

        roll_and_clean(log)

        assert [offset for offset, _, _ in survivors(log)] == [1, 2]

    def test_headers_and_timestamps_of_kept_records_are_as_they_were(self, log: Log) -> None:
        send(
            log,
            build_batch(
                Record(number, NOW_MS - number * 1000, b"k%d" % (number % 4), b"v", (("h", b"%d" % number),))
                for number in range(6)
            ),
        )
        commit(log)
        before = {record.offset: record for record in records_of(log)}

        roll_and_clean(log)

        assert records_of(log) == [before[offset] for offset in (2, 3, 4, 5)]
        (left,) = batches_of(log)
        # The youngest timestamp is that of what stays.
        assert (left.base_offset, left.last_offset, left.max_timestamp_ms) == (0, 5, NOW_MS - 2000)
        assert log.fetch_offset_by_timestamp(NOW_MS - 2000) == (NOW_MS - 2000, 2)
        assert log.fetch_offset_by_timestamp(NOW_MS - 1999) is None

    @pytest.mark.parametrize(("version", "codec"), [("2.0", Codec.NONE), ("0.10.2", Codec.GZIP)])
    def test_log_append_time_stays(self, tmp_path: Path, version: str, codec: Codec) -> None:
        config = config_of(message_format_version=version, message_timestamp_type="LogAppendTime")
        log = open_log(tmp_path / "log", config)
        put(log, ("a", "1"), ("b", "1"), ("a", "2"), codec=codec, timestamp_ms=5)

        roll_and_clean(log)

        assert [(record.offset, record.timestamp_ms) for record in records_of(log)] == [(1, NOW_MS), (2, NOW_MS)]

    def test_the_times_of_offsets_are_still_found(self, log: Log) -> None:
        for number in range(60):
            put(log, (f"k{number % 20}", "v"), timestamp_ms=NOW_MS + number)
        roll_and_clean(log)

        for number in range(60):
            expected = max(number, 40)
            assert log.fetch_offset_by_timestamp(NOW_MS + number) == (NOW_MS + expected, expected)

    @pytest.mark.parametrize("count", [1, 2])
    def test_segments_that_become_one_are_as_old_as_the_youngest(self, log: Log, count: int) -> None:
        for number in range(count):
            put_segment(log, ("a", str(number)))
        age_segments(log, DAY_MS)
        youngest = log.segments.segments[count - 1].last_modified_ms
        log.segments.first.last_modified_ms -= DAY_MS * (count - 1)

        clean(log)

        assert log.segments.first.last_modified_ms == youngest


class TestFormats:
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    @pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "2.0"])
    def test_batches_keep_format_and_codec(self, tmp_path: Path, version: str, codec: Codec) -> None:
        log = open_log(tmp_path / "log", config_of(message_format_version=version, segment_bytes=1 << 16))
        put(log, *((f"k{number}", "x" * 50) for number in range(40)), codec=codec)
        put(log, *((f"k{number}", "y" * 50) for number in range(0, 40, 2)), codec=codec)
        put_segment(log, *((f"k{number}", "z" * 50) for number in range(40)), codec=codec, timestamp_ms=NOW_MS + 1)
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
        put_segment(log, *((f"k{number}", None) for number in range(10) if number not in kept), codec=codec)

        clean(log)

        assert survivors(log)[1 : 1 + len(kept)] == [(1 + number, f"k{number}", f"v{number}") for number in kept]
        assert_sound(log)

    def test_a_log_of_several_formats_is_compacted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(message_format_version="0.9.0"))
        for version in ("0.9.0", "0.10.2", "2.0"):
            log.update_config(config_of(message_format_version=version))
            put(log, ("a", version), (version, "1"))

        roll_and_clean(log)

        assert survivors(log) == [(1, "0.9.0", "1"), (3, "0.10.2", "1"), (4, "a", "2.0"), (5, "2.0", "1")]
        assert [batch.magic for batch in batches_of(log)] == [0, 1, 2]


class TestSegments:
    @pytest.mark.parametrize(
        ("count", "bases"),
        [(10, [0, 10]), (MOST_SEGMENTS_IN_A_GROUP + 1, [0, MOST_SEGMENTS_IN_A_GROUP, MOST_SEGMENTS_IN_A_GROUP + 1])],
        ids=["all", "so many that others do not wait"],
    )
    def test_small_neighbours_become_one(self, tmp_path: Path, count: int, bases: list[int]) -> None:
        log = open_log(tmp_path / "log", config_of(segment_bytes=1 << 20))
        for number in range(count):
            put_segment(log, (f"k{number}", "v"))

        clean(log)

        assert segment_bases(log) == bases
        assert offsets_of(log) == list(range(count))

    def test_no_segment_grows_beyond_segment_bytes(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(segment_bytes=400))
        for number in range(12):
            put(log, (f"k{number}", "v" * 40))

        roll_and_clean(log)

        assert len(segment_bases(log)) > 3
        assert all(segment.size_bytes <= 400 for segment in log.segments)
        assert offsets_of(log) == list(range(12))

    def test_old_files_stay_for_the_delay_and_readers_of_them_to_their_end(self, log: Log) -> None:
        put_segment(log, ("a", "1"), ("a", "2"))
        records = log.read(0, UNBOUNDED).records
        assert isinstance(records, FileSlice)
        before = records.read()

        clean(log)

        assert "00000000000000000000.log.deleted" in names_in(log.directory)
        assert [remove_deleted(log, NOW_MS + delay_ms) for delay_ms in (999, 1000)] == [0, 1]
        assert not [name for name in names_in(log.directory) if not name.endswith((".log", "index", ".snapshot", "t"))]
        assert records.read() == before

    def test_indexes_lead_to_every_batch_and_every_offset_can_still_be_read_from(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(index_interval_bytes=0, segment_bytes=1 << 20))
        for number in range(300):
            put(log, (f"k{number % 150}", str(number)))

        roll_and_clean(log)

        assert log.segments.first.offset_index.entries >= 100
        assert (log.log_start_offset, log.log_end_offset, read_bytes(log, 300)) == (0, 300, b"")
        for offset in range(300):
            data = read_bytes(log, offset, max_length=1)
            assert views_of(data)[0].base_offset == max(offset, 150)
            assert log.convert_to_offset_metadata(offset).message_offset == offset

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

    def test_records_behind_the_end_of_a_round_stay_as_they_are(self, tmp_path: Path) -> None:
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
        put_segment(log, ("k1", "last"))

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


class TestWhatGoesWrong:
    @pytest.mark.parametrize("is_torn", [False, True], ids=["a wrong crc", "ends within a batch"])
    def test_damage_is_found_before_anything_is_built_of_it(self, log: Log, is_torn: bool) -> None:
        put_segment(log, ("a", "1"), ("a", "2"))
        path = log.segments.first.path
        data = path.read_bytes()
        if is_torn:
            log.segments.first.records.truncate(len(data) - 10)
        else:
            assert data[-2:-1] == b"2"
            path.write_bytes(data[:-2] + b"3" + data[-1:])

        assert refusal_of(lambda: clean(log)) is ErrorCode.CORRUPT_MESSAGE
        assert not unfinished_in(log.directory)
        assert segment_bases(log) == [0, 2]

    @pytest.mark.parametrize("at", range(4))
    def test_a_log_that_is_truncated_meanwhile_stays_truncated(self, log: Log, at: int) -> None:
        put(log, ("a", "1"))
        put_segment(log, ("a", "2"))
        put(log, ("a", "3"))
        cleaning = cleaning_of(log)

        for number, work in enumerate(steps := cleaning.steps()):
            if number == at:
                log.truncate_to(1, now_ms=NOW_MS)
            try:
                work()
            except (LogCleaningAbortedError, KafkaError):
                break
            if number == at and number < 3:
                with pytest.raises(LogCleaningAbortedError):
                    next(steps)
                break
        cleaning.close()

        assert (log.log_end_offset, survivors(log)) == (1, [(0, "a", "1")] if at < 3 else [])
        assert not unfinished_in(log.directory)
        assert put(log, ("b", "1")).first_offset == 1

    @pytest.mark.parametrize("at", range(3))
    def test_a_log_that_is_deleted_meanwhile_is_given_up(self, log: Log, at: int) -> None:
        put(log, ("a", "1"))
        put_segment(log, ("a", "2"))
        cleaning = cleaning_of(log)
        target = log.directory.with_name("orders-0.0-delete")

        with pytest.raises((LogCleaningAbortedError, FileNotFoundError)):
            for number, work in enumerate(cleaning.steps()):
                if number == at:
                    log.rename_and_refuse(target)
                work()
        cleaning.close()

        assert cleaning.is_log_changed
        assert not target.with_name("log").exists()

    def test_a_copy_next_to_a_deleted_log_harms_no_new_one(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", COMPACTED)
        put_segment(log, ("a", "1"), ("a", "2"))
        cleaning = cleaning_of(log)
        steps = cleaning.steps()
        next(steps)()
        copy = next(steps)
        log.rename_and_refuse(tmp_path / "log.0-delete")
        new = open_log(tmp_path / "log", COMPACTED)
        put(new, ("b", "1"))

        with pytest.raises(LogCleaningAbortedError):
            copy()
        cleaning.close()

        assert survivors(new) == [(0, "b", "1")]
        assert not unfinished_in(tmp_path / "log")

    def test_a_full_disk_leaves_the_log_as_it_was(self, log: Log) -> None:
        put_segment(log, ("a", "1"), ("a", "2"), ("b", "3"))
        before = survivors(log)

        with no_space_in("minibroker.storage.files.disk.pwrite"):
            clean(log)

        assert survivors(log) == before
        assert not unfinished_in(log.directory)
        clean(log)
        assert survivors(log) == [(1, "a", "2"), (2, "b", "3")]

    def test_a_flush_may_come_while_a_copy_takes_its_names(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        put_segment(log, ("a", "1"), ("a", "2"))
        put_segment(log, ("b", "1"))
        replace_file = os.replace

        def replace_and_flush(source: Path, target: Path) -> None:
            replace_file(source, target)
            if target.suffix == ".timeindex":
                log.flush()  # as another thread would, just then

        monkeypatch.setattr("minibroker.storage.files.disk.replace", replace_and_flush)
        clean(log)

        assert not log.is_refusing
        assert log.recovery_point == log.log_end_offset
        assert survivors(log) == [(1, "a", "2"), (2, "b", "1")]

    def test_a_copy_is_on_the_disk_before_it_takes_its_names(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        put_segment(log, ("a", "1"), ("a", "2"))
        replace_file, forced = os.replace, forced_files(monkeypatch)
        forced_before: dict[str, list[str]] = {}

        def note_and_replace(source: Path, target: Path) -> None:
            forced_before.setdefault(Path(source).name, list(forced))
            replace_file(source, target)

        monkeypatch.setattr("minibroker.storage.files.disk.replace", note_and_replace)
        clean(log)

        copy = "00000000000000000000.log.cleaned"
        assert copy in forced_before[copy]

    def test_a_compacted_segment_is_forced_again_once_cut(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        put(log, ("a", "1"), ("a", "2"))
        put(log, ("b", "1"))
        roll_and_clean(log)
        log.truncate_to(2, now_ms=NOW_MS)
        put_segment(log, ("c", "1"))
        forced = forced_files(monkeypatch)

        log.flush()

        assert "00000000000000000000.log" in forced

    def test_compact_and_delete_do_both_but_not_at_the_same_time(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(cleanup_policy=("compact", "delete"), retention_ms=1000))
        put(log, ("old", "1"), ("old", "2"))
        roll_and_clean(log)
        put_segment(log, ("a", "1"), ("a", "2"), timestamp_ms=NOW_MS + 5000)

        log.is_being_cleaned = True
        assert log.delete_old_segments(NOW_MS + 5000) == 0
        log.is_being_cleaned = False
        assert log.delete_old_segments(NOW_MS + 5000) == 1
        clean(log)

        assert (log.log_start_offset, survivors(log)) == (2, [(3, "a", "2")])
