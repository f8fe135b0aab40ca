"""Which log is compacted, and from where to where."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.compaction.log_cleaner_manager import LogCleanerManager, log_to_clean
from minibroker.storage.config import LogConfig
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.log.log import Log
from tests.storage.cleaning import COMPACTED, clean, config_of, put, put_segment, roll_and_clean
from tests.storage.logs import NOW_MS, names_in, open_log
from tests.storage.managers import ORDERS, OTHERS, crash, log_in, opened

CHECKPOINT = "cleaner-offset-checkpoint"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "log", COMPACTED)


class TestWhatCanBeCompacted:
    @pytest.mark.parametrize(
        ("cleaned", "dirty", "ratio"),
        [(0, 2, 1.0), (1, 1, 0.5), (1, 0, 0.0)],
        ids=["at first all but the active segment is dirty", "what was compacted is clean", "all is clean"],
    )
    def test_a_log_is_dirty_after_its_compacted_part(self, log: Log, cleaned: int, dirty: int, ratio: float) -> None:
        for number in range(cleaned + dirty):
            put_segment(log)
            if number < cleaned:
                clean(log)
        put(log, ("a", "2"))

        found = log_to_clean(log, NOW_MS)

        sizes = [segment.size_bytes for segment in log.segments]
        assert (found.first_dirty_offset, found.first_uncleanable_offset) == (2 * cleaned, 2 * (cleaned + dirty))
        assert found.clean_bytes == sum(sizes[:cleaned])
        assert found.cleanable_bytes == sum(sizes[cleaned:-1])
        assert found.cleanable_ratio == ratio

    def test_a_segment_younger_than_the_minimum_lag_and_all_behind_it_wait(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", config_of(min_compaction_lag_ms=1000))
        put_segment(log, timestamp_ms=NOW_MS - 1000)
        put_segment(log, timestamp_ms=NOW_MS - 999)
        put_segment(log, timestamp_ms=NOW_MS - 5000)

        assert log_to_clean(log, NOW_MS).first_uncleanable_offset == 2
        assert log_to_clean(log, NOW_MS + 1).first_uncleanable_offset == 6

    @pytest.mark.parametrize("max_lag_ms", [1000, None])
    def test_a_segment_older_than_the_maximum_lag_is_overdue(self, tmp_path: Path, max_lag_ms: int | None) -> None:
        config = COMPACTED if max_lag_ms is None else config_of(max_compaction_lag_ms=max_lag_ms)
        log = open_log(tmp_path / "log", config)
        put_segment(log, timestamp_ms=NOW_MS)
        clean(log)
        put_segment(log, timestamp_ms=NOW_MS + 5)
        put(log, ("a", "1"), timestamp_ms=NOW_MS - 5000)  # in the active segment

        assert not log_to_clean(log, NOW_MS + 1005).is_overdue
        assert log_to_clean(log, NOW_MS + 1006).is_overdue == (max_lag_ms is not None)

    def test_the_maximum_lag_closes_segments_of_compacted_topics(self) -> None:
        config = LogConfig(segment_ms=5000, max_compaction_lag_ms=70)

        assert config.max_segment_ms == 5000
        assert replace(config, cleanup_policy=("compact",)).max_segment_ms == 70

    def test_an_offset_before_the_log_begins_it_anew(self, log: Log, caplog: pytest.LogCaptureFixture) -> None:
        put_segment(log)
        put_segment(log)
        log.cleaned_offset = 2
        log.truncate_fully_and_start_at(10, now_ms=NOW_MS)
        assert log.cleaned_offset == 2
        put_segment(log)

        assert log_to_clean(log, NOW_MS).first_dirty_offset == 10
        assert [record.levelno for record in caplog.records if "compacted up to 2" in record.message] == [
            logging.WARNING
        ]

    def test_records_written_after_a_truncation_are_dirty(self, log: Log) -> None:
        put_segment(log)
        put_segment(log)
        clean(log)
        log.truncate_to(2, now_ms=NOW_MS)
        put_segment(log)

        assert log_to_clean(log, NOW_MS).first_dirty_offset == 2


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    return opened(tmp_path, COMPACTED)


class TestChoice:
    def test_the_dirtiest_log_is_next(self, manager: LogManager) -> None:
        orders, others = log_in(manager, ORDERS), log_in(manager, OTHERS)
        for log in (orders, others):
            put_segment(log)
            clean(log)
            put_segment(log)
        put_segment(others)
        cleaner = LogCleanerManager(manager)

        first = cleaner.grab_filthiest_log(NOW_MS)
        second = cleaner.grab_filthiest_log(NOW_MS)

        assert first is not None
        assert second is not None
        assert (first.log, second.log) == (others, orders)
        assert cleaner.grab_filthiest_log(NOW_MS) is None
        cleaner.done(others)
        assert cleaner.grab_filthiest_log(NOW_MS) is not None

    @pytest.mark.parametrize(
        ("ratio", "policy", "is_chosen"),
        [(0.49, "compact", True), (0.5, "compact", False), (0.51, "compact", False), (0.49, "delete", False)],
    )
    def test_only_a_log_dirtier_than_its_ratio_is_chosen_and_none_that_is_only_deleted_from(
        self, manager: LogManager, ratio: float, policy: str, is_chosen: bool
    ) -> None:
        log = log_in(manager)
        put_segment(log)
        clean(log)
        put_segment(log)
        log.update_config(config_of(min_cleanable_dirty_ratio=ratio, cleanup_policy=(policy,)))

        assert (LogCleanerManager(manager).grab_filthiest_log(NOW_MS) is not None) == is_chosen

    def test_one_that_is_overdue_is_chosen_whatever_its_ratio(self, manager: LogManager) -> None:
        log = log_in(manager)
        put_segment(log)
        log.update_config(config_of(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000))
        cleaner = LogCleanerManager(manager)

        assert cleaner.grab_filthiest_log(NOW_MS + 1000) is None
        assert cleaner.grab_filthiest_log(NOW_MS + 1001) is not None

    def test_a_log_that_failed_is_left_and_named_once(
        self, manager: LogManager, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = log_in(manager)
        put_segment(log)
        cleaner = LogCleanerManager(manager)
        assert cleaner.grab_filthiest_log(NOW_MS) is not None

        cleaner.mark_uncleanable(log, ValueError("broken"))
        cleaner.done(log)

        assert cleaner.uncleanable == [ORDERS]
        assert cleaner.grab_filthiest_log(NOW_MS) is None
        assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
        manager.delete_log(ORDERS)
        put_segment(log_in(manager))
        assert cleaner.uncleanable == []
        assert cleaner.grab_filthiest_log(NOW_MS) is not None


class TestCheckpoint:
    @pytest.mark.parametrize("is_clean_stop", [False, True])
    def test_how_far_a_log_is_compacted_is_known_after_a_restart(self, tmp_path: Path, is_clean_stop: bool) -> None:
        manager = opened(tmp_path, COMPACTED)
        put(log_in(manager), ("a", "1"))
        roll_and_clean(log_in(manager))
        log_in(manager, OTHERS)

        if is_clean_stop:
            manager.close()
        else:
            manager.checkpoint_cleaner_offsets()()
            crash(manager)

        assert (tmp_path / CHECKPOINT).read_text() == "0\n1\norders 0 1\n"
        again = opened(tmp_path, COMPACTED)
        assert (again.logs[ORDERS].cleaned_offset, again.logs[OTHERS].cleaned_offset) == (1, None)

    def test_a_log_that_is_compacted_further_is_written_down_again(self, tmp_path: Path) -> None:
        manager = opened(tmp_path, COMPACTED)
        for _ in range(2):
            put(log_in(manager), ("a", "1"))
            roll_and_clean(log_in(manager))
            manager.checkpoint_cleaner_offsets()()

        assert (tmp_path / CHECKPOINT).read_text() == "0\n1\norders 0 2\n"

    def test_without_compaction_there_is_none_and_a_partition_that_is_gone_is_left_out(self, tmp_path: Path) -> None:
        manager = opened(tmp_path / "new", COMPACTED)
        log_in(manager)
        manager.close()
        assert CHECKPOINT not in names_in(tmp_path / "new")

        (tmp_path / CHECKPOINT).write_text("0\n1\ngone 3 17\n")
        opened(tmp_path, COMPACTED).get_or_create_log(TopicPartition("gone", 3), now_ms=NOW_MS)
        assert (tmp_path / CHECKPOINT).read_text() == "0\n0\n"

    def test_a_truncated_part_is_not_compacted_after_a_restart_either(self, tmp_path: Path) -> None:
        manager = opened(tmp_path, COMPACTED)
        log = log_in(manager)
        put_segment(log)
        clean(log)
        manager.checkpoint_cleaner_offsets()()
        log.truncate_to(0, now_ms=NOW_MS)
        crash(manager)

        again = opened(tmp_path, COMPACTED)

        assert again.logs[ORDERS].cleaned_offset == 0

    def test_a_topic_with_an_old_name_begins_anew(self, tmp_path: Path) -> None:
        manager = opened(tmp_path, COMPACTED)
        put(log_in(manager), ("a", "1"))
        roll_and_clean(log_in(manager))
        manager.checkpoint_cleaner_offsets()()

        manager.delete_log(ORDERS)
        log = log_in(manager)
        for number in range(5):
            put(log, ("a", str(number)))
        crash(manager)

        assert opened(tmp_path, COMPACTED).logs[ORDERS].cleaned_offset is None

    @pytest.mark.parametrize("text", ["", "0\n1\n", "1\n0\n", "0\n1\norders 0 x\n"])
    def test_one_that_cannot_be_read_is_done_without(self, tmp_path: Path, text: str) -> None:
        manager = opened(tmp_path, COMPACTED)
        put(log_in(manager), ("a", "1"))
        manager.close()
        (tmp_path / CHECKPOINT).write_text(text)

        again = opened(tmp_path, COMPACTED)

        assert again.logs[ORDERS].cleaned_offset is None
