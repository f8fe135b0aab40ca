"""Killed at any moment of a compaction, a broker finds the log as it was or as it was to be."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from minibroker.storage.compaction.log_cleaner import LogCleaning
from minibroker.storage.config import LogConfig
from minibroker.storage.log.log import Log
from tests.storage.cleaning import (
    clean,
    cleaning_of,
    commit,
    config_of,
    latest_values,
    put,
    put_segment,
    roll,
    snapshot_of,
    survivors,
)
from tests.storage.crashes import crashes
from tests.storage.logs import NOW_MS, end_transaction, names_in, open_log, records_of, segment_bases

ONE_GROUP = config_of(segment_bytes=1 << 16, index_interval_bytes=0)


def overwritten(log: Log) -> None:
    """Three segments, of which something stays of each."""
    for first in (0, 3, 6):
        put(log, ("a", str(first)), (f"k{first}", "1"))
        put_segment(log, (None if log.config.cleanup_policy == ("delete",) else "b", str(first)))


def with_an_aborted_end(log: Log) -> None:
    """Nothing stays of the last two segments but the place of a batch."""
    put_segment(log, ("a", "1"), ("a", "2"))
    put_segment(log, ("a", "aborted"), producer_id=7, sequence=0, is_transactional=True)
    put_segment(log, ("c", "aborted"), producer_id=7, sequence=1, is_transactional=True)
    abort(log)


def all_gone(log: Log) -> None:
    """One segment of which nothing stays at all."""
    put_segment(log, ("a", "aborted"), producer_id=7, sequence=0, is_transactional=True)
    abort(log)


def abort(log: Log) -> None:
    """End the transaction of a producer that is then forgotten."""
    end_transaction(log, 7, is_commit=False)
    commit(log)
    log.producer_state.remove_expired(1 << 60)


Fill = Callable[[Log], None]


def after_each_kill(
    tmp_path: Path, begin: Callable[[Path], Callable[[], object]], config: LogConfig, step: int = 1
) -> Iterator[Log]:
    """Begin in a directory of its own, kill before the n-th change; yield what is found, until no kill comes."""
    for number in range(0, 400, step):
        here = tmp_path / str(number)
        is_killed = crashes(begin(here), number)
        yield found(snapshot_of(here, tmp_path / f"{number}-found"), config)
        if not is_killed:
            return
    raise AssertionError("too many changes for one compaction")


def filled(directory: Path, fill: Fill, config: LogConfig = ONE_GROUP) -> Log:
    log = open_log(directory, config)
    fill(log)
    put(log, ("end", "1"))
    return log


def found(directory: Path, config: LogConfig = ONE_GROUP) -> Log:
    log = open_log(directory, config)
    commit(log)
    return log


@pytest.mark.slow
@pytest.mark.parametrize("fill", [overwritten, with_an_aborted_end, all_gone])
def test_killed_before_any_change_to_a_file_the_log_is_the_old_or_the_new_one(tmp_path: Path, fill: Fill) -> None:
    log = filled(tmp_path / "whole", fill)
    old = survivors(log)
    clean(log)
    new = survivors(log)
    assert old != new

    seen = []
    for again in after_each_kill(tmp_path, lambda here: partial(clean, filled(here, fill)), ONE_GROUP):
        seen.append(survivors(again))
        assert seen[-1] in (old, new), len(seen)
        assert not [name for name in names_in(again.directory) if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert put(again, ("more", "1")).first_offset == log.log_end_offset

    assert len(seen) > 21
    # Once it is the new one, it stays that: there is one moment at which the replacement counts.
    assert seen == [old] * seen.count(old) + [new] * seen.count(new)


@pytest.mark.parametrize("fill", [overwritten, with_an_aborted_end, all_gone])
def test_killed_again_while_the_replacement_is_completed_it_is_still_one_of_them(tmp_path: Path, fill: Fill) -> None:
    log = filled(tmp_path / "log", fill)
    old = survivors(log)
    _, steps = with_a_begun_replacement(log)
    left = snapshot_of(log.directory, tmp_path / "left")
    for _ in steps:
        pass
    new = survivors(log)

    def begin(here: Path) -> Callable[[], object]:
        shutil.copytree(left, here)
        return partial(open_log, here, ONE_GROUP)

    seen = [survivors(again) for again in after_each_kill(tmp_path, begin, ONE_GROUP)]

    assert all(each in (old, new) for each in seen)
    assert len(seen) > 4


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "2.0"])
def test_no_value_is_lost_and_none_returns_where_several_segments_are_written(tmp_path: Path, version: str) -> None:
    config = config_of(segment_bytes=300, index_interval_bytes=0, message_format_version=version)

    def fill(log: Log) -> None:
        for number in range(24):
            put(log, (f"k{number % 5}", str(number)), (f"gone{number % 3}", None if number > 20 else "1"))
        roll(log)

    log = filled(tmp_path / "whole", fill, config)
    before = records_of(log)
    known = latest_values(before)

    for again in after_each_kill(tmp_path, lambda here: partial(clean, filled(here, fill, config)), config, step=7):
        after = records_of(again)
        assert latest_values(after) == known
        assert [record for record in before if record in after] == after


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.10.2", "2.0"])
def test_a_value_whose_tombstone_went_with_it_does_not_return(tmp_path: Path, version: str) -> None:
    config = config_of(segment_bytes=1 << 16, delete_retention_ms=0, message_format_version=version)

    def fill(log: Log) -> None:
        put_segment(log, ("a", "1"))
        clean(log)
        put_segment(log, ("gone", "1"))
        put_segment(log, ("gone", None))
        log.segments.first.last_modified_ms += 1000  # what was compacted is younger than the tombstone

    for again in after_each_kill(tmp_path, lambda here: partial(clean, filled(here, fill, config)), config):
        assert latest_values(records_of(again)) == {b"a": b"1", b"end": b"1"}

    assert survivors(again) == [(0, "a", "1"), (3, "end", "1")]


def with_a_begun_replacement(log: Log) -> tuple[LogCleaning, Iterator[Callable[[], None]]]:
    """Gather, copy, and name the copy `.swap`; return also the steps that are left."""
    cleaning = cleaning_of(log)
    steps = cleaning.steps()
    for _ in range(3):
        next(steps)()
    assert swapped_in(log.directory)
    return cleaning, steps


def swapped_in(directory: Path) -> list[str]:
    return [name for name in names_in(directory) if name.endswith(".swap")]


def test_a_log_whose_replacement_is_abandoned_is_as_before(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", overwritten)
    old, bases = survivors(log), segment_bases(log)

    with_a_begun_replacement(log)[0].close()

    assert (survivors(log), segment_bases(log)) == (old, bases)
    assert not swapped_in(log.directory)


@pytest.mark.parametrize("changed", ["truncate_to", "truncate_fully_and_start_at", "delete_old_segments", "close"])
def test_a_change_of_the_log_takes_a_begun_replacement_away_first(tmp_path: Path, changed: str) -> None:
    config = config_of(cleanup_policy=("compact", "delete"), segment_bytes=1 << 16, retention_ms=0)
    log = filled(tmp_path / "log", overwritten, config)
    with_a_begun_replacement(log)
    {
        "truncate_to": lambda: log.truncate_to(5, now_ms=NOW_MS),
        "truncate_fully_and_start_at": lambda: log.truncate_fully_and_start_at(20, now_ms=NOW_MS),
        "delete_old_segments": lambda: log.delete_old_segments(NOW_MS + 1),
        "close": log.close,
    }[changed]()
    expected = (log.log_end_offset, segment_bases(log))

    again = found(snapshot_of(log.directory, tmp_path / "found"), config)

    assert not swapped_in(log.directory)
    assert (again.log_end_offset, segment_bases(again)) == expected
