"""Reads and writes the small text files beside the logs.

    *-checkpoint        version, number of entries, one line for each entry
    meta.properties     the broker that owns the directory, in the format of Java's Properties

A file is replaced, never edited: a reader finds the old content or the new, after a crash too.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files import disk
from minibroker.storage.files.storage_errors import CorruptFileError, map_parse_errors

_CHECKPOINT_VERSION = 0
TOPIC_ID = re.compile(r"version: ?0\s+topic_id: ?([\w-]{22})", re.ASCII)

PRIVATE_MODE = 0o600


def write_atomically(path: Path, content: bytes, *, is_private: bool = False) -> None:
    """Replace the file in one step; only its owner reads a private one. Raises OSError; the file is as before then."""
    temporary = path.with_name(path.name + ".tmp")
    if is_private:
        disk.unlink(temporary)  # of a crash, which may have another mode
    disk.write_file(temporary, content, mode=PRIVATE_MODE if is_private else 0o666, is_synced=True)
    disk.replace(temporary, path)


def write_checkpoint(path: Path, lines: Iterable[str]) -> None:
    """Write a checkpoint with these lines. Raises OSError."""
    entries = list(lines)
    text = "\n".join([str(_CHECKPOINT_VERSION), str(len(entries)), *entries])
    write_atomically(path, (text + "\n").encode())


def read_checkpoint(path: Path, fields: int) -> list[list[str]]:
    """Return the entries, each split into `fields` words; [] without a file, or of an empty one, as Kafka makes it.

    Raises CorruptFileError.
    """
    try:
        with map_parse_errors(path):
            text = disk.read_file(path).decode()
    except FileNotFoundError:
        return []
    if not text:
        return []
    lines = text.splitlines()
    if len(lines) < 2 or not text.endswith("\n"):  # the last number may have lost digits
        raise CorruptFileError(f"{path}: the file is cut short")
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
    """A checkpoint with one offset for each partition: `topic partition offset`. Any thread may write it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = threading.Lock()  # two writers would replace each other's temporary file
        self._numbers = count(1)  # of the writes, in the order they were prepared
        self._written = 0

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets; {} without a file. Raises CorruptFileError."""
        with map_parse_errors(self.path):
            return {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partition, offset in read_checkpoint(self.path, 3)
            }

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file. Raises OSError; the file is as before then."""
        self.prepare_write(offsets)()

    def prepare_write(self, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """Return the write of these offsets, to be called later; it does nothing after a newer one was called."""
        return partial(self._write, offsets, next(self._numbers))

    def _write(self, offsets: Mapping[TopicPartition, int], number: int) -> None:
        with self._writing:
            if number > self._written:
                write_checkpoint(self.path, (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()))
                self._written = number


class MetaProperties(NamedTuple):
    """The owner of a directory. Kafka 2.0 keeps the cluster id in ZooKeeper: None where Kafka wrote the file.

    Kafka without ZooKeeper writes version 1, in which the broker has a `node.id`.
    """

    broker_id: int
    cluster_id: str | None = None


def read_meta_properties(path: Path) -> MetaProperties | None:
    """Return the directory's owner; None in a new directory. Raises CorruptFileError."""
    try:
        lines = disk.read_file(path).decode("latin-1").splitlines()
    except FileNotFoundError:
        return None
    pairs = [line.partition("=") for line in lines if not line.startswith("#")]
    properties = {name.strip(): value.strip() for name, _, value in pairs}
    broker_id = {"0": "broker.id", "1": "node.id"}.get(properties.get("version", ""))
    if broker_id is None:
        raise CorruptFileError(f"{path}: unrecognized version {properties.get('version')!r}")
    if not properties.get(broker_id, "").isdecimal():
        raise CorruptFileError(f"{path}: {broker_id} is missing or not a number")
    return MetaProperties(int(properties[broker_id]), properties.get("cluster.id"))


def read_topic_id(path: Path) -> str | None:
    """Return the topic's id in the `partition.metadata` of a later Kafka (2.8); None without the file.

    Raises CorruptFileError.
    """
    try:
        text = disk.read_file(path).decode()
    except FileNotFoundError:
        return None
    found = TOPIC_ID.fullmatch(text.strip())
    if found is None:
        raise CorruptFileError(f"{path}: has no topic id")
    return found[1]


def write_meta_properties(path: Path, meta: MetaProperties, *, now_ms: int) -> None:
    """Write the file as Java's Properties does: an empty comment and the date first."""
    date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms // 1000))
    lines = ["#", f"#{date}", f"broker.id={meta.broker_id}", "version=0"]
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    write_atomically(path, ("\n".join(lines) + "\n").encode("latin-1"))
