"""Refuses partitions for whose logs this process may not open enough files, and connections, before it is out of them.

A log holds one open file. Without this check the last logs of a large topic would fail, and then every connection and
every read of the partitions that are there.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.text import counted

PROC_FILES = Path("/proc/self/fd")
OPEN_FILES = PROC_FILES if PROC_FILES.exists() else Path("/dev/fd")  # as of macOS
# Of the limit, for connections, reads of older segments, and files that are open for a moment.
KEPT_FREE = 0.1
KEPT_FREE_MAX = 1000
KEPT_FROM_CONNECTIONS_MAX = 100


def count_open_files() -> int:
    """The descriptors of this process."""
    known = os.stat(PROC_FILES).st_size if OPEN_FILES is PROC_FILES else 0  # since Linux 6.2
    return known or len(os.listdir(OPEN_FILES)) - 1  # one of them lists


def descriptors_of_connections() -> int:
    """The descriptor from which on connections get none: the others are for logs, other brokers and control."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - min(KEPT_FROM_CONNECTIONS_MAX, int(limit * KEPT_FREE))


def check_open_files(partitions: int) -> None:
    """Raises KafkaError(POLICY_VIOLATION) if logs of so many more partitions would come too close to the limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return
    free = limit - count_open_files() - min(KEPT_FREE_MAX, int(limit * KEPT_FREE))
    if partitions > free:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Logs of {counted(partitions, 'partition')} need as many open files, and this broker may open "
            f"{max(0, free)} more of {limit}; start it with a higher limit (ulimit -n).",
        )
