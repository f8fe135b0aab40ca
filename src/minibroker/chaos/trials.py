"""Runs a test under plans, each in a process of its own, and shrinks the plan under which it fails.

A process of its own, because a test under faults may hang, and because clients leave threads: each run begins as the
first one did, with new brokers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from minibroker.chaos.plan import Plan, drawn, used_by

STACKS_SECONDS = 5.0
CONFIRMATIONS = 2
SHOWN_CHARACTERS = 6_000


@dataclass(frozen=True)
class Result:
    """The outcome of one run of a test under a plan."""

    outcome: str  # "passed", "failed" or "skipped"
    text: str = ""  # why it failed
    sections: Sequence[tuple[str, str]] = ()  # what it printed
    seconds: float = 0.0
    asked: Sequence[Any] = ()
    struck: dict[str, bool] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)

    @property
    def has_failed(self) -> bool:
        return self.outcome == "failed"


@dataclass(frozen=True)
class Verdict:
    """The outcome of all runs of a test."""

    test: str
    plans: int = 0  # under which it ran
    number: int = 0  # of the plan under which it fails; 0 for none
    plan: Plan = ()  # shrunk
    failed: int = 0  # runs under the shrunk plan that failed, of
    runs: int = 0
    result: Result = Result("passed")
    why_not: str = ""  # it was not run under plans


class Trials:
    """Runs tests. `command` is pytest's, with the options of the session that asks."""

    def __init__(self, command: Sequence[str], directory: Path, *, seed: int, timeout_seconds: float) -> None:
        self._command = command
        self._directory = directory
        self._seed = seed
        self._timeout_seconds = timeout_seconds
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """Kill what runs; a test that is being examined then gets a verdict that means nothing."""
        self._is_stopped = True
        for each in list(self._running):
            end(each, signal.SIGKILL)

    def examine(self, test: str, numbers: Sequence[int]) -> Verdict:
        """Run a test without faults, then under these plans, up to the first under which it fails."""
        alone = self.run(test, (), is_recorded=True)
        if alone.outcome != "passed":
            return Verdict(test, result=alone, why_not=f"{alone.outcome} when it runs alone, without faults")
        uses = used_by(map(tuple, alone.asked))
        if not uses:
            return Verdict(test, why_not="asks no broker of ours")
        for number in numbers:
            plan = drawn(self._seed, test, number, uses)
            result = self.run(test, plan)
            if result.has_failed:
                return self._shrunk(test, number, plan, result)
        return Verdict(test, plans=len(numbers))

    def _shrunk(self, test: str, number: int, plan: Plan, result: Result) -> Verdict:
        """The fewest and simplest faults of a plan that still fail the test."""
        failed = runs = 1

        def fails(smaller: Plan) -> bool:
            nonlocal plan, result, failed, runs
            found = self.run(test, smaller)
            if found.has_failed:
                plan, result, failed, runs = smaller, found, 1, 1
            return found.has_failed

        whole = tuple(each for each in plan if result.struck.get(each.line, True))
        any(fails(smaller) for size in range(len(whole)) for smaller in combinations(whole, size) if smaller)
        for at in range(len(plan)):
            is_simpler = True
            while is_simpler:
                is_simpler = any(fails((*plan[:at], each, *plan[at + 1 :])) for each in plan[at].simpler())
        while runs < 1 + CONFIRMATIONS and failed < 2 and not self._is_stopped:
            runs += 1
            failed += self.run(test, plan).has_failed
        return Verdict(test, plans=1, number=number, plan=plan, failed=failed, runs=runs, result=result)

    def run(self, test: str, plan: Plan, *, is_recorded: bool = False) -> Result:
        """Run a test under a plan."""
        if self._is_stopped:
            return Result("skipped")
        with tempfile.TemporaryDirectory(prefix="minibroker-chaos-") as name:
            folder = Path(name)
            order = {"test": test, "faults": [(each.place, each.line) for each in plan], "is_recorded": is_recorded}
            (folder / "order.json").write_text(json.dumps(order))
            own = [f"--minibroker-chaos-run={folder / 'order.json'}", f"--basetemp={folder / 'tmp'}"]
            own += [f"--minibroker-log={folder}", "-o", f"cache_dir={folder / 'cache'}", "--color=no"]
            with (folder / "output").open("wb") as output:
                process = subprocess.Popen(
                    [*self._command, *own],
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            self._running.add(process)
            try:
                status: int | None = process.wait(self._timeout_seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                self._end(process)
            printed = (folder / "output").read_text(errors="replace")[-SHOWN_CHARACTERS:]
            if status is None:
                return Result("failed", f"it had not ended after {self._timeout_seconds:g} s\n{printed}")
            if not (folder / "result.json").exists():
                return Result("failed", f"pytest ended with status {status}\n{printed}")
            return Result(**json.loads((folder / "result.json").read_text()))

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill it, if it runs; its brokers end with it."""
        if process.poll() is None:
            end(process, signal.SIGABRT)  # pytest's faulthandler then prints where each thread is
            try:
                process.wait(STACKS_SECONDS)
            except subprocess.TimeoutExpired:
                end(process, signal.SIGKILL)
        process.wait()
        self._running.discard(process)


def end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Send a signal to the group of a process, which its brokers are not in."""
    if process.poll() is None:
        os.killpg(process.pid, how)


def command_of(arguments: Sequence[str], *, is_spread: bool, is_covered: bool) -> list[str]:
    """The command that runs a test of a session with these arguments, in one process and without its coverage."""
    here = {"", os.getcwd()}
    command = [sys.executable, *([] if here.intersection(sys.path) else ["-P"]), "-m", "pytest", *arguments]
    return [*command, *(["-n0"] if is_spread else []), *(["--no-cov"] if is_covered else []), "--minibroker-chaos=0"]
