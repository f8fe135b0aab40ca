"""Each job beside what a user can cause: one line with the next step and a status, or all records as they were."""

from __future__ import annotations

import importlib
import json
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import SparkSession

from minibroker.spark_jobs import JOBS, command, living_line
from minibroker.spark_jobs.command import Job
from minibroker.spark_jobs.command_lines import PARSERS

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Kafka

STREAMING = ("alerts", "archive", "delays", "telemetry")


class Ended(NamedTuple):
    status: int
    lines: list[str]  # of standard error
    printed: list[dict[str, Any]]


class Jobs:
    """Runs jobs as commands, in this process; what each needs is there unless a test damages it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], bootstrap: str) -> None:
        self.folder, self.capsys, self.bootstrap = folder, capsys, bootstrap
        self.topic, self.target = "some", "other"
        (folder / "rows.csv").write_text("n,timestamp\n1,2026-01-01T00:00:00Z\n")

    def options(self, job: str) -> list[str]:
        source, target = ["--subscribe", self.topic], ["--topic", self.target]
        kept = ["--output", f"{self.folder}/out", "--checkpoint", f"{self.folder}/at"]
        rule = ["--schema", "n INT", "--rule", "n >= 0", "--available-now", "--starting-offsets", "earliest"]
        return {
            "alerts": [*source, *rule, *target, *kept[2:]],
            "archive": [*source, *kept],
            "delays": [*source, *kept],
            "replay": ["--input", f"{self.folder}/rows.csv", "--format", "csv", *target],
            "telemetry": [*source, *kept],
            "verify": [*source, "--against-topic", self.target],
        }[job]

    def __call__(self, job: str, *more: str, options: list[str] | None = None) -> Ended:
        module = importlib.import_module(f"minibroker.spark_jobs.{JOBS[job].module}")
        made: Job = module.JOB
        self.capsys.readouterr()
        status: Any = 0
        try:
            given = self.options(job) if options is None else options
            command.main(made, ["-b", self.bootstrap, "--json", *given, *more])
        except SystemExit as end:
            status = end.code
        printed = self.capsys.readouterr()
        return Ended(status, printed.err.splitlines(), [json.loads(line) for line in printed.out.splitlines()])

    def fails(self, job: str, line: str, *more: str, **options: Any) -> None:
        ended = self(job, *more, **options)
        assert ended.status == 1
        assert len(ended.lines) == 1 and line in ended.lines[0], ended.lines
        assert ended.lines[0].startswith(f"{job}: ")


@pytest.fixture
def before_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """Jobs that must not start Spark."""
    monkeypatch.setattr(command, "spark_session", lambda *names, **settings: pytest.fail("Spark was started"))
    handler = signal.getsignal(signal.SIGINT)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # in place of a broker: it is only connected to
        yield Jobs(tmp_path, capsys, f"127.0.0.1:{listening.getsockname()[1]}")
    signal.signal(signal.SIGINT, handler)


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("job", PARSERS)
@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["-b", "UNUSED"], "no broker at UNUSED: Connection refused; start one, or give another -b HOST:PORT"),
        (["-b", "UNUSED,UNUSED"], "no broker at UNUSED,UNUSED: Connection refused"),
        (["-b", "nowhere.invalid:9092"], "no broker at nowhere.invalid:9092: "),
        (["-b", "localhost"], "no broker at localhost: 'localhost' is not HOST:PORT"),
        (["--kafka-option", "kafka.bootstrap.servers=UNUSED"], "no broker at UNUSED: Connection refused"),
        (["--master", "spark://UNUSED"], "no Spark master at spark://UNUSED: Connection refused; start one, or give"),
        (["--master", "here"], "--master here: a master is local[*], spark://HOST:7077, yarn or k8s://ADDRESS"),
        (["-b", "UNUSED,GIVEN", "--event-log", "FOLDER/rows.csv/events"], "FOLDER/rows.csv is no directory"),
    ],
    ids=["no broker", "no brokers", "no host", "no port", "another broker", "no master", "no such master", "no folder"],
)
def test_a_missing_broker_master_or_folder_is_named_before_spark_starts(
    job: str, more: list[str], line: str, before_spark: Jobs
) -> None:
    address, folder = unused_address(), str(before_spark.folder)

    def filled(text: str) -> str:
        text = text.replace("GIVEN", before_spark.bootstrap)
        return text.replace("UNUSED", address).replace("FOLDER", folder)

    before_spark.fails(job, filled(line), *map(filled, more))


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("--assign", '{"t": 0}', "is not JSON such as"),
        ("--assign", "t", "is not JSON such as"),
        ("--picture", "hours.xyz", "does not end as a picture: .png"),
    ],
)
def test_an_option_that_is_wrong_is_a_matter_of_usage(option: str, value: str, line: str, before_spark: Jobs) -> None:
    source = [] if option == "--assign" else ["--subscribe", "t"]

    ended = before_spark("archive", option, value, options=[*source, "--output", "out"])

    assert ended.status == 2
    assert line in ended.lines[-1]


@pytest.mark.parametrize("option", ["--output", "--checkpoint"])
@pytest.mark.parametrize("path", ["rows.csv/at", "file:FOLDER/rows.csv/at", "/proc/self/environ/at"])
def test_a_folder_that_cannot_be_made_is_named(option: str, path: str, before_spark: Jobs) -> None:
    given = path.replace("FOLDER", str(before_spark.folder))
    given = str(before_spark.folder / given) if ":" not in given else given

    before_spark.fails("archive", " is no directory", option, given)


def test_a_terminal_without_columns_shows_all_of_the_line() -> None:
    assert living_line.fitting("0:01 words", columns=0) == "0:01 words"
    assert living_line.fitting("0:01 words", columns=5) == "0:01"


@pytest.fixture
def jobs(
    spark: SparkSession,
    kafka: Kafka,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Jobs]:
    """Jobs in the session that all tests share, with topics of their own."""
    monkeypatch.setattr(command, "spark_session", lambda *names, **settings: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    handlers = {number: signal.getsignal(number) for number in command.STOP_SIGNALS}
    made = Jobs(tmp_path, capsys, kafka.bootstrap)
    made.topic, made.target = kafka.create_topic(), kafka.create_topic()
    kafka.produce(made.topic, [json.dumps({"n": number}) for number in range(20)])
    yield made
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
class TestWithSpark:
    @pytest.mark.parametrize("job", PARSERS)
    def test_a_topic_that_is_missing_is_named(self, job: str, jobs: Jobs) -> None:
        if job == "replay":
            jobs.target = "no-such-topic"
        else:
            jobs.topic = "no-such-topic"

        jobs.fails(job, f"there is no topic no-such-topic at {jobs.bootstrap}; create it first")

    @pytest.mark.nightly  # it takes the time that a broker is given to answer
    @pytest.mark.parametrize("job", ["archive", "replay", "verify"])
    def test_a_broker_that_is_silent_is_named(self, job: str, jobs: Jobs) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            jobs.bootstrap = f"127.0.0.1:{listening.getsockname()[1]}"

            jobs.fails(job, "Timed out waiting for a node assignment")

    @pytest.mark.sample(of=lambda job, more: (job, more) in (("archive", 5), ("alerts", 30)))
    @pytest.mark.parametrize("more", [5, 30], ids=["with fewer records", "with more records"])
    @pytest.mark.parametrize("job", STREAMING)
    def test_a_topic_that_was_made_anew_never_goes_on(self, job: str, more: int, jobs: Jobs, kafka: Kafka) -> None:
        assert jobs(job).status == 0
        kafka.make_anew(jobs.topic)
        kafka.produce(jobs.topic, ["{}"] * more)

        for loss in ("true", "false"):
            line = "made anew since it was read last: its id was"
            jobs.fails(job, line, "--fail-on-data-loss", loss)

    def test_a_broker_without_topic_ids_shows_a_topic_made_anew_by_its_offsets(
        self, jobs: Jobs, kafka: Kafka, tmp_path: Path
    ) -> None:
        assert jobs("archive").status == 0
        (tmp_path / "at" / "_topics").unlink()
        kafka.make_anew(jobs.topic)
        kafka.produce(jobs.topic, ["{}"] * 5)

        line = (
            f"{jobs.topic}-0: made anew: it was read up to offset 20, and now ends at 5; give the new topic an output"
        )
        jobs.fails("archive", line, "--fail-on-data-loss", "false")

    @pytest.mark.sample(of=lambda job: job in ("archive", "verify"))
    @pytest.mark.parametrize("job", [*STREAMING, "verify"])
    def test_a_time_that_spark_cannot_hold_is_named(self, job: str, jobs: Jobs, kafka: Kafka) -> None:
        kafka.produce(jobs.topic, ["{}"], first_ms=1 << 62)

        jobs.fails(job, f"{jobs.topic}-0 at offset 20: the record's time is outside of the years that Spark can hold")

    @pytest.mark.parametrize(
        ("form", "schema", "line"),
        [
            ("json", "int", "a schema of Spark is needed, and this is none: "),
            ("json", '{"type":', "a schema of Spark is needed, and this is none: Expecting value"),
            ("json", "{}", "a schema of Spark is needed, and this is none: 'fields'"),
            ("avro", "record", "a schema of Avro is needed, and this is none: Expecting value"),
        ],
    )
    def test_a_schema_that_is_none_is_named(self, form: str, schema: str, line: str, jobs: Jobs) -> None:
        (jobs.folder / "schema").write_text(schema)

        jobs.fails("archive", line, "--value-format", form, "--schema", f"{jobs.folder}/schema")

    @pytest.mark.parametrize(
        ("options", "line"),
        [
            (["--value-format", "json"], "--schema-registry needs --value-format avro"),
            (["--value-format", "avro", "--framing", "none"], "--schema-registry needs --value-format avro"),
            (["--value-format", "avro"], "no schema registry answers at http://127.0.0.1:9"),
        ],
    )
    def test_a_registry_that_cannot_be_used_is_named(self, options: list[str], line: str, jobs: Jobs) -> None:
        jobs.fails("archive", line, *options, "--schema-registry", "127.0.0.1:9")

    def test_a_damaged_checkpoint_is_named(self, jobs: Jobs, tmp_path: Path) -> None:
        assert jobs("archive").status == 0
        (tmp_path / "at" / "offsets" / "0").write_text("v1\n{}")

        jobs.fails("archive", f"{tmp_path}/at/offsets/0 is damaged")

    def test_a_full_disk_is_one_line_and_the_job_goes_on_afterwards(
        self, jobs: Jobs, kafka: Kafka, tmp_path: Path
    ) -> None:
        (small := tmp_path / "small").mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", small], check=False)
        if mounted.returncode:
            pytest.skip("needs root, to mount a small file system")
        try:
            kafka.produce(jobs.topic, [random.Random(number).randbytes(50_000).hex() for number in range(20)])
            options = ["--subscribe", jobs.topic, "--output", f"{small}/out", "--max-offsets-per-trigger", "15"]
            jobs.fails("archive", "No space left on device; make room, and start it again", options=options)
            subprocess.run(["mount", "-o", "remount,size=9m", small], check=True)
            assert jobs("archive", options=options).printed[-1]["archived"] == 40
        finally:
            subprocess.run(["umount", small], check=True)

    @pytest.mark.nightly
    def test_values_over_a_mebibyte_are_archived_replayed_and_alerted_about(self, jobs: Jobs, kafka: Kafka) -> None:
        for topic in (jobs.topic, jobs.target):
            kafka.configure(topic, "max.message.bytes", str(8 << 20))
        producer = Producer({"bootstrap.servers": jobs.bootstrap, "message.max.bytes": 8 << 20})
        producer.produce(jobs.topic, json.dumps({"n": 1, "text": "x" * (2 << 20)}))
        assert producer.flush(30) == 0

        jobs("archive", options=["--subscribe", jobs.topic, "--output", f"{jobs.folder}/large"])
        replayed = ["--archive", f"{jobs.folder}/large", "--topic", jobs.target]
        assert jobs("replay", options=replayed).printed[-1]["sent"] == 21
        assert jobs("alerts", "--schema", "n INT, text STRING").status == 0
        kafka.configure(jobs.target, "max.message.bytes", str(1 << 20))
        line = "give the topic a larger max.message.bytes"
        jobs.fails("replay", line, options=[*replayed, "--group", "another"])


TIMES_MS = (-1, 0, 1, -86_400_000, 253_402_300_799_000, 1 << 48)  # the last are of the years 9999 and 10889


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_odd_times_come_back_as_they_were(jobs: Jobs, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic()
    with KafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        for ms in TIMES_MS:
            producer.send(topic, b"%d" % ms, timestamp_ms=ms)
    odd = ["--subscribe", topic, "--output", f"{tmp_path}/archive", "--picture", f"{tmp_path}/hours.png"]
    replayed = ["--archive", f"{tmp_path}/archive", "--topic", jobs.target]

    assert jobs("archive", options=odd).printed[-1]["archived"] == len(TIMES_MS)
    printed = jobs("replay", options=replayed).printed

    with KafkaConsumer(bootstrap_servers=kafka.bootstrap, consumer_timeout_ms=10_000) as consumer:
        consumer.assign([TopicPartition(jobs.target, 0)])
        consumer.seek_to_beginning()
        found = {int(record.value): record.timestamp for record in islice(consumer, len(TIMES_MS))}
    # Java's client refuses times before 1970.
    assert found == {ms: max(ms, -1) for ms in TIMES_MS}
    assert {"without_time": 1} in printed
    assert (
        jobs("verify", "--ignore", "timestamp", options=["--subscribe", topic, "--against-topic", jobs.target]).status
        == 0
    )
