"""Runs a test under plans, each in a process of its own, and shrinks the plan under which it fails.

A process of its own, because a test under faults may hang, and because clients leave threads: each run begins as the
first one did, with new brokers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from minibroker.chaos.plan import Plan, Requests, drawn, used_by
from minibroker.process_groups import ProcessGroup

TEMPORARY = "temporary"  # the file of a run with the directories of its brokers, which remain where it is killed
STACKS_SECONDS = 5.0
CONFIRMATIONS = 2
SLOWNESS = 2  # times what a test takes without faults, it may take more with them: a busy machine is slow with both
SHOWN_CHARACTERS = 6_000
# Of pytest: interrupted (also by an error of the collection), an internal error, an option or a conftest.py that is
# wrong, and no test. A test that ends its process has another.
NOT_RUN = (2, 3, 4, 5)
NO_TEST = 5
# What faulthandler prints of each thread at the end of a run that hangs; the main thread gets the signal.
STACK = re.compile(r"^Current thread .*\n(?P<frames>(?:  .*\n)+)", re.MULTILINE)
OF_PYTEST = ("/_pytest/", "/pluggy/")
SHOWN_FRAMES = 12


@dataclass(frozen=True)
class Result:
    """The outcome of one run of a test under a plan."""

    outcome: str  # "passed", "failed", "skipped", "not begun" for a failed fixture, "not run" where pytest ended before
    text: str = ""  # why it failed
    sections: Sequence[tuple[str, str]] = ()  # what it printed
    seconds: float = 0.0
    asked: Sequence[Any] = ()
    struck: dict[str, bool] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)

    @property
    def has_failed(self) -> bool:
        return self.outcome in ("failed", "not begun")


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
    is_wrong: bool = False  # as with a test that fails alone: chaos cannot judge it


HOW_ALONE = {
    "failed": "fails when it runs alone, without faults",
    "not begun": "fails when it runs alone, without faults",
    "skipped": "is skipped when it runs alone",
    "not run": "is not found when it runs alone: its name must be the same in each run",
}


NOT_ASKED = (
    "no client of its own asks a broker; what the methods of a Broker do, such as produce and records, gets no faults"
)


class CannotStart(Exception):
    """A pytest of the session's arguments does not get as far as a test; the text is what it printed."""


class Trials:
    """Runs tests. `command` is pytest's, with the options of the session that asks."""

    def __init__(self, command: Sequence[str], directory: Path, *, seed: int, timeout_seconds: float) -> None:
        self._command = command
        self._directory = directory
        self._seed = seed
        self._timeout_seconds = timeout_seconds
        self._alone_seconds: dict[str, float] = {}  # by test, with the start and the end of its process
        self._running: set[ProcessGroup] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """Kill what runs; a test that is being examined then gets a verdict that means nothing."""
        self._is_stopped = True
        for each in list(self._running):
            each.signal(signal.SIGKILL)

    def examine(self, test: str, numbers: Sequence[int]) -> Verdict:
        """Run a test without faults, then under these plans, up to the first under which it fails.

        Raises CannotStart.
        """
        began = time.monotonic()
        alone = self.run(test, (), is_recorded=True)
        self._alone_seconds[test] = time.monotonic() - began
        if alone.outcome != "passed":
            return Verdict(test, result=alone, is_wrong=True, why_not=f"it {HOW_ALONE[alone.outcome]}")
        uses = used_by(Requests(*each) for _, *each in alone.asked)
        if not uses:
            return Verdict(test, why_not=NOT_ASKED)
        for number, plan in enumerate(islice(drawn(self._seed, test, uses), max(numbers)), start=1):
            if number not in numbers:
                continue
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
        sizes = range(1, len(whole) + (whole != plan))
        any(fails(smaller) for size in sizes for smaller in combinations(whole, size))
        for at in range(len(plan)):
            is_simpler = True
            while is_simpler:
                is_simpler = any(fails((*plan[:at], each, *plan[at + 1 :])) for each in plan[at].simpler())
        while runs < 1 + CONFIRMATIONS and failed < 2 and not self._is_stopped:
            runs += 1
            failed += self.run(test, plan).has_failed
        return Verdict(test, plans=1, number=number, plan=plan, failed=failed, runs=runs, result=result)

    def run(self, test: str, plan: Plan, *, is_recorded: bool = False) -> Result:
        """Run a test under a plan; again, if a fixture fails before any fault strikes. Raises CannotStart."""
        result = self._run(test, plan, is_recorded)
        return self._run(test, plan, is_recorded) if result.outcome == "not begun" else result

    def _run(self, test: str, plan: Plan, is_recorded: bool) -> Result:
        if self._is_stopped:
            return Result("skipped")
        with tempfile.TemporaryDirectory(prefix="minibroker-chaos-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            order = {"test": test, "faults": [(each.place, each.line) for each in plan], "is_recorded": is_recorded}
            (folder / "order.json").write_text(json.dumps(order))
            alone = self._timeout_seconds if is_recorded else self._alone_seconds.get(test, 0.0)
            limit_seconds = self._timeout_seconds + SLOWNESS * alone
            status = self._wait(folder, limit_seconds)
            if (folder / TEMPORARY).exists():
                for each in (folder / TEMPORARY).read_text().splitlines():
                    shutil.rmtree(each, ignore_errors=True)
            printed = (folder / "output").read_text(errors="replace")
            is_done = (folder / "result.json").exists()
            if status is None and not self._is_stopped:
                return Result("failed", stuck(printed, limit_seconds, is_done=is_done))
            if is_done:
                return Result(**json.loads((folder / "result.json").read_text()))
        shown = printed[-SHOWN_CHARACTERS:]
        if status == NO_TEST:
            return Result("not run", shown)
        if status in NOT_RUN and not self._is_stopped:
            raise CannotStart(shown)
        return Result("failed", f"the test ended its process with status {status}\n{shown}")

    def _wait(self, folder: Path, limit_seconds: float) -> int | None:
        """Run pytest to its end, and return its status; None where it was ended, since the time was over."""
        own = [f"--minibroker-chaos-run={folder / 'order.json'}", f"--basetemp={folder / 'tmp'}"]
        own += [f"--minibroker-log={folder}", "-o", f"cache_dir={folder / 'cache'}", "--color=no"]
        group = ProcessGroup()
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                [*self._command, *own],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=group.id,
            )
        self._running.add(group)
        try:
            if self._is_stopped:  # meanwhile
                group.signal(signal.SIGKILL)
            return process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self._end(process, group)

    def _end(self, process: subprocess.Popen[bytes], group: ProcessGroup) -> None:
        """Kill it, if it runs; its brokers, which are in groups of their own, end with it."""
        if process.poll() is None:
            group.signal(signal.SIGABRT)  # pytest's faulthandler then prints where each thread is
            with suppress(subprocess.TimeoutExpired):
                process.wait(STACKS_SECONDS)
        group.close()
        process.wait()
        self._running.discard(group)


def stuck(printed: str, seconds: float, *, is_done: bool) -> str:
    """The text for a run that hangs: where its main thread waits, without the frames of pytest."""
    what = "the test had ended, and its process had not" if is_done else "the test hangs: it had not ended"
    stack = STACK.search(printed)
    frames = [] if stack is None else stack["frames"].splitlines()
    own = [each for each in frames if not any(name in each for name in OF_PYTEST)][:SHOWN_FRAMES]
    where = ["it waits in (most recent call first)", *own] if own else [printed[-SHOWN_CHARACTERS:]]
    return "\n".join([f"{what} after {seconds:.3g} s", *where])


def command_of(arguments: Sequence[str], *, is_spread: bool, is_covered: bool) -> list[str]:
    """The command that runs a test of a session with these arguments, in one process and without its coverage."""
    here = {"", os.getcwd()}
    command = [sys.executable, *([] if here.intersection(sys.path) else ["-P"]), "-m", "pytest", *arguments]
    return [*command, *(["-n0"] if is_spread else []), *(["--no-cov"] if is_covered else []), "--minibroker-chaos=0"]
