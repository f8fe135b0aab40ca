"""Fixtures of every test package. Those that start processes are in integration/."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """The folder of bytes recorded from Apache Kafka 2.0.1."""
    return GOLDEN
