"""The line of a job on a terminal, and a job that is interrupted there: nothing of it is left."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from minibroker.spark_jobs.living_line import Doing, LivingLine
from tests.leftovers import Leftovers, leftovers

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Kafka

COLUMNS = 60
PRINTED_SECONDS = 60
GONE_SECONDS = 30
STOPPED = 128 + signal.SIGINT


class Terminal:
    """A pseudo terminal; `wait_for` waits until a program has written something to it."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (24, COLUMNS))
        self._written = ""
        self._news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        # A terminal without a process that has it open is an error to read from.
        with suppress(OSError):
            while data := os.read(self._ours, 65_536):
                with self._news:
                    self._written += data.decode(errors="replace")
                    self._news.notify_all()

    def wait_for(self, text: str) -> None:
        with self._news:
            found = self._news.wait_for(lambda: text in self._written, PRINTED_SECONDS)
            assert found, f"{text!r} never came: {self._written}"

    @property
    def lines(self) -> list[str]:
        """The lines that stay: of each the part behind its last return and erasure."""
        with self._news:
            return [line.rstrip("\r").rpartition("\r\x1b[K")[2] for line in self._written.split("\n")]


@contextmanager
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    os.close(made.theirs)


def test_a_line_has_stage_tasks_records_and_lag() -> None:
    assert str(Doing()) == ""
    assert str(Doing("Processing new data", 7, 3, 1200, 5000, 40)) == (
        "processing new data; stage 7, 3 of 1,200 tasks; 5,000 records so far; 40 behind"
    )


def test_output_goes_above_the_line_which_is_gone_at_the_end() -> None:
    with terminal() as shown, os.fdopen(os.dup(shown.theirs), "w") as stream:
        line = LivingLine(stream)
        line.say("x" * 2 * COLUMNS)
        line.start()
        shown.wait_for("x" * (COLUMNS - 10))
        line.above("first\n", stream)
        line.say("second words")
        shown.wait_for("second words")
        line.above("last\n", stream)
        line.end()
        stream.write(".")
        stream.flush()
        shown.wait_for(".")

        assert shown.lines == ["first", "last", "."]


@pytest.fixture
def left() -> Iterator[Leftovers]:
    with leftovers() as made:
        yield made


class Pressed(NamedTuple):
    """A job on a terminal of its own, whose Ctrl-C goes to all its processes."""

    process: subprocess.Popen[bytes]
    shown: Terminal
    left: Leftovers

    def press(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)  # as a terminal does: to all processes in the foreground

    def check_nothing_is_left(self, statuses: set[int]) -> None:
        assert self.process.wait(GONE_SECONDS) in statuses, self.shown.lines
        self.left.wait_until_gone(GONE_SECONDS)
        lines = self.shown.lines
        assert [line for line in lines if "Traceback" in line or "WARNING" in line] == [], "\n".join(lines)


@contextmanager
def on_a_terminal(left: Leftovers, folder: Path, job: str, *options: str) -> Iterator[Pressed]:
    with terminal() as shown:
        process = subprocess.Popen(
            [sys.executable, "-m", f"minibroker.spark_jobs.{job}", *options],
            cwd=folder,
            env=left.environment,
            stdin=shown.theirs,
            stdout=shown.theirs,
            stderr=shown.theirs,
            start_new_session=True,
        )
        yield Pressed(process, shown, left)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.sample(of=lambda said: said == "starting Spark")
@pytest.mark.parametrize(
    ("said", "presses", "statuses"),
    [
        pytest.param("starting Spark", 1, {-signal.SIGINT}, id="while Spark starts"),
        pytest.param("batch 0", 1, {STOPPED}, id="while it waits"),
        pytest.param("batch 0", 2, {STOPPED, -signal.SIGINT}, id="twice"),
    ],
)
def test_ctrl_c_leaves_no_process_behind(
    kafka: Kafka, jars: list[Path], left: Leftovers, tmp_path: Path, said: str, presses: int, statuses: set[int]
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ['{"origin": "JFK"}'])
    options = ["-b", kafka.bootstrap, "--subscribe", topic, "--continuous", "0.1"]
    options += ["--output", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "at")]
    with on_a_terminal(left, tmp_path, "flight_delays", *options) as job:
        job.shown.wait_for(said)
        for _ in range(presses):
            job.press()

        job.check_nothing_is_left(statuses)


MOMENTS = 12
LAST_SECONDS = 15.0  # some seconds after a quiet machine has started Spark
JOBS = ("alerts", "archive", "replay", "telemetry", "verify")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("number", range(MOMENTS))
def test_ctrl_c_at_any_moment_of_any_job_leaves_no_process_behind(
    kafka: Kafka, jars: list[Path], left: Leftovers, tmp_path: Path, number: int
) -> None:
    source = random.Random(number)
    job, seconds = JOBS[number % len(JOBS)], source.uniform(0.0, LAST_SECONDS)
    topic, target = kafka.create_topic(partitions=2), kafka.create_topic(partitions=2)
    kafka.produce(topic, [json.dumps({"n": record}) for record in range(5000)])
    (tmp_path / "rows.csv").write_text("timestamp,n\n" + "".join(f"2026-01-01 00:00:{s:02},{s}\n" for s in range(60)))
    reading = ["-b", kafka.bootstrap, "--subscribe", topic]
    checkpoint = ["--checkpoint", str(tmp_path / "at")]
    output = ["--output", str(tmp_path / "out"), "--continuous", "0.1"]
    rows = ["--input", str(tmp_path / "rows.csv"), "--format", "csv"]
    rule = ["--schema", "n INT", "--rule", "n > 10", "--times", "2", "--by", "n % 7", "--processing-time", "0 seconds"]
    options = {
        "alerts": [*reading, *checkpoint, *rule, "--starting-offsets", "earliest", "--topic", target],
        "archive": [*reading, *output],
        "replay": ["-b", kafka.bootstrap, "--topic", target, "--speed", "1", *rows],
        "telemetry": [*reading, *checkpoint, *output],
        "verify": [*reading, "--against-topic", target],
    }
    with on_a_terminal(left, tmp_path, job, *options[job]) as pressed:
        with suppress(subprocess.TimeoutExpired):
            pressed.process.wait(seconds)
        for _ in range(1 + number % 2):
            with suppress(ProcessLookupError):  # a job that has ended
                pressed.press()
            with suppress(subprocess.TimeoutExpired):
                pressed.process.wait(source.uniform(0.0, 1.0))

        # As if it had not been pressed, as stopped, at once; 3 is verify's for topics that differ.
        pressed.check_nothing_is_left({0, 3, STOPPED, -signal.SIGINT})
