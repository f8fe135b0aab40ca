"""A progress bar for what takes over a second: on standard error if that is a terminal, and removed at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SHOWN_AFTER_SECONDS = 1.0

Advance = Callable[[int], None]


@contextmanager
def progress_bar(doing: str, total: int | None, *, unit: str, wanted: bool = True) -> Iterator[Advance]:
    """Yield a function that adds to the amount done; `total` is None if it is unknown."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda amount: None
        return
    bar = Bar(doing, total, unit)
    try:
        yield bar.advance
    finally:
        bar.close()


class Bar:
    """Appears after SHOWN_AFTER_SECONDS, so that a quick command shows nothing."""

    def __init__(self, doing: str, total: int | None, unit: str) -> None:
        self._doing = doing
        self._total = total
        self._unit = unit
        self._done = 0
        self._shown_at = time.monotonic() + SHOWN_AFTER_SECONDS
        self._progress: Any = None
        self._task: Any = None

    def advance(self, amount: int) -> None:
        self._done += amount
        if self._progress is not None:
            self._progress.update(self._task, completed=self._done)
        elif time.monotonic() >= self._shown_at:
            self._show()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        done = TextColumn("{task.completed:,.0f} " + self._unit)
        columns: list[Any] = ["{task.description}", BarColumn(), done, TimeElapsedColumn(), TimeRemainingColumn()]
        # Standard output goes elsewhere; by default rich would redirect it to print beside the bar.
        console = Console(file=sys.stderr)
        self._progress = Progress(*columns, console=console, transient=True, redirect_stdout=False)
        self._task = self._progress.add_task(self._doing, total=self._total, completed=self._done)
        self._progress.start()

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
