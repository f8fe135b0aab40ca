"""Compares pictures of pages with those that were looked at and kept, by the share of pixels that differ."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

TOLERANCE = 0.001  # of all pixels
VISIBLE = 24  # of 255: less is another rounding of an edge
KEEP = "MINIBROKER_PICTURES"


def share_that_differs(one: bytes, other: bytes) -> float:
    """The share of pixels that an eye could tell apart; 1 if the sizes differ."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'minibroker[demo]'")
    chops = pytest.importorskip("PIL.ImageChops")
    first, second = (image.open(io.BytesIO(each)).convert("RGB") for each in (one, other))
    if first.size != second.size:
        return 1.0
    bands = chops.difference(first, second).split()
    worst = chops.lighter(chops.lighter(bands[0], bands[1]), bands[2])
    histogram: list[int] = worst.histogram()
    width, height = first.size
    return float(sum(histogram[VISIBLE:]) / (width * height))


def check_picture(picture: bytes, kept: Path, seen_in: Path, *, tolerance: float = TOLERANCE) -> None:
    """Fail if `picture` differs from the kept one; with MINIBROKER_PICTURES=keep, keep it instead."""
    if os.environ.get(KEEP) == "keep":
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(picture)
        return
    seen = seen_in / kept.name
    seen.write_bytes(picture)
    how = f"compare {seen} with {kept}; if the new one is right, run the test again with {KEEP}=keep"
    assert kept.exists(), f"{kept} is not there; {how}"
    share = share_that_differs(picture, kept.read_bytes())
    assert share <= tolerance, f"{share:.2%} of the pixels differ; {how}"
