"""The first flights of the year in a topic, and the flight job over them as a process."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from minibroker.demo import flights, replay
from minibroker.spark_jobs import flight_delays

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Kafka

DAYS = 30
PARTITIONS = 3
JOB_SECONDS = 300


class January(NamedTuple):
    """A topic with the first flights of the year, and what is to be found in it."""

    topic: str
    records: int
    expected: pd.DataFrame


def send_january(kafka: Kafka) -> January:
    table = flights.load(DAYS)
    topic = kafka.create_topic(partitions=PARTITIONS)
    replay.replay(kafka.bootstrap, topic, flights.messages(table))
    return January(topic, len(table) + PARTITIONS, flights.expected_delays(table))


class Job(NamedTuple):
    """The flight job as a process, with its places and a topic; `limit` is how many records it takes at a time."""

    folder: Path
    bootstrap: str
    topic: str

    @property
    def output(self) -> Path:
        return self.folder / "delays"

    def arguments(self, *, limit: int) -> list[str]:
        arguments = ["--json", "--bootstrap-servers", self.bootstrap, "--subscribe", self.topic]
        arguments += ["--output", str(self.output), "--checkpoint", str(self.folder / "checkpoint")]
        return [*arguments, "--watermark", "10 days", "--max-offsets-per-trigger", str(limit)]

    def options(self, *, limit: int) -> argparse.Namespace:
        return flight_delays.options().parse_args(self.arguments(limit=limit))

    def start(self, *, limit: int, command: tuple[str, ...] = (), options: Sequence[str] = ()) -> subprocess.Popen[str]:
        started = command or (sys.executable, "-m", "minibroker.spark_jobs.flight_delays")
        with (self.folder / "errors").open("a") as errors:
            return subprocess.Popen(
                [*started, *self.arguments(limit=limit), *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self.folder,
                text=True,
                start_new_session=True,
            )

    def finish(self, process: subprocess.Popen[str]) -> list[dict[str, int]]:
        """Wait for the end and return what the job said about its batches, after its stages."""
        output, _ = process.communicate(timeout=JOB_SECONDS)
        assert process.returncode == 0, (self.folder / "errors").read_text()
        return [facts for line in output.splitlines() if "batch" in (facts := json.loads(line))]
