"""What is looked after while nobody asks, and on which thread."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.upkeep.upkeep import IDLE_MAPS_INTERVAL_MS, Upkeep
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files.records_file import RecordsFile
from tests.broker.conftest import FixedClock
from tests.broker.waiting import until
from tests.storage.logs import NOW_MS, append, names_in
from tests.storage.managers import CONFIG, log_in, opened


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    return opened(tmp_path / "data", CONFIG)


def upkeep_of(manager: LogManager) -> tuple[Upkeep, FixedClock]:
    clock = FixedClock()
    return Upkeep(KafkaConfig({"log.dirs": str(manager.log_dir)}), manager, clock), clock


async def test_files_are_removed_and_closed_in_a_thread(
    manager: LogManager, nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_in(manager)
    append(log, "a")
    log.roll(NOW_MS)
    append(log, "b")
    log.update_high_watermark(2)
    log.maybe_increment_log_start_offset(1)
    log.delete_old_segments(NOW_MS)
    done_by: list[tuple[str, bool]] = []
    remove, close = RecordsFile.delete, RecordsFile.__del__

    def note(action: str, file: RecordsFile) -> None:
        if file.path.name.endswith(".deleted"):
            done_by.append((action, threading.current_thread() is threading.main_thread()))

    def removed(file: RecordsFile) -> None:
        note("removed", file)
        remove(file)

    def closed(file: RecordsFile) -> None:
        note("closed", file)
        close(file)

    monkeypatch.setattr(RecordsFile, "delete", removed)
    monkeypatch.setattr(RecordsFile, "__del__", closed)
    upkeep, _ = upkeep_of(manager)
    nursery.start_soon(upkeep.run)

    await until(lambda: len(done_by) == 2)

    assert done_by == [("removed", False), ("closed", False)]
    assert not [name for name in names_in(log.directory) if name.endswith(".deleted")]


async def test_maps_of_what_is_no_longer_written_are_given_back(
    manager: LogManager, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    log = log_in(manager)
    for number in range(30):
        append(log, "x" * 5000, timestamp_ms=NOW_MS + number)
    log.roll(NOW_MS)
    append(log, "last")
    log.fetch_offset_by_timestamp(NOW_MS + 15)
    sealed = log.segments.first
    assert sealed.offset_index.is_mapped
    assert sealed.records._map is not None

    upkeep, _ = upkeep_of(manager)
    nursery.start_soon(upkeep.run)
    await trio.sleep(IDLE_MAPS_INTERVAL_MS / 1000 + 1)

    assert not sealed.offset_index.is_mapped
    assert not sealed.time_index.is_mapped
    assert sealed.records._map is None
    assert log.fetch_offset_by_timestamp(NOW_MS + 15) == (NOW_MS + 15, 15)


async def test_an_action_runs_on_the_loop_and_what_it_returns_in_a_thread(
    manager: LogManager, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    here = threading.current_thread()
    seen: list[bool] = []

    def action() -> object:
        seen.append(threading.current_thread() is here)
        return lambda: seen.append(threading.current_thread() is here)

    upkeep, _ = upkeep_of(manager)
    upkeep.every(1000, action)  # type: ignore[arg-type]
    nursery.start_soon(upkeep.run)
    await until(lambda: len(seen) >= 2)

    assert seen[:2] == [True, False]


async def test_an_offline_directory_is_left_alone_and_ends_nothing(
    manager: LogManager, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    append(log_in(manager), "a")
    upkeep, _ = upkeep_of(manager)
    nursery.start_soon(upkeep.run)
    await trio.sleep(1)

    manager.go_offline("a test")
    await trio.sleep(1000)

    assert not (manager.log_dir / "recovery-point-offset-checkpoint").exists()


async def test_an_error_of_the_disk_takes_the_directory_offline(
    manager: LogManager, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    def broken() -> None:
        raise OSError(5, "input/output error")

    upkeep, _ = upkeep_of(manager)
    upkeep.every(1000, lambda: broken)
    nursery.start_soon(upkeep.run)

    await until(lambda: manager.is_offline)
