"""What became of each thing that a command was to change, and how that is told.

What could be done is on standard output, each mistake a line on standard error; one mistake makes the exit status 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from minibroker.cli.failures import EXIT_FAILED, EXIT_OK
from minibroker.cli.options import Output


class Outcome(NamedTuple):
    """What became of one thing: created, exists, deleted, absent, or failed with an error in one line."""

    name: str
    outcome: str
    error: str | None = None


def report(outcomes: Sequence[Outcome], output: Output) -> int:
    """Print what became of each, mistakes to standard error; the exit status."""
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
