"""`minibroker lab`: show a lab's task and its first program, or run a program in it and grade it.

The rule: the same program gets the same grades. What a lab breaks, it breaks at a moment that it waits for.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from minibroker.cli.signals import Interrupted, interruption
from minibroker.errors import EXIT_FAILED, EXIT_OK
from minibroker.lab.program import Grade, LabFailed, Program
from minibroker.protocol.arguments import Arguments

LABS = {
    "acks": "acks",
    "exactly-once": "exactly_once",
    "rebalance": "rebalance",
    "slow-consumer": "slow_consumer",
}
EPILOG = """Labs: {labs}.

Without a program, the task is printed, and a first program is written to LAB.py if there is none. It works, and fails
the lab. Any language will do: a program is a command, which reads BOOTSTRAP_SERVERS from its environment.

Exit status: 0 if all grades are reached, 1 if not, 2 usage error.

    minibroker lab acks
    minibroker lab acks python acks.py
"""


class Lab(Protocol):
    """A module with a lab."""

    TITLE: str
    TASK: str
    STARTER: str

    @staticmethod
    def run(start: Callable[[str], Program]) -> list[Grade]: ...


def main(arguments: Sequence[str] | None = None) -> int:
    cli = Arguments(
        prog="minibroker lab",
        description="Break a broker under a student's program, and grade what becomes of it.",
        epilog=EPILOG.format(labs=", ".join(LABS)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    cli.add_argument("lab", metavar="LAB", nargs="?", choices=LABS, help="which one; without it, all are listed")
    cli.add_argument("program", metavar="PROGRAM ...", nargs=argparse.REMAINDER, help="the command to grade")
    chosen = cli.parse_args(arguments)
    if chosen.lab is None:
        for name in LABS:
            print(f"{name:14} {lab_of(name).TITLE}")
        return EXIT_OK
    if chosen.program in (["-h"], ["--help"]):  # behind a lab, argparse takes it for the program
        cli.print_help()
        return EXIT_OK
    lab = lab_of(chosen.lab)
    if not chosen.program:
        return show(chosen.lab, lab)
    try:
        with interruption(), tempfile.TemporaryDirectory(prefix="minibroker-lab-") as directory:
            return grade(lab, chosen.program, Path(directory))
    except Interrupted as end:
        return end.status


def lab_of(name: str) -> Lab:
    module: Lab = importlib.import_module(f"minibroker.lab.{LABS[name]}")  # type: ignore[assignment]
    return module


def show(name: str, lab: Lab) -> int:
    """Print the task, and write the first program unless there is one."""
    file = Path(f"{name.replace('-', '_')}.py")
    print(f"{lab.TITLE}\n\n{lab.TASK}")
    with contextlib.suppress(FileExistsError), file.open("x") as written:
        written.write(lab.STARTER)
        print(f"{file} is a first program. It needs confluent-kafka.")
    print(f"Grade yours: minibroker lab {name} python {file}")
    return EXIT_OK


def grade(lab: Lab, command: Sequence[str], directory: Path) -> int:
    errors = directory / "stderr"
    errors.touch()
    print(f"{lab.TITLE}: {shlex.join(command)} ...", flush=True)
    try:
        grades = lab.run(lambda bootstrap_servers: Program(command, bootstrap_servers, errors))
    except LabFailed as reason:
        print(f"minibroker lab: {reason}", file=sys.stderr)
        return EXIT_FAILED
    shown: set[str] = set()
    for each in grades:
        print(f"{'reached' if each.is_reached else 'MISSED '}  {each.text}")
        if not each.is_reached and each.hint not in shown:
            shown.add(each.hint)
            print(f"         {each.hint}")
    reached = sum(each.is_reached for each in grades)
    print(f"{reached} of {len(grades)} reached")
    return EXIT_OK if reached == len(grades) else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
