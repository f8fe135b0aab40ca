"""Every file name of a log directory, the small text files beside the logs, and the `.log` file itself.

    <topic>-<partition>/                    00000000000000000042.log         records from offset 42
    <topic>-<partition>.<uuid>-delete/      00000000000000000042.index       offset -> position
    recovery-point-offset-checkpoint        00000000000000000042.timeindex   timestamp -> offset
    log-start-offset-checkpoint             00000000000000000042.txnindex    aborted transactions
    replication-offset-checkpoint           00000000000000000042.snapshot    producer state below offset 42
    meta.properties                         leader-epoch-checkpoint

A checkpoint is replaced, never edited: a reader sees the old one or the new one. A `.log` is written by
`pwrite` and sent by `sendfile`; it is mapped for scans only, never past its end, never while it shrinks.
"""

from __future__ import annotations

import mmap
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from minibroker.protocol.primitives import TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"  # a file of a segment that retention gave up
CLEANED_SUFFIX = ".cleaned"  # being written by the cleaner
SWAP_SUFFIX = ".swap"  # finished by the cleaner, about to replace the original
DELETE_DIRECTORY_SUFFIX = "-delete"  # a directory of a deleted partition

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

_MAX_FILE_NAME = 255
_SCAN_BY_READ_BYTES = 16 * 1024  # below this a scan past the map reads; above it the map is renewed
_SCANS_BETWEEN_RELEASES = 64
_CHECKPOINT_VERSION = 0

_SEGMENT_FILE = re.compile(r"(\d{20})(\.[a-z]+)((?:\.[a-z]+)*)", re.ASCII)
_PARTITION_DIRECTORY = re.compile(r"(\S+)-(\d+)", re.ASCII)
_DELETED_DIRECTORY = re.compile(r"(\S+)-(\d+)\.(\S+)-delete", re.ASCII)


class CorruptFileError(Exception):
    """An index, snapshot or checkpoint whose content cannot be; it can be rebuilt or done without."""


class SegmentFileName(NamedTuple):
    base_offset: int
    suffix: str  # ".log", ".index", ...
    extra: str  # "", ".deleted", ".cleaned", ".swap"


def segment_file(directory: Path, base_offset: int, suffix: str, extra: str = "") -> Path:
    return directory / f"{base_offset:020d}{suffix}{extra}"


def parse_segment_file(name: str) -> SegmentFileName | None:
    """Return what the name says, or None for a file that belongs to no segment."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None:
        return None
    return SegmentFileName(int(match[1]), match[2], match[3])


def partition_directory_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def deleted_directory_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """Name the directory of a deleted partition; a long topic is cut, file names end at 255 bytes."""
    rest = f"-{topic_partition.partition}.{unique_id}{DELETE_DIRECTORY_SUFFIX}"
    return topic_partition.topic[: _MAX_FILE_NAME - len(rest)] + rest


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Return the partition of a directory, or None where it is no partition's or is being deleted."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    return TopicPartition(match[1], int(match[2]))


def is_deleted_directory(name: str) -> bool:
    return _DELETED_DIRECTORY.fullmatch(name) is not None


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file: whoever reads finds the old content or all of the new, after a crash too."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_checkpoint(path: Path, lines: Iterable[str]) -> None:
    """Write the text form all checkpoints share: version, number of entries, one line for each."""
    entries = list(lines)
    text = "\n".join([str(_CHECKPOINT_VERSION), str(len(entries)), *entries])
    write_atomically(path, (text + "\n").encode())


def read_checkpoint(path: Path, fields: int) -> list[list[str]]:
    """Return the entries split into `fields` words; [] without a file, or if it is empty as Kafka makes it.

    Raises CorruptFileError.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{path}: not text: {error}") from error
    if not text:
        return []
    lines = text.splitlines()
    if len(lines) < 2 or not text.endswith("\n"):  # the last number may have lost digits
        raise CorruptFileError(f"{path}: cut short")
    if lines[0] != str(_CHECKPOINT_VERSION):
        raise CorruptFileError(f"{path}: unrecognized version {lines[0]!r}")
    entries = [line.split() for line in lines[2:]]
    if lines[1] != str(len(entries)):
        raise CorruptFileError(f"{path}: {lines[1]} entries expected, {len(entries)} found")
    for words in entries:
        if len(words) != fields:
            raise CorruptFileError(f"{path}: malformed line {' '.join(words)!r}")
    return entries


class OffsetCheckpointFile:
    """An offset for each partition of a log directory: `topic partition offset`. Any thread may write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = threading.Lock()  # two writers would take each other's temporary file away
        self._numbers = count(1)  # of what is to be written
        self._written = 0

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets, none if the file is missing. Raises CorruptFileError."""
        try:
            return {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partition, offset in read_checkpoint(self.path, 3)
            }
        except ValueError as error:
            raise CorruptFileError(f"{self.path}: {error}") from error

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write them down. Raises OSError; the file is as before then."""
        self.later(offsets)()

    def later(self, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """Return the write of what counts now: it does nothing once something newer has been written."""
        return partial(self._write, offsets, next(self._numbers))

    def _write(self, offsets: Mapping[TopicPartition, int], number: int) -> None:
        with self._writing:
            if number > self._written:
                write_checkpoint(self.path, (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()))
                self._written = number


class MetaProperties(NamedTuple):
    """Whose directory it is. Kafka 2.0 keeps the cluster id in ZooKeeper: None where Kafka wrote the file."""

    broker_id: int
    cluster_id: str | None = None


def read_meta_properties(path: Path) -> MetaProperties | None:
    """Return the directory's owner, None for a fresh directory. Raises CorruptFileError."""
    try:
        lines = path.read_text("latin-1").splitlines()
    except FileNotFoundError:
        return None
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    properties = {name.strip(): value.strip() for name, _, value in pairs}
    if properties.get("version") != "0":
        raise CorruptFileError(f"{path}: unrecognized version {properties.get('version')!r}")
    if not properties.get("broker.id", "").isdecimal():
        raise CorruptFileError(f"{path}: no broker.id")
    return MetaProperties(int(properties["broker.id"]), properties.get("cluster.id"))


def write_meta_properties(path: Path, meta: MetaProperties, *, now_ms: int) -> None:
    """Write the file as Java's Properties writes it, an empty comment and the date first."""
    date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms // 1000))
    lines = ["#", f"#{date}", f"broker.id={meta.broker_id}", "version=0"]
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    write_atomically(path, ("\n".join(lines) + "\n").encode("latin-1"))


class RecordsFile:
    """One open `.log`. The descriptor closes when the segment and every slice in flight have let go."""

    __slots__ = ("_map", "_mapped_bytes", "_scans", "_view", "fd", "path", "size_bytes")

    def __init__(self, path: Path, *, preallocate_bytes: int = 0) -> None:
        """Open the file, or create it; a new one takes `preallocate_bytes` of disk at once."""
        self.fd = -1  # for __del__, should the open fail
        self.path = path
        self._map: mmap.mmap | None = None
        self._view: memoryview = memoryview(b"")
        self._mapped_bytes = 0
        self._scans = 0
        is_new = not path.exists()
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.size_bytes = os.fstat(self.fd).st_size
        if is_new and preallocate_bytes > 0:
            os.posix_fallocate(self.fd, 0, preallocate_bytes)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def append(self, buffer: bytes | bytearray | memoryview) -> None:
        """Write all of the buffer at the end, or nothing. Raises OSError; the file is as before then."""
        size = len(buffer)
        written = os.pwrite(self.fd, buffer, self.size_bytes)
        if written != size:
            self._finish_append(memoryview(buffer), written)
        self.size_bytes += size

    def _finish_append(self, buffer: memoryview, written: int) -> None:
        # A full disk takes a part of the bytes first and says ENOSPC only when asked again.
        try:
            while written < len(buffer):
                written += os.pwrite(self.fd, buffer[written:], self.size_bytes + written)
        except OSError:
            os.ftruncate(self.fd, self.size_bytes)
            raise

    def truncate(self, size_bytes: int) -> int:
        """Cut the file, a preallocated tail too; return the bytes of records lost.

        BufferError while somebody holds a scan buffer: touching a map past the end would kill the process.
        """
        lost = self.size_bytes - size_bytes
        if lost < 0:
            raise ValueError(f"{self.path}: truncation to {size_bytes} of {self.size_bytes} bytes")
        if os.fstat(self.fd).st_size > size_bytes:
            self.unmap()
            os.ftruncate(self.fd, size_bytes)
        self.size_bytes = size_bytes
        return lost

    def flush(self) -> None:
        os.fdatasync(self.fd)

    def slice(self, position: int, size_bytes: int) -> FileSlice:
        return FileSlice(self, position, size_bytes)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return the bytes; fewer only where the file ends."""
        return os.pread(self.fd, size_bytes, position)

    def scan_buffer(self, start: int, end: int) -> tuple[memoryview | bytes, int]:
        """Return a buffer holding the bytes from start to end, and the file position of its first byte.

        Let go of the buffer before the next `truncate`. Near the end of a growing file it is read, elsewhere
        mapped.
        """
        if end > self._mapped_bytes:
            if end - start <= _SCAN_BY_READ_BYTES:
                return os.pread(self.fd, end - start, start), start
            self._remap()
        self._scans += 1
        if self._scans >= _SCANS_BETWEEN_RELEASES:
            self.release_pages()
        return self._view, 0

    def _remap(self) -> None:
        # The old map goes when the last scan that uses it has let go.
        self._map = mmap.mmap(self.fd, self.size_bytes, access=mmap.ACCESS_READ)
        self._view = memoryview(self._map)
        self._mapped_bytes = self.size_bytes

    def release_pages(self) -> None:
        """Keep the map, give back the pages it has touched: they stay cached, but not on our account."""
        self._scans = 0
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def unmap(self) -> None:
        """Give the map and its descriptor back, until the next long scan. BufferError while one is open."""
        if self._map is not None:
            self._view.release()
            self._map.close()
            self._map = None
            self._view = memoryview(b"")
            self._mapped_bytes = 0

    def rename(self, path: Path) -> None:
        os.replace(self.path, path)
        self.path = path

    def delete(self) -> None:
        """Remove the name, if it is there; the records stay readable to who holds a slice."""
        self.unmap()
        self.path.unlink(missing_ok=True)


class FileSlice:
    """A stretch of a `.log` to be sent; it stays readable when the file is deleted."""

    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: RecordsFile, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    @property
    def fd(self) -> int:
        return self.file.fd

    def read(self) -> bytes:
        """Return all bytes of the slice. Raises EOFError when the file was truncated below it since."""
        data = os.pread(self.file.fd, self.size_bytes, self.position)
        if len(data) != self.size_bytes:
            raise EOFError(f"{self.file.path}: {len(data)} of {self.size_bytes} bytes at {self.position}")
        return data

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path.name}, {self.position}, {self.size_bytes})"
