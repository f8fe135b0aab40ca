"""Directories in which the replacement of segments by new ones was cut short."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.storage.config import LogConfig
from tests.storage.logs import NOW_MS, append, batches_of, names_in, open_log, refusal_of, segment_bases, values_of
from tests.storage.nine_records import FIRST, NINE, SECOND, THIRD, assert_whole, closed_log, reopen


class TestInterruptedCompaction:
    """Log cleaning and splitting write `.cleaned`, rename to `.swap` from the last segment to the first, then the
    originals to `.deleted`, then `.swap` to nothing (as kafka's testRecoveryAfterCrashDuringSplitPhase1 to 5)."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        """A log of nine records in three segments, and beside it `new`: what they are to be replaced by."""
        closed_log(tmp_path / "log")
        new = open_log(tmp_path / "new", LogConfig())
        for number in range(9):
            append(new, f"v{number}", timestamp_ms=NOW_MS + number)
        new.close()
        return tmp_path / "log"

    def put(self, directory: Path, extra: str) -> None:
        """Put the files of the replacement into the log's directory under such a name."""
        for suffix in (".log", ".index", ".timeindex"):
            shutil.copyfile(directory.parent / "new" / f"{FIRST}{suffix}", directory / f"{FIRST}{suffix}{extra}")

    def rename(self, directory: Path, base: str, extra: str) -> None:
        for suffix in (".log", ".index", ".timeindex"):
            (directory / f"{base}{suffix}").rename(directory / f"{base}{suffix}{extra}")

    def test_crash_while_cleaning_changes_nothing(self, directory: Path) -> None:
        self.put(directory, ".cleaned")

        log = reopen(directory, is_after_clean_stop=False)

        assert segment_bases(log) == [0, 3, 6]
        assert not [name for name in names_in(directory) if name.endswith(".cleaned")]
        assert_whole(log)

    def test_crash_while_renaming_to_swap_changes_nothing(self, directory: Path) -> None:
        self.put(directory, ".cleaned")
        shutil.copyfile(directory / f"{THIRD}.log", directory / f"{THIRD}.log.swap")

        log = reopen(directory, is_after_clean_stop=False)

        assert segment_bases(log) == [0, 3, 6]
        assert not [name for name in names_in(directory) if name.endswith((".cleaned", ".swap"))]
        assert_whole(log)

    def test_crash_before_the_originals_go_completes_the_replacement(self, directory: Path) -> None:
        self.put(directory, ".swap")

        log = reopen(directory, is_after_clean_stop=False)

        assert segment_bases(log) == [0]
        assert not [name for name in names_in(directory) if name.startswith((SECOND, THIRD)) and ".log" in name]
        assert values_of(log) == NINE
        assert append(log, "more").first_offset == 9

    def test_segments_beside_the_replaced_one_stay(self, directory: Path) -> None:
        shutil.copyfile(directory / f"{SECOND}.log", directory / f"{SECOND}.log.swap")

        log = reopen(directory, is_after_clean_stop=False)

        assert segment_bases(log) == [0, 3, 6]
        assert_whole(log)

    def test_crash_after_some_originals_went_completes_the_replacement(self, directory: Path) -> None:
        self.put(directory, ".swap")
        self.rename(directory, FIRST, ".deleted")
        self.rename(directory, SECOND, ".deleted")

        log = reopen(directory, is_after_clean_stop=False)

        assert segment_bases(log) == [0]
        assert values_of(log) == NINE

    def test_crash_after_all_originals_went_completes_the_replacement(self, directory: Path) -> None:
        self.put(directory, ".swap")
        for base in (FIRST, SECOND, THIRD):
            self.rename(directory, base, ".deleted")

        log = reopen(directory, is_after_clean_stop=False)

        assert values_of(log) == NINE
        assert not [name for name in names_in(directory) if name.endswith((".deleted", ".swap"))]

    def test_crash_between_the_names_of_one_segment_makes_its_indexes_again(self, directory: Path) -> None:
        self.put(directory, ".swap")
        for base in (FIRST, SECOND, THIRD):
            self.rename(directory, base, ".deleted")
        (directory / f"{FIRST}.log.swap").rename(directory / f"{FIRST}.log")

        log = reopen(directory, is_after_clean_stop=False)

        assert values_of(log) == NINE
        assert not [name for name in names_in(directory) if name.endswith(".swap")]

    def test_leftovers_of_deletion_are_removed(self, directory: Path) -> None:
        self.rename(directory, FIRST, ".deleted")

        log = reopen(directory, is_after_clean_stop=False)

        assert (segment_bases(log), log.log_start_offset) == ([3, 6], 3)
        assert not [name for name in names_in(directory) if name.endswith(".deleted")]
        assert refusal_of(lambda: log.read(0, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert [batch.base_offset for batch in batches_of(log)] == [3, 4, 5, 6, 7, 8]
