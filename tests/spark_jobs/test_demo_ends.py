"""`make run` ended at random moments, in any way: nothing that it has started is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.processes import ROOT
from tests.leftovers import Leftovers, leftovers

SAMPLE = 1
TRIES = 30
# Of a demo with so many days; Spark starts twice in it.
DAYS = 20
DEMO_SECONDS = 30
SPARK_STARTS_SECONDS = 6
GONE_SECONDS = 30
DEMO = "-m minibroker.demo "
WAYS = ("Ctrl-C", "make killed", "hang-up", "make terminated", "demo killed")

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def moments() -> Iterator[object]:
    """Parameters: a moment while Spark starts, and in `make nightly` thirty at any time."""
    for number in range(SAMPLE + TRIES):
        is_sample = number < SAMPLE
        seconds = random.Random(number).uniform(0, SPARK_STARTS_SECONDS if is_sample else DEMO_SECONDS)
        way = WAYS[number % len(WAYS)]
        marks = [] if is_sample else [pytest.mark.nightly]
        yield pytest.param(way, seconds, marks=marks, id=f"{way} after {seconds:.1f} s")


SIGNALLED = """
import os, signal
from minibroker.demo.__main__ import end_on_signals, signals_held

end_on_signals()
with signals_held():
    os.kill(os.getpid(), signal.SIGTERM)
    print("imported")
print("went on")
"""


def test_a_signal_waits_while_modules_are_imported() -> None:
    done = subprocess.run([sys.executable, "-c", SIGNALLED], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "imported\n", "")


AS_CYTHON = """
import os, signal, sys
from minibroker.demo import __main__ as demo

def interrupted(arguments):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except SystemExit:
        raise TypeError("of a module in Cython") from None

demo.run = interrupted
sys.exit(demo.main([]))
"""


def test_an_exit_that_another_module_turns_into_an_error_is_one_all_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", AS_CYTHON], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


@pytest.fixture
def left() -> Iterator[Leftovers]:
    with leftovers() as made:
        yield made


@pytest.mark.parametrize(("way", "seconds"), list(moments()))
def test_nothing_is_left_of_a_demo_that_is_ended(
    left: Leftovers, jars: list[Path], tmp_path: Path, way: str, seconds: float
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    made = ["-o", ".venv/.demo", f"BIN={Path(sys.executable).parent}", f"DEMO=--days {DAYS} --out {tmp_path / 'out'}"]
    with (tmp_path / "printed").open("wb") as printed:
        make = subprocess.Popen(
            ["make", "run", *made],
            cwd=ROOT,
            env=left.environment | {"TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
    with suppress(subprocess.TimeoutExpired):
        make.wait(seconds)

    end(make, way, left)

    make.wait(GONE_SECONDS)
    left.wait_until_gone(GONE_SECONDS)
    if way == "Ctrl-C":
        assert "Error" not in (tmp_path / "printed").read_text()
    if "killed" not in way:
        assert list(temporary.iterdir()) == [], (tmp_path / "printed").read_text()


def end(make: subprocess.Popen[bytes], way: str, left: Leftovers) -> None:
    # It may have ended by itself.
    with suppress(ProcessLookupError):
        match way:
            case "Ctrl-C":  # of a terminal: to all processes in the foreground
                os.killpg(make.pid, signal.SIGINT)
            case "hang-up":
                os.killpg(make.pid, signal.SIGHUP)
            case "make terminated":
                make.terminate()
            case "make killed":
                make.kill()
            case "demo killed":
                while make.poll() is None:
                    for pid, command in left.processes().items():
                        if DEMO in command:
                            os.kill(pid, signal.SIGKILL)
