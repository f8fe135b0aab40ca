"""Draws the case `scale` of a run as curves: what more connections, partitions and bytes of log cost a request.

    make bench BENCH="--only scale"
    python -m benchmarks.curves out/benchmarks.json > scale.svg

The ones in docs/scale.md are of docs/diagrams/scale.json, such a run. Both axes are logarithmic, which the drawing
says. A point is the median of the rounds, a line through it spans all of them.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from benchmarks.chart import CONTENDERS, STYLE, legend
from benchmarks.report import number

METRIC = re.compile(r"(?P<grown>[a-z]+)_(?P<count>\d+)_(?P<what>[a-z]+)_(?P<metric>per_s|p99_us|cpu_us)")
# What is drawn: the title of each panel.
PANELS = {
    ("connections", "produces", "per_s"): "produces a second, over connections",
    ("connections", "produces", "p99_us"): "p99 of a produce in µs, over connections",
    ("partitions", "produces", "cpu_us"): "CPU of a produce in µs, over partitions",
    ("partitions", "fetches", "cpu_us"): "CPU of a fetch in µs, over partitions",
    ("gibibytes", "produces", "cpu_us"): "CPU of a produce in µs, over GiB of log",
    ("gibibytes", "fetches", "cpu_us"): "CPU of a fetch in µs, over GiB of log",
}
COLUMNS = 2
WIDTH, PANEL_WIDTH, PANEL_HEIGHT, TOP = 860, 430, 210, 62
LEFT, RIGHT, HEAD, FOOT = 56, 56, 30, 26
LABEL_HEIGHT = 11
LEAST_SPAN = 10  # of the largest value to the smallest in a panel: what is nearly level looks level
NOTE = "Both axes of each panel are logarithmic: a step of the same height is the same factor everywhere in it."
CURVES = """
  .line { fill: none; stroke-width: 2 } .axis { stroke: #7c8894 } .line.raw { stroke-dasharray: 5 3 }
  .line.pure { stroke: #1b5cb0 } .line.compiled { stroke: #b4470d } .line.kafka { stroke: #7c8894 }
  circle.raw { stroke-width: 1.5; fill: #fcfcfa }
  @media (prefers-color-scheme: dark) {
    .line.pure { stroke: #79b4ff } .line.compiled { stroke: #ff9f60 } .line.kafka { stroke: #626e79 }
    circle.raw { fill: #131b22 }
  }"""


class Point(NamedTuple):
    grown_to: int
    median: float
    low: float
    high: float


Curve = list[Point]


def picture(run: Mapping[str, Any]) -> str:
    """The curves of a run, from the JSON that `make bench` writes. Raises ValueError if it has none."""
    panels = {title: found for key, title in PANELS.items() if (found := curves_of(run, key))}
    if not panels:
        raise ValueError('the run has no curves: make bench BENCH="--only scale"')
    height = TOP + PANEL_HEIGHT * math.ceil(len(panels) / COLUMNS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f"<style>{STYLE}{CURVES}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        *legend({each for curves in panels.values() for each in curves}),
        f'<text class="note" x="{LEFT}" y="46">{NOTE}</text>',
    ]
    for slot, (title, curves) in enumerate(panels.items()):
        x, y = PANEL_WIDTH * (slot % COLUMNS), TOP + PANEL_HEIGHT * (slot // COLUMNS)
        lines += panel(title, curves, x, y)
    return "\n".join([*lines, "</svg>"])


def curves_of(run: Mapping[str, Any], key: tuple[str, str, str]) -> dict[str, Curve]:
    """The points of one quantity by contender, in the order of what grows."""
    curves: dict[str, Curve] = {}
    for each in run["measurements"]:
        match = METRIC.fullmatch(each["metric"])
        if match is None or (match["grown"], match["what"], match["metric"]) != key:
            continue
        for contender in CONTENDERS:
            if found := each["contenders"].get(contender):
                point = Point(int(match["count"]), found["median"], found["low"], found["high"])
                curves.setdefault(contender, []).append(point)
    return {contender: sorted(curve) for contender, curve in curves.items()}


def panel(title: str, curves: Mapping[str, Curve], x: int, y: int) -> Iterator[str]:
    points = [point for curve in curves.values() for point in curve]
    counts = sorted({point.grown_to for point in points})
    least, most = min(point.low for point in points), max(point.high for point in points)
    widened = max(1.5, math.sqrt(LEAST_SPAN * least / most))
    least, most = least / widened, most * widened
    width, height = PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - HEAD - FOOT

    def across(grown_to: int) -> float:
        return x + LEFT + width * share(grown_to, counts[0], counts[-1])

    def up(value: float) -> float:
        return y + HEAD + height * (1 - share(value, least, most))

    bottom = y + HEAD + height
    yield f'<text class="text" x="{x + LEFT}" y="{y + 18}">{escape(title)}</text>'
    yield f'<path class="axis" d="M{x + LEFT} {bottom}H{x + LEFT + width}"/>'
    for count in counts:
        yield f'<text class="note" x="{across(count):.1f}" y="{bottom + 16}" text-anchor="middle">{count:,}</text>'
    for contender, curve in curves.items():
        style = CONTENDERS[contender]
        way = "L".join(f"{across(point.grown_to):.1f} {up(point.median):.1f}" for point in curve)
        yield f'<path class="line {style}" d="M{way}"/>'
        for point in curve:
            place = across(point.grown_to)
            yield f'<path class="line {style}" d="M{place:.1f} {up(point.low):.1f}V{up(point.high):.1f}"/>'
            yield f'<circle class="{style}" cx="{place:.1f}" cy="{up(point.median):.1f}" r="3"/>'
    for end, anchor, shift in ((0, "end", -8), (-1, "start", 6)):
        labelled = sorted((up(curve[end].median) + 4, curve[end]) for curve in curves.values())
        place = -math.inf
        for y_wanted, point in labelled:
            place = max(place + LABEL_HEIGHT, y_wanted)
            where = f'x="{across(point.grown_to) + shift:.1f}" y="{place:.1f}" text-anchor="{anchor}"'
            yield f'<text class="note" {where}>{number(point.median)}</text>'


def share(value: float, least: float, most: float) -> float:
    """The place of a value between two others, by their logarithms."""
    return math.log(value / least) / math.log(most / least) if most > least else 0.5


if __name__ == "__main__":
    print(picture(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
