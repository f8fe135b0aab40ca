"""Empty and small logs, segments and directories to begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.log.log import Log
from minibroker.storage.segment.log_segment import LogSegment
from tests.storage.logs import open_log, roll_three
from tests.storage.managers import opened
from tests.storage.segments import open_segment


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """An empty log with default settings."""
    return open_log(tmp_path)


@pytest.fixture
def rolled(tmp_path: Path) -> Log:
    """A log of nine records, in segments at 0, 3 and 6."""
    return roll_three(tmp_path)


@pytest.fixture
def segment(tmp_path: Path) -> LogSegment:
    """An empty segment at offset 0."""
    return open_segment(tmp_path)


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    """A data directory without logs."""
    return opened(tmp_path)
