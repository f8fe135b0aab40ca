"""The output of a command: a document for programs, and text for people. The decorators of `parameters` print it.

What was found or done goes to standard output, each failure is a line on standard error and makes the exit status 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from minibroker.admin.outcomes import Outcome
from minibroker.any_cluster.shortfalls import is_short
from minibroker.cli.options import Output
from minibroker.cli.terminal import complain, print_table
from minibroker.errors import EXIT_FAILED, EXIT_OK

TO_THE_LEFT = "<"  # before the title of a column


class Shown(NamedTuple):
    """`document` is for programs; `print_text` prints for people. `complaints` are for both, and mean a failure."""

    document: object
    print_text: Callable[[], object]
    complaints: Sequence[str] = ()
    is_failed: bool = False

    def print(self, output: Output) -> int:
        """Print it in that form; return the exit status."""
        if output == "json":
            print(json.dumps(self.document))
        else:
            self.print_text()
        for line in self.complaints:
            complain(line)
        return EXIT_FAILED if self.is_failed or self.complaints else EXIT_OK


def table(
    documents: Sequence[object],
    columns: Sequence[str],
    rows: Iterable[Sequence[object]] | None = None,
    *,
    without: str = "",
    unknown: str = "?",
) -> Shown:
    """A row of each document: its own values if no others are given, and `unknown` for None. `without` any, that line.

    A column whose title begins with TO_THE_LEFT is aligned to the left.
    """
    cells: Iterable[Sequence[object]] = [tuple(each) for each in documents] if rows is None else rows  # type: ignore[arg-type]
    found = [[unknown if cell is None else cell for cell in row] for row in cells]
    titles = [each.removeprefix(TO_THE_LEFT) for each in columns]
    left = [each.removeprefix(TO_THE_LEFT) for each in columns if each.startswith(TO_THE_LEFT)]

    def print_text() -> None:
        if found or not without:
            print_table(titles, found, left=left)
        elif not is_short():  # else that is the reason
            complain(without, style="")

    return Shown([each._asdict() if hasattr(each, "_asdict") else each for each in documents], print_text)


def change(subject: Mapping[str, object], what: str, lines: Sequence[str], done: object) -> Shown:
    """Show a change of one subject: `what` was done, in a line of each, or all of it in a document."""
    return Shown({**subject, what: done}, partial(print, "\n".join(f"{what}: {line}" for line in lines)))


def results(found: Sequence[Outcome], *, without: str = "") -> Shown:
    """Each outcome; `without` any, that line in the text."""

    def print_text() -> None:
        for each in found:
            if each.error is None:
                print(f"{each.outcome}: {each.name}")
        if not found and without:
            complain(without)

    errors = [each.error for each in found if each.error is not None]
    return Shown([each._asdict() for each in found], print_text, errors)
