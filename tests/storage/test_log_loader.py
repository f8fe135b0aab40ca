"""Opening a directory that a clean stop, a crash, an interrupted compaction or damage leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minibroker.storage.config import LogConfig
from minibroker.storage.log.log import Log
from minibroker.storage.segment.log_segment import LogSegment
from tests.storage.logs import (
    NOW_MS,
    SMALL,
    append,
    batch_of,
    offsets_of,
    open_log,
    roll_three,
    send,
    values_of,
)

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


class TestCleanStop:
    @pytest.mark.parametrize(("is_clean", "recovery_point", "read"), [(True, 9, []), (False, 4, [3, 6])])
    @pytest.mark.pure
    def test_segments_from_the_recovery_point_on_are_read_through_after_a_crash(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool, recovery_point: int, read: list[int]
    ) -> None:
        closed_log(tmp_path)
        recovered: list[int] = []
        recover = LogSegment.recover

        def note(segment: LogSegment, *given: Any) -> int:
            recovered.append(segment.base_offset)
            return recover(segment, *given)

        monkeypatch.setattr(LogSegment, "recover", note)
        reopen(tmp_path, is_after_clean_stop=is_clean, recovery_point=recovery_point)

        assert recovered == read


class TestIndexes:
    @pytest.mark.parametrize("is_after_clean_stop", [True, False])
    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda path: path.unlink(), id="missing"),
            pytest.param(lambda path: path.write_bytes(b""), id="empty"),
            pytest.param(lambda path: path.write_bytes(path.read_bytes() + b"\0"), id="a byte too long"),
            pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1]), id="a byte too short"),
            pytest.param(lambda path: path.write_bytes(bytes(4096)), id="zeros"),
            pytest.param(lambda path: path.write_bytes(b"\xff" * 48), id="ones"),
            pytest.param(lambda path: path.write_bytes(path.read_bytes() + bytes(4800)), id="room of a crash"),
        ],
    )
    def test_a_damaged_index_is_made_again(
        self, tmp_path: Path, suffix: str, damage: Callable[[Path], object], is_after_clean_stop: bool
    ) -> None:
        closed_log(tmp_path)
        for base in (FIRST, THIRD):
            damage(tmp_path / f"{base}{suffix}")

        assert_whole(reopen(tmp_path, is_after_clean_stop=is_after_clean_stop))


class TestEpochs:
    def test_a_damaged_file_of_epochs_is_made_again_even_after_a_clean_stop(self, log: Log, tmp_path: Path) -> None:
        for epoch in (1, 12):
            send(log, batch_of(["a"]), leader_epoch=epoch)
        log.close()
        path = tmp_path / "leader-epoch-checkpoint"
        whole = path.read_bytes()
        torn = [whole[:size] + rest for size in range(1, len(whole)) for rest in (b"", bytes(len(whole) - size))]

        # Kafka makes the file before it has an epoch: an empty one is not known to be torn.
        for content in (*torn, b"\xff\xfe", b"0\n1\nx y\n", b"9\n0\n", b""):
            path.write_bytes(content)
            reopened = open_log(tmp_path, is_after_clean_stop=True, recovery_point=2)

            expected = [(1, 0), (12, 1)] if content else []
            assert [tuple(entry) for entry in reopened.leader_epochs.entries] == expected, content
            assert values_of(reopened) == ["a", "a"]


class TestProducers:
    def test_a_log_of_an_old_format_needs_no_reading(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = LogConfig(message_format_version="0.10.2")
        log = open_log(tmp_path, config)
        append(log, "a")
        log.close()
        replayed: list[object] = []
        monkeypatch.setattr(
            "minibroker.storage.producers.producer_state.ProducerStateManager.replay", lambda *a: replayed.append(a)
        )

        open_log(tmp_path, config, is_after_clean_stop=True)

        assert replayed == []
