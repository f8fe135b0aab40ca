"""The task that compacts: what it does after each outcome, and how it ends."""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.storage.compaction.log_cleaner import LogCleaning
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.log.log import Log
from tests.broker.conftest import FixedClock
from tests.broker.waiting import until
from tests.storage.cleaning import COMPACTED, config_of, put, roll, survivors
from tests.storage.logs import segment_bases
from tests.storage.managers import ORDERS, OTHERS, log_in, opened

CHECKPOINT = "cleaner-offset-checkpoint"


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    return opened(tmp_path / "data", COMPACTED)


def compaction_of(manager: LogManager, **settings: object) -> Compaction:
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return Compaction(KafkaConfig({"log.dirs": str(manager.log_dir), **given}), manager, FixedClock())


def dirty(log: Log) -> Log:
    put(log, ("a", "1"), ("a", "2"))
    roll(log)
    return log


async def test_what_is_dirty_is_compacted_and_written_down(
    manager: LogManager, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    log, other = dirty(log_in(manager)), dirty(log_in(manager, OTHERS))

    nursery.start_soon(compaction_of(manager).run)
    await until(lambda: (manager.log_dir / CHECKPOINT).exists() and other.cleaned_offset is not None)

    assert survivors(log) == survivors(other) == [(1, "a", "2")]
    assert log.cleaned_offset == 2
    assert not log.is_being_cleaned


async def test_what_becomes_dirty_later_is_compacted_too(
    manager: LogManager, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    log = dirty(log_in(manager))
    nursery.start_soon(compaction_of(manager, log_cleaner_backoff_ms=60_000).run)
    await until(lambda: log.cleaned_offset == 2)

    dirty(log)
    await until(lambda: log.cleaned_offset == 4)

    assert survivors(log) == [(3, "a", "2")]


async def test_log_cleaner_enable_false_compacts_nothing(manager: LogManager) -> None:
    log = dirty(log_in(manager))

    await compaction_of(manager, log_cleaner_enable="false").run()

    assert log.cleaned_offset is None


async def test_a_log_that_cannot_be_compacted_keeps_no_other_from_it(
    manager: LogManager, nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = dirty(log_in(manager)), dirty(log_in(manager, OTHERS))
    with bad.segments.first.path.open("r+b") as file:
        file.seek(65)
        file.write(b"\xff")

    nursery.start_soon(compaction_of(manager).run)
    await until(lambda: good.cleaned_offset is not None)
    await trio.sleep(100)

    assert (bad.cleaned_offset, segment_bases(bad)) == (None, [0, 2])
    assert not manager.is_offline
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


async def test_a_full_disk_is_tried_again_and_a_broken_one_is_offline(
    manager: LogManager, nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = dirty(log_in(manager))
    failures = [errno.ENOSPC, errno.ENOSPC]
    real = LogCleaning._copy

    def failing(self: LogCleaning, group: list[object]) -> None:
        if failures:
            raise OSError(failures[0], os.strerror(failures.pop(0)))
        real(self, group)  # type: ignore[arg-type]

    monkeypatch.setattr(LogCleaning, "_copy", failing)
    nursery.start_soon(compaction_of(manager).run)
    await until(lambda: log.cleaned_offset is not None)
    assert not manager.is_offline

    failures.append(errno.EIO)
    dirty(log)
    await until(lambda: manager.is_offline)


async def test_a_topic_deleted_while_it_is_compacted_is_no_error(
    manager: LogManager,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dirty(log_in(manager))
    real = LogCleaning._copy

    def deleted_under_its_hands(self: LogCleaning, group: list[object]) -> None:
        trio.from_thread.run_sync(manager.delete_log, ORDERS)
        real(self, group)  # type: ignore[arg-type]

    monkeypatch.setattr(LogCleaning, "_copy", deleted_under_its_hands)
    nursery.start_soon(compaction_of(manager).run)
    await until(lambda: manager.get_log(ORDERS) is None)
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
    with trio.fail_after(5):
        async with trio.open_nursery() as inner:
            inner.start_soon(compaction_of(manager).run)
            await trio.to_thread.run_sync(began.wait)
            inner.cancel_scope.cancel()

    assert is_over.is_set()
    assert (log.cleaned_offset, log.is_being_cleaned) == (None, False)


async def test_compact_and_delete_deletes_without_waiting_for_the_retention_check(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    config = config_of(cleanup_policy=("compact", "delete"), retention_ms=1000)
    manager = opened(tmp_path / "data", config)
    log = dirty(log_in(manager))

    nursery.start_soon(compaction_of(manager, log_cleaner_backoff_ms=10).run)
    await until(lambda: segment_bases(log) == [2])

    assert log.log_start_offset == 2
