"""Files that nobody needs any more: segments that left their log, directories of deleted partitions.

To remove a large file takes the disk tens of milliseconds, and happens when it is unlinked or, if it is open, when
it is closed. So a thread does both: it is handed the last reference there is.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from minibroker.storage.segment.log_segment import LogSegment

logger = logging.getLogger(__name__)


class PendingDeletions:
    """What is to be removed now; `run` once, in any thread."""

    def __init__(self, directories: list[Path], segments: list[LogSegment]) -> None:
        """Take the lists over."""
        self._directories = directories
        self._segments = segments

    def __len__(self) -> int:
        return len(self._directories) + len(self._segments)

    def run(self) -> None:
        """Remove them all; a directory that cannot be removed is logged. Raises OSError for a file."""
        while self._directories:
            shutil.rmtree(self._directories.pop(), onerror=_log_failed_removal)
        while self._segments:
            segment = self._segments.pop()
            segment.delete_if_exists()
            logger.info("%s: deleted segment %d", segment.path.parent.name, segment.base_offset)


def _log_failed_removal(function: object, path: str, exception_info: object) -> None:
    logger.error("cannot remove %s: %s", path, exception_info)
