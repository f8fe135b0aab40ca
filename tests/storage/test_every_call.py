"""Every call that storage makes of the system fails once, in each way: nothing that was acknowledged is lost, nothing
that failed comes back, and the broker goes on as far as it may.

A life is a fixed list of steps of one data directory. It is lived once for each call and each way to fail. An append
that failed has changed nothing. Any other step that failed may have taken effect or not. At the end the directory is
opened as after a kill, and once more after a clean stop.

The same life ends at each call: then the directory has what it had before the step that was cut off, or after it.

And with flush.messages=1 a life with stops and starts ends at each call by a power failure: what its disk has of each
sector and name that was not synced is drawn.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.simulation.world import Died, Process
from minibroker.storage.config import LogConfig
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files import disk
from minibroker.storage.files.storage_errors import LogDirectoryError, map_storage_errors
from minibroker.storage.log.log import Log
from tests.storage.cleaning import clean, commit
from tests.storage.crashes import CrashError, crashes
from tests.storage.logs import NOW_MS, batch_of, end_transaction, records_of, send, send_transactional
from tests.storage.managers import ORDERS, crash, opened
from tests.storage.simulated_disk import simulated_disk

pytestmark = pytest.mark.slow

CALLS = (
    "open_file pread pwrite ftruncate truncate fstat fsync fdatasync fallocate stat listdir rename replace mkdir "
    "makedirs rmdir remove map_file utime copy_file"
).split()
COMPACTED, DELETED = TopicPartition("compacted", 0), TopicPartition("deleted", 0)
CONFIG = replace(LogConfig(), index_interval_bytes=0, segment_bytes=400, file_delete_delay_ms=0)
KEPT_MS = 10_000
LATER_MS = NOW_MS + 2 * KEPT_MS
Contents = list[tuple[int, bytes | None]]  # offset and value of each record


class Calls:
    """Counts the calls; the one with `number` fails in a way."""

    def __init__(self, number: int, way: str) -> None:
        self.number = number
        self.way = way
        self.count = 0
        self.failed = ""
        self.is_observed = False  # by the test, whose own calls do not count

    def standing_in(self, name: str) -> Callable[..., object]:
        real = getattr(disk, name)

        def call(*arguments: object, **options: object) -> object:
            self.count += not self.is_observed
            if self.is_observed or self.count != self.number:
                return real(*arguments, **options)
            self.failed = name
            if self.way == "short":
                fd, data, position = arguments
                assert isinstance(data, bytes | bytearray | memoryview)
                return real(fd, bytes(data[: len(data) // 2]), position)
            code = getattr(errno, self.way)
            raise OSError(code, os.strerror(code))

        return call


@contextmanager
def failing_call(number: int, way: str) -> Iterator[Calls]:
    calls = Calls(number, way)
    names = ["pwrite"] if way == "short" else CALLS
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(disk, name, calls.standing_in(name))
        yield calls


class Life:
    """A data directory with what is acknowledged of it."""

    def __init__(self, directory: Path, calls: Calls) -> None:
        self.directory = directory
        self.calls = calls
        self.manager: LogManager | None = None
        self.acknowledged: dict[TopicPartition, Contents] = {}
        self.is_dead = False
        self.is_unsure = False  # whether a last step that removes records took effect

    def live(self, steps: list[Callable[[Life], None]]) -> None:
        for step in steps:
            if self.manager is not None and self.manager.is_offline:
                return
            try:
                step(self)
            except (OSError, KafkaError, LogDirectoryError):
                continue

    def log(self, topic_partition: TopicPartition = ORDERS) -> Log:
        assert self.manager is not None
        return self.manager.get_or_create_log(topic_partition, now_ms=NOW_MS)

    def observe(self, log: Log) -> Contents:
        self.calls.is_observed = True
        try:
            return contents(log)
        finally:
            self.calls.is_observed = False


def contents(log: Log) -> Contents:
    return [(record.offset, record.value) for record in records_of(log)]


# -- steps ----------------------------------------------------------------------------------------------------------


def open_directory(life: Life) -> None:
    """Try again after a failed start, as its operator would."""
    try:
        life.manager = opened(life.directory, CONFIG, retention_ms=str(KEPT_MS))
    except LogDirectoryError:
        life.manager = opened(life.directory, CONFIG, retention_ms=str(KEPT_MS))


def append(topic_partition: TopicPartition, write: Callable[[Log], object]) -> Callable[[Life], None]:
    """Append as ReplicaManager does. A failed append leaves the log as it was."""

    def step(life: Life) -> None:
        log = life.log(topic_partition)
        known = life.acknowledged.setdefault(topic_partition, [])
        try:
            with map_storage_errors(life.manager):
                write(log)
        except KafkaError:
            assert log.is_refusing or life.observe(log) == known
            raise
        commit(log)
        known[:] = life.observe(log)

    return step


def either(topic_partition: TopicPartition, change: Callable[[Life, Log], object]) -> Callable[[Life], None]:
    """Take a step that removes records: a failed one may have removed them."""

    def step(life: Life) -> None:
        log = life.log(topic_partition)
        try:
            with map_storage_errors(life.manager):
                change(life, log)
        except CrashError:
            life.is_dead = True
            raise
        finally:
            if life.is_dead:
                pass
            elif log.is_refusing:
                life.is_unsure = True
            else:
                now = life.observe(log)
                assert set(now) <= set(life.acknowledged.get(topic_partition, ()))
                life.acknowledged[topic_partition] = now

    return step


def keep_up(life: Life) -> None:
    """Do the work that a broker does by the clock."""
    manager = life.manager
    assert manager is not None
    manager.flush_dirty_logs(LATER_MS)
    for prepare in (
        manager.checkpoint_recovery_points,
        manager.checkpoint_log_start_offsets,
        manager.checkpoint_cleaner_offsets,
        lambda: partial(manager.write_high_watermarks, {key: log.high_watermark for key, log in manager.logs.items()}),
    ):
        with map_storage_errors(manager):
            prepare()()


def delete_old(life: Life, log: Log) -> None:
    assert life.manager is not None
    life.manager.cleanup_logs(LATER_MS)
    life.manager.take_due_deletions(LATER_MS).run()


def delete_topic(life: Life) -> None:
    manager = life.manager
    assert manager is not None
    with map_storage_errors(manager):
        manager.delete_log(DELETED)
        life.acknowledged.pop(DELETED, None)
        manager.take_due_deletions(LATER_MS).run()


def truncate(life: Life, log: Log) -> None:
    assert life.manager is not None
    life.manager.truncate_log(log, log.log_end_offset - 7, now_ms=NOW_MS)


def begin_anew(life: Life, log: Log) -> None:
    assert life.manager is not None
    life.manager.begin_log_anew(log, log.log_end_offset + 3, now_ms=NOW_MS)


def sent(value: str, **options: Any) -> Callable[[Log], object]:
    return lambda log: send(log, batch_of([value], **options))


def numbered(first: int, count: int = 4) -> list[Callable[[Log], object]]:
    return [sent(f"value {first + each}") for each in range(count)]


STEPS: list[Callable[[Life], None]] = [
    open_directory,
    *(append(ORDERS, write) for write in numbered(0)),
    append(ORDERS, sent("old", timestamp_ms=NOW_MS - 1)),
    append(ORDERS, lambda log: send_transactional(log, 7, 0, "aborted")),
    append(ORDERS, lambda log: end_transaction(log, 7, is_commit=False)),
    append(ORDERS, lambda log: log.roll(NOW_MS)),
    append(DELETED, sent("gone")),
    *(append(COMPACTED, write) for write in numbered(0, 3)),
    append(COMPACTED, lambda log: log.roll(NOW_MS)),
    keep_up,
    *(append(ORDERS, write) for write in numbered(10, 8)),
    either(ORDERS, truncate),
    either(COMPACTED, lambda life, log: clean(log)),
    either(ORDERS, delete_old),
    delete_topic,
    append(DELETED, sent("anew")),
    *(append(ORDERS, write) for write in numbered(20, 2)),
    either(COMPACTED, begin_anew),
    *(append(COMPACTED, write) for write in numbered(20, 2)),
    keep_up,
]


# -- tests ----------------------------------------------------------------------------------------------------------


def check_again(life: Life, directory: Path) -> None:
    """Open the directory anew: what was acknowledged is there, and nothing else, and it takes an append."""
    manager = opened(directory, CONFIG)
    for topic_partition, known in life.acknowledged.items():
        log = manager.get_or_create_log(topic_partition, now_ms=NOW_MS)
        found = contents(log)
        assert found == known or (life.is_unsure and set(found) <= set(known)), topic_partition
        end_offset = log.log_end_offset
        assert send(log, batch_of(["next"])).first_offset == end_offset
    crash(manager)


def lives(tmp_path: Path, way: str, step: int) -> Iterator[tuple[Life, Calls]]:
    """Live once for each call, or for one in so many, until all have failed."""
    for number in range(1, 10_000, step):
        with failing_call(number, way) as calls:
            life = Life(tmp_path / str(number), calls)
            life.live(STEPS)
        if not calls.failed:
            assert number > (20 if way == "short" else 200)
            return
        yield life, calls


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("way", ["ENOSPC", "EIO", "EMFILE", "short"])
def test_a_call_that_fails_once_loses_nothing_and_brings_nothing_back(tmp_path: Path, way: str, step: int) -> None:
    for life, calls in lives(tmp_path, way, step):
        try:
            killed = tmp_path / "killed"
            shutil.copytree(life.directory, killed)
            check_again(life, killed)
            if life.manager is not None:
                life.manager.close()
                check_again(life, life.directory)
        except BaseException as error:
            error.add_note(f"call {calls.number}, {calls.failed}, failed once with {way}")
            raise
        shutil.rmtree(killed)
        shutil.rmtree(life.directory)


def told(life: Life) -> dict[TopicPartition, set[tuple[int, bytes | None]]]:
    """The acknowledged records of a life, which goes on."""
    return {each: set(known) for each, known in life.acknowledged.items()}


def test_a_process_that_dies_after_any_call_has_done_its_last_step_or_not(tmp_path: Path) -> None:
    whole = Life(tmp_path / "whole", Calls(0, ""))
    stages = [told(whole)]
    for each in STEPS:
        whole.live([each])
        stages.append(told(whole))
    deaths = 0
    for number in range(10_000):
        life = Life(tmp_path / str(number), Calls(0, ""))
        done: list[Callable[[Life], None]] = []

        def live(life: Life = life, done: list[Callable[[Life], None]] = done) -> None:
            for each in STEPS:
                life.live([each])
                done.append(each)

        if not crashes(live, number):
            break
        deaths += 1
        killed = tmp_path / "killed"
        shutil.copytree(life.directory, killed)
        before, after = stages[len(done)], stages[len(done) + 1]
        manager = opened(killed, CONFIG)
        for topic_partition in before.keys() | after.keys():
            log = manager.get_or_create_log(topic_partition, now_ms=NOW_MS)
            found = contents(log)
            known = before.get(topic_partition, set()), after.get(topic_partition, set())
            assert known[0] & known[1] <= set(found) <= known[0] | known[1], (number, len(done), topic_partition)
            assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
        crash(manager)
        shutil.rmtree(killed)
        shutil.rmtree(life.directory)
    assert deaths > 200


# -- with its power -------------------------------------------------------------------------------------------------


def flushed(write: Callable[[Log], object]) -> Callable[[Life], None]:
    """Append with flush.messages=1; it is acknowledged once it is flushed."""

    def step(life: Life) -> None:
        log = life.log()
        write(log)
        log.flush()
        commit(log)
        life.acknowledged[ORDERS] = contents(log)

    return step


def restart(life: Life) -> None:
    assert life.manager is not None
    life.manager.close()
    open_directory(life)


def expire(life: Life) -> None:
    """Delete all segments but the active one: what producers wrote last is only in a snapshot from then on."""
    log = life.log()
    log.roll(NOW_MS)
    log.maybe_increment_log_start_offset(log.log_end_offset)
    log.delete_old_segments(NOW_MS)
    log.flush()
    keep_up(life)
    life.acknowledged[ORDERS] = []


def aborted(producer_id: int) -> list[Callable[[Life], None]]:
    return [
        flushed(lambda log: send_transactional(log, producer_id, 0, "aborted")),
        flushed(lambda log: end_transaction(log, producer_id, is_commit=False)),
    ]


POWERED: list[Callable[[Life], None]] = [
    open_directory,
    *aborted(7),
    restart,
    *aborted(8),
    flushed(lambda log: log.roll(NOW_MS)),
    *aborted(9),
    keep_up,
    restart,
    restart,
    flushed(sent("last")),
    expire,
    flushed(sent("after")),
]


class Known(NamedTuple):
    records: set[tuple[int, bytes | None]]
    aborted: set[int]  # the producers of transactions that read_committed leaves out
    producers: dict[int, int]  # the epoch of each

    @classmethod
    def of(cls, log: Log) -> Known:
        found = log.segments.collect_aborted_txns(log.log_start_offset, log.log_end_offset, 0)
        producers = {key: entry.epoch for key, entry in log.producer_state.producers_and_remembered.items()}
        return cls(set(contents(log)), {each.producer_id for each in found}, producers)


def live_and_lose_power(number: int, seed: int) -> tuple[int, Known] | None:
    """Live until a call, and lose power; return how many steps were done, and what is there. None after the end."""
    config = replace(CONFIG, flush_messages=1)
    with simulated_disk(seed) as (world, memory):
        process = Process("broker")
        process.crash_after(number)
        world.current = process
        life, done = Life(Path("/1/data"), Calls(0, "")), 0
        try:
            for step in POWERED:
                step(life)
                done += 1
            return None
        except Died:
            memory.lose_power("1", Random(f"{seed} {number}"))
        world.current = Process("broker, later")
        manager = opened(life.directory, config)
        try:
            return done, Known.of(manager.get_or_create_log(ORDERS, now_ms=NOW_MS))
        finally:
            manager.close()


@pytest.mark.parametrize("seeds", [1, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_power_failure_after_any_call_loses_nothing_that_was_flushed(seeds: int) -> None:
    stages = [Known(set(), set(), {})]
    with simulated_disk(0) as (world, _):
        world.current = Process("broker")
        whole = Life(Path("/1/data"), Calls(0, ""))
        for step in POWERED:
            step(whole)
            stages.append(Known.of(whole.log()))
    for seed in range(seeds):
        number = 1
        while (lived := live_and_lose_power(number, seed)) is not None:
            done, found = lived
            before, after = stages[done], stages[done + 1]
            where = f"seed {seed}, call {number}, in step {done}"
            assert before.records & after.records <= found.records <= before.records | after.records, where
            assert before.aborted & after.aborted <= found.aborted <= before.aborted | after.aborted, where
            assert before.producers.items() & after.producers.items() <= found.producers.items(), where
            number += 1
        assert number > 200
