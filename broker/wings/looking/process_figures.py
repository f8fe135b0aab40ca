"""The figures of this process: memory, processor time, descriptors; those in /proc are of Linux alone."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path

from minibroker.broker.cluster.open_files import OPEN_FILES, PROC_FILES, count_open_files

PROC = Path("/proc/self")
LISTED_MAX = 500
START_TIME_AT = 19  # in /proc/self/stat, behind the name of the command


def process_figures(connections: int) -> dict[str, float]:
    """Return the figures that Prometheus has of a process, and the time of the thread that serves.

    The descriptors are left out with thousands of connections on an old Linux, where it takes milliseconds.
    """
    return {
        "cpu_seconds": time.process_time(),
        "max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        **open_fds(connections),
        **(figures_of_linux() if PROC.exists() else {}),
    }


def figures_of_linux() -> dict[str, float]:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    pages = (PROC / "statm").read_text().split()
    return {
        "resident_bytes": int(pages[1]) * page_bytes,
        "virtual_bytes": int(pages[0]) * page_bytes,
        "loop_seconds": loop_seconds(),
        "start_time_seconds": start_time_seconds(),
    }


def open_fds(connections: int) -> dict[str, float]:
    is_counted_by_linux = OPEN_FILES is PROC_FILES and os.stat(OPEN_FILES).st_size > 0
    return {"open_fds": count_open_files()} if is_counted_by_linux or connections < LISTED_MAX else {}


def loop_seconds() -> float:
    """The processor time of the thread that serves; the rest of the process's is of threads for disk work."""
    ident = threading.main_thread().ident
    assert ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(ident))


def start_time_seconds() -> float:
    """Return the start of the process, in seconds since the epoch."""
    stat = (PROC / "stat").read_text()
    ticks = int(stat[stat.rindex(")") + 2 :].split()[START_TIME_AT])
    boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
