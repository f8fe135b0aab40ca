"""The line of a job on a terminal, and a job that is interrupted there: nothing of it is left."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minibroker.spark_jobs.living_line import Doing, LivingLine
from tests.leftovers import Leftovers, leftovers

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Kafka

COLUMNS = 60
PRINTED_SECONDS = 60
GONE_SECONDS = 30


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


def test_a_line_has_what_there_is_to_say() -> None:
    assert str(Doing()) == ""
    assert str(Doing("Processing new data", 7, 3, 1200, 5000, 40)) == (
        "processing new data; stage 7, 3 of 1,200 tasks; 5,000 records so far; 40 behind"
    )


def test_what_is_printed_goes_above_the_line_which_is_gone_at_the_end() -> None:
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


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "presses", "statuses"),
    [
        pytest.param("starting Spark", 1, {-signal.SIGINT}, id="while Spark starts", marks=pytest.mark.nightly),
        pytest.param("batch 0", 1, {0}, id="while it waits", marks=pytest.mark.nightly),
        pytest.param("batch 0", 2, {0, -signal.SIGINT}, id="twice"),
    ],
)
def test_ctrl_c_leaves_no_process_behind(
    kafka: Kafka, jars: list[Path], left: Leftovers, tmp_path: Path, said: str, presses: int, statuses: set[int]
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ['{"origin": "JFK"}'])
    command = [sys.executable, "-m", "minibroker.spark_jobs.flight_delays", "-b", kafka.bootstrap, "--subscribe", topic]
    command += ["--output", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "at"), "--continuous", "0.1"]
    with terminal() as shown:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=left.environment,
            stdin=shown.theirs,
            stdout=shown.theirs,
            stderr=shown.theirs,
            start_new_session=True,
        )
        shown.wait_for(said)
        for _ in range(presses):
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes in the foreground

        assert process.wait(GONE_SECONDS) in statuses
        left.wait_until_gone(GONE_SECONDS)
        assert [line for line in shown.lines if "Traceback" in line or "WARNING" in line] == []
