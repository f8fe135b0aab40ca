"""The programs of the labs, right and wrong, and whether each gets the same grades every time.

    python -m tests.integration.lab_grades --runs 50 --at-once 4 [LAB ...]

A program whose runs differ is printed with each outcome, how often it came, and what was missed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from minibroker.lab.__main__ import LABS, lab_of
from minibroker.lab.program import Grade, LabFailed, Program

PROGRAMS = Path(__file__).parent / "lab_programs"


class Mistake(NamedTuple):
    """The changes, by patterns, that make a right program a wrong one, and what that misses."""

    lab: str
    changes: dict[str, str]
    texts: list[str]

    @property
    def program(self) -> str:
        text = right_program(self.lab)
        for right, wrong in self.changes.items():
            text, count = re.subn(right, lambda _, wrong=wrong: wrong, text)  # type: ignore[misc]
            assert count == 1
        return text


MISTAKES = [
    Mistake("acks", {'"min.insync.replicas": "2"': '"min.insync.replicas": "1"'}, ["lost with the last replica"]),
    Mistake("acks", {'"enable.idempotence": True': '"enable.idempotence": False'}, ["twice: order 1"]),
    Mistake(
        "acks",
        {", on_delivery=delivered": "", r"producer.flush\(\)": "producer.poll(0)\n    print(line.strip(), flush=True)"},
        ["lost with the leader", "lost with the last replica"],
    ),
    Mistake(
        "acks",
        {'"linger.ms": 0': '"linger.ms": 0, "message.timeout.ms": 1000', r"sys.exit\(.*\)": "pass"},
        ["never sent again"],
    ),
    Mistake(
        "exactly-once",
        {r"producer.begin_transaction\(\)": "consumer.commit(asynchronous=False)\n    producer.begin_transaction()"},
        ["lost: receipt"],
    ),
    Mistake(
        "rebalance",
        {
            "import Consumer": "import Consumer, TopicPartition",
            r"consumer.subscribe\(.*": 'consumer.assign([TopicPartition("jobs", number, 0) for number in (0, 1)])',
        },
        ["twice"],
    ),
    Mistake("rebalance", {r"consumer.close\(\)": "os._exit(0)"}, ["twice"]),
    Mistake("slow-consumer", {'"max.poll.interval.ms": 6000': '"max.poll.interval.ms": 60000'}, ["at most 6000"]),
]


def right_program(lab: str) -> str:
    return (PROGRAMS / f"{LABS[lab]}.py").read_text()


def graded(lab: str, text: str, directory: Path) -> list[Grade]:
    """Run a program, as text, in a lab. Raises LabFailed."""
    directory.mkdir(exist_ok=True)
    program, errors = directory / "program.py", directory / "stderr"
    program.write_text(text)
    errors.touch()
    return lab_of(lab).run(lambda servers: Program([sys.executable, str(program)], servers, errors))


def programs(labs: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each program of these labs: its lab, its name and its text."""
    for lab in labs:
        yield lab, f"{lab}: the right one", right_program(lab)
        yield lab, f"{lab}: the first one", lab_of(lab).STARTER
        for number, each in enumerate((each for each in MISTAKES if each.lab == lab), start=1):
            yield lab, f"{lab}: mistake {number}, {each.texts[0]}", each.program


def outcome(lab: str, text: str) -> tuple[str, list[str]]:
    """Return the grades of a program, as a letter each, and what it missed."""
    with tempfile.TemporaryDirectory(prefix="minibroker-lab-", ignore_cleanup_errors=True) as directory:
        try:
            grades = graded(lab, text, Path(directory))
        except LabFailed as reason:
            return "failed", [str(reason)]
    return "".join(".M"[not each.is_reached] for each in grades), [each.text for each in grades if not each.is_reached]


@contextmanager
def cancelled_at_ctrl_c(pool: ThreadPoolExecutor) -> Iterator[None]:
    """Let the runs in hand end, and no other begin."""
    try:
        yield
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def main() -> int:
    cli = argparse.ArgumentParser(prog="lab_grades")
    cli.add_argument("labs", metavar="LAB", nargs="*", default=list(LABS))
    cli.add_argument("--runs", type=int, default=50)
    cli.add_argument("--at-once", type=int, default=4)
    chosen = cli.parse_args()
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    missed: dict[tuple[str, str], list[str]] = {}
    with ThreadPoolExecutor(chosen.at_once) as pool, cancelled_at_ctrl_c(pool):
        runs = {
            pool.submit(outcome, lab, text): name
            for _ in range(chosen.runs)
            for lab, name, text in programs(chosen.labs)
        }
        for number, run in enumerate(as_completed(runs), start=1):
            letters, texts = run.result()
            outcomes[runs[run]][letters] += 1
            missed[runs[run], letters] = texts
            if number % 20 == 0:  # what is ended before its end has told how far it came
                print(f"{number} of {len(runs)} runs", file=sys.stderr, flush=True)
            if len(outcomes[runs[run]]) > 1:
                print(f"{runs[run]}: {dict(outcomes[runs[run]])}: {texts}", flush=True)
    for name, counts in sorted(outcomes.items()):
        print(name, *(f"{count} x {letters}: {missed[name, letters]}" for letters, count in counts.items()), sep="\n  ")
    return int(any(len(counts) > 1 for counts in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
