"""Keeps offsets of all logs in files beside them, one file for each kind of offset.

    recovery-point-offset-checkpoint    below this everything has been fsynced
    log-start-offset-checkpoint         of logs that begin inside their first segment
    replication-offset-checkpoint       high watermarks
    cleaner-offset-checkpoint           below this a log has been compacted

They save work, or hide deleted records: a corrupt one is ignored, and replaced by the next write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files.checkpoints import OffsetCheckpointFile
from minibroker.storage.files.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from minibroker.storage.files.storage_errors import CorruptFileError

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


class LogCheckpoints(NamedTuple):
    """The checkpoints of one log directory."""

    recovery_points: OffsetCheckpointFile
    log_start_offsets: OffsetCheckpointFile
    high_watermarks: OffsetCheckpointFile
    cleaner_offsets: OffsetCheckpointFile

    @classmethod
    def of(cls, log_dir: Path) -> LogCheckpoints:
        """Name the files; none is read or created."""
        return cls(
            OffsetCheckpointFile(log_dir / RECOVERY_POINT_CHECKPOINT),
            OffsetCheckpointFile(log_dir / LOG_START_OFFSET_CHECKPOINT),
            OffsetCheckpointFile(log_dir / HIGH_WATERMARK_CHECKPOINT),
            OffsetCheckpointFile(log_dir / CLEANER_OFFSET_CHECKPOINT),
        )


def read_offsets(file: OffsetCheckpointFile) -> Offsets:
    """Return the offsets of the last write; {} if the file is missing or corrupt."""
    try:
        return file.read()
    except CorruptFileError as error:
        logger.warning("ignoring a corrupt checkpoint: %s", error)
        return {}


def prepare_cleaner_offsets(file: OffsetCheckpointFile, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
    """Return the write of how far logs are compacted; it skips a file with the same content. It raises OSError."""
    write_offsets = file.prepare_write(offsets)

    def write() -> None:
        try:
            is_current = file.read() == offsets
        except CorruptFileError:
            is_current = False
        if not is_current:
            write_offsets()

    return write
