"""Upkeep beside requests, and its threads: files, maps, the disk, and compaction."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.broker.upkeep.upkeep import IDLE_MAPS_INTERVAL_MS, Upkeep
from minibroker.storage.compaction.log_cleaner import LogCleaning
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files.records_file import RecordsFile
from minibroker.storage.log.log import Log
from tests.broker.conftest import FixedClock
from tests.broker.waiting import until
from tests.storage.cleaning import COMPACTED, config_of, put, roll, survivors
from tests.storage.logs import NOW_MS, append, batch_of, names_in, segment_bases, send
from tests.storage.managers import CONFIG, ORDERS, OTHERS, log_in, opened

pytestmark = pytest.mark.time_jumps

CHECKPOINT = "cleaner-offset-checkpoint"
Compact = Callable[..., None]
KeepUp = Callable[..., None]


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    return opened(tmp_path / "data", COMPACTED)


def compaction_of(manager: LogManager, **settings: object) -> Compaction:
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return Compaction(KafkaConfig({"log.dirs": str(manager.log_dir), **given}), manager, FixedClock())


@pytest.fixture
def compact(manager: LogManager, nursery: trio.Nursery) -> Compact:
    """Start the compaction of `manager`, with settings given as keywords."""
    return lambda **settings: nursery.start_soon(compaction_of(manager, **settings).run)


def dirty(log: Log) -> Log:
    put(log, ("a", "1"), ("a", "2"))
    roll(log)
    return log


async def test_dirty_logs_are_compacted_and_a_checkpoint_is_written(manager: LogManager, compact: Compact) -> None:
    log, other = dirty(log_in(manager)), dirty(log_in(manager, OTHERS))

    compact(log_cleaner_backoff_ms=60_000)
    await until(lambda: (manager.log_dir / CHECKPOINT).exists() and other.cleaned_offset is not None)

    assert survivors(log) == survivors(other) == [(1, "a", "2")]
    assert log.cleaned_offset == 2
    assert not log.is_being_cleaned
    dirty(log)
    await until(lambda: log.cleaned_offset == 4)
    assert survivors(log) == [(3, "a", "2")]


async def test_log_cleaner_enable_false_compacts_nothing(manager: LogManager) -> None:
    log = dirty(log_in(manager))

    await compaction_of(manager, log_cleaner_enable="false").run()

    assert log.cleaned_offset is None


async def test_a_log_that_cannot_be_compacted_keeps_no_other_from_it(
    manager: LogManager, compact: Compact, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = dirty(log_in(manager)), dirty(log_in(manager, OTHERS))
    with bad.segments.first.path.open("r+b") as file:
        file.seek(65)
        file.write(b"\xff")

    compact()
    await until(lambda: good.cleaned_offset is not None)
    await trio.sleep(100)

    assert (bad.cleaned_offset, segment_bases(bad)) == (None, [0, 2])
    assert not manager.is_offline
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


async def test_a_full_disk_is_tried_again_and_a_broken_one_is_offline(
    manager: LogManager, compact: Compact, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = dirty(log_in(manager))
    failures = [errno.ENOSPC, errno.ENOSPC]
    real = LogCleaning._copy

    def failing(self: LogCleaning, group: list[object]) -> None:
        if failures:
            raise OSError(failures[0], os.strerror(failures.pop(0)))
        real(self, group)  # type: ignore[arg-type]

    monkeypatch.setattr(LogCleaning, "_copy", failing)
    compact()
    await until(lambda: log.cleaned_offset is not None)
    assert not manager.is_offline

    failures.append(errno.EIO)
    dirty(log)
    await until(lambda: manager.is_offline)


async def test_a_directory_that_fails_elsewhere_while_a_log_is_compacted_ends_nothing(
    manager: LogManager, compact: Compact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails between the last step and the checkpoint."""
    dirty(log_in(manager))
    monkeypatch.setattr(Compaction, "_count", lambda self, stats: manager.go_offline("a test"))
    compact()
    await until(lambda: manager.is_offline)
    await trio.sleep(100)

    assert not (manager.log_dir / CHECKPOINT).exists()


async def test_a_topic_deleted_while_it_is_compacted_is_no_error(
    manager: LogManager, compact: Compact, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dirty(log_in(manager))
    real = LogCleaning._copy

    def deleted_under_its_hands(self: LogCleaning, group: list[object]) -> None:
        trio.from_thread.run_sync(manager.delete_log, ORDERS)
        real(self, group)  # type: ignore[arg-type]

    monkeypatch.setattr(LogCleaning, "_copy", deleted_under_its_hands)
    compact()
    await until(lambda: manager.logs.get(ORDERS) is None)
    await trio.sleep(100)

    assert not manager.is_offline
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_stopping_ends_the_thread_at_its_next_breath(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    log = dirty(log_in(manager))
    began, is_over = threading.Event(), threading.Event()

    def endless(self: LogCleaning) -> None:
        began.set()
        try:
            while True:
                self._pace.yield_gil()
        finally:
            is_over.set()

    monkeypatch.setattr(LogCleaning, "_fill_offset_map", endless)
    async with trio.open_nursery() as inner:
        inner.start_soon(compaction_of(manager).run)
        await trio.to_thread.run_sync(began.wait)
        inner.cancel_scope.cancel()

    assert is_over.is_set()
    assert (log.cleaned_offset, log.is_being_cleaned) == (None, False)


async def test_compact_and_delete_deletes_without_waiting_for_the_retention_check(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    config = config_of(cleanup_policy=("compact", "delete"), retention_ms=1000)
    manager = opened(tmp_path / "data", config)
    log = dirty(log_in(manager))

    nursery.start_soon(compaction_of(manager, log_cleaner_backoff_ms=10).run)
    await until(lambda: segment_bases(log) == [2])

    assert log.log_start_offset == 2


@pytest.fixture
def plain_manager(tmp_path: Path) -> LogManager:
    return opened(tmp_path / "data", CONFIG)


@pytest.fixture
def keep_up(plain_manager: LogManager, nursery: trio.Nursery) -> KeepUp:
    """Start the upkeep of `plain_manager`, with an action for every second."""

    def start(action: Callable[[], Any] | None = None) -> None:
        upkeep = Upkeep(KafkaConfig({"log.dirs": str(plain_manager.log_dir)}), plain_manager, FixedClock())
        if action is not None:
            upkeep.every(1000, action)
        nursery.start_soon(upkeep.run)

    return start


@pytest.mark.pure
async def test_files_are_removed_and_closed_in_a_thread(
    plain_manager: LogManager, keep_up: KeepUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_in(plain_manager)
    append(log, "a")
    log.roll(NOW_MS)
    append(log, "b")
    log.update_high_watermark(2)
    log.maybe_increment_log_start_offset(1)
    log.delete_old_segments(NOW_MS)
    done_by: list[tuple[str, bool]] = []
    remove, close = RecordsFile.delete, RecordsFile.__del__

    def note(action: str, file: RecordsFile) -> None:
        # Python may collect files of earlier tests here.
        if file.path.parent == log.directory and file.path.name.endswith(".deleted"):
            done_by.append((action, threading.current_thread() is threading.main_thread()))

    def removed(file: RecordsFile) -> None:
        note("removed", file)
        remove(file)

    def closed(file: RecordsFile) -> None:
        note("closed", file)
        close(file)

    monkeypatch.setattr(RecordsFile, "delete", removed)
    monkeypatch.setattr(RecordsFile, "__del__", closed)
    keep_up()

    await until(lambda: len(done_by) == 2)

    assert done_by == [("removed", False), ("closed", False)]
    assert not [name for name in names_in(log.directory) if name.endswith(".deleted")]


async def test_maps_of_sealed_segments_are_given_back(plain_manager: LogManager, keep_up: KeepUp) -> None:
    log = log_in(plain_manager)
    for number in range(30):
        append(log, "x" * 5000, timestamp_ms=NOW_MS + number)
    log.roll(NOW_MS)
    append(log, "last")
    log.fetch_offset_by_timestamp(NOW_MS + 15)
    sealed = log.segments.first
    assert sealed.offset_index.is_mapped
    assert sealed.records._map is not None

    keep_up()
    await trio.sleep(IDLE_MAPS_INTERVAL_MS / 1000 + 1)

    assert not sealed.offset_index.is_mapped
    assert not sealed.time_index.is_mapped
    assert sealed.records._map is None
    assert log.fetch_offset_by_timestamp(NOW_MS + 15) == (NOW_MS + 15, 15)


async def test_idle_producers_are_forgotten_every_ten_minutes_whatever_the_interval_of_retention(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    manager = LogManager(tmp_path / "data", default_config=CONFIG, broker_id=0, producer_expiration_ms=1000)
    manager.load(NOW_MS)
    log = log_in(manager)
    send(log, batch_of(["a"], producer_id=1, sequence=0))
    clock = FixedClock()
    clock.wall_now_ms = NOW_MS + 1000
    config = KafkaConfig({"log.dirs": str(manager.log_dir), "log.retention.check.interval.ms": "60000"})
    nursery.start_soon(Upkeep(config, manager, clock).run)

    await trio.sleep(599)
    assert set(log.producer_state.producers) == {1}
    await trio.sleep(2)
    assert not log.producer_state.producers


async def test_an_action_runs_on_the_loop_and_its_rest_in_a_thread(keep_up: KeepUp) -> None:
    here = threading.current_thread()
    seen: list[bool] = []

    def action() -> object:
        seen.append(threading.current_thread() is here)
        return lambda: seen.append(threading.current_thread() is here)

    keep_up(action)
    await until(lambda: len(seen) >= 2)

    assert seen[:2] == [True, False]


async def test_an_offline_directory_is_left_alone_and_ends_nothing(plain_manager: LogManager, keep_up: KeepUp) -> None:
    append(log_in(plain_manager), "a")
    keep_up()
    await trio.sleep(1)

    plain_manager.go_offline("a test")
    await trio.sleep(1000)

    assert not (plain_manager.log_dir / "recovery-point-offset-checkpoint").exists()


async def test_an_error_of_the_disk_takes_the_directory_offline(plain_manager: LogManager, keep_up: KeepUp) -> None:
    def broken() -> None:
        raise OSError(5, "input/output error")

    keep_up(lambda: broken)

    await until(lambda: plain_manager.is_offline)
