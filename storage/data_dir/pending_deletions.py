"""Removes the files of segments that have left their log, and the directories of deleted partitions.

Removing a large file takes the disk tens of milliseconds, when it is unlinked or, if it is open, closed. A thread does
both: it gets the last reference to the file.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from minibroker.storage.segment.log_segment import LogSegment

logger = logging.getLogger(__name__)


class PendingDeletions:
    """Files to be removed now; call `run` once, in any thread."""

    def __init__(self, directories: list[Path], segments: list[LogSegment]) -> None:
        """Take ownership of the lists."""
        self._directories = directories
        self._segments = segments

    def __len__(self) -> int:
        return len(self._directories) + len(self._segments)

    def run(self) -> None:
        """Remove them all; log a directory that cannot be removed. Raises OSError for a segment."""
        while self._directories:
            shutil.rmtree(self._directories.pop(), onerror=_log_failed_removal)
        while self._segments:
            segment = self._segments.pop()
            segment.delete_if_exists()
            logger.info("%s: deleted segment %d", segment.path.parent.name, segment.base_offset)


def _log_failed_removal(function: object, path: str, exception_info: object) -> None:
    logger.error("cannot remove %s: %s", path, exception_info)
