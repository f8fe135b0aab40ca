"""The offsets of all logs that are written down beside them, each kind in a file of its own.

    recovery-point-offset-checkpoint    below this everything has been fsynced
    log-start-offset-checkpoint         only logs that begin inside their first segment
    replication-offset-checkpoint       high watermarks
    cleaner-offset-checkpoint           below this a log has been compacted

They only save work, or hide what was deleted: one that cannot be read is done without, and written anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files.files import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptFileError,
    OffsetCheckpointFile,
)

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


class LogCheckpoints(NamedTuple):
    """The files of one log directory."""

    recovery_points: OffsetCheckpointFile
    log_start_offsets: OffsetCheckpointFile
    high_watermarks: OffsetCheckpointFile
    cleaner_offsets: OffsetCheckpointFile

    @classmethod
    def of(cls, log_dir: Path) -> LogCheckpoints:
        return cls(
            OffsetCheckpointFile(log_dir / RECOVERY_POINT_CHECKPOINT),
            OffsetCheckpointFile(log_dir / LOG_START_OFFSET_CHECKPOINT),
            OffsetCheckpointFile(log_dir / HIGH_WATERMARK_CHECKPOINT),
            OffsetCheckpointFile(log_dir / CLEANER_OFFSET_CHECKPOINT),
        )


def read_offsets(file: OffsetCheckpointFile) -> Offsets:
    """Return what was written down last, nothing if that cannot be read."""
    try:
        return file.read()
    except CorruptFileError as error:
        logger.warning("%s; doing without it", error)
        return {}


def later_cleaner_offsets(file: OffsetCheckpointFile, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
    """Return the write of how far logs are compacted, which leaves a file alone that says so. It raises OSError."""
    write_offsets = file.later(offsets)

    def write() -> None:
        try:
            is_known = file.read() == offsets
        except CorruptFileError:
            is_known = False
        if not is_known:
            write_offsets()

    return write
