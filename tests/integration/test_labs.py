"""The labs: a right program reaches every grade, and each mistake misses its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minibroker.lab.__main__ import LABS, lab_of
from minibroker.lab.program import Grade
from tests.integration.lab_grades import MISTAKES, Mistake, graded, right_program
from tests.integration.members import wait_until, wait_until_gone


def missed(grades: list[Grade]) -> list[str]:
    return [each.text for each in grades if not each.is_reached]


@pytest.mark.parametrize("lab", LABS)
def test_a_right_program_reaches_every_grade_and_the_first_one_does_not(lab: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:  # they wait for most of the time
        right = pool.submit(graded, lab, right_program(lab), tmp_path / "right")
        first = pool.submit(graded, lab, lab_of(lab).STARTER, tmp_path / "first")

        assert missed(right.result()) == []
        assert missed(first.result()) != []


@pytest.mark.nightly
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_misses_its_own_grade(mistake: Mistake, tmp_path: Path) -> None:
    found = missed(graded(mistake.lab, mistake.program, tmp_path))

    assert len(found) == len(mistake.texts), found
    assert all(text in each for text, each in zip(mistake.texts, found, strict=True)), found


def run_lab(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "minibroker", "lab", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_the_command_shows_a_task_writes_the_first_program_once_and_refuses_what_cannot_run(tmp_path: Path) -> None:
    listed = run_lab(directory=tmp_path)
    shown = run_lab("acks", directory=tmp_path)
    (tmp_path / "acks.py").write_text("mine")
    run_lab("acks", directory=tmp_path)
    absent = run_lab("acks", "no-such-program", directory=tmp_path)
    failing = run_lab("acks", sys.executable, "-c", "raise SystemExit('no luck')", directory=tmp_path)
    mistyped = run_lab("ack", directory=tmp_path)
    helped = run_lab("acks", "--help", directory=tmp_path)

    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(LABS)
    assert shown.returncode == 0
    assert "python acks.py" in shown.stdout
    assert (tmp_path / "acks.py").read_text() == "mine"
    assert (absent.returncode, absent.stderr) == (
        1,
        "minibroker lab: cannot run no-such-program: No such file or directory\n",
    )
    assert failing.returncode == 1
    assert "no luck" in failing.stderr
    assert (mistyped.returncode, mistyped.stderr.count("\n")) == (2, 1)
    assert (helped.returncode, helped.stdout) == (0, run_lab("--help", directory=tmp_path).stdout)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_lab_that_ends_leaves_nothing_of_the_program(how: signal.Signals, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = f"trap '' TERM INT; sleep 600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait; sleep 600"
    command = [sys.executable, "-m", "minibroker", "lab", "slow-consumer", "sh", "-c", program]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as lab:
        wait_until(pids.exists, "the program runs")
        lab.send_signal(how)

    for pid in pids.read_text().split():
        wait_until_gone(int(pid))
