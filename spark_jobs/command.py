"""A job as a command: `python -m`, `spark-submit` and `minibroker jobs run` start it alike.

A job gives its options, its plan and what it runs. Here are the options that all jobs share, the stages that it
prints while Spark starts, the signals that end it, and the one line on standard error when it fails.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from minibroker.spark_jobs.kafka_options import pair
from minibroker.spark_jobs.living_line import LivingLine, Watch, living_line
from minibroker.spark_jobs.session import ConnectorUnavailable, connector_is_missing, spark_session

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
STAGES = {
    "connector": "fetching Spark's Kafka connector, once",
    "session": "starting Spark",
    "query": "starting the query",
}
REASON_CHARACTERS = 300
LOOK_AGAIN_SECONDS = 0.2
PROGRESS_SECONDS = 5.0
PYTHON_EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Interrupt): ")


class JobFailed(RuntimeError):
    """A job cannot do what it was asked; the message is one line with the next step."""


class Job(NamedTuple):
    """The parts of a job, as its module gives them to `main`."""

    name: str
    options: Callable[[], argparse.ArgumentParser]
    # Reads and transforms, and starts nothing: what `--dry-run` shows. It may return several, in the order of writing.
    plan: Callable[[SparkSession, argparse.Namespace], DataFrame | Sequence[DataFrame]]
    # Ends when `stop` is set; returns the exit status. Raises JobFailed.
    run: Callable[[SparkSession, argparse.Namespace, threading.Event], int]
    # Names what it reads, for the line of a failure.
    subject: Callable[[argparse.Namespace], str]


def job_parser(name: str, about: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every job has."""
    cli = argparse.ArgumentParser(prog=name, description=about)
    spark = cli.add_argument_group("Spark")
    spark.add_argument("--master", default="local[*]", help="such as spark://HOST:7077; spark-submit's own goes first")
    spark.add_argument("--spark-config", action="append", default=[], metavar="KEY=VALUE", type=pair)
    spark.add_argument("--event-log", metavar="DIR", help="write what Spark's history server shows")
    spark.add_argument("--dry-run", action="store_true", help="show the plan, and run nothing")
    cli.add_argument("--json", action="store_true", help="a line of JSON for each stage and each result")
    return cli


def main(job: Job, command_line: Sequence[str] | None = None) -> None:
    """Run a job as a command; exit with its status, or with 1 and the reason."""
    arguments = job.options().parse_args(command_line)
    # While Spark starts, Ctrl-C ends the process at once, and the JVM with it: an exception could be lost in there.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with living_line() as line:
        status = _run(job, arguments, line)
    if status:
        sys.exit(status)


def _run(job: Job, arguments: argparse.Namespace, line: LivingLine | None) -> int:
    if connector_is_missing():
        _show_stage("connector", arguments, line)
    _show_stage("session", arguments, line)
    try:
        # In the main thread pyspark would take SIGINT over, and call the JVM in the middle of another call.
        with ThreadPoolExecutor(1) as starting:
            settings = _session_settings(arguments)
            spark = starting.submit(spark_session, job.name, master=arguments.master, config=settings).result()
    except (ConnectorUnavailable, OSError) as reason:
        sys.exit(f"{job.name}: {reason}")
    try:
        if arguments.dry_run:
            planned = job.plan(spark, arguments)
            for frame in [planned] if isinstance(planned, DataFrame) else planned:
                frame.explain("formatted")
            return 0
        _show_stage("query", arguments, line)
        if line is not None:
            line.watch(spark)
        return job.run(spark, arguments, _set_by_signals())
    except JobFailed as failed:
        sys.exit(f"{job.name}: {failed}")
    except (PySparkException, Py4JError) as error:
        # Spark's log has the query's plan and the trace.
        sys.exit(f"{job.name}: {job.subject(arguments)}: {_reason(error)}")
    finally:
        if line is not None:
            line.say("stopping Spark")
        spark.stop()


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
                with suppress(Py4JError, PySparkException, OSError):
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


def say(arguments: argparse.Namespace, facts: Mapping[str, Any], text: str) -> None:
    """Print facts as a line of JSON, or their text, as was asked for."""
    print(json.dumps(facts) if arguments.json else text, flush=True)


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


def _reason(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.getMessage() or cause.toString())[:REASON_CHARACTERS]
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # Of a trace in Python, what was raised.
    raised = [line for line in lines if PYTHON_EXCEPTION.match(line)] if "Traceback" in str(error) else []
    return (raised or lines)[0][:REASON_CHARACTERS]


def _set_by_signals() -> threading.Event:
    """An event that the first signal sets; the second ends the process, should the query not stop."""
    stop = threading.Event()

    def on_signal(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in STOP_SIGNALS:
        signal.signal(number, on_signal)
    return stop
