"""Makes and parses every file name of a log directory.

    <topic>-<partition>/                    00000000000000000042.log         records from offset 42
    <topic>-<partition>.<uuid>-delete/      00000000000000000042.index       offset -> position
    recovery-point-offset-checkpoint        00000000000000000042.timeindex   timestamp -> offset
    log-start-offset-checkpoint             00000000000000000042.txnindex    aborted transactions
    replication-offset-checkpoint           00000000000000000042.snapshot    producer state below offset 42
    cleaner-offset-checkpoint               leader-epoch-checkpoint
    meta.properties, .lock, .kafka_cleanshutdown

A name that belongs to no log is parsed to None. Nothing here touches a file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from minibroker.protocol.primitives import TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

# The four files of a segment.
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
INDEX_SUFFIXES = SEGMENT_SUFFIXES[1:]

# What may follow them.
DELETED_SUFFIX = ".deleted"  # out of the log, removed after `file.delete.delay.ms`
CLEANED_SUFFIX = ".cleaned"  # being written by the cleaner
SWAP_SUFFIX = ".swap"  # finished by the cleaner, about to replace the original
QUARANTINED_SUFFIX = ".quarantined"  # set aside by recovery, never read nor removed
DELETE_DIRECTORY_SUFFIX = "-delete"  # a directory of a deleted partition
STRAY_DIRECTORY_SUFFIX = "-stray"  # one that the cluster does not know, as kafka 3.7; never read nor removed

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"  # of a later Kafka
METADATA_LOG = "__cluster_metadata"  # of Kafka without ZooKeeper: no topic
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

_MAX_FILE_NAME_BYTES = 255

_SEGMENT_FILE = re.compile(r"(\d{20})(\.[a-z]+)((?:\.[a-z]+)*)", re.ASCII)
_PARTITION_DIRECTORY = re.compile(r"(\S+)-(\d+)", re.ASCII)
_DELETED_DIRECTORY = re.compile(r"(\S+)-(\d+)\.(\S+)-delete", re.ASCII)


class SegmentFileName(NamedTuple):
    base_offset: int
    suffix: str  # ".log", ".index", ...
    extra: str  # "", ".deleted", ".cleaned", ".swap"


def segment_file(directory: Path, base_offset: int, suffix: str, extra: str = "") -> Path:
    """Return the path of one of a segment's files; `extra` follows its suffix."""
    return directory / f"{base_offset:020d}{suffix}{extra}"


def parse_segment_file(name: str) -> SegmentFileName | None:
    """Parse the name; return None for a file that belongs to no segment."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None:
        return None
    return SegmentFileName(int(match[1]), match[2], match[3])


def partition_directory_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def deleted_directory_name(
    topic_partition: TopicPartition, unique_id: str, suffix: str = DELETE_DIRECTORY_SUFFIX
) -> str:
    """Return a name for the directory of a deleted partition, or of a stray.

    A long topic is cut, as a file name ends at 255 bytes.
    """
    rest = f"-{topic_partition.partition}.{unique_id}{suffix}"
    return topic_partition.topic[: _MAX_FILE_NAME_BYTES - len(rest)] + rest


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Return the partition; None for a directory of another kind, or of a partition that is being deleted."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or match[1] == METADATA_LOG:
        return None
    return TopicPartition(match[1], int(match[2]))


def is_deleted_directory(name: str) -> bool:
    return _DELETED_DIRECTORY.fullmatch(name) is not None
