"""The report of a run: a table of all measurements, a table of the goals, and a JSON file with every sample."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.goals import MET, MISSED, Verdict
from benchmarks.measurements import (
    BEFORE,
    COMPILED,
    KAFKA,
    KAFKA_3,
    LATER_KAFKA,
    MINIBROKER,
    PLAIN,
    RAW,
    ROUNDS_TO_CONCLUDE,
    Measurement,
    Spread,
)

CONTENDERS = (MINIBROKER, COMPILED, BEFORE, PLAIN, KAFKA, KAFKA_3, LATER_KAFKA, RAW)
# The columns of ratios: of which contender, to which other.
RATIOS = {
    "× before": (MINIBROKER, BEFORE),
    "× plain": (MINIBROKER, PLAIN),
    "× Kafka": (MINIBROKER, KAFKA),
    "× Kafka 3.9": (MINIBROKER, KAFKA_3),
    "× Kafka 4.4": (MINIBROKER, LATER_KAFKA),
    "× raw": (MINIBROKER, RAW),
    "compiled × pure": (COMPILED, MINIBROKER),
    "compiled × Kafka": (COMPILED, KAFKA),
    "compiled × Kafka 3.9": (COMPILED, KAFKA_3),
    "compiled × Kafka 4.4": (COMPILED, LATER_KAFKA),
}
MARK_STYLES = {MET: "green", MISSED: "red"}
PACKAGES = ("trio", "construct", "crc32c", "confluent-kafka", "pyspark")
SIGNIFICANT_DIGITS = 3
THOUSAND, MILLION = 1000, 1_000_000
WIDE_COLUMNS = 160  # what the widest table needs with every spread on the line of its median


def number(value: float) -> str:
    """Three significant digits; k for thousands, M for millions."""
    rounded = float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    if abs(rounded) >= MILLION:
        return f"{rounded / MILLION:g}M"
    return f"{rounded / THOUSAND:g}k" if abs(rounded) >= THOUSAND else f"{rounded:g}"


def spread_text(found: Spread | None, separator: str = " ") -> str:
    """median [low-high]; empty without a sample."""
    if found is None:
        return ""
    return escape(f"{number(found.median)}{separator}[{number(found.low)}-{number(found.high)}]")


def new_console() -> Console:
    """A terminal as wide as it is; a file or a pipe as wide as the tables."""
    return Console() if sys.stdout.isatty() else Console(width=WIDE_COLUMNS)


def show_measurements(console: Console, measurements: Sequence[Measurement]) -> None:
    """One row for each quantity."""
    title = escape("median [min-max] of all rounds; ratios are minibroker's to the other's, round by round")
    table = Table(title=title)
    separator = " " if console.width >= WIDE_COLUMNS else "\n"
    present = [name for name in CONTENDERS if any(name in measurement.samples for measurement in measurements)]
    ratios = {heading: pair for heading, pair in RATIOS.items() if set(pair) <= set(present)}
    table.add_column("measured")
    for heading in (*present, *ratios):
        table.add_column(heading, justify="right")
    case = ""
    for measurement in measurements:
        if case not in ("", measurement.case):
            table.add_section()
        case = measurement.case
        table.add_row(
            f"{measurement.text}, {measurement.unit}" if measurement.unit else measurement.text,
            *(spread_text(measurement.of(contender), separator) for contender in present),
            *(spread_text(measurement.ratio(ours, theirs), separator) for ours, theirs in ratios.values()),
        )
    console.print(table)


def show_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """One row for each goal."""
    table = Table(title="goals")
    table.add_column("goal")
    table.add_column("target", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("")
    for verdict in verdicts:
        style = MARK_STYLES.get(verdict.mark, "yellow")
        measured = f"{spread_text(verdict.measured)} {verdict.unit}".strip() if verdict.measured else ""
        table.add_row(verdict.goal.text, verdict.goal.target_text, measured, f"[{style}]{verdict.mark}[/]")
    console.print(table)
    met = sum(verdict.mark == MET for verdict in verdicts)
    console.print(f"{met} of {len(verdicts)} goals met")


def show_changes(console: Console, measurements: Sequence[Measurement]) -> None:
    """One row for each quantity that has changed against the other checkout; none when nothing has.

    In five rounds, one row in sixteen is better or worse in every round by chance; one in a hundred and twenty-six
    lies apart. What has changed does so again: `--only CASE --rounds 11`.
    """
    rounds = max((len(values) for each in measurements for values in each.samples.values()), default=0)
    if rounds < ROUNDS_TO_CONCLUDE:
        console.print(f"what has changed cannot be said after {rounds} rounds: {ROUNDS_TO_CONCLUDE} or more can")
        return
    table = Table(title="against the other checkout")
    table.add_column("measured")
    table.add_column("× before", justify="right")
    table.add_column("")
    for measurement in measurements:
        change = measurement.change(MINIBROKER, BEFORE)
        if change is not None:
            style = "red" if change.is_worse else "green"
            text = f"{measurement.text}, {measurement.unit}" if measurement.unit else measurement.text
            table.add_row(text, spread_text(change.ratio), f"[{style}]{change.text}[/]")
    console.print(table)
    console.print(f"{table.row_count} of {len(measurements)} quantities have changed")


def environment() -> dict[str, Any]:
    """The machine and the versions, without which a number means nothing."""
    versions = {name: _version(name) for name in PACKAGES}
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": versions,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def write_json(
    path: Path,
    measurements: Sequence[Measurement],
    verdicts: Sequence[Verdict],
    *,
    run: Mapping[str, Any],
    not_measured: Mapping[str, str],
) -> None:
    """Write everything, each sample included."""
    content = {
        "environment": environment(),
        "run": dict(run),
        "not_measured": dict(not_measured),
        "measurements": [_measurement_json(measurement) for measurement in measurements],
        "goals": [_verdict_json(verdict) for verdict in verdicts],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def _measurement_json(measurement: Measurement) -> dict[str, Any]:
    return {
        "case": measurement.case,
        "metric": measurement.metric,
        "text": measurement.text,
        "unit": measurement.unit,
        "contenders": {
            contender: {"samples": list(values), **_spread_json(measurement.of(contender))}
            for contender, values in measurement.samples.items()
        },
        "ratio_to_before": _spread_json(measurement.ratio(MINIBROKER, BEFORE)),
        "ratio_to_kafka": _spread_json(measurement.ratio(MINIBROKER, KAFKA)),
        "ratio_to_raw": _spread_json(measurement.ratio(MINIBROKER, RAW)),
        "compiled_to_pure": _spread_json(measurement.ratio(COMPILED, MINIBROKER)),
        "compiled_to_kafka": _spread_json(measurement.ratio(COMPILED, KAFKA)),
    }


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    goal = verdict.goal
    return {
        "case": goal.case,
        "metric": goal.metric,
        "goal": goal.text,
        "target": goal.target_text,
        "measured": _spread_json(verdict.measured),
        "mark": verdict.mark,
    }


def _spread_json(found: Spread | None) -> dict[str, float]:
    return {} if found is None else found._asdict()
