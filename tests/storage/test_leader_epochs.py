"""Leader epochs and their start offsets, as Kafka 2.0.1 keeps them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.leader_epochs import EpochEndOffset, EpochEntry, LeaderEpochCache
from tests.storage.recorded_logs import recorded_files

UNDEFINED = EpochEndOffset(-1, -1)


def cache_of(directory: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(directory / "leader-epoch-checkpoint")
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    return cache


def entries_on_disk(cache: LeaderEpochCache) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in LeaderEpochCache(cache.path).entries]


def test_a_checkpoint_of_kafka_is_read_and_written_the_same(tmp_path: Path) -> None:
    seen = set()
    for number, path in enumerate(recorded_files(tmp_path, "leader-epoch-checkpoint")):
        recorded = LeaderEpochCache(path)
        rewritten = LeaderEpochCache(tmp_path / f"{number}.rewritten")
        for entry in recorded.entries:
            rewritten.assign(*entry)

        assert rewritten.path.read_bytes() == path.read_bytes()
        seen.add(recorded.entries)
    assert seen == {(EpochEntry(0, 0),), (EpochEntry(0, 20),)}


def test_an_epoch_is_kept_with_its_first_offset_until_the_cache_is_cleared(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (0, 0), (0, 10), (2, 10), (2, 12))

    with pytest.raises(ValueError, match="negative: -1"):
        cache.assign(-1, 0)
    assert cache.latest_epoch == 2
    assert entries_on_disk(cache) == [(0, 0), (2, 10)]

    cache.clear()
    assert (cache.latest_epoch, cache.path.read_bytes()) == (-1, b"0\n0\n")


def test_nothing_is_known_of_a_new_log(tmp_path: Path) -> None:
    cache = cache_of(tmp_path)

    assert cache.latest_epoch == -1
    assert cache.entries == ()
    assert cache.end_offset_for(0, log_end_offset=100) == UNDEFINED
    assert not cache.path.exists()


@pytest.mark.parametrize(
    ("epoch", "led_in", "expected"),
    [
        (-1, -1, UNDEFINED),
        (0, -1, (0, 10)),  # before the first known one: ended where that begins
        (2, -1, (2, 20)),
        (3, -1, (2, 20)),  # wrote nothing
        (4, -1, (4, 30)),
        (5, -1, (5, 100)),  # still on
        (6, -1, UNDEFINED),
        (9, 9, (9, 100)),  # the leader's own, in which nothing has been written
        (5, 9, (5, 100)),
        (7, 9, (5, 100)),
        (3, 9, (2, 20)),
        (10, 9, UNDEFINED),
    ],
)
def test_an_epoch_ends_as_the_next_begins(tmp_path: Path, epoch: int, led_in: int, expected: tuple[int, int]) -> None:
    cache = cache_of(tmp_path, (2, 10), (4, 20), (5, 30))

    assert cache.end_offset_for(epoch, log_end_offset=100, led_in=led_in) == expected
    assert len(cache.entries) == 3


@pytest.mark.parametrize(
    ("newest", "left"),
    [
        ((3, 25), [(1, 0), (3, 25)]),  # an older epoch than the last known
        ((5, 15), [(1, 0), (5, 15)]),  # begins before the last known
        ((4, 10), [(1, 0), (4, 10)]),
        ((9, 0), [(9, 0)]),
    ],
)
def test_the_newest_entry_displaces_entries_that_contradict_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, newest: tuple[int, int], left: list[tuple[int, int]]
) -> None:
    cache = cache_of(tmp_path, (1, 0), (4, 20))

    with caplog.at_level(logging.WARNING):
        cache.assign(*newest)

    assert entries_on_disk(cache) == left
    assert "removes" in caplog.text


@pytest.mark.parametrize(
    ("end", "offset", "left"),
    [
        ("end", 31, [(2, 10), (4, 20), (5, 30)]),
        ("end", 30, [(2, 10), (4, 20)]),
        ("end", 20, [(2, 10)]),
        ("end", 11, [(2, 10)]),
        ("end", 0, []),
        ("start", 9, [(2, 10), (4, 20), (5, 30)]),
        ("start", 10, [(2, 10), (4, 20), (5, 30)]),
        ("start", 11, [(2, 11), (4, 20), (5, 30)]),  # the epoch of the offset now begins there
        ("start", 20, [(4, 20), (5, 30)]),
        ("start", 99, [(5, 99)]),
    ],
)
def test_truncation_forgets_the_epochs_beyond_either_end(
    tmp_path: Path, end: str, offset: int, left: list[tuple[int, int]]
) -> None:
    cache = cache_of(tmp_path, (2, 10), (4, 20), (5, 30))

    (cache.truncate_from_end if end == "end" else cache.truncate_from_start)(offset)

    assert entries_on_disk(cache) == left == [tuple(entry) for entry in cache.entries]


def test_an_unchanged_epoch_is_not_written(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (2, 10), (4, 20))
    cache.path.unlink()

    cache.assign(4, 25)
    cache.truncate_from_end(21)
    cache.truncate_from_start(10)
    cache.truncate_from_start(3)

    assert not cache.path.exists()


@pytest.mark.parametrize("content", [b"0\n1\n1\n", b"0\n1\none 0\n", b"7\n0\n"])
def test_a_checkpoint_that_cannot_be_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_bytes(content)

    with pytest.raises(CorruptFileError):
        cache_of(tmp_path)
