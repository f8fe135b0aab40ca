"""The source of the project: its packages, and their files."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLKIT = "src/minibroker"  # what users touch; beside it in `src` are links to the other packages
PARTS = (
    "protocol",
    "storage",
    "purgatory",
    "schemas",
    "zookeeper",
    "transcript",
    "broker",
    "conformance",
    "simulation",
    "spark_jobs",
)
PACKAGES = (*PARTS, TOOLKIT)


def source_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """Parse a file, once for all tests of a process."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))
