"""The output of a job: lines of text or of JSON, a table of text, and one picture."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEGEND_CHARACTERS = 28
# Of the demo's picture, too.
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#6b6b6b",
    "axes.grid": True,
    "axes.prop_cycle": "cycler('color', ['#cb2f3f', '#2f6ecb', '#f98e52', '#4d0a35', '#3b8a6e', '#6b6b6b'])",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "figure.figsize": (10, 5),
    "font.size": 10,
    "grid.color": "#e3e3e3",
    "savefig.dpi": 150,
    "text.color": "#222222",
}


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows under their head; numbers stand to the right, with commas."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    right = [any(isinstance(row[column], int | float) for row in rows) for column in range(len(head))]
    lines = (
        "  ".join(
            f"{cell:>{width}}" if to_right else f"{cell:<{width}}"
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def shortened(name: str) -> str:
    """Return a name that fits into a legend."""
    return name if len(name) <= LEGEND_CHARACTERS else f"{name[: LEGEND_CHARACTERS - 1]}…"


@contextmanager
def picture(path: Path, title: str) -> Iterator[Axes]:
    """Give axes to draw on, and write them to a PNG file at the end."""
    # Takes half a second, and a window system for its usual face.
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(STYLE):
        figure = Figure()
        axes = figure.subplots()
        axes.set_title(title)
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def say(arguments: argparse.Namespace, facts: Mapping[str, Any], text: str) -> None:
    """Print facts as a line of JSON, or their text, as was asked for."""
    print(json.dumps(facts) if arguments.json else text, flush=True)


def say_rows(arguments: argparse.Namespace, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a line of JSON for each row, or a table, as was asked for."""
    if arguments.json:
        for row in rows:
            print(json.dumps(dict(zip(head, row, strict=True))), flush=True)
    else:
        print(table(head, rows), flush=True)
