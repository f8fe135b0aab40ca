"""A job as a command: `python -m`, `spark-submit` and `minibroker jobs run` start it alike.

A job gives its options, its plan and what it runs. Here are the options that all jobs share, the stages that it
prints while Spark starts, the signals that end it, and the one line on standard error when it fails.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.kafka_options import topics_of
from minibroker.spark_jobs.living_line import LivingLine, Watch, living_line
from minibroker.spark_jobs.micro_batches import micro_batches, sentence
from minibroker.spark_jobs.report import say
from minibroker.spark_jobs.session import ConnectorUnavailable, connector_is_missing, spark_session
from minibroker.spark_jobs.surroundings import check_surroundings
from minibroker.spark_jobs.topic_offsets import beyond_times

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
STAGES = {
    "connector": "fetching Spark's Kafka connector, once",
    "session": "starting Spark",
    "query": "starting the query",
}
REASON_CHARACTERS = 300
LOOK_AGAIN_SECONDS = 0.2
PROGRESS_SECONDS = 5.0
LARGER = "give the topic a larger max.message.bytes"
NEXT_STEPS = {
    "No space left on device": "make room, and start it again: it goes on from its last micro-batch",
    "max.request.size": "give --kafka-option kafka.max.request.size=BYTES",
    "buffer.memory": "give --kafka-option kafka.buffer.memory=BYTES --kafka-option kafka.max.request.size=BYTES",
    "larger than the max message size": LARGER,
    "exceeds the maximum configured value": LARGER,
}
STANDARD_ERROR = 2
SIGNALLED = 128  # and the number of the signal are the status, as in shells
JAVA_EXCEPTION = re.compile(r"(?:Exception|Error)[^:\n]*: (.*)")
PYTHON_EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Interrupt): ")


class Job(NamedTuple):
    """The parts of a job, as its module gives them to `main`."""

    name: str
    options: Callable[[], argparse.ArgumentParser]
    # Reads and transforms, and starts nothing: what `--dry-run` shows. It may return several, in the order of writing.
    plan: Callable[[SparkSession, argparse.Namespace], DataFrame | Sequence[DataFrame]]
    # Ends when `stop` is set; returns the exit status. Raises JobFailed.
    run: Callable[[SparkSession, argparse.Namespace, threading.Event], int]
    # Names what it reads, for the line of a failure.
    subject: Callable[[argparse.Namespace], str] = lambda arguments: (
        f"{topics_of(arguments)} at {arguments.bootstrap_servers}"
    )


def main(job: Job, command_line: Sequence[str] | None = None) -> None:
    """Run a job as a command; exit with its status, with 1 and the reason, or with 128 and the signal that ended it."""
    arguments = job.options().parse_args(command_line)
    # While Spark starts, Ctrl-C ends the process at once, and the JVM with it: an exception could be lost in there.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What Spark calls in Python may fail: the job says so, and py4j need not.
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    stop = Stop()
    with tempfile.TemporaryFile() as errors:
        status = _status(job, arguments, stop, errors.fileno())
    if stop.signal is not None:
        print(f"{job.name}: stopped before its end; the same command goes on from there", file=sys.stderr)
        status = SIGNALLED + stop.signal
    if status:
        sys.exit(status)


def _status(job: Job, arguments: argparse.Namespace, stop: Stop, errors: int) -> int:
    """Run a job, and say why it failed; `errors` is the file for those of the JVM."""
    try:
        with living_line() as line:
            check_surroundings(arguments)
            return _run(job, arguments, line, stop, errors)
    except (ConnectorUnavailable, OSError, JobFailed) as reason:
        return _failed(job, stop, str(reason))
    except (PySparkException, Py4JError) as error:
        written = os.pread(errors, os.fstat(errors).st_size, 0)
        text = f"{job.subject(arguments)}: {_in_one_line(error, written.decode(errors='replace'))}"
        if written and stop.signal is None:
            # It has the query's plan and the trace.
            log = Path(tempfile.gettempdir()) / f"minibroker-{job.name}-{os.getpid()}.log"
            with suppress(OSError):  # a disk that is full may be the reason
                log.write_bytes(written)
                text += f"; Spark's log: {log}"
        return _failed(job, stop, text)


def _failed(job: Job, stop: Stop, reason: str) -> int:
    if stop.signal is None:
        print(f"{job.name}: {reason}", file=sys.stderr)
    return 1


def _run(job: Job, arguments: argparse.Namespace, line: LivingLine | None, stop: Stop, errors: int) -> int:
    if connector_is_missing():
        _show_stage("connector", arguments, line)
    _show_stage("session", arguments, line)
    # In the main thread pyspark would take SIGINT over, and call the JVM in the middle of another call.
    with ThreadPoolExecutor(1) as starting, _standard_error_in(errors):
        settings = _session_settings(arguments)
        spark = starting.submit(spark_session, job.name, master=arguments.master, config=settings).result()
    try:
        if arguments.dry_run:
            planned = job.plan(spark, arguments)
            for frame in [planned] if isinstance(planned, DataFrame) else planned:
                frame.explain("formatted")
            return 0
        _show_stage("query", arguments, line)
        if line is not None:
            line.watch(spark)
        stop.at_signals()
        return job.run(spark, arguments, stop)
    except (PySparkException, Py4JJavaError) as error:
        if "long overflow" not in reason_of(error) or not hasattr(arguments, "subscribe"):
            raise
        raise JobFailed(beyond_times(spark, arguments)) from error
    finally:
        if line is not None:
            line.say("stopping Spark")
        with suppress(Py4JError, OSError):  # a JVM that has ended
            spark.stop()


@contextmanager
def _standard_error_in(descriptor: int) -> Iterator[None]:
    """Have what is started in here, the JVM and Spark's workers in Python, write its errors to a file."""
    kept = os.dup(STANDARD_ERROR)
    try:
        os.dup2(descriptor, STANDARD_ERROR)
        yield
    finally:
        os.dup2(kept, STANDARD_ERROR)
        os.close(kept)


class Progress(NamedTuple):
    """How far a job is: for `--json`, and for a person."""

    facts: dict[str, Any]
    text: str


@contextmanager
def stoppable(
    spark: SparkSession,
    stop: threading.Event,
    arguments: argparse.Namespace,
    progress: Callable[[], Progress | None] | None = None,
) -> Iterator[None]:
    """Cancel what Spark does in here when `stop` is set, and say now and then how far it is.

    As long as the job has no `progress` of its own that is Spark's, unless a terminal shows it anyway. Raises JobFailed
    when stopped.
    """
    done = threading.Event()
    ways = [way for way in (progress, None if sys.stderr.isatty() else _progress_of(spark)) if way is not None]

    def look_after() -> None:
        said, said_at = "", time.monotonic()
        while not done.wait(LOOK_AGAIN_SECONDS):
            if stop.is_set():
                # Again and again: a job may begin in between.
                spark.sparkContext.cancelAllJobs()
            elif time.monotonic() - said_at >= PROGRESS_SECONDS:
                said_at = time.monotonic()
                # Without an answer the job is about to fail, and says why.
                with suppress(Py4JError, PySparkException, OSError, JobFailed):
                    found = next((found for way in ways if (found := way()) is not None), None)
                    if found is not None and found.text != said and not done.is_set():
                        said = found.text
                        say(arguments, {"progress": found.facts}, said)

    looking = threading.Thread(target=look_after, daemon=True)
    looking.start()
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if stop.is_set():
            raise JobFailed("stopped") from error
        raise
    finally:
        done.set()
        looking.join()


def _progress_of(spark: SparkSession) -> Callable[[], Progress | None]:
    watch = Watch(spark)

    def progress() -> Progress | None:
        doing = watch.doing()
        if doing.stage is None:
            return None
        return Progress({"stage": doing.stage, "tasks_done": doing.tasks_done, "tasks": doing.tasks}, str(doing))

    return progress


def say_batches(
    query: StreamingQuery, arguments: argparse.Namespace, stop: threading.Event, *, until: datetime | None = None
) -> None:
    """Print a line about each micro-batch until the query ends, as `micro_batches`; it observes `unreadable`."""
    for facts in micro_batches(query, stop=stop, until=until, counters=["unreadable"]):
        say(arguments, facts, sentence(facts, left_out=["unreadable"]))


def _session_settings(arguments: argparse.Namespace) -> dict[str, str]:
    settings: dict[str, str] = dict(arguments.spark_config)
    if (event_log := arguments.event_log) is not None:
        if "://" not in event_log:
            Path(event_log).mkdir(parents=True, exist_ok=True)
            event_log = Path(event_log).absolute().as_uri()
        settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": event_log}
    return settings


def _show_stage(stage: str, arguments: argparse.Namespace, line: LivingLine | None) -> None:
    if line is not None:
        line.say(STAGES[stage])
    if line is None or arguments.json:
        print(json.dumps({"stage": stage}) if arguments.json else STAGES[stage], flush=True)


def _in_one_line(error: Exception, written: str) -> str:
    """The reason of a failure, and the next step where there is one."""
    reason = reason_of(error)
    if "JAVA_GATEWAY_EXITED" in reason:  # the JVM has written why
        found = JAVA_EXCEPTION.search(written)
        reason = f"Spark does not start: {found[1] if found else reason}"
    return next((f"{reason}; {step}" for sign, step in NEXT_STEPS.items() if sign in reason), reason)


def reason_of(error: BaseException) -> str:
    """Return what Spark or the JVM failed of, in one line: the cause behind all others."""
    cause = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if cause is not None:
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.getMessage() or cause.toString())
    else:
        text = str(error) or type(error).__name__
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [type(error).__name__]
    # Of a trace in Python or Java that is in the text, what was raised at first.
    raised = [line for line in lines if PYTHON_EXCEPTION.match(line)] if "Traceback" in text else []
    caused = [line for line in lines if line.startswith("Caused by: ")]
    return (raised or caused[-1:] or lines)[0].removeprefix("Caused by: ")[:REASON_CHARACTERS]


class Stop(threading.Event):
    """An event that the first signal sets; the second ends the process, should the query not stop."""

    signal: int | None = None

    def at_signals(self) -> None:
        """Set it at the first SIGINT or SIGTERM from now on."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self.set()
        signal.signal(number, signal.SIG_DFL)
