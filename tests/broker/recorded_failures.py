"""Recorded answers to requests that fail as a whole: of every API, in every version (`test_failures.py`)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden"


def recorded() -> Iterator[dict[str, Any]]:
    for path in sorted(GOLDEN.glob("whole-request-failures*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            yield from map(json.loads, lines)
