"""`python -m benchmarks.profile`: where a FETCH spends the broker's time, by stage and by function.

The load is one of `make bench` (cases/consumers.py), the broker the one of this checkout under a sampling profiler
(load/profiled_broker.py). A sample belongs to the innermost of its frames that a stage knows.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.cases.consumers import LOADS
from benchmarks.installed import Minibroker
from benchmarks.lab import HERE, SETTINGS, CaseUnavailableError, Lab, Plan
from benchmarks.processes import ProcessError
from benchmarks.report import new_console

DEFAULT_SECONDS = 5.0
DEFAULT_STACKS = Path("out/profile.stacks")
TOP_FUNCTIONS = 15
WRITE_SECONDS = 10.0
POLL_SECONDS = 0.01
OTHER = "other"


class Stage(NamedTuple):
    """Frames of files whose path begins with one of `paths`, in functions that match; or one of these system calls."""

    name: str
    paths: tuple[str, ...]
    functions: str = ""
    calls: tuple[str, ...] = ()

    def has(self, frame: str) -> bool:
        path, _, function = frame.rpartition(":")
        if not path:
            return frame in self.calls
        return path.startswith(self.paths) and re.match(self.functions, function) is not None


GENERATED = "<string>"  # the codecs of protocol/codegen.py
# In the order of a request's way. Of a frame that two stages know, the first is taken.
STAGES = (
    Stage("which connections have bytes", ("broker/network/poller.py",), calls=("poll",)),
    Stage("recv", (), calls=("recv_into",)),
    Stage("cut frames", ("protocol/framing.py",)),
    Stage("decode", (GENERATED, "protocol/"), "_?decode"),
    Stage("session", ("broker/replica/fetch_session.py", "broker/replica/fetch_context.py")),
    Stage("partitions", ("broker/replica/",)),
    Stage("log", ("storage/",)),
    Stage("requests that wait", ("purgatory/", "broker/time/")),
    Stage("encode", (GENERATED, "protocol/"), "_?encode"),
    Stage("send", ("broker/network/response.py",), calls=("send", "sendfile")),
    Stage("route and handle", ("broker/apis/",)),
    Stage("connection", ("broker/network/",)),
    Stage("trio", ("trio/", "outcome/")),
)


class Samples(NamedTuple):
    """Stacks, outermost frame first, and how often each was found."""

    stacks: list[tuple[list[str], int]]

    @property
    def total(self) -> int:
        return sum(count for _, count in self.stacks)

    def by_stage(self) -> dict[str, int]:
        """Samples of every stage, in the order of a request's way."""
        found: Counter[str] = Counter()
        for stack, count in self.stacks:
            found[stage_of(stack)] += count
        return {name: found[name] for name in (*(stage.name for stage in STAGES), OTHER)}

    def by_function(self) -> list[tuple[str, int, int]]:
        """Each function, the samples in it alone, and those in it and what it calls; the most first."""
        alone: Counter[str] = Counter()
        within: Counter[str] = Counter()
        for stack, count in self.stacks:
            alone[own_function(stack)] += count
            for frame in {*stack, own_function(stack)}:
                within[frame] += count
        return [(name, count, within[name]) for name, count in alone.most_common()]


def stage_of(stack: Sequence[str]) -> str:
    """The stage of the innermost frame that has one."""
    for frame in reversed(stack):
        for stage in STAGES:
            if stage.has(frame):
                return stage.name
    return OTHER


def own_function(stack: Sequence[str]) -> str:
    """The function that was running, with the system call it was in."""
    return stack[-1] if ":" in stack[-1] or len(stack) == 1 else f"{stack[-2]} > {stack[-1]}"


def read_samples(path: Path) -> Samples:
    """The file that load/profiled_broker.py has written."""
    rows = (line.rpartition(" ") for line in path.read_text().splitlines())
    return Samples([(stack.split(";"), int(count)) for stack, _, count in rows])


def profile(lab: Lab, load: str, seconds: float) -> tuple[Samples, dict[str, float]]:
    """Put a load on a broker under the profiler: the samples, and what the load measured. Raises ProcessError."""
    folder = lab.new_folder("profile")
    stacks = folder / "stacks"
    program = ["-P", str(HERE / "load" / "profiled_broker.py"), str(stacks)]
    with Minibroker(Path(sys.executable), folder, settings=SETTINGS, program=program) as broker:
        run = LOADS[load](lab, broker, seconds)
        broker.broker.process.send_signal(signal.SIGUSR1)
        measured = run()
        broker.broker.process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + WRITE_SECONDS
        while not stacks.exists():
            broker.broker.check_starting(deadline)
            time.sleep(POLL_SECONDS)
    samples = read_samples(stacks)
    if not samples.total:
        raise ProcessError(f"no sample in {seconds:g} s: ask for more --seconds")
    return samples, dict(measured)


def show(console: Console, samples: Samples, *, cpu_us: float, top: int) -> None:
    """A table of the stages, and one of the functions."""
    total = samples.total

    def row(count: int) -> Iterator[str]:
        yield f"{100 * count / total:.1f} %"
        yield f"{cpu_us * count / total:.2f}"

    stages = Table(title="by stage, in the order of a request's way")
    for heading in ("stage", "share", "us a request"):
        stages.add_column(heading, justify="left" if heading == "stage" else "right")
    for name, count in samples.by_stage().items():
        if count:
            stages.add_row(name, *row(count))
    stages.add_section()
    stages.add_row("all", *row(total))
    console.print(stages)
    functions = Table(title=f"the {top} functions with the most time of their own")
    for heading in ("function", "alone", "us a request", "with what it calls"):
        functions.add_column(heading, justify="left" if heading == "function" else "right")
    for name, alone, within in samples.by_function()[:top]:
        functions.add_row(name, *row(alone), f"{100 * within / total:.1f} %")
    console.print(functions)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile", description="Show where a FETCH spends the broker's time."
    )
    parser.add_argument("--load", choices=list(LOADS), default="session", help="a load of `make bench` (session)")
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help=f"of load ({DEFAULT_SECONDS:g})")
    parser.add_argument("--top", type=int, default=TOP_FUNCTIONS, help=f"functions to show ({TOP_FUNCTIONS})")
    parser.add_argument(
        "--stacks", type=Path, default=DEFAULT_STACKS, help=f"for a flame graph, collapsed ({DEFAULT_STACKS})"
    )
    return parser.parse_args()


def main() -> int:
    """Profile and report; the exit status."""
    options = parse_arguments()
    console = new_console()
    with Lab(Plan(rounds=1, volume=1.0, with_kafka=False), say=lambda text: None) as lab:
        try:
            samples, measured = profile(lab, options.load, options.seconds)
        except (CaseUnavailableError, ProcessError) as reason:
            console.print(f"not profiled: {reason}", style="red", markup=False)
            return 1
        options.stacks.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(next(lab.directory.glob("profile-*/stacks")), options.stacks)
    show(console, samples, cpu_us=measured["cpu_us"], top=options.top)
    console.print(
        f"{options.load}: {measured['per_s']:,.0f} requests a second under the profiler, {measured['cpu_us']:.1f} us "
        f"of CPU each; {samples.total:,} samples in {options.stacks}, one stack a line for flamegraph.pl or speedscope"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
