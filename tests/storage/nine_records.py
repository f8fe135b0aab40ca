"""A log of nine records in three segments, with dense indexes, for the tests of opening a directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from minibroker.storage.log.log import Log
from tests.storage.logs import NOW_MS, SMALL, append, offsets_of, open_log, roll_three, values_of

NINE = [f"v{number}" for number in range(9)]
FIRST, SECOND, THIRD = (f"{base:020d}" for base in (0, 3, 6))


def closed_log(directory: Path) -> None:
    """Leave a directory of three segments, closed well; indexes have entries."""
    log = roll_three(directory, replace(SMALL, index_interval_bytes=0))
    log.close()


def reopen(directory: Path, *, is_after_clean_stop: bool = True, recovery_point: int = 9) -> Log:
    return open_log(directory, SMALL, is_after_clean_stop=is_after_clean_stop, recovery_point=recovery_point)


def assert_whole(log: Log) -> None:
    """The log serves all nine records, by offset and by time, and takes more."""
    assert values_of(log) == NINE
    assert offsets_of(log) == list(range(9))
    for number in range(9):
        assert log.convert_to_offset_metadata(number).segment_base_offset == number // 3 * 3
        assert log.fetch_offset_by_timestamp(NOW_MS + number) == (NOW_MS + number, number)
    assert append(log, "more").first_offset == 9
