"""File names, checkpoints, and the `.log` file: whole writes, slices, maps."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files import disk
from minibroker.storage.files.checkpoints import (
    MetaProperties,
    OffsetCheckpointFile,
    read_meta_properties,
    read_topic_id,
    write_atomically,
    write_meta_properties,
)
from minibroker.storage.files.file_names import (
    SegmentFileName,
    deleted_directory_name,
    is_deleted_directory,
    parse_partition_directory,
    parse_segment_file,
    partition_directory_name,
    segment_file,
)
from minibroker.storage.files.records_file import RecordsFile
from minibroker.storage.files.storage_errors import CorruptFileError
from tests.storage.file_limits import no_file_beyond
from tests.storage.open_files import descriptors_in
from tests.storage.recorded_logs import STOPPED_AT_MS, recorded_files, unpack_recorded_logs


@pytest.fixture
def file(tmp_path: Path) -> RecordsFile:
    return RecordsFile(tmp_path / "0.log")


@pytest.mark.parametrize("extra", ["", ".deleted", ".cleaned", ".swap"])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_segment_file_name_reads_back_as_it_was_made(tmp_path: Path, suffix: str, extra: str) -> None:
    path = segment_file(tmp_path, 2**63 - 1, suffix, extra)

    assert parse_segment_file(path.name) == SegmentFileName(2**63 - 1, suffix, extra)


@pytest.mark.parametrize(
    "name", ["42.log", "leader-epoch-checkpoint", "0000000000000000000x.log", "00000000000000000000"]
)
def test_other_names_belong_to_no_segment(name: str) -> None:
    assert parse_segment_file(name) is None


@pytest.mark.parametrize("topic", ["orders", "a-b", "a.b-3", "x" * 249, "t-0.f00-delete"])
def test_a_directory_name_reads_back_as_its_partition(topic: str) -> None:
    topic_partition = TopicPartition(topic, 17)

    assert parse_partition_directory(partition_directory_name(topic_partition)) == topic_partition


@pytest.mark.parametrize("name", ["orders", "orders-", "-0", "orders-x", "orders-0.f00-delete", "orders-0.f00-future"])
def test_other_directories_are_no_partitions(name: str) -> None:
    assert parse_partition_directory(name) is None


@pytest.mark.parametrize("topic", ["orders", "x" * 249])
def test_a_deleted_directory_has_a_legal_name_and_is_known_as_such(topic: str) -> None:
    name = deleted_directory_name(TopicPartition(topic, 17), "0" * 32)

    assert len(name) <= 255
    assert is_deleted_directory(name)
    assert parse_partition_directory(name) is None
    assert not is_deleted_directory(partition_directory_name(TopicPartition(topic, 17)))


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_a_checkpoint_of_kafka_is_read_and_written_the_same(tmp_path: Path, name: str) -> None:
    recorded = unpack_recorded_logs(tmp_path) / name
    offsets = OffsetCheckpointFile(recorded).read()

    rewritten = OffsetCheckpointFile(tmp_path / "rewritten")
    rewritten.write(offsets)

    assert offsets
    assert rewritten.path.read_bytes() == recorded.read_bytes()


def test_two_threads_may_write_the_same_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OffsetCheckpointFile(tmp_path / "checkpoint")
    other = threading.Thread(target=file.write, args=({TopicPartition("later", 0): 2},))
    fsync = os.fsync

    def let_the_other_begin(fd: int) -> None:
        if not other.ident:
            other.start()
            other.join(0.1)  # as far as it gets
        fsync(fd)

    monkeypatch.setattr("minibroker.storage.files.disk.fsync", let_the_other_begin)
    file.write({TopicPartition("first", 0): 1})
    other.join()

    assert file.read() == {TopicPartition("later", 0): 2}


@pytest.mark.parametrize("content", [None, b"", b"0\n0\n"])
def test_a_checkpoint_that_is_not_there_or_empty_has_no_offsets(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_bytes(content)

    assert OffsetCheckpointFile(path).read() == {}


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na zero 1\n",
        b"0\n1\na 0 \xff\n",
        b"0\nx\n",
        b"0\n1\na 0 12",  # of 123
    ],
)
def test_a_checkpoint_that_cannot_be_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)

    with pytest.raises(CorruptFileError):
        OffsetCheckpointFile(path).read()


def test_a_failed_checkpoint_write_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_atomically(path, b"old")

    with no_file_beyond(100), pytest.raises(OSError, match="too large"):
        write_atomically(path, b"n" * 1000)

    assert path.read_bytes() == b"old"


def test_meta_properties_of_kafka_are_read_and_written_the_same_and_may_have_a_cluster_id(tmp_path: Path) -> None:
    (recorded,) = recorded_files(tmp_path, "meta.properties")
    meta, rewritten = MetaProperties(broker_id=0), tmp_path / "rewritten"
    assert read_meta_properties(recorded) == meta
    write_meta_properties(rewritten, meta, now_ms=STOPPED_AT_MS)
    assert rewritten.read_bytes() == recorded.read_bytes()

    meta = MetaProperties(3, "dGhlLWNsdXN0ZXItaWQtMQ")
    write_meta_properties(rewritten, meta, now_ms=0)
    assert read_meta_properties(rewritten) == meta
    assert read_meta_properties(tmp_path / "absent") is None


@pytest.mark.parametrize("content", ["", "version=1\nbroker.id=0\n", "version=0\n", "version=0\nbroker.id=-1\n"])
def test_meta_properties_that_cannot_be_are_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "meta.properties").write_text(content)

    with pytest.raises(CorruptFileError):
        read_meta_properties(tmp_path / "meta.properties")


def test_a_directory_of_kafka_without_zookeeper_has_its_broker_and_the_ids_of_its_topics(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("node.id=4\nversion=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    assert read_meta_properties(tmp_path / "meta.properties") == MetaProperties(4, "A" * 22)
    metadata = tmp_path / "partition.metadata"
    assert read_topic_id(metadata) is None
    metadata.write_text("version: 0\ntopic_id: TT2OT8rtQQ2au_O63ooGZg")
    assert read_topic_id(metadata) == "TT2OT8rtQQ2au_O63ooGZg"
    for damaged in ("", "version: 1\ntopic_id: TT2OT8rtQQ2au_O63ooGZg", "version: 0\ntopic_id: TT2O"):
        metadata.write_text(damaged)
        with pytest.raises(CorruptFileError):
            read_topic_id(metadata)
    assert parse_partition_directory("__cluster_metadata-0") is None


def test_appends_follow_each_other(file: RecordsFile, tmp_path: Path) -> None:
    file.append(b"abc")
    file.append(bytearray(b"de"))
    file.append(memoryview(b"f"))

    assert file.size_bytes == 6
    assert file.slice(1, 4).read() == b"bcde"
    assert RecordsFile(tmp_path / "0.log").size_bytes == 6


def test_an_append_cut_short_by_a_full_disk_leaves_nothing_behind(file: RecordsFile, tmp_path: Path) -> None:
    file.append(b"a" * 100)

    with no_file_beyond(150), pytest.raises(OSError, match="too large"):
        file.append(b"b" * 100)  # the kernel takes 50 of them

    assert file.size_bytes == 100
    assert (tmp_path / "0.log").read_bytes() == b"a" * 100
    file.append(b"c")
    assert (tmp_path / "0.log").read_bytes() == b"a" * 100 + b"c"


def test_an_append_of_many_writes_is_whole(file: RecordsFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr("minibroker.storage.files.disk.pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))

    file.append(b"0123456789")

    assert (tmp_path / "0.log").read_bytes() == b"0123456789"


def test_a_file_that_is_replaced_by_many_writes_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(disk, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))

    write_atomically(tmp_path / "a", b"0123456789", is_private=True)

    assert (tmp_path / "a").read_bytes() == b"0123456789"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_a_directory_loses_all_that_can_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "t-0" / "inner"
    inner.mkdir(parents=True)
    for path in (tmp_path / "t-0" / "a", tmp_path / "t-0" / "b", inner / "c"):
        path.touch()
    remove = os.unlink

    def refuse_one(path: Path) -> None:
        if path.name == "a":
            raise PermissionError(errno.EACCES, "refused", str(path))
        remove(path)

    with monkeypatch.context() as patch, pytest.raises(PermissionError):
        patch.setattr(disk, "remove", refuse_one)
        disk.remove_tree(tmp_path / "t-0")

    assert os.listdir(tmp_path / "t-0") == ["a"]
    disk.remove_tree(tmp_path / "t-0")
    assert not os.listdir(tmp_path)


def test_a_slice_keeps_its_descriptor_and_stays_readable_after_the_file_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    file = RecordsFile(path)
    file.append(b"in flight")
    in_flight = file.slice(3, 6)

    file.delete()
    del file

    assert not path.exists()
    assert in_flight.read() == b"flight"
    assert os.pread(in_flight.fd, 6, in_flight.position) == b"flight"
    assert descriptors_in(tmp_path) == 1
    del in_flight
    assert descriptors_in(tmp_path) == 0


def test_reading_a_slice_of_a_truncated_file_fails(file: RecordsFile) -> None:
    file.append(b"0123456789")
    too_long = file.slice(5, 5)
    file.truncate(7)

    with pytest.raises(EOFError):
        too_long.read()


def test_truncation_reports_the_bytes_lost_and_never_grows(file: RecordsFile, tmp_path: Path) -> None:
    file.append(b"0123456789")

    assert file.truncate(4) == 6
    assert (tmp_path / "0.log").read_bytes() == b"0123"
    with pytest.raises(ValueError, match="cannot truncate 4 bytes to 5"):
        file.truncate(5)


def test_a_preallocated_file_has_its_disk_space_and_gives_it_back_for_good(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    file = RecordsFile(path, preallocate_bytes=1 << 20)
    file.append(b"abc")

    assert file.size_bytes == 3
    assert path.stat().st_blocks * 512 >= 1 << 20
    file.truncate(3)
    assert path.read_bytes() == b"abc"
    assert RecordsFile(path, preallocate_bytes=1 << 20).size_bytes == path.stat().st_size == 3


def test_a_scan_sees_all_that_was_appended(file: RecordsFile) -> None:
    expected = b""
    for step in range(40):
        chunk = bytes([step]) * 5000
        file.append(chunk)
        expected += chunk
        for start in (0, len(expected) - 5000, len(expected) - 1):
            buffer, origin = file.scan_buffer(start, len(expected))
            assert bytes(buffer[start - origin : len(expected) - origin]) == expected[start:]


def test_a_file_does_not_shrink_under_a_scan(file: RecordsFile) -> None:
    file.append(b"x" * 100_000)
    held = file.scan_buffer(0, 100_000)[0][:10]

    with pytest.raises(BufferError):
        file.truncate(0)

    assert file.size_bytes == 100_000
    assert bytes(held) == b"x" * 10
    del held
    assert file.truncate(0) == 100_000


def test_a_scan_goes_on_over_the_old_map_while_the_file_grows(file: RecordsFile) -> None:
    file.append(b"x" * 100_000)
    held, _ = file.scan_buffer(0, 100_000)
    file.append(b"y" * 1000)

    # A little at its end is not mapped.
    tail, origin = file.scan_buffer(99_000, 101_000)
    assert (bytes(tail), origin) == (b"x" * 1000 + b"y" * 1000, 99_000)
    assert file.scan_buffer(0, 100_000)[0] is held

    file.append(b"y" * 100_000)
    file.scan_buffer(0, 200_000)
    assert bytes(held[99_990:]) == b"x" * 10


def test_unmapping_gives_the_descriptor_back(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    file = RecordsFile(path)
    file.append(b"x" * 100_000)
    file.scan_buffer(0, 100_000)
    assert descriptors_in(tmp_path) == 2

    file.unmap()
    assert descriptors_in(tmp_path) == 1
    assert bytes(file.scan_buffer(0, 100_000)[0]) == b"x" * 100_000
