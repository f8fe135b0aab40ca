"""The data directory of Apache Kafka 2.0.1: every record is served, and what was not written is not touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.storage.config import LogConfig
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files.checkpoints import OffsetCheckpointFile, read_meta_properties
from minibroker.storage.files.file_names import parse_partition_directory
from minibroker.storage.producers.producer_snapshot import read_snapshot
from tests.protocol.batch_bytes import records_in
from tests.storage.logs import UNBOUNDED, append, records_of
from tests.storage.recorded_logs import STOPPED_AT_MS, unpack_recorded_logs

MARKER = ".kafka_cleanshutdown"
EMPTIED = TopicPartition("lo-g1", 0)  # DeleteRecords went up to its end


@pytest.fixture(params=["clean stop", "crash"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The recorded directory, with the marker of its clean stop and without."""
    unpack_recorded_logs(tmp_path)
    if request.param == "crash":
        (tmp_path / MARKER).unlink()
    return tmp_path


def opened(directory: Path) -> LogManager:
    manager = LogManager(directory, default_config=LogConfig(), broker_id=0)
    manager.load(STOPPED_AT_MS)
    return manager


def partitions_of(directory: Path) -> dict[TopicPartition, Path]:
    found = {parse_partition_directory(path.name): path for path in directory.iterdir() if path.is_dir()}
    return {key: path for key, path in found.items() if key is not None}


def records_on_disk(path: Path) -> list[Record]:
    """Return the records of a partition's `.log` files, read without a log."""
    return [record for file in sorted(path.glob("*.log")) for record in records_in(file.read_bytes(), control=False)]


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_every_record_is_served(directory: Path) -> None:
    expected = {key: records_on_disk(path) for key, path in partitions_of(directory).items()}
    assert sum(map(len, expected.values())) > 400
    expected[EMPTIED] = []

    manager = opened(directory)

    assert {key: records_of(log) for key, log in manager.logs.items()} == expected


def test_every_offset_and_every_time_is_found(directory: Path) -> None:
    for log in opened(directory).logs.values():
        records = records_of(log)
        for record in records:
            assert log.convert_to_offset_metadata(record.offset).message_offset == record.offset
            if record.timestamp_ms >= 0:
                first = next(each for each in records if each.timestamp_ms >= record.timestamp_ms)
                assert log.fetch_offset_by_timestamp(record.timestamp_ms) == (first.timestamp_ms, first.offset)


def test_offsets_and_transactions_are_those_kafka_wrote_down(directory: Path) -> None:
    recovery_points = OffsetCheckpointFile(directory / "recovery-point-offset-checkpoint").read()
    high_watermarks = OffsetCheckpointFile(directory / "replication-offset-checkpoint").read()

    logs = opened(directory).logs

    for key, log in logs.items():
        assert (log.log_end_offset, log.high_watermark) == (recovery_points[key], high_watermarks[key])
    assert logs[EMPTIED].log_start_offset == 20
    open_transaction, with_abort = logs[TopicPartition("tx-g2", 0)], logs[TopicPartition("fi-g1", 0)]
    assert (open_transaction.last_stable_offset, open_transaction.log_end_offset) == (3, 5)
    assert with_abort.last_stable_offset == with_abort.log_end_offset
    aborted = with_abort.read(0, UNBOUNDED, include_aborted_txns=True).aborted_transactions or []
    assert [(txn.first_offset, txn.last_offset) for txn in aborted] == [(2, 7)]


def test_logs_that_were_not_written_keep_their_bytes(directory: Path) -> None:
    before = files_of(directory)
    is_after_crash = MARKER not in before

    manager = opened(directory)
    for log in manager.logs.values():
        records_of(log)
    manager.close()
    after = files_of(directory)

    changed = {name for name, data in before.items() if after.get(name) != data}
    if is_after_crash:
        for name in [each for each in changed if each.endswith(".snapshot")]:
            producers = read_snapshot(directory / name)
            (directory / name).write_bytes(before[name])
            kafkas = read_snapshot(directory / name)
            # Recovery reads the time of a marker, which Kafka does not note.
            assert [each._replace(timestamp_ms=0) for each in producers] == [
                each._replace(timestamp_ms=0) for each in kafkas
            ]
            changed.remove(name)
        # Recovery knows the youngest record by its batch, Kafka's append by its own offset.
        changed = {name for name in changed if not name.endswith(".timeindex")}
    # An empty log loses its epoch when it is opened, as with Kafka; after a clean stop with its first append.
    epochs = {"lo-g1-0/leader-epoch-checkpoint"} if is_after_crash else set()
    assert changed == {"recovery-point-offset-checkpoint", *epochs}
    assert set(after) - set(before) <= {".lock", MARKER, f"lo-g1-0/{20:020d}.snapshot"}


def test_checkpoints_are_written_as_kafka_reads_them(directory: Path) -> None:
    before = (directory / "recovery-point-offset-checkpoint").read_text().splitlines()

    manager = opened(directory)
    manager.write_high_watermarks({key: log.high_watermark for key, log in manager.logs.items()})
    manager.close()

    logs = sorted(f"{topic} {partition} {log.log_end_offset}" for (topic, partition), log in manager.logs.items())
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        version, count, *lines = (directory / name).read_text().splitlines()
        assert (version, count, sorted(lines)) == ("0", str(len(logs)), logs)
        assert set(lines) <= set(before)
    assert (directory / "log-start-offset-checkpoint").read_text() == "0\n1\nlo-g1 0 20\n"
    meta = read_meta_properties(directory / "meta.properties")
    assert meta is not None
    assert meta.broker_id == 0


def test_an_append_changes_only_its_partition(directory: Path) -> None:
    opened(directory).close()
    before = files_of(directory)
    key = TopicPartition("fl-g1", 1)

    manager = opened(directory)
    append(manager.logs[key], "ours", timestamp_ms=STOPPED_AT_MS, now_ms=STOPPED_AT_MS)
    manager.close()
    after = files_of(directory)

    changed = {name for name in before | after if before.get(name) != after.get(name)}
    changed = {name for name in changed if not name.startswith("lo-g1-0/")}  # its snapshot comes and goes
    assert f"fl-g1-1/{60:020d}.log" in changed, "the records before are too old to share a segment"
    assert {name for name in changed if not name.startswith("fl-g1-1/")} == {"recovery-point-offset-checkpoint"}
    assert after[f"fl-g1-1/{0:020d}.log"] == before[f"fl-g1-1/{0:020d}.log"]
    assert records_of(opened(directory).logs[key])[-1].value == b"ours"
