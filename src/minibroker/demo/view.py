"""Shows the demo while it runs: its events, a line each, and on a terminal the days of the year as they fill.

The rule: no line is longer than the terminal, and without a terminal there is text alone, a line for each event and
each micro-batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

STRIP_CELLS = 61
LABEL_WIDTH = 8
WRITTEN, FILLING, TO_COME = ("█", "green"), ("▒", "yellow"), ("·", "bright_black")
REFRESHES_PER_SECOND = 8
DAY = timedelta(days=1)


class View:
    """The demo's view of the days from `first_day` on: to when they are replayed, read, and written to Parquet."""

    def __init__(self, console: Console, first_day: datetime, days: int) -> None:
        self._console = console
        self._first_day = first_day
        self._days = days
        self._started = time.monotonic()
        self._spinner = Spinner("dots")
        self._spark = ""
        self._batch: dict[str, Any] = {}
        self.replayed: Callable[[], int] = lambda: 0  # flights
        self.read_to = self.written_to = first_day

    @property
    def seconds(self) -> float:
        """Since the demo started."""
        return time.monotonic() - self._started

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the year on a terminal, below the events, until the end of the block."""
        if not self._console.is_terminal:
            yield
            return
        with Live(
            get_renderable=self._year,
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
        ):
            yield

    def say(self, text: str) -> None:
        """Print an event, after the time since the start."""
        seconds = int(self.seconds)
        stamp = f"{seconds // 60}:{seconds % 60:02}  "
        lines = Text.from_markup(text).wrap(self._console, self._console.width - len(stamp))
        for line in lines:
            line.rstrip()
        indented = Text("\n" + " " * len(stamp)).join(lines)
        self._console.print(
            Text.assemble((stamp, "bright_black"), indented), no_wrap=True, overflow="ignore", crop=False
        )

    def stage(self, words: str) -> None:
        """Show what Spark does before its first micro-batch."""
        self._batch = {}
        self._spark = words
        if not self._console.is_terminal:
            self.say(f"Spark: {words}")

    def batch(self, facts: dict[str, Any]) -> None:
        """Show a micro-batch of the Spark job."""
        end = self._first_day + self._days * DAY
        if facts["latest"]:
            self.read_to = min(max(self.read_to, datetime.fromisoformat(facts["latest"])), end)
        if facts["has_ended"]:
            self.written_to = end
        elif facts["watermark"]:
            self.written_to = min(max(self.written_to, datetime.fromisoformat(facts["watermark"])), end)
        seconds = facts["milliseconds"] / 1000
        self._spark = f"micro-batch {facts['batch']}: {facts['records']:,} records in {seconds:.1f} s"
        if not self._console.is_terminal:
            self.say(f"{self._spark}; {self.days_written} days written, {self.days_filling} filling")

    @property
    def days_written(self) -> int:
        """The days that Spark has written to Parquet: no flight of theirs can come any more."""
        return max((self.written_to - self._first_day) // DAY, 0)

    @property
    def days_filling(self) -> int:
        """The days that Spark has read flights of, and not written yet."""
        return max(math.ceil((self.read_to - self._first_day) / DAY) - self.days_written, 0)

    def _year(self) -> Table:
        rows: list[tuple[str, Text | Spinner]] = [
            ("", Text()),
            ("Replay", Text(f"{self.replayed():,} flights sent")),
            ("Spark", self._spinner_with(self._spark)),
            ("Days", Text.assemble(*self._strip())),
            ("", Text(self._months(), style="bright_black")),
            ("", self._legend()),
        ]
        grid = Table.grid()
        grid.add_column(width=LABEL_WIDTH, no_wrap=True)
        grid.add_column(no_wrap=True, overflow="crop")
        for label, content in rows:
            grid.add_row(label, content)
        return grid

    def _spinner_with(self, words: str) -> Spinner:
        self._spinner.update(text=Text(words, no_wrap=True, overflow="crop"))
        return self._spinner

    @property
    def _days_in_cell(self) -> int:
        return max(math.ceil(self._days / STRIP_CELLS), 1)

    def _strip(self) -> Iterator[tuple[str, str]]:
        """A cell for every few days: written only if all of them are, to come only if none has a flight yet."""
        written, begun = self.days_written, self.days_written + self.days_filling
        for first in range(0, self._days, self._days_in_cell):
            last = min(first + self._days_in_cell, self._days)
            yield WRITTEN if last <= written else FILLING if first < begun else TO_COME

    def _months(self) -> str:
        """The names of the months, where they begin; of less than two months the first and last day."""
        cells = math.ceil(self._days / self._days_in_cell)
        if self._days < 60:
            first, last = self._first_day, self._first_day + (self._days - 1) * DAY
            return f"{first:%-d %b}" + f"{last:%-d %b}".rjust(max(cells - len(f"{first:%-d %b}"), 8))
        line = ""
        for day in range(self._days):
            date = self._first_day + day * DAY
            if date.day == 1:
                line = line.ljust(day // self._days_in_cell) + f"{date:%b}"
        return line

    def _legend(self) -> Text:
        words = [(WRITTEN, self.days_written, "written to Parquet"), (FILLING, self.days_filling, "filling")]
        to_come = self._days - self.days_written - self.days_filling
        words.append((TO_COME, max(to_come, 0), "to come"))
        return Text("   ").join(
            Text.assemble((sign, style), f" {count:,} {meaning}") for (sign, style), count, meaning in words
        )
