"""Draws the picture that `make run` ends with, from the flights themselves: flight-delays.png, and a dark one.

    python docs/pictures/flight_delays.py

`make run` compares Spark's result with the flights, row for row, before it draws the same. A test draws this one again.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image

from minibroker.demo import chart, flights

WIDTH_PX = 1280
COLOURS = 128
KEPT = {
    Path(__file__).with_name("flight-delays.png"): chart.LIGHT,
    Path(__file__).with_name("flight-delays-dark.png"): chart.DARK,
}


def drawn(theme: chart.Theme) -> bytes:
    """The PNG of a year."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "year.png"
        chart.draw(flights.expected_delays(flights.load()), flights.airline_names(), path, theme)
        with Image.open(path) as picture:
            height = round(picture.height * WIDTH_PX / picture.width)
            small = picture.convert("RGB").resize((WIDTH_PX, height), Image.Resampling.LANCZOS)
    written = io.BytesIO()
    small.quantize(COLOURS, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    return written.getvalue()


if __name__ == "__main__":
    for kept, theme in KEPT.items():
        kept.write_bytes(drawn(theme))
