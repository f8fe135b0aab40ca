"""Every byte at which a write can be torn, and every bit that can flip: what is served is always a prefix.

The logs have a few small batches, so that each position can be tried; each trial opens a copy of the directory.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from minibroker.protocol.compression import Codec
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import RECORD_BATCH_OVERHEAD, build_batch
from minibroker.storage.config import LogConfig
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.log.log import Log
from tests.storage.crashes import crashes
from tests.storage.logs import (
    NOW_MS,
    PARTITION,
    append,
    batch_of,
    batches_of,
    end_transaction,
    open_log,
    records_of,
    send,
    send_transactional,
    values_of,
)

CONFIG = LogConfig(index_interval_bytes=0)
LOG, INDEX, TIME_INDEX = (f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))

pytestmark = pytest.mark.slow


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is such a place: thousands of directories are made here."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as path:
        yield Path(path)


class Trials:
    """A directory to be damaged again and again."""

    def __init__(self, original: Path) -> None:
        self._original = original
        self._number = 0

    def copies(self, name: str, contents: Iterator[bytes]) -> Iterator[tuple[bytes, Path]]:
        """Yield copies of the directory in which the file has each of these contents."""
        for content in contents:
            copy = self._original.with_name(f"trial{self._number}")
            self._number += 1
            shutil.copytree(self._original, copy)
            (copy / name).write_bytes(content)
            yield content, copy
            shutil.rmtree(copy)


def torn(path: Path, since: int = 0) -> Iterator[bytes]:
    """Yield the file cut at every byte from `since` on, then with zeros where the rest was."""
    data = path.read_bytes()
    for size in range(since, len(data)):
        yield data[:size]
    for size in range(since, len(data)):
        yield data[:size] + bytes(len(data) - size)


def mixed_log(directory: Path) -> list[int]:
    """Write batches of each kind; return where each begins in the file, and the end."""
    log = open_log(directory, CONFIG)
    positions: list[int] = []
    sends: list[Callable[[], object]] = [
        lambda: append(log, "plain"),
        lambda: send(log, batch_of(["idempotent"], producer_id=1, sequence=0)),
        lambda: send_transactional(log, 2, 0, "transactional"),
        lambda: end_transaction(log, 2, is_commit=False),
        lambda: send(log, build_batch([Record(0, NOW_MS + 1, b"k", b"zipped")] * 1, codec=Codec.GZIP)),
        lambda: append(log, "last", "batch", timestamp_ms=NOW_MS + 2),
    ]
    for sent in sends:
        positions.append(log.size_bytes)
        sent()
    return [*positions, log.size_bytes]


def assert_goes_on(log: Log) -> None:
    """The log takes an append at its end, and serves it."""
    end_offset = log.log_end_offset
    assert append(log, "next").first_offset == end_offset
    assert records_of(log)[-1].value == b"next"


class TestTornWrites:
    def test_of_a_log_the_whole_batches_before_the_tear_are_left(self, tmp_path: Path) -> None:
        directory = tmp_path / "log"
        positions = mixed_log(directory)
        whole = records_of(open_log(directory, CONFIG))
        last_three = positions[-4]

        tried = 0
        for content, copy in Trials(directory).copies(LOG, torn(directory / LOG, last_three)):
            log = open_log(copy, CONFIG)
            kept = len([end for end in positions[1:] if end <= len(content.rstrip(b"\0"))])

            assert len(batches_of(log)) in (kept, kept + 1)  # the last may end in zeros of its own
            assert log.size_bytes == positions[len(batches_of(log))]
            assert records_of(log) == whole[: len(records_of(log))]
            assert_goes_on(log)
            tried += 1
        assert tried == 2 * (positions[-1] - last_three) > 300

    @pytest.mark.parametrize("magic", [0, 1])
    def test_of_a_log_of_an_old_format_too(self, tmp_path: Path, magic: int) -> None:
        config = replace(CONFIG, message_format_version=("0.9.0", "0.10.2")[magic])
        directory = tmp_path / "log"
        log = open_log(directory, config)
        for number in range(4):
            codec = Codec.GZIP if number % 2 else Codec.NONE
            send(log, build_message_set([Record(0, NOW_MS, None, b"v%d" % number)], magic=magic, codec=codec))
        whole, first_size = records_of(log), batches_of(log)[0].size_bytes

        for _, copy in Trials(directory).copies(LOG, torn(directory / LOG, first_size)):
            log = open_log(copy, config)

            assert 1 <= len(records_of(log)) <= 4
            assert records_of(log) == whole[: len(records_of(log))]
            assert_goes_on(log)

    @pytest.mark.parametrize("is_after_clean_stop", [True, False])
    @pytest.mark.parametrize("name", [INDEX, TIME_INDEX])
    def test_of_an_index_nothing_is_lost(self, tmp_path: Path, name: str, is_after_clean_stop: bool) -> None:
        directory = tmp_path / "log"
        mixed_log(directory)
        log = open_log(directory, CONFIG)
        whole = records_of(log)
        log.close()

        for _, copy in Trials(directory).copies(name, torn(directory / name)):
            # The recovery point says that all of it was fsynced: the index is what must be noticed.
            log = open_log(copy, CONFIG, recovery_point=7, is_after_clean_stop=is_after_clean_stop)

            assert records_of(log) == whole
            assert log.fetch_offset_by_timestamp(NOW_MS + 1) == (NOW_MS + 1, 4)
            assert log.fetch_offset_by_timestamp(NOW_MS + 2) == (NOW_MS + 2, 5)
            assert_goes_on(log)

    def test_of_a_snapshot_producers_are_still_known(self, tmp_path: Path) -> None:
        directory = tmp_path / "log"
        mixed_log(directory)
        open_log(directory, CONFIG).close()
        name = f"{7:020d}.snapshot"

        for _, copy in Trials(directory).copies(name, torn(directory / name)):
            log = open_log(copy, CONFIG, recovery_point=7)

            assert send(log, batch_of(["idempotent"], producer_id=1, sequence=0)).is_duplicate
            assert send(log, batch_of(["more"], producer_id=1, sequence=1)).first_offset == 7

    @pytest.mark.parametrize(
        "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"]
    )
    def test_of_a_checkpoint_every_record_is_still_served(self, tmp_path: Path, name: str) -> None:
        directory = tmp_path / "data"
        manager = LogManager(directory, default_config=CONFIG, broker_id=0)
        manager.load(NOW_MS)
        log = manager.get_or_create_log(PARTITION, now_ms=NOW_MS)
        append(log, *(f"v{number}" for number in range(20)))
        log.update_high_watermark(20)
        log.delete_records(12)
        manager.write_high_watermarks({PARTITION: 20})
        manager.close()

        for _, copy in Trials(directory).copies(name, torn(directory / name)):
            reopened = LogManager(copy, default_config=CONFIG, broker_id=0)
            reopened.load(NOW_MS)
            log = reopened.logs[PARTITION]

            assert log.log_start_offset in (0, 12)
            assert values_of(log)[-8:] == [f"v{number}" for number in range(12, 20)]
            assert_goes_on(log)
            reopened.close()


class TestFlippedBits:
    def bits_of(self, directory: Path, positions: list[int]) -> Iterator[bytes]:
        """Yield the log with one bit flipped: every bit of the headers, one of each other byte."""
        chance = random.Random(20)
        data = bytearray((directory / LOG).read_bytes())
        for begin, end in itertools.pairwise(positions):
            for at in range(begin, end):
                is_header = at < begin + RECORD_BATCH_OVERHEAD
                for bit in range(8) if is_header else [chance.randrange(8)]:
                    data[at] ^= 1 << bit
                    yield bytes(data)
                    data[at] ^= 1 << bit

    def test_no_record_is_ever_another(self, tmp_path: Path) -> None:
        directory = tmp_path / "log"
        log = open_log(directory, CONFIG)
        positions = [0]
        for number in range(3):
            send(log, batch_of([f"value {number}"], producer_id=1, sequence=number))
            positions.append(log.size_bytes)
        whole = values_of(log)

        outcomes = set()
        for _, copy in Trials(directory).copies(LOG, self.bits_of(directory, positions)):
            log = open_log(copy, CONFIG)
            values = values_of(log)

            assert values == whole[: len(values)]
            offsets = [record.offset for record in records_of(log)]
            assert offsets == sorted(set(offsets))
            assert_goes_on(log)
            outcomes.add(len(values))
        assert outcomes == {0, 1, 2, 3}  # 3: the leader epoch and a higher offset are covered by no checksum

    def test_of_a_log_that_was_closed_well_too(self, tmp_path: Path) -> None:
        directory = tmp_path / "log"
        log = open_log(directory, replace(CONFIG, index_interval_bytes=4096))
        append(log, "only")
        log.close()
        size = (directory / LOG).stat().st_size

        for _, copy in Trials(directory).copies(LOG, self.bits_of(directory, [0, size])):
            log = open_log(copy, CONFIG, is_after_clean_stop=True, recovery_point=1)

            assert log.log_end_offset >= 0
            append(log, "next")


class TestRepeatedCrashes:
    @pytest.mark.parametrize("seed", range(5))
    def test_of_many_crashes_each_leaves_a_prefix_of_the_appends(self, tmp_path: Path, seed: int) -> None:
        """Appends, rolls, truncations and flushes between crashes that tear the last write anywhere."""
        chance = random.Random(seed)
        directory = tmp_path / "log"
        config = LogConfig(segment_bytes=600, index_interval_bytes=100)
        expected: list[str] = []
        sequence = 0
        for _ in range(12):
            log = open_log(directory, config, recovery_point=len(expected))
            assert values_of(log) == expected
            for _ in range(chance.randrange(10)):
                value = "v" * chance.randrange(1, 60) + str(len(expected))
                send(log, batch_of([value], producer_id=seed, sequence=sequence))
                expected.append(value)
                sequence += 1
            log.flush()
            before = (log.segments.active.base_offset, log.size_bytes)
            lost = [f"unflushed {number}" for number in range(chance.randrange(3))]
            for number, value in enumerate(lost):
                send(log, batch_of([value], producer_id=seed, sequence=sequence + number))
            if before[0] != log.segments.active.base_offset:
                expected += lost
                sequence += len(lost)
                continue
            path = log.segments.active.path
            unflushed_bytes = log.size_bytes - before[1]
            data = path.read_bytes()
            path.write_bytes(data[: len(data) - chance.randrange(unflushed_bytes + 1)])
            survived = len(values_of(open_log(directory, config, recovery_point=len(expected)))) - len(expected)
            assert survived >= 0
            expected += lost[:survived]
            sequence += survived


def test_recovery_can_be_interrupted_and_repeated(tmp_path: Path) -> None:
    """A crash during recovery, before each change it makes to a file, leaves what a second recovery finishes."""
    directory = tmp_path / "log"
    mixed_log(directory)
    whole = records_of(open_log(directory, CONFIG))
    data = (directory / LOG).read_bytes()
    (directory / LOG).write_bytes(data[:-5])
    shutil.copytree(directory, tmp_path / "saved")

    for number in range(60):
        shutil.rmtree(directory)
        shutil.copytree(tmp_path / "saved", directory)
        is_killed = crashes(lambda: open_log(directory, CONFIG), number)

        log = open_log(directory, CONFIG)

        assert records_of(log) == whole[:-2]
        assert_goes_on(log)
        if not is_killed:
            return
    raise AssertionError("more changes to files than were tried")
