"""Data directories interchange with Apache Kafka 2.0.1: either broker goes on where the other left off.

Every test starts one broker on the directory that the other wrote, after a clean stop or after kill -9, and
compares all that both say of it. What Kafka's own DumpLogSegments finds in our files is nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from benchmarks.apache_kafka import ApacheKafka
from minibroker.conformance.raw_connection import RawConnection
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.files.checkpoints import read_checkpoint
from minibroker.storage.files.file_names import LEADER_EPOCH_CHECKPOINT
from tests.integration.brokers import BrokerProcess, Minibroker
from tests.integration.data_directories import (
    BATCHES,
    PRODUCERS,
    RECORDS_A_BATCH,
    SETTINGS,
    SMALL_SEGMENTS,
    TOPICS,
    TRIMMED_BELOW,
    Served,
    everything_served,
    fill,
    produce,
    sequenced_batch,
    served,
    wait_for_checkpoint,
    write_transactions,
)
from tests.integration.foreign_directory import apache_kafka_on
from tests.integration.kafka_tools import dump_log_segments
from tests.integration.topics import create_topic_over, records_in
from tests.matrices import each_once

PAIRS = pytest.mark.parametrize(("whose", "how"), each_once(["ours", "kafkas"], ["killed", "in order"]))
EVERYTHING = (*TOPICS, "transactions")
COMPLAINTS = ("Mismatches", "not found", "Exception", "Corrupt", "isvalid: false", "Could not")

Written = tuple[Path, dict[str, Served]]


@contextmanager
def minibroker_on(data_dir: Path, work_dir: Path) -> Iterator[Minibroker]:
    broker = Minibroker(work_dir, "--data-dir", str(data_dir), "--set", "broker.id=0", settings=SETTINGS)
    try:
        yield broker.wait_until_ready()
    finally:
        broker.kill()


def end(broker: BrokerProcess, how: str) -> None:
    if how == "killed":
        broker.kill()
    elif isinstance(broker, ApacheKafka):
        broker.stop()
    else:
        assert broker.terminate() == 0


class Directories:
    """A directory that each of both wrote, by how it was stopped, and what it served of it; for reading only."""

    def __init__(self, jars: Path, new_folder: Callable[[str], Path]) -> None:
        self._jars = jars
        self._new_folder = new_folder
        self._known: dict[tuple[str, str], Written] = {}

    def get(self, whose: str, how: str) -> Written:
        if (whose, how) not in self._known:
            work_dir = self._new_folder(whose)
            with self._broker(whose, work_dir) as broker:
                fill(broker)
                fill_with_transactions(broker)
                if whose == "ours":
                    wait_for_checkpoint(work_dir / "data")
                seen = everything_served(broker, EVERYTHING)
                end(broker, how)
            if (whose, how) == ("kafkas", "killed"):
                del seen["trimmed"]  # Kafka writes down the log start offset 30 seconds after its start at the earliest
            self._known[whose, how] = work_dir / "data", seen
        return self._known[whose, how]

    def _broker(self, whose: str, work_dir: Path) -> AbstractContextManager[BrokerProcess]:
        if whose == "ours":
            return minibroker_on(work_dir / "data", work_dir)
        return ApacheKafka(self._jars, work_dir, settings=SETTINGS, heap="512m")


@pytest.fixture(scope="module")
def directories(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Directories:
    return Directories(jars, tmp_path_factory.mktemp)


def fill_with_transactions(broker: BrokerProcess) -> None:
    """Transactions that were committed and aborted, in plain and compressed batches, in several segments."""
    with RawConnection(broker.host, broker.port) as connection:
        create_topic_over(connection, "transactions", configs=SMALL_SEGMENTS)
    for codec in ("none", "gzip"):
        values = ([{"value": b"%d.%d " % (number, i) * 50} for i in range(3)] for number in range(8))
        write_transactions(broker, "transactions", values, compression_type=codec)


@pytest.mark.sample(of=lambda whose: whose == "ours")  # the other way: storage/test_golden_directory.py
@PAIRS
def test_each_serves_the_same_bytes_of_a_directory_that_the_other_wrote(
    directories: Directories, tmp_path: Path, whose: str, how: str
) -> None:
    written, expected = directories.get(whose, how)
    data_dir = Path(shutil.copytree(written, tmp_path / "data", copy_function=shutil.copy2))

    with (
        apache_kafka_on(data_dir, tmp_path, settings=SETTINGS)
        if whose == "ours"
        else minibroker_on(data_dir, tmp_path) as other
    ):
        found = everything_served(other, expected)

        assert expected == found
        assert found["transactions"].aborted
        assert whose == "kafkas" or found["trimmed"].log_start_offset == TRIMMED_BELOW
        assert_producers_are_known(other)


def assert_producers_are_known(broker: BrokerProcess) -> None:
    """A retry of a producer's last batch is a duplicate; its next batch is appended."""
    with RawConnection(broker.host, broker.port) as connection:
        for number, producer_id in enumerate(PRODUCERS):
            retried = produce(connection, "producers", sequenced_batch(producer_id, BATCHES - 1))
            assert retried.base_offset == RECORDS_A_BATCH * (2 * BATCHES - 2 + number)
        assert served(connection, "producers").high_watermark == 2 * RECORDS_A_BATCH * BATCHES
        for number, producer_id in enumerate(PRODUCERS):
            fresh = produce(connection, "producers", sequenced_batch(producer_id, BATCHES))
            assert fresh.base_offset == RECORDS_A_BATCH * (2 * BATCHES + number)


@pytest.mark.sample(of=lambda whose: whose == "ours")
@PAIRS
def test_kafkas_own_tool_finds_every_log_and_index_sound(
    directories: Directories, jars: Path, whose: str, how: str
) -> None:
    """Kafka's own files too: a tool that complains of nothing must be able to complain, and of the right things."""
    data_dir, _ = directories.get(whose, how)
    files = [file for kind in ("log", "index", "timeindex") for file in sorted(data_dir.glob(f"*-0/*.{kind}"))]
    if how == "killed":
        files = [file for file in files if not (file.suffix == ".timeindex" and is_active(file))]

    dumped = dump_log_segments(jars, files, "--deep-iteration", "--index-sanity-check")

    assert len(files) > 50
    assert complaints(dumped) == []


@pytest.mark.sample(of=lambda whose: whose == "ours")
@PAIRS
def test_kafkas_own_tool_finds_every_index_entry_right(
    directories: Directories, jars: Path, tmp_path: Path, whose: str, how: str
) -> None:
    """Of batches with one record: for others 2.0.1 compares the last offset with the first, in its own files too."""
    data_dir, _ = directories.get(whose, how)
    topic = data_dir / "single-records-0"
    files = [file for kind in ("log", "index", "timeindex") for file in sorted(topic.glob(f"*.{kind}"))]

    assert len(files) > 6
    assert complaints(dump_log_segments(jars, files, "--verify-index-only")) == []

    wrong = tmp_path / files[0].with_suffix(".index").name
    entry = bytearray(files[0].with_suffix(".index").read_bytes()[:8])
    entry[3] += 1
    wrong.write_bytes(entry)
    shutil.copy2(files[0], tmp_path)
    assert complaints(dump_log_segments(jars, [wrong], "--verify-index-only")) != []


def is_active(file: Path) -> bool:
    """Whether its segment is the last: while in use, its time index ends in zeros, which the tool takes for damage."""
    return file.stem == max(other.stem for other in file.parent.glob("*.log"))


def complaints(dumped: str) -> list[str]:
    return [line for line in dumped.splitlines() if any(word in line for word in COMPLAINTS)]


@pytest.mark.nightly  # by day Kafka goes on with a directory of ours once, in the first test
@pytest.mark.parametrize("how", ["killed", "in order"])
def test_both_brokers_in_turns_lose_nothing_and_leave_no_gap(jars: Path, tmp_path: Path, how: str) -> None:
    data_dir = tmp_path / "data"
    expected: list[bytes] = []

    for turn in range(4):
        work_dir = tmp_path / f"turn-{turn}"
        with (
            apache_kafka_on(data_dir, work_dir, settings=SETTINGS) if turn % 2 else minibroker_on(data_dir, work_dir)
        ) as broker:
            with RawConnection(broker.host, broker.port) as connection:
                if turn == 0:
                    create_topic_over(connection, "t", configs=SMALL_SEGMENTS)
                for number in range(15):
                    rows = [Record(i, 1_500_000_000_000, None, b"%d.%d.%d" % (turn, number, i) * 9) for i in range(3)]
                    assert produce(connection, "t", build_batch(rows)).base_offset == len(expected)
                    expected += [row.value or b"" for row in rows]
                found = served(connection, "t")
            end(broker, how)

        records = records_in(found.records)
        assert [record.offset for record in records] == list(range(len(expected)))
        assert [record.value for record in records] == expected

    epochs = [[int(word) for word in line] for line in read_checkpoint(data_dir / "t-0" / LEADER_EPOCH_CHECKPOINT, 2)]
    assert [start for _, start in epochs] == [0, 45, 90, 135]
    assert sorted({epoch for epoch, _ in epochs}) == [epoch for epoch, _ in epochs]
