"""Brokers with a mistake: a mutant of tests/mutants, judged as `minibroker conform` does.

`python -m tests.conformance.planted NUMBER ARGUMENT...` is `minibroker ARGUMENT...` with that mutant.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from benchmarks.processes import ROOT
from minibroker.conformance.holding import SETTINGS
from minibroker.conformance.judge import Judge
from minibroker.conformance.recordings import Recording
from minibroker.simulation.planting import Planter
from tests.integration.brokers import Minibroker
from tests.mutants.table import Mutant, mutants


class Planted(Minibroker):
    """A minibroker that acts as 2.0.1, and has a mistake."""

    def __init__(self, directory: Path, mutant: Mutant) -> None:
        self._number = str(mutants().index(mutant))
        super().__init__(directory, "--act-as", "2.0", "--set", "broker.id=0", settings=SETTINGS)

    def command_of(self, command: list[str]) -> list[str]:
        at = command.index("minibroker")
        return [*command[:at], "tests.conformance.planted", self._number, *command[at + 1 :]]


def found(mutant: Mutant, directory: Path, recording: Recording, seeds: int) -> tuple[int, str]:
    """After how many conversations the first difference is found, and its kind; 0 if none is."""
    broker = Planted(directory, mutant)
    try:
        broker.wait_until_ready()
        with Judge(broker.host, broker.port, recording) as judge:
            for count, seed in enumerate(islice(judge.seeds(), seeds), 1):
                judge.judge(seed)
                if judge.findings:
                    return count, str(next(iter(judge.findings)))
    finally:
        broker.kill()
    return 0, ""


def main() -> int:
    number, *arguments = sys.argv[1:]
    mutant = mutants()[int(number)]
    sys.meta_path.insert(0, Planter({ROOT / mutant.file: mutant.planted()}))
    sys.argv = ["minibroker", *arguments]
    from minibroker.__main__ import main as minibroker_main

    return minibroker_main()


if __name__ == "__main__":
    sys.exit(main())
