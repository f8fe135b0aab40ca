"""The replay: records as they were, each once, at their time, through a crash."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from minibroker.spark_jobs import archive, command, replay, sending, verify
from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

RECORDS = 120
LARGE_BYTES = 200_000  # of one value: more than a batch of a producer has


def test_a_row_of_an_archive_goes_to_its_partition_by_its_offset(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("t", 3, 7, None, None, bytearray(b"v"), None)], ARCHIVE_ROW)

    (row,) = replay.transform(rows, topic="u").collect()

    assert (row.topic, row.lane, row.to_partition, row.position, row.value) == ("u", 3, 3, 7, b"v")


ARCHIVE_ROW = (
    "topic string, partition int, offset long, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key string, value binary>>"
)


def test_rows_without_a_value_are_sent_as_json_in_the_order_of_time_and_of_the_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = ["key,timestamp,n", "k,2026-01-01 00:00:02,1", "k,2026-01-01 00:00:01,2", "k,2026-01-01 00:00:01,3"]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    arguments = ["--input", str(tmp_path), "--format", "csv", "--topic", "t"]

    source = replay.read(spark, replay.options().parse_args(arguments))
    rows = replay.transform(source, topic="t", lanes={"t": 4}).orderBy("position").collect()

    assert [(row.position, row.value) for row in rows] == [(0, b'{"n":"2"}'), (1, b'{"n":"3"}'), (2, b'{"n":"1"}')]
    assert {(row.key, row.to_partition) for row in rows} == {(b"k", None)}
    assert rows[0].timestamp_ms == 1_767_225_601_000


class Replayed:
    """A topic with keys, headers and times, as Parquet; the job's options for it."""

    def __init__(
        self, spark: SparkSession, kafka: Kafka, folder: Path, *, apart_ms: int = 1000, in_order: bool = False
    ) -> None:
        self.spark, self.kafka = spark, kafka
        self.source = kafka.create_topic(partitions=2)
        self.target = kafka.create_topic(partitions=2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            headers: list[tuple[str, str | bytes | None]] = [("n", b"%d" % number), ("n", None)] if number % 3 else []
            at = 1_700_000_000_000 + number * apart_ms
            # Behind the large one is one that does not fit into its batch, which Java's producer would split for ever.
            value = {7: None, 61: b"x" * LARGE_BYTES, 63: b"y" * 200}.get(number, b"%d" % (number // 2))
            producer.produce(self.source, value, b"key", number % 2, timestamp=at, headers=headers)
        assert producer.flush(30) == 0
        read = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
        read = read.option("subscribe", self.source).option("includeHeaders", "true")
        rows = read.load() if in_order else read.load().orderBy(F.rand(1))
        rows.write.parquet(str(folder / "rows"))
        self.command_line = ["-b", kafka.bootstrap, "--input", str(folder / "rows"), "--topic", self.target, "--json"]

    def run(self, *more: str) -> None:
        assert replay.run(self.spark, replay.options().parse_args([*self.command_line, *more]), threading.Event()) == 0

    def is_equal(self) -> bool:
        command_line = ["-b", self.kafka.bootstrap, "--subscribe", self.source, "--against-topic", self.target]
        command_line += ["--isolation-level", "read_committed"]
        return verify.run(self.spark, verify.options().parse_args(command_line), threading.Event()) == 0


@pytest.fixture
def replayed(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Replayed:
    return Replayed(spark, kafka, tmp_path)


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


@pytest.mark.parametrize(
    "in_order",
    [pytest.param(True, id="as it is read"), pytest.param(False, marks=pytest.mark.nightly, id="sorted")],
)
def test_each_record_is_sent_once_as_it_was_through_a_failure_in_a_transaction(
    in_order: bool,
    spark: SparkSession,
    kafka: Kafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    replayed = Replayed(spark, kafka, tmp_path, in_order=in_order)
    monkeypatch.setattr(sending, "COMMIT_EVERY_RECORDS", 10)
    monkeypatch.setattr(command, "PROGRESS_SECONDS", 0)

    kafka.configure(replayed.target, "max.message.bytes", str(LARGE_BYTES))
    with pytest.raises(Py4JJavaError, match="RecordTooLarge"):  # in a transaction
        replayed.run()
    kafka.configure(replayed.target, "max.message.bytes", str(2 * LARGE_BYTES))
    capsys.readouterr()
    replayed.run()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    sent = lines[-1]["sent"]
    replayed.run()

    assert 0 < sent < RECORDS  # what was committed before is not sent again
    assert last_line(capsys)["sent"] == 0
    assert replayed.is_equal()
    steps = [line["progress"] for line in lines if "sent" in line.get("progress", ())]
    assert steps and all(RECORDS - sent <= step["sent"] <= step["of"] == RECORDS for step in steps)


@pytest.mark.nightly
def test_records_are_sent_at_their_times(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replayed = Replayed(spark, kafka, tmp_path, apart_ms=100)
    began = time.monotonic()
    replayed.run("--speed", "8", "--delivery", "at-least-once", "--picture", str(tmp_path / "replay.png"))

    assert time.monotonic() - began > (RECORDS - 1) * 0.1 / 8
    assert last_line(capsys)["sent"] == RECORDS
    assert replayed.is_equal()
    assert (tmp_path / "replay.png").stat().st_size > 5000


def test_a_topic_with_too_few_partitions_is_refused_unless_keys_choose_them(replayed: Replayed, kafka: Kafka) -> None:
    replayed.command_line[replayed.command_line.index(replayed.target)] = narrow = kafka.create_topic()

    with pytest.raises(JobFailed, match=f"{narrow} has no partition 1, .*--partitions key"):
        replayed.run()
    replayed.run("--partitions", "key")


class Archives:
    """An archive of a topic of ten records, whose values are numbers, and replays of it to another topic."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.spark, self.kafka, self.folder, self.capsys = spark, kafka, folder / "archive", capsys
        self.topic, self.target = kafka.create_topic(), kafka.create_topic()
        self.produce()

    def produce(self) -> None:
        self.kafka.produce(self.topic, [json.dumps({"n": number}) for number in range(5)] + ["?"] * 5)

    def make(self, *more: str) -> None:
        (schema := self.folder.with_name("schema")).write_text("n int")
        command_line = ["-b", self.kafka.bootstrap, "--subscribe", self.topic, "--output", str(self.folder), *more]
        command_line += ["--value-format", "json", "--schema", str(schema)]
        archive.run(self.spark, archive.options().parse_args(command_line), threading.Event())

    def sent(self, *more: str, folder: Path | str | None = None, target: str | None = "") -> int:
        """Replay, and return how many records were sent."""
        command_line = ["-b", self.kafka.bootstrap, "--archive", str(folder or self.folder), "--json", *more]
        command_line += ["--original-topics"] if target is None else ["--topic", target or self.target]
        self.capsys.readouterr()
        replay.run(self.spark, replay.options().parse_args(command_line), threading.Event())
        return int(last_line(self.capsys)["sent"])


@pytest.fixture
def not_archived(spark: SparkSession, kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Archives:
    return Archives(spark, kafka, tmp_path, capsys)


@pytest.fixture
def archives(not_archived: Archives) -> Archives:
    not_archived.make()
    return not_archived


OTHER_ROWS = "keeps how far other rows were sent to .*: the source has changed since, or the options"


def test_a_replay_goes_on_with_the_same_source_however_it_is_spelled_and_refuses_another(
    archives: Archives, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert archives.sent("--without-quarantine") == 5

    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(archives.folder)
    for spelled in ("archive", "./archive/", "link/../archive", "link", f"file://{tmp_path}//archive"):
        found = HadoopFiles(archives.spark, spelled).folder
        assert found == HadoopFiles(archives.spark, str(archives.folder)).folder
    assert archives.sent("--without-quarantine", folder="link/../archive") == 0
    archives.produce()
    archives.make()
    assert archives.sent("--without-quarantine") == 5  # the archive has grown

    with pytest.raises(JobFailed, match=OTHER_ROWS + ".*give another --group"):
        archives.sent()
    assert archives.sent("--group", f"{archives.target}-all") == 20
    shutil.rmtree(archives.folder)
    archives.make()
    with pytest.raises(JobFailed, match=OTHER_ROWS):
        archives.sent("--without-quarantine")


@pytest.mark.nightly
def test_rows_numbered_anew_in_each_run_do_not_go_on_once_they_have_changed(archives: Archives) -> None:
    assert (archives.sent("--partitions", "key"), archives.sent("--partitions", "key")) == (10, 0)

    archives.produce()
    archives.make()

    with pytest.raises(JobFailed, match=OTHER_ROWS):
        archives.sent("--partitions", "key")


def test_rows_of_a_file_that_has_changed_are_refused(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rows := tmp_path / "rows.csv").write_text("timestamp,n\n2026-01-01 00:00:01,1\n")
    command_line = ["-b", kafka.bootstrap, "--input", str(rows), "--format", "csv", "--topic", kafka.create_topic()]

    def run() -> None:
        replay.run(spark, replay.options().parse_args([*command_line, "--json"]), threading.Event())

    run()
    run()
    assert last_line(capsys)["sent"] == 0
    rows.write_text("timestamp,n\n2026-01-01 00:00:00,0\n2026-01-01 00:00:01,1\n")
    with pytest.raises(JobFailed, match=OTHER_ROWS):
        run()


@pytest.mark.nightly
def test_an_archive_of_two_topics_goes_back_to_both_but_not_into_one(not_archived: Archives) -> None:
    archives = not_archived
    first, second = archives.topic, archives.kafka.create_topic()
    archives.topic = second
    archives.produce()
    archives.topic = f"{first},{second}"
    archives.make()
    consumer = Consumer({"bootstrap.servers": archives.kafka.bootstrap, "group.id": "of-an-application"})
    consumer.commit(offsets=[TopicPartition(first, 0, 7)], asynchronous=False)
    consumer.close()

    with pytest.raises(JobFailed, match=OTHER_ROWS):
        archives.sent("--group", "of-an-application", target=None)

    with pytest.raises(
        JobFailed, match=rf"choose one by --where \"topic = '{min(first, second)}'\", or give --original-topics"
    ):
        archives.sent()
    assert archives.sent("--where", f"topic = '{first}'") == 10
    assert archives.sent(target=None) == 20
    assert archives.sent("--partitions", "key", "--group", f"{archives.target}-keys") == 20


@pytest.mark.nightly  # a task that crashes in a transaction is in every run
def test_a_job_killed_half_way_sends_each_record_once(replayed: Replayed) -> None:
    job = [sys.executable, "-m", "minibroker.spark_jobs.replay", *replayed.command_line, "--speed", "10"]
    for seconds in (3, 5):
        process = subprocess.Popen(job, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout is not None
        for line in process.stdout:
            if "promise" in json.loads(line):
                break
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    replayed.run()

    assert replayed.is_equal()
