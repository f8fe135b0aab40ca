"""Compares pictures of pages with those that were looked at and kept, by the share of pixels that differ."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import cast

import pytest

TOLERANCE = 0.001  # of all pixels
VISIBLE = 24  # of 255: less is another rounding of an edge
KEEP = "MINIBROKER_PICTURES"


def share_that_differs(one: bytes, other: bytes) -> float:
    """The share of pixels that an eye could tell apart; 1 if the sizes differ."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install -e '.[demo]'")
    chops = pytest.importorskip("PIL.ImageChops")
    first, second = (image.open(io.BytesIO(each)).convert("RGB") for each in (one, other))
    if first.size != second.size:
        return 1.0
    bands = chops.difference(first, second).split()
    worst = chops.lighter(chops.lighter(bands[0], bands[1]), bands[2])
    histogram: list[int] = worst.histogram()
    width, height = first.size
    return float(sum(histogram[VISIBLE:]) / (width * height))


def difference(picture: bytes, kept: Path, seen_in: Path, *, tolerance: float = TOLERANCE) -> str | None:
    """How `picture` differs from the kept one, if it does; with MINIBROKER_PICTURES=keep, one that differs is kept."""
    share = share_that_differs(picture, kept.read_bytes()) if kept.exists() else 1.0
    if share <= tolerance:
        return None
    if os.environ.get(KEEP) == "keep":
        kept.parent.mkdir(parents=True, exist_ok=True)
        small = smaller(picture)
        kept.write_bytes(small if share_that_differs(picture, small) <= tolerance / 2 else picture)
        return None
    seen = seen_in / kept.name
    seen.write_bytes(picture)
    how = f"compare {seen} with {kept}; if the new one is right, run the test again with {KEEP}=keep"
    return f"{share:.2%} of the pixels differ; {how}" if kept.exists() else f"{kept} is not there; {how}"


def check_picture(picture: bytes, kept: Path, seen_in: Path, *, tolerance: float = TOLERANCE) -> None:
    """Fail if `picture` differs from the kept one; with MINIBROKER_PICTURES=keep, keep it instead."""
    differs = difference(picture, kept, seen_in, tolerance=tolerance)
    assert differs is None, differs


def smaller(picture: bytes) -> bytes:
    """The picture in its 256 commonest colours, which is a third of its bytes."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    colours = sorted(image.getcolors(image.width * image.height) or [], reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in colours for part in cast(tuple[int, int, int], colour)])
    output = io.BytesIO()
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(output, "PNG", optimize=True)
    return output.getvalue()
