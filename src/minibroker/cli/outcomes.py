"""Prints what a command found or changed.

Successes go to standard output, each failure is a line on standard error; one failure makes the exit status 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from minibroker.any_cluster.outcomes import Outcome
from minibroker.any_cluster.shortfalls import is_short
from minibroker.cli.options import Output
from minibroker.errors import EXIT_FAILED, EXIT_OK


def report_rows(
    documents: Sequence[object],
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    output: Output,
    *,
    left: Sequence[str] = (),
    without: str = "",
) -> int:
    """Print what was found, the documents or the rows; `without` any, that line to standard error."""
    if output == "json":
        print(json.dumps(documents))
        return EXIT_OK

    from minibroker.cli.terminal import complain, print_table

    if rows or not without:
        print_table(columns, rows, left=left)
    elif not is_short():  # else that is the reason
        complain(without, style="")
    return EXIT_OK


def report_change(subject: Mapping[str, object], what: str, lines: Sequence[str], done: object, output: Output) -> int:
    """Print what was done to one subject: `what`, a line of each, or all of it in a document."""
    if output == "json":
        print(json.dumps({**subject, what: done}))
    else:
        print("\n".join(f"{what}: {line}" for line in lines))
    return EXIT_OK


def report(outcomes: Sequence[Outcome], output: Output) -> int:
    """Print each outcome, failures to standard error; return the exit status."""
    if output == "json":
        print(json.dumps([outcome._asdict() for outcome in outcomes]))
    failed = False
    for outcome in outcomes:
        if outcome.error is not None:
            from minibroker.cli.terminal import complain

            complain(outcome.error)
            failed = True
        elif output != "json":
            print(f"{outcome.outcome}: {outcome.name}")
    return EXIT_FAILED if failed else EXIT_OK
