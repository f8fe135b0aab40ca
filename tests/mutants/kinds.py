"""`python -m tests.mutants.kinds --seed 1 --count 12`: which kind of test kills which mutants, of a sample.

The sample is drawn from the mutants of what a broker does with records, groups, transactions and the cluster. Each is
planted in a copy of the tree, and each kind of test runs on it: the unit tests that resemble it most, the books and
recorded conversations, the exhaustive small scopes, the simulation of three brokers and of one, and rounds of the
nemesis. Prints the rows of a table for docs/testing.md. A kind that takes longer than `LIMIT_SECONDS` counts as one
that kills nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutants.__main__ import FAST, Likely, copy_tree
from tests.mutants.table import ROOT, Mutant, mutants

SAMPLED = (
    "broker/replica/",
    "broker/group/",
    "broker/transaction/",
    "broker/cluster/",
    "broker/wings/several/",
    "storage/log/",
    "storage/producers/",
    "storage/index/",
)
LIMIT_SECONDS = 400
BOOKS = ("tests/broker/test_conversations.py", "tests/conformance/test_recorded_conversations.py")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb", "no", "-m", FAST)
SIMULATE = (sys.executable, "-m", "minibroker", "simulate")


def commands(mutant: Mutant, seeds: int, rounds: int) -> dict[str, list[tuple[str, ...]]]:
    """The commands of each kind, of which one that fails kills; what killed the mutant last comes first."""
    is_unit = not mutant.killer.startswith(BOOKS)
    likely = [file for stage in Likely(ROOT).stages(mutant, is_near=True)[:2] for file in stage if file not in BOOKS]
    unit: list[tuple[str, ...]] = [(*PYTEST, *likely)]
    books: list[tuple[str, ...]] = [(*PYTEST, *BOOKS)]
    (unit if is_unit else books).insert(0, (*PYTEST, mutant.killer))
    return {
        "unit tests": unit,
        "books": books,
        "small scope": [(*PYTEST, "tests/simulation", "-k", "small_scope")],
        "simulation": [(*SIMULATE, "--brokers", number, "--seeds", str(seeds)) for number in ("3", "1")],
        "nemesis": [(sys.executable, "-m", "tests.nemesis", "--seed", "1", "--rounds", str(rounds))],
    }


def kills(command: tuple[str, ...], tree: Path) -> bool:
    try:
        ended = subprocess.run(
            command,
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode != 0


def killed_by(mutant: Mutant, seeds: int, rounds: int) -> dict[str, bool]:
    with tempfile.TemporaryDirectory(prefix="kinds-") as folder:
        tree = Path(folder) / "tree"
        copy_tree(tree)
        path = tree / mutant.file
        path.write_text(mutant.planted(tree), encoding="utf-8")
        return {kind: any(kills(each, tree) for each in some) for kind, some in commands(mutant, seeds, rounds).items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.kinds", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--count", type=int, default=12, help="mutants")
    parser.add_argument("--seeds", type=int, default=20, help="of the simulation, for each number of brokers")
    parser.add_argument("--rounds", type=int, default=3, help="of the nemesis")
    options = parser.parse_args()
    known = [each for each in mutants() if each.file.startswith(SAMPLED)]
    sample = random.Random(options.seed).sample(known, options.count)
    total: Counter[str] = Counter()
    for mutant in sample:
        killed = killed_by(mutant, options.seeds, options.rounds)
        total.update(kind for kind, is_so in killed.items() if is_so)
        print(f"| {mutant} | {' | '.join('kills' if is_so else '-' for is_so in killed.values())} |", flush=True)
    print(f"of {len(sample)} of {len(known)}: {', '.join(f'{kind} {total[kind]}' for kind in killed)}")


if __name__ == "__main__":
    main()
