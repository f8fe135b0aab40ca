"""The flight job as a command: its plan, its end, and what it says of a topic that is missing."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.sql import SparkSession

from minibroker.demo import result
from minibroker.spark_jobs import command, flight_delays
from tests.spark_jobs.january import JOB_SECONDS, January, Job, send_january

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture(scope="module")
def january(kafka: Kafka) -> January:
    return send_january(kafka)


@pytest.fixture
def job(tmp_path: Path, kafka: Kafka, january: January, jars: list[Path]) -> Job:
    return Job(tmp_path, kafka.bootstrap, january.topic)


@pytest.mark.nightly  # as the demo's does
def test_a_job_ends_by_itself_when_the_windows_it_is_to_write_are_written(
    spark: SparkSession, january: January, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*job.arguments(limit=9000), "--continuous", "0", "--until", "2013-01-31T05:00"]

    flight_delays.run(spark, flight_delays.options().parse_args(arguments), stop=threading.Event())

    batches = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (batches[-1]["has_ended"], batches[-1]["watermark"]) == (True, None)
    times = [batch[name] for batch in batches for name in ("latest", "watermark") if batch[name]]
    assert max(times) < "2013-01-31T05:00", "the end of the stream shows through"
    result.check(result.read(job.output), january.expected)


@pytest.fixture
def command_line(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Sequence[str]], None]]:
    """The job as a command, but in the session's Spark, which goes on after it."""
    handlers = {number: signal.getsignal(number) for number in command.STOP_SIGNALS}
    monkeypatch.setattr(command, "spark_session", lambda name, **settings: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    yield partial(command.main, flight_delays.JOB)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.nightly
def test_a_job_that_looks_again_and_again_ends_at_a_signal(
    command_line: Callable[[Sequence[str]], None], job: Job, january: January, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminate_at_the_end(line: str, flush: bool) -> None:
        facts = json.loads(line)
        # The batch after the last record writes the windows that the end of the stream closes.
        if facts.get("records_so_far") == january.records and facts["records"] == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(flight_delays, "print", terminate_at_the_end, raising=False)

    command_line([*job.arguments(limit=100_000), "--continuous", "0.5"])

    result.check(result.read(job.output), january.expected)


def test_a_dry_run_shows_the_plan_and_reads_nothing(
    command_line: Callable[[Sequence[str]], None], kafka: Kafka, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path, kafka.bootstrap, kafka.create_topic())

    command_line([*job.arguments(limit=1), "--dry-run"])

    shown = capfd.readouterr().out
    assert "StreamingRelation" in shown
    assert "HashAggregate" in shown
    assert not job.output.exists()


def test_a_job_without_its_topic_fails_and_names_it(
    command_line: Callable[[Sequence[str]], None], kafka: Kafka, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path, kafka.bootstrap, "no-such-topic")

    with pytest.raises(SystemExit):
        command_line(job.arguments(limit=1))

    assert f"delays: there is no topic no-such-topic at {kafka.bootstrap}" in capfd.readouterr().err


Submit = Callable[..., tuple[str, ...]]


@pytest.fixture
def submit(monkeypatch: pytest.MonkeyPatch) -> Submit:
    """The command that submits the job to a master."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    program = str(SPARK_HOME / "bin" / "spark-submit")
    return lambda master, *options: (program, "--master", master, *options, str(flight_delays.__file__))


@pytest.mark.nightly
def test_a_job_submitted_without_the_connector_names_the_option(job: Job, submit: Submit) -> None:
    process = job.start(limit=1, command=submit("local[1]"))
    output, _ = process.communicate(timeout=JOB_SECONDS)

    assert process.returncode == 1
    assert "--jars $(python -m minibroker.spark_jobs.session)" in output
