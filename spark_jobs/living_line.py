"""One line at the foot of a terminal, which says what Spark does while it does: stage, tasks, records, how far behind.

The rule: it is on standard error, and only if that is a terminal; what a job prints goes above it, and it is gone at
the end.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, NamedTuple, TextIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from minibroker.spark_jobs.micro_batches import behind

DRAW_SECONDS = 0.25
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ERASED = "\r\x1b[K"
STANDARD_ERROR = 2


class Doing(NamedTuple):
    """The work of Spark in a moment; `message` is that of a streaming query, empty for none."""

    message: str = ""
    stage: int | None = None
    tasks_done: int = 0
    tasks: int = 0
    records: int = 0
    behind: int = 0

    def __str__(self) -> str:
        parts = [self.message[:1].lower() + self.message[1:]] if self.message else []
        if self.stage is not None:
            parts.append(f"stage {self.stage}, {self.tasks_done:,} of {self.tasks:,} tasks")
        if self.records:
            parts.append(f"{self.records:,} records so far")
        if self.behind:
            parts.append(f"{self.behind:,} behind")
        return "; ".join(parts)


class Watch:
    """Asks Spark what it does, and sums up what its queries have read."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._seen: dict[str, int] = {}  # the newest batch by run
        self._records = 0
        self._behind = 0

    def doing(self) -> Doing:
        """Return what Spark does now. Raises Py4JError or PySparkException, if Spark has ended."""
        message = ""
        for query in self._spark.streams.active:
            message = query.status["message"]
            self._note(query)
        tracker = self._spark.sparkContext.statusTracker()
        stages = [info for each in tracker.getActiveStageIds() if (info := tracker.getStageInfo(each)) is not None]
        if not stages:
            return Doing(message, records=self._records, behind=self._behind)
        newest = max(stages, key=lambda info: info.stageId)
        return Doing(message, newest.stageId, newest.numCompletedTasks, newest.numTasks, self._records, self._behind)

    def _note(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            # Idle triggers repeat the last batch's id with no rows.
            if progress["batchId"] > self._seen.get(query.runId, -1):
                self._seen[query.runId] = progress["batchId"]
                self._records += progress["numInputRows"]
            self._behind = sum(behind(source) for source in progress["sources"])


class LivingLine:
    """The line; `say` sets its words until `watch` has it ask Spark."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._lock = threading.Lock()
        self._words = ""
        self._watch: Watch | None = None
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def say(self, words: str) -> None:
        """Show these words from now on."""
        self._watch = None
        self._words = words

    def watch(self, spark: SparkSession) -> None:
        """Show what Spark does from now on."""
        self._watch = Watch(spark)

    def above(self, text: str, stream: IO[str]) -> None:
        """Write text to a stream that may be the same terminal."""
        with self._lock:
            self._terminal.write(ERASED)
            self._terminal.flush()
            stream.write(text)
            stream.flush()

    def start(self) -> None:
        """Begin to draw."""
        self._thread.start()

    def end(self) -> None:
        """Remove the line."""
        self._ended.set()
        self._thread.join()
        with self._lock:
            self._terminal.write(ERASED)
            self._terminal.flush()

    def _live(self) -> None:
        frame = 0
        while not self._ended.wait(DRAW_SECONDS):
            words = self._words
            if self._watch is not None:
                # Without an answer Spark is about to end, which the job reports.
                with suppress(Py4JError, PySparkException, OSError):
                    words = self._words = str(self._watch.doing()) or words
            frame += 1
            seconds = int(time.monotonic() - self._started)
            line = f"{FRAMES[frame % len(FRAMES)]} {seconds // 60}:{seconds % 60:02}  {words}"
            with self._lock:
                columns = os.get_terminal_size(self._terminal.fileno()).columns
                self._terminal.write(ERASED + fitting(line, columns=columns))
                self._terminal.flush()


def fitting(line: str, *, columns: int) -> str:
    """Return what fits into a terminal before its last column; all of it if the terminal has no width, 0."""
    return line[: columns - 1] if columns else line


class Above:
    """Standard output, whose lines go above the line."""

    def __init__(self, line: LivingLine, stream: TextIO) -> None:
        self._line = line
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text above the line; a text without its line break waits for it."""
        self._line.above(text, self._stream)
        return len(text)

    def flush(self) -> None:
        """Do nothing: each text is flushed."""


@contextmanager
def living_line() -> Iterator[LivingLine | None]:
    """Show the line until the end of the block; None if standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    terminal = os.fdopen(os.dup(STANDARD_ERROR), "w", encoding="utf-8", errors="replace")
    line = LivingLine(terminal)
    line.start()
    try:
        with redirect_stdout(Above(line, sys.stdout)):
            yield line
    finally:
        line.end()
