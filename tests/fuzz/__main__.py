"""`make fuzz FUZZ="frames --runs 1000000"`: inputs by coverage, under atheris, which `make fuzz` installs.

An input that ends in a finding is printed in hexadecimal digits: keep it in corpus/TARGET.txt, with the mend. `--keep`
adds the inputs to that file that reach a line which no other one reaches.
"""

from __future__ import annotations

import argparse
import gc
import logging
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from tests.fuzz.table import TARGETS
from tests.fuzz.targets import Finding, Target, corpus, warm_up

RUNS = 1_000_000
INSTRUMENTED = 5  # how many times as long code takes that counts its branches
KEPT_BYTES_MAX = 600  # of an input
LENGTH_MAX = 4096


def fuzz(target: Target, runs: int, seconds: int, directory: Path) -> None:
    """Mutate the inputs of a directory, for so long if it is not 0; ends the process. Prints the input of a finding."""
    import atheris

    logging.getLogger().addHandler(logging.NullHandler())  # a line for each input that is refused fills a disk
    inputs = [*target.seeds(), *corpus(target.name)]
    reached = reached_by(target, inputs)
    gc.disable()  # else a third of the time goes into looking through all that there is
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and (each.__code__ in reached or each.__code__.co_filename in reached):
            atheris.instrument_func(each)
    gc.enable()
    for number, each in enumerate(inputs):
        (directory / f"{number:05}").write_bytes(each)

    def run(data: bytes) -> None:
        try:
            target.run(data)
        except Exception as error:
            print(f"{target.name}: {error}\n{data.hex()}", file=sys.stderr, flush=True)
            raise

    options = [f"-runs={runs}", f"-max_len={LENGTH_MAX}", "-timeout=30", "-rss_limit_mb=4096", "-print_final_stats=1"]
    options.append(f"-max_total_time={seconds}")
    options.append(f"-artifact_prefix={directory.parent}/")
    atheris.Setup([sys.argv[0], *options, str(directory)], run)
    atheris.Fuzz()


def reached_by(target: Target, inputs: list[bytes]) -> set[CodeType | str]:
    """Read inputs, and return what they reach: modules of the package, by their file, and code that it has generated.

    What a target has nothing to do with counts no branches, which would take 3 ms of a core for each function.
    """
    reached: set[CodeType | str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_filename == "<string>":
            reached.add(code)
        elif "/minibroker/" in code.co_filename:
            reached.add(code.co_filename)

    sys.setprofile(note)
    try:
        warm_up(target, inputs)
    finally:
        sys.setprofile(None)
    return reached


def keep(target: Target, found: list[bytes]) -> None:
    """Add those inputs to the corpus that reach a line which no other one reaches, the short ones first."""
    kept = corpus(target.name)
    reached: set[tuple[str, int]] = set()
    for each in [*target.seeds(), *kept]:
        reached |= lines_of(target, each)
    for each in sorted(found, key=len):
        if len(each) <= KEPT_BYTES_MAX and not (lines := lines_of(target, each)) <= reached:
            reached |= lines
            kept.append(each)
    path = Path(__file__).parent / "corpus" / f"{target.name}.txt"
    path.write_text("".join(f"{each.hex()}\n" for each in kept))


def lines_of(target: Target, data: bytes) -> set[tuple[str, int]]:
    """Return the lines of the package that an input reaches."""
    lines: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if event == "line":
            lines.add((name, frame.f_lineno))
        return trace if "/minibroker/" in name or name == "<string>" else None

    sys.settrace(trace)
    try:
        with suppress(Finding):  # it takes longer than it may, while it is traced
            target.run(data)
    finally:
        sys.settrace(None)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="all, unless some are named")
    parser.add_argument("--runs", type=int, default=RUNS, help="inputs of each target")
    parser.add_argument("--minutes", type=float, default=0, help="of each target at most: some are 50 times as fast")
    parser.add_argument("--keep", action="store_true", help="add inputs that reach more lines to the corpus")
    parser.add_argument("--in", dest="directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.directory is not None:
        fuzz(TARGETS[options.targets[0]](INSTRUMENTED), options.runs, round(60 * options.minutes), options.directory)
    status = 0
    for name in options.targets or TARGETS:
        with tempfile.TemporaryDirectory(prefix="minibroker-fuzz-") as directory:
            inputs = Path(directory) / "inputs"
            inputs.mkdir()
            command = [sys.executable, "-m", "tests.fuzz", name, "--runs", str(options.runs), "--in", str(inputs)]
            command += ["--minutes", str(options.minutes)]
            ended = subprocess.run(command, check=False).returncode
            status = status or ended
            if options.keep and not ended:
                target = TARGETS[name]()
                keep(target, [each.read_bytes() for each in sorted(inputs.iterdir())])
                target.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
