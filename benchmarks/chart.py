"""Draws the small requests of a run as bars: pure, compiled, Apache Kafka and raw sockets, side by side.

    make bench BENCH="--compiled"
    python -m benchmarks.chart out/benchmarks.json > speed.svg

The one in README is of docs/diagrams/speed.json, the rates of such a run. A bar is the median of the rounds; a line
over its end spans all of them. The colours are the console's tokens; raw sockets, which are no broker, are an outline.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.measurements import COMPILED, KAFKA, MINIBROKER, RAW
from benchmarks.report import number

# What is drawn, in this order, under these names; what a run has not measured is left out.
ROWS = {
    "api_versions_per_s": "ApiVersions",
    "metadata_per_s": "Metadata of ten partitions",
    "session_per_s": "Fetch in a session of ten partitions, at the end",
    "appended_per_s": "the same, an append every ten",
    "moving_per_s": "full Fetch of ten partitions, at offsets that move",
    "produce_per_s": "Produce of one 100 B batch",
    "commits_per_s": "OffsetCommit of one partition",
    "heartbeats_per_s": "Heartbeat",
    "transactions_per_s": "transactions of one message",
}
CONTENDERS = {MINIBROKER: "pure", COMPILED: "compiled", KAFKA: "kafka", RAW: "raw"}

WIDTH, LEFT, RIGHT, TOP = 860, 330, 70, 68
BAR, GAP, ROW_GAP = 11, 2, 14
NOTE = "Each row has a scale of its own. A bar is the median, the line over its end the range."
STYLE = """
  .page { fill: #fcfcfa } .text { fill: #16202a } .note { fill: #46535f }
  .spread { stroke: #16202a } .spread.within { stroke: #fcfcfa }
  .pure { fill: #1b5cb0 } .compiled { fill: #b4470d } .kafka { fill: #7c8894 } .raw { stroke: #626e79; fill: none }
  text { font: 13px ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif }
  .note { font-size: 11px }
  @media (prefers-color-scheme: dark) {
    .page { fill: #131b22 } .text { fill: #e8edf0 } .note { fill: #aebac4 }
    .spread { stroke: #e8edf0 } .spread.within { stroke: #131b22 }
    .pure { fill: #79b4ff } .compiled { fill: #ff9f60 } .kafka { fill: #626e79 } .raw { stroke: #8a97a3 }
  }"""

Row = dict[str, Mapping[str, float]]  # contender -> median, low, high


def picture(run: Mapping[str, Any]) -> str:
    """The chart of a run, from the JSON that `make bench` writes. Raises ValueError if it has none of the rows."""
    rows = dict(rows_of(run))
    if not rows:
        raise ValueError("the run has none of the small requests: --only requests --only consumers --only groups")
    lines: list[str] = []
    y = TOP
    for text, row in rows.items():
        lines += bars(text, row, y)
        y += len(row) * (BAR + GAP) + ROW_GAP
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}">',
        f"<style>{STYLE}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{y}"/>',
        *legend({each for row in rows.values() for each in row}),
        f'<text class="note" x="{LEFT}" y="46">{NOTE}</text>',
    ]
    return "\n".join([*head, *lines, "</svg>"])


def rows_of(run: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    measured = {each["metric"]: each["contenders"] for each in run["measurements"] if each["unit"] == "1/s"}
    for metric, text in ROWS.items():
        row = {each: measured[metric][each] for each in CONTENDERS if each in measured.get(metric, {})}
        if row:
            yield text, row


def legend(present: set[str]) -> Iterator[str]:
    x = LEFT
    for contender, style in CONTENDERS.items():
        if contender in present:
            yield f'<rect class="{style}" x="{x}" y="14" width="{BAR}" height="{BAR}"/>'
            yield f'<text class="text" x="{x + BAR + 5}" y="24">{escape(contender)}</text>'
            x += 30 + 7 * len(contender)


def bars(text: str, row: Row, y: int) -> Iterator[str]:
    """One request: each row has a scale of its own, since the ratios count."""
    scale = (WIDTH - LEFT - RIGHT) / max(found["high"] for found in row.values())
    middle = y + (len(row) * (BAR + GAP)) / 2
    yield f'<text class="text" x="{LEFT - 12}" y="{middle + 3:.0f}" text-anchor="end">{escape(text)}</text>'
    for slot, (contender, found) in enumerate(row.items()):
        top = y + slot * (BAR + GAP)
        end = LEFT + found["median"] * scale
        low, high = LEFT + found["low"] * scale, LEFT + found["high"] * scale
        label = number(found["median"])
        yield f'<rect class="{CONTENDERS[contender]}" x="{LEFT}" y="{top}" width="{end - LEFT:.1f}" height="{BAR}"/>'
        within = "spread" if contender == RAW else "spread within"  # on the colour of a bar, that of the page
        yield f'<path class="{within}" d="M{low:.1f} {top + BAR / 2:.1f}H{end:.1f}"/>'
        yield f'<path class="spread" d="M{end:.1f} {top + BAR / 2:.1f}H{high:.1f}"/>'
        yield f'<text class="note" x="{max(end, high) + 5:.1f}" y="{top + BAR - 1}">{label}/s</text>'


if __name__ == "__main__":
    print(picture(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
