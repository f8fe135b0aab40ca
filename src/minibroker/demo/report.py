"""The demo's output: a table of the result, the paths of everything, and the command that serves the flights again.

python -m minibroker.demo.report DIR    check the Spark job's result in DIR, and show it
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from minibroker.demo import chart, flights, result
from minibroker.demo.chart import AIRPORTS, carrier_means, short_name


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


def places(console: Console, paths: Mapping[str, Path]) -> None:
    """Print paths, with what is there."""
    for name, path in paths.items():
        console.print(f"  {name:<20}{shown(path)}", highlight=False, soft_wrap=True)


def shown(path: Path) -> Path:
    """Return the path as it is found from the user's shell: relative, if it is below the shell's directory.

    Under `make -C` that is not the directory of this process.
    """
    shell = Path(os.environ.get("PWD", Path.cwd()))
    return path.relative_to(shell) if path.is_relative_to(shell) else path


def serve_command(data_dir: Path) -> str:
    """The command for a shell that serves this data directory."""
    minibroker = Path(sys.executable).with_name("minibroker")
    program = [str(shown(minibroker))] if minibroker.exists() else [sys.executable, "-m", "minibroker"]
    return shlex.join([*program, "serve", "--listen", "127.0.0.1:9092", "--data-dir", str(shown(data_dir))])


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
    cli.add_argument("--picture", type=Path, metavar="FILE", help="draw the result in this PNG file")
    arguments = cli.parse_args()
    delays = result.read(arguments.output)
    try:
        result.check(delays, flights.expected_delays(flights.load(arguments.days)))
    except result.WrongResult as reason:
        sys.exit(f"report: {reason}")
    names = flights.airline_names()
    Console().print(delay_table(delays, names))
    print(f"{delays['flights'].sum():,} flights: none lost, none counted twice.")
    if arguments.picture is not None:
        chart.draw(delays, names, arguments.picture)
        print(f"Picture: {arguments.picture}")


if __name__ == "__main__":
    main()
