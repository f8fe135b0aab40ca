"""The outcome of each change that a command makes, and its report.

Successes go to standard output, each failure is a line on standard error; one failure makes the exit status 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from minibroker.cli.failures import EXIT_FAILED, EXIT_OK
from minibroker.cli.options import Output


class Outcome(NamedTuple):
    """The outcome for one name: created, exists, deleted, absent, or failed with an error in one line."""

    name: str
    outcome: str
    error: str | None = None


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
