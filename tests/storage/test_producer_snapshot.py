"""Producer state on disk: Kafka's bytes, what is loaded, what a crash may leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.transaction_index import CompletedTxn
from minibroker.storage.producers.producer_snapshot import SnapshotEntry, read_snapshot, write_snapshot
from minibroker.storage.producers.producer_state import ProducerStateManager
from tests.storage.producers import append, end_transaction, manager_of, unstable
from tests.storage.recorded_logs import recorded_files


@pytest.fixture
def manager(tmp_path: Path) -> ProducerStateManager:
    return manager_of(tmp_path)


def test_a_snapshot_of_kafka_is_read_and_written_the_same(tmp_path: Path) -> None:
    producers = 0
    for number, path in enumerate(recorded_files(tmp_path, "*.snapshot")):
        directory = tmp_path / f"rewritten-{number}"
        directory.mkdir()
        (directory / path.name).write_bytes(path.read_bytes())
        offset = int(path.stem)
        manager = manager_of(directory)
        manager.truncate_and_reload(0, offset, now_ms=0)
        recorded = read_snapshot(path)
        kept = [entry for entry in recorded if entry.last_offset >= 0]
        assert list(manager.producers) == [entry.producer_id for entry in kept]
        # Of the others only a marker is left. Kafka 2.0.1 notes no time of it, and forgets them at its next start.
        kept += [entry._replace(timestamp_ms=0) for entry in recorded if entry.last_offset < 0]

        manager.update_map_end_offset(offset + 1)
        manager.take_snapshot()
        assert read_snapshot(directory / f"{offset + 1:020d}.snapshot") == kept
        write_snapshot(directory / "same", read_snapshot(path))
        assert (directory / "same").read_bytes() == path.read_bytes()
        producers += len(kept)
    assert producers >= 8


def test_state_survives_in_a_snapshot(manager: ProducerStateManager, tmp_path: Path) -> None:
    append(manager, 0, offset=0, count=3, producer_id=1, timestamp_ms=50)
    append(manager, 0, offset=3, count=2, producer_id=2, timestamp_ms=60, is_transactional=True)
    manager.take_snapshot()

    loaded = manager_of(tmp_path)
    loaded.truncate_and_reload(0, 100, now_ms=100)

    assert loaded.map_end_offset == 5
    assert unstable(loaded) == 3
    append(loaded, 3, offset=5, producer_id=1)
    append(loaded, 2, offset=6, producer_id=2, is_transactional=True)
    assert end_transaction(loaded, offset=7, producer_id=2)[0] == CompletedTxn(2, 3, 7, is_aborted=False)


def test_expired_and_deleted_producers_are_not_loaded(manager: ProducerStateManager, tmp_path: Path) -> None:
    append(manager, 0, offset=0, producer_id=1, timestamp_ms=10**6)
    append(manager, 0, offset=9, producer_id=2, timestamp_ms=1)
    append(manager, 0, offset=10, producer_id=3, timestamp_ms=10**6)
    manager.take_snapshot()

    loaded = manager_of(tmp_path)
    loaded.truncate_and_reload(5, 100, now_ms=10**6)

    assert set(loaded.producers) == {3}


def test_a_snapshot_is_taken_once_for_an_offset(manager: ProducerStateManager, tmp_path: Path) -> None:
    manager.take_snapshot()
    assert manager.latest_snapshot_offset is None
    append(manager, 0, offset=0)
    manager.take_snapshot()
    (snapshot,) = tmp_path.iterdir()
    snapshot.unlink()

    manager.take_snapshot()
    assert list(tmp_path.iterdir()) == []
    append(manager, 1, offset=1)
    manager.take_snapshot()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000000000000000002.snapshot"]


def test_snapshots_outside_the_log_are_deleted(manager: ProducerStateManager, tmp_path: Path) -> None:
    for offset in range(0, 50, 10):
        append(manager, offset, offset=offset, count=10)
        manager.take_snapshot()

    manager.truncate_and_reload(10, 35, now_ms=0)

    # The one at the log's start has producers that are gone, and yet remembered.
    assert sorted(int(path.stem) for path in tmp_path.iterdir()) == [10, 20, 30]
    assert manager.map_end_offset == 30
    manager.delete_snapshots_before(30)
    assert [int(path.stem) for path in tmp_path.iterdir()] == [manager.latest_snapshot_offset] == [30]


def test_a_corrupt_snapshot_is_deleted_and_the_one_before_used(manager: ProducerStateManager, tmp_path: Path) -> None:
    for offset in (0, 1):
        append(manager, offset, offset=offset)
        manager.take_snapshot()
    newest = tmp_path / f"{2:020d}.snapshot"
    newest.write_bytes(newest.read_bytes()[:-1])

    loaded = manager_of(tmp_path)
    loaded.truncate_and_reload(0, 100, now_ms=0)

    assert loaded.map_end_offset == 1
    assert not newest.exists()
    append(loaded, 1, offset=1)
    loaded.truncate_and_reload(0, 2, now_ms=10**9)  # at its own end, which keeps the state
    append(loaded, 2, offset=2)


def test_every_damaged_byte_of_a_snapshot_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "1.snapshot"
    write_snapshot(path, [SnapshotEntry(1, 2, 3, 4, 5, 6, 7, 8)])
    whole = path.read_bytes()

    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with pytest.raises(CorruptFileError):
            read_snapshot(path)
        path.write_bytes(whole[:position])
        with pytest.raises(CorruptFileError):
            read_snapshot(path)
