"""Segments as a crash may leave them, and their recovery."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.config import LogConfig
from minibroker.storage.files.file_names import parse_partition_directory, parse_segment_file
from minibroker.storage.index.leader_epochs import LeaderEpochCache
from minibroker.storage.producers.producer_state import ProducerStateManager
from minibroker.storage.segment.log_segment import LogSegment
from tests.storage.recorded_logs import STOPPED_AT_MS, unpack_recorded_logs
from tests.storage.segments import batch_at, batches_of_three, files_of, fill, open_segment

INTERVAL = LogConfig(index_interval_bytes=400)


# Of the recorded directory, with a snapshot after the marker.
PARTITIONS_WITH_MARKERS = ("tx-g1-0", "tx-g1-1", "tx-g2-1", "fi-g1-0", "__consumer_offsets-28")


def recover(segment: LogSegment) -> int:
    return segment.recover(ProducerStateManager(TopicPartition("orders", 0), segment.path.parent), None)


def write_log(directory: Path, data: bytes) -> LogSegment:
    """Return a segment of a file as a crash left it."""
    (directory / "00000000000000000000.log").write_bytes(data)
    return open_segment(directory, config=INTERVAL)


def recorded_partitions(directory: Path) -> dict[str, list[int]]:
    """Return the recorded partitions that nothing was deleted from, with the base offsets of their segments."""
    partitions: dict[str, list[int]] = {}
    for path in sorted(unpack_recorded_logs(directory).glob("*/*.log")):
        name = parse_segment_file(path.name)
        assert name is not None
        partitions.setdefault(path.parent.name, []).append(name.base_offset)
    del partitions["lo-g1-0"]  # its first records were deleted by an API call, which the log does not tell
    return partitions


def test_files_that_kafka_keeps_beside_its_logs_are_rebuilt_from_them(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    differences = set()
    compared = 0
    for partition, base_offsets in recorded_partitions(recorded).items():
        directory = tmp_path / partition
        directory.mkdir()
        for path in (recorded / partition).glob("*.log"):
            shutil.copy(path, directory)
        topic_partition = parse_partition_directory(partition)
        assert topic_partition is not None
        producer_state = ProducerStateManager(topic_partition, directory)
        producer_state.truncate_and_reload(base_offsets[0], base_offsets[0], now_ms=STOPPED_AT_MS)
        epochs = LeaderEpochCache(directory / "leader-epoch-checkpoint")

        for base_offset in base_offsets:
            producer_state.take_snapshot()
            segment = LogSegment.open(directory, base_offset, LogConfig(), now_ms=STOPPED_AT_MS)
            assert segment.recover(producer_state, epochs) == 0
        producer_state.take_snapshot()

        ours, theirs = files_of(directory), files_of(recorded / partition)
        compared += len(theirs)
        for name in ours.keys() | theirs.keys():
            if ours.get(name) != theirs.get(name):
                differences.add((partition, name.partition(".")[2] or name))

    assert compared > 100
    # Old formats say nothing of leader epochs and producers, which Kafka noted as it appended.
    legacy = {
        (f"of{version}-g1-0", name)
        for version in ("0.9.0", "0.10.2")
        for name in ("snapshot", "leader-epoch-checkpoint")
    }
    # As it appends, Kafka notes the record with the largest timestamp; recovering, the last of the batch.
    batches_of_two = {(f"__consumer_offsets-{number}", "timeindex") for number in (26, 27, 28, 29)}
    # Kafka 2.0.1 notes no time of a marker.
    with_markers = {(name, "snapshot") for name in PARTITIONS_WITH_MARKERS}
    assert differences == legacy | batches_of_two | with_markers


@pytest.mark.parametrize("batches_between_entries", [1, 2, 3.5, 36])
def test_a_recovered_segment_is_indexed_as_when_it_was_written(tmp_path: Path, batches_between_entries: float) -> None:
    interval = LogConfig(index_interval_bytes=int(len(batch_at(0, 3).data) * batches_between_entries))
    segment = open_segment(tmp_path, config=interval)
    fill(segment, batches_of_three(100))
    segment.close()
    before = files_of(tmp_path)
    for suffix in ("index", "timeindex"):
        (tmp_path / f"00000000000000000000.{suffix}").write_bytes(b"\xff" * 37)

    segment = open_segment(tmp_path, config=interval)
    assert recover(segment) == 0

    assert files_of(tmp_path) == before
    assert (segment.max_timestamp_so_far, segment.next_offset()) == (299, 300)
    segment.sanity_check()


def test_a_batch_torn_at_any_byte_is_dropped(tmp_path: Path) -> None:
    batches = [batch_at(0, 3), batch_at(3, 2), batch_at(5, 3)]
    whole = b"".join(batch.data for batch in batches)
    first, second = len(batches[0].data), len(batches[0].data + batches[1].data)

    for size in range(len(whole) + 1):
        kept = 0 if size < first else first if size < second else second if size < len(whole) else size
        segment = write_log(tmp_path, whole[:size])

        assert recover(segment) == size - kept
        assert segment.path.read_bytes() == whole[:kept]
        assert segment.next_offset() == {0: 0, first: 3, second: 5, len(whole): 8}[kept]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_flipped_bit_ends_the_log_before_its_batch(tmp_path: Path, magic: int) -> None:
    batches = [batch_at(offset, magic=magic) for offset in range(3)]
    whole = b"".join(batch.data for batch in batches)
    size = len(batches[0].data)

    for position in range(size, 2 * size):
        if position - size < 8 or (magic == 2 and 12 <= position - size < 16):
            continue  # offset and leader epoch are the leader's to set, and not covered by the checksum
        segment = write_log(tmp_path, whole[:position] + bytes([whole[position] ^ 0x40]) + whole[position + 1 :])

        assert recover(segment) == 2 * size
        assert segment.path.read_bytes() == whole[:size]
