"""The demo's output: a bar for each stage, a table of the result, and the paths of everything.

python -m minibroker.demo.report DIR    check the Spark job's result in DIR, and show it
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from minibroker.demo import flights, result
from minibroker.demo.chart import AIRPORTS, carrier_means, short_name


@contextmanager
def stages(console: Console) -> Iterator[Progress]:
    """Show one line per stage: a bar if its size is known, then the time it took."""
    columns = (
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield progress


def delay_table(delays: pd.DataFrame, names: Mapping[str, str]) -> Table:
    """Return the result as a table: a row per carrier, the most delayed first."""
    table = Table(title="Departure delay in minutes, by carrier and airport", title_style="bold", box=SIMPLE)
    table.pad_edge, table.collapse_padding = False, True
    table.add_column("carrier", no_wrap=True)
    for heading in ("flights", "cancelled", "late", "mean", *AIRPORTS, "p90"):
        table.add_column(heading, justify="right", no_wrap=True)
    by_origin = delays.groupby(["carrier", "origin"])[["flights", "cancelled", "delay_minutes"]].sum()
    usual_p90 = _usual_p90(delays)
    for code, row in carrier_means(delays).iterrows():
        carrier = str(code)
        cells = [f"{row['flights']:,.0f}", _percent(row["cancelled"], row["flights"])]
        cells += [_percent(row["late"], row["flights"] - row["cancelled"]), _coloured(row["mean"])]
        for origin in AIRPORTS:
            if (carrier, origin) not in by_origin.index:
                cells.append("")
                continue
            there = by_origin.loc[(carrier, origin)]
            departed = there["flights"] - there["cancelled"]
            cells.append(_coloured(there["delay_minutes"] / departed) if departed else "")
        table.add_row(short_name(names.get(carrier, carrier)), *cells, usual_p90.get(carrier, ""))
    table.caption = "late: 15 minutes or more; p90: one flight in ten is later on an ordinary day"
    return table


def _usual_p90(delays: pd.DataFrame) -> dict[str, str]:
    """The median over the days, because the percentiles of days do not give that of the year.

    Carriers with few flights a day are left out.
    """
    days = delays.groupby(["carrier", "window_start"]).agg(
        flights=("flights", "sum"), p90=("p90_delay_minutes", "mean")
    )
    usual = days.groupby("carrier").median()
    return {str(carrier): f"{row.p90:.0f}" for carrier, row in usual.iterrows() if row.flights >= 10}


def places(console: Console, *, picture: Path, output: Path, checkpoint: Path, logs: Path) -> None:
    """Print the paths of everything."""
    for name, path in (
        ("picture", picture),
        ("Parquet files", output),
        ("Spark's checkpoint", checkpoint),
        ("logs", logs),
    ):
        console.print(f"  {name:<19}{shown(path)}", highlight=False, soft_wrap=True)


def shown(path: Path) -> Path:
    """Return the path relative to the current directory, if it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def _coloured(minutes: float) -> str:
    colour = "green" if minutes < 5 else "yellow" if minutes < 15 else "red"
    return f"[{colour}]{minutes:.1f}[/]"


def main() -> None:
    """Check and show a result as a command; exit with status 0 only if it matches the flights."""
    cli = argparse.ArgumentParser(prog="python -m minibroker.demo.report", description="The Spark job's result.")
    cli.add_argument("output", type=Path, metavar="DIR", help="the job's --output")
    cli.add_argument("--days", type=int, help="the same as for the replay")
    arguments = cli.parse_args()
    delays = result.read(arguments.output)
    try:
        result.check(delays, flights.expected_delays(flights.load(arguments.days)))
    except result.WrongResult as reason:
        sys.exit(f"report: {reason}")
    Console().print(delay_table(delays, flights.airline_names()))
    print(f"{delays['flights'].sum():,} flights: none lost, none counted twice.")


if __name__ == "__main__":
    main()
