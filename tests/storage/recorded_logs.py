"""The data directory that Apache Kafka 2.0.1 left behind after a clean stop, to read and to compare with."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import GOLDEN
from tests.unpacking import unpack

STOPPED_AT_MS = 1795246114000  # Sat Nov 21 07:28:34 UTC 2026, as its meta.properties says


def unpack_recorded_logs(directory: Path) -> Path:
    """Unpack the recorded directory; return where."""
    return unpack(GOLDEN / "kafka-2.0.1-logs.tar.gz", directory)


def recorded_files(directory: Path, pattern: str) -> list[Path]:
    """Return the recorded files of a kind; a test that goes through none of them would claim nothing."""
    found = sorted(unpack_recorded_logs(directory).rglob(pattern))
    assert found
    return found
