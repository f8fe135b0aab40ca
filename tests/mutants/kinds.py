"""`python -m tests.mutants.kinds --seed 1 --count 24`: which kind of test kills which mutants, of a sample.

The sample has as many mutants of each area: records, fetch sessions, groups, transactions, the cluster, and storage.
Each is planted in a copy of the tree, and each kind of test runs on it: the unit tests that resemble it most, the books
and recorded conversations, the exhaustive small scopes, the simulation of three brokers and of one, and rounds of the
nemesis. Prints the rows of a table for docs/testing.md. First each kind runs without a mutant: a kind that fails then
proves nothing, and gets no column. A cell says "no end" where a command took longer than `LIMIT_SECONDS`.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.__main__ import FAST, Likely, copy_tree
from tests.mutants.table import ROOT, Mutant, mutants

# The files of each; one that two have belongs to the first.
AREAS: dict[str, tuple[str, ...]] = {
    "fetch sessions": (
        "broker/replica/fetch_context.py",
        "broker/replica/fetch_session.py",
        "broker/wings/several/fetcher.py",
        "broker/wings/several/follower_session.py",
    ),
    "records": ("broker/replica/", "broker/wings/several/following.py"),
    "groups": ("broker/group/", "broker/wings/consumer/"),
    "transactions": ("broker/transaction/", "storage/producers/"),
    "cluster": ("broker/cluster/", "broker/wings/several/"),
    "storage": ("storage/log/", "storage/index/", "storage/data_dir/", "storage/compaction/", "storage/segment/"),
}
LIMIT_SECONDS = 240
BOOKS = (
    "tests/broker/test_conversations.py",
    "tests/conformance/test_consumer_groups.py",
    "tests/conformance/test_recorded_conversations.py",
)
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--tb", "no", "-m", FAST)
SIMULATE = (sys.executable, "-m", "minibroker", "simulate", "--workers", "1")
NO_TESTS = 5  # of pytest
KILLS, NOTHING, NO_END = "kills", "-", "no end"

Command = tuple[str, ...]


def area_of(mutant: Mutant) -> str | None:
    return next((area for area, files in AREAS.items() if mutant.file.startswith(files)), None)


def sample(known: Sequence[Mutant], seed: int, count: int) -> list[tuple[str, Mutant]]:
    """Draw `count` mutants, as many of each area."""
    chance = random.Random(seed)
    of_area = {area: [each for each in known if area_of(each) == area] for area in AREAS}
    for each in of_area.values():
        chance.shuffle(each)
    in_turn = [(area, drawn[at]) for at in range(count) for area, drawn in of_area.items() if at < len(drawn)]
    return in_turn[:count]


def commands(mutant: Mutant | None, seeds: int, rounds: int) -> dict[str, list[Command]]:
    """The commands of each kind, of which one that fails kills; what killed the mutant last comes first."""
    unit: list[Command] = []
    books: list[Command] = [(*PYTEST, *BOOKS)]
    nemesis = (sys.executable, "-m", "tests.nemesis", "--seed", "1", "--rounds", str(rounds), "--seconds", "4")
    if mutant is not None:
        likely = [file for stage in Likely(ROOT).stages(mutant, is_near=True)[:2] for file in stage]
        unit = [(*PYTEST, *(file for file in likely if file not in BOOKS))]
        (books if mutant.killer.startswith(BOOKS) else unit).insert(0, (*PYTEST, mutant.killer))
    return {
        "unit tests": unit,
        "books": books,
        "small scope": [(*PYTEST, "tests/simulation", "-k", "small_scope and not is_found")],
        "simulation": [(*SIMULATE, "--brokers", number, "--seeds", str(seeds)) for number in ("3", "1")],
        "nemesis": [nemesis],
    }


def ended(some: Sequence[Command], tree: Path) -> str:
    """Run commands until one fails, each within the limit."""
    outcome = NOTHING
    for command in some:
        try:
            status = subprocess.run(
                command,
                cwd=tree,
                env=os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=LIMIT_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            outcome = NO_END
            continue
        if status not in (0, NO_TESTS):
            return KILLS
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.kinds", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--count", type=int, default=24, help="mutants")
    parser.add_argument("--skip", type=int, default=0, help="mutants of the sample that were done before")
    parser.add_argument("--seeds", type=int, default=8, help="of the simulation, for each number of brokers")
    parser.add_argument("--rounds", type=int, default=1, help="of the nemesis")
    options = parser.parse_args()
    known = mutants()
    drawn = sample(known, options.seed, options.count)[options.skip :]
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="kinds-") as folder:
        tree = Path(folder) / "tree"
        copy_tree(tree)
        kinds = []
        for kind, some in commands(None, options.seeds, options.rounds).items():
            began, outcome = time.monotonic(), ended(some, tree)
            print(f"without a mutant: {kind} {outcome} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
            if outcome == NOTHING:
                kinds.append(kind)
        print(f"| of | mutant | {' | '.join(kinds)} |\n|{'---|' * (len(kinds) + 2)}", flush=True)
        for area, mutant in drawn:
            path = tree / mutant.file
            path.write_text(mutant.planted(tree), encoding="utf-8")
            by_kind = commands(mutant, options.seeds, options.rounds)
            found = {kind: ended(by_kind[kind], tree) for kind in kinds}
            path.write_text((ROOT / mutant.file).read_text(encoding="utf-8"), encoding="utf-8")
            total.update(kind for kind, outcome in found.items() if outcome == KILLS)
            print(f"| {area} | {mutant.behaviour} | {' | '.join(found.values())} |", flush=True)
    print(f"of {len(drawn)}: {', '.join(f'{kind} {total[kind]}' for kind in kinds)}")


if __name__ == "__main__":
    main()
