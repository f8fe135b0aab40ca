"""The outcome of each change that a command makes, and its report.

Successes go to standard output, each failure is a line on standard error; one failure makes the exit status 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from minibroker.any_cluster.outcomes import Outcome
from minibroker.cli.options import Output
from minibroker.errors import EXIT_FAILED, EXIT_OK


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
