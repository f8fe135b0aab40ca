"""The labs: a right program reaches every grade, and each mistake misses its own."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minibroker.lab.__main__ import LABS, lab_of
from minibroker.lab.program import Grade, Program

PROGRAMS = Path(__file__).parent / "lab_programs"
# By lab: what a student has instead of what the right program has (patterns), and what is missed.
MISTAKES: list[tuple[str, dict[str, str], list[str]]] = [
    ("acks", {'"min.insync.replicas": "2"': '"min.insync.replicas": "1"'}, ["lost with the last replica"]),
    ("acks", {'"enable.idempotence": True': '"enable.idempotence": False'}, ["twice: order 1"]),
    (
        "acks",
        {", on_delivery=delivered": "", r"producer.flush\(\)": "producer.poll(0)\n    print(line.strip(), flush=True)"},
        ["lost with the leader", "lost with the last replica"],
    ),
    (
        "acks",
        {'"linger.ms": 0': '"linger.ms": 0, "message.timeout.ms": 1000', r"sys.exit\(.*\)": "pass"},
        ["never sent again"],
    ),
    (
        "exactly-once",
        {r"producer.begin_transaction\(\)": "consumer.commit(asynchronous=False)\n    producer.begin_transaction()"},
        ["lost: receipt"],
    ),
    (
        "rebalance",
        {
            "import Consumer": "import Consumer, TopicPartition",
            r"consumer.subscribe\(.*": 'consumer.assign([TopicPartition("jobs", number, 0) for number in (0, 1)])',
        },
        ["twice"],
    ),
    ("rebalance", {r"consumer.close\(\)": "os._exit(0)"}, ["twice"]),
    ("slow-consumer", {'"max.poll.interval.ms": 6000': '"max.poll.interval.ms": 60000'}, ["at most 6000"]),
]


def graded(lab: str, text: str, directory: Path) -> list[Grade]:
    directory.mkdir(exist_ok=True)
    program, errors = directory / "program.py", directory / "stderr"
    program.write_text(text)
    errors.touch()
    return lab_of(lab).run(lambda servers: Program([sys.executable, str(program)], servers, errors))


def missed(grades: list[Grade]) -> list[str]:
    return [each.text for each in grades if not each.is_reached]


def right_program(lab: str) -> str:
    return (PROGRAMS / f"{LABS[lab]}.py").read_text()


@pytest.mark.parametrize("lab", LABS)
def test_a_right_program_reaches_every_grade_and_the_first_one_does_not(lab: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:  # they wait for most of the time
        right = pool.submit(graded, lab, right_program(lab), tmp_path / "right")
        first = pool.submit(graded, lab, lab_of(lab).STARTER, tmp_path / "first")

        assert missed(right.result()) == []
        assert missed(first.result()) != []


@pytest.mark.nightly
@pytest.mark.parametrize(("lab", "changes", "texts"), MISTAKES)
def test_a_mistake_misses_its_own_grade(lab: str, changes: dict[str, str], texts: list[str], tmp_path: Path) -> None:
    program = right_program(lab)
    for right, wrong in changes.items():
        program, count = re.subn(right, lambda _, wrong=wrong: wrong, program)  # type: ignore[misc]
        assert count == 1

    found = missed(graded(lab, program, tmp_path))

    assert len(found) == len(texts), found
    assert all(text in each for text, each in zip(texts, found, strict=True)), found


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
