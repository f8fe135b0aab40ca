"""The comparison of topics and archives: each kind of difference is found, with its offsets, and nothing else."""

from __future__ import annotations

import json
import threading
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from minibroker.spark_jobs import archive, command, verify
from minibroker.spark_jobs.command import stoppable
from minibroker.spark_jobs.errors import JobFailed
from tests.spark_jobs.kafka_rows import KAFKA_ROW

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

# Records of a lane as words: key=value, or a value alone; the offset is the place, or is given as @5.
# One lane a case: what is on either side, and the differences as kind, offset, offset there, fields.
Found = tuple[str, int | None, int | None, str]
BY_CONTENT: Mapping[tuple[str, str], Sequence[Found]] = {
    ("a b c", "a b c"): [],
    ("a b c", "a@7 b@8 c@20"): [],
    ("a a b", "a a b"): [],
    ("a b c", "a c"): [("missing", 1, None, "")],
    ("a c", "a b c"): [("extra", None, 1, "")],
    ("a b", "a b a"): [("duplicated", None, 2, "")],
    ("a a", "a"): [("missing", 1, None, "")],
    ("a b c d", "b c d a"): [("reordered", 1, 0, "")],
    ("a b c d", "a c b d"): [("reordered", 2, 1, "")],
    ("k=a k=b", "k=a k=c"): [("changed", 1, 1, "value")],
    ("k=a k=b", "k=a l=b"): [("changed", 1, 1, "key")],
    ("k=a k=b l=c", "k=a"): [("missing", 1, None, ""), ("missing", 2, None, "")],
    ("k=a l=b", "k=a m=c"): [("missing", 1, None, ""), ("extra", None, 1, "")],
    ("", "a"): [("extra", None, 0, "")],
    ("-", "="): [("changed", 0, 0, "value")],  # no value, and an empty one, are two things
}
BY_OFFSET: Mapping[tuple[str, str], Sequence[Found]] = {
    ("a b@7", "a b@7"): [],
    ("a b", "a@1 b@2"): [("missing", 0, None, ""), ("changed", 1, 1, "value"), ("extra", None, 2, "")],
    ("a b", "a b b@1"): [("duplicated", None, 1, "")],
    ("k=a", "l=b"): [("changed", 0, 0, "value, key")],
}


def side(spark: SparkSession, texts: Sequence[str]) -> DataFrame:
    rows = []
    for lane, text in enumerate(texts):
        for place, word in enumerate(text.split()):
            content, _, offset = word.partition("@")
            key, equals, value = content.rpartition("=")
            at = int(offset or place)
            shown = None if content == "-" else bytearray(value.encode())
            rows.append(("t", lane, at, None, 0, bytearray(key.encode()) if equals and key else None, shown, None))
    return spark.createDataFrame(rows, KAFKA_ROW)


def found(spark: SparkSession, cases: Mapping[tuple[str, str], Any], **settings: Any) -> dict[tuple[str, str], Any]:
    pairs = verify.transform(side(spark, [one for one, _ in cases]), side(spark, [two for _, two in cases]), **settings)
    rows = verify.shown(verify.differences(pairs, **settings)).collect()
    of_lane: dict[int, list[Any]] = {lane: [] for lane in range(len(cases))}
    for row in rows:
        lane = row.partition if row.partition is not None else row.against_partition
        of_lane[lane].append((row.kind, row.offset, row.against_offset, ", ".join(row.fields)))
    place = {name: at for at, name in enumerate(verify.KINDS)}
    return {case: sorted(of_lane[at], key=lambda each: (place[each[0]], str(each))) for at, case in enumerate(cases)}


def in_order(cases: Mapping[tuple[str, str], Sequence[Found]]) -> dict[tuple[str, str], Any]:
    place = {name: at for at, name in enumerate(verify.KINDS)}
    return {case: sorted(each, key=lambda one: (place[one[0]], str(one))) for case, each in cases.items()}


def test_each_difference_of_two_topics_has_its_kind_and_offsets(spark: SparkSession) -> None:
    assert found(spark, BY_CONTENT) == in_order(BY_CONTENT)


def test_each_difference_of_an_archive_has_its_kind_and_offset(spark: SparkSession) -> None:
    assert found(spark, BY_OFFSET, by_offset=True) == in_order(BY_OFFSET)


def test_ignored_fields_are_not_compared(spark: SparkSession) -> None:
    cases = {("a b", "b a"): (), ("k=a", ""): (), ("", "k=a"): ()}

    assert not any(found(spark, cases, ignored=["partition"]).values())


class Verified:
    """The job's options for two sides, and what it returned and printed."""

    def __init__(self, spark: SparkSession, kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
        self.spark, self.kafka, self.capsys = spark, kafka, capsys
        self.progress: list[dict[str, Any]] = []  # of the last run

    def __call__(self, topic: str, *more: str) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
        command_line = ["-b", self.kafka.bootstrap, "--subscribe", topic, "--json", *more]
        self.capsys.readouterr()
        status = verify.run(self.spark, verify.options().parse_args(command_line), threading.Event())
        lines = [json.loads(line) for line in self.capsys.readouterr().out.splitlines()]
        self.progress = [line["progress"] for line in lines if "progress" in line]
        return status, [line["difference"] for line in lines if "difference" in line], lines[-1]


@pytest.fixture
def verified(spark: SparkSession, kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> Verified:
    return Verified(spark, kafka, capsys)


@pytest.mark.nightly
def test_a_topic_and_its_archive_are_equal_until_a_record_is_added_or_deleted(
    verified: Verified, spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LOOK_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(command, "PROGRESS_SECONDS", 0)
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [f"{number}" for number in range(50)])
    kafka.produce(topic, ["a", "b"], partition=1)
    output = str(tmp_path / "archive")
    command_line = ["-b", kafka.bootstrap, "--subscribe", topic, "--output", output]
    archive.run(spark, archive.options().parse_args(command_line), threading.Event())
    against = ("--against-archive", output)

    equal = verified(topic, *against)
    kafka.delete_records(topic, partition=0, before=10)
    shorter = verified(topic, *against)
    kafka.produce(topic, ["c"], partition=1)
    status, differences, total = verified(topic, *against, "--picture", str(tmp_path / "differences.png"))

    assert equal[0] == shorter[0] == 0
    assert verified.progress and all(step["tasks_done"] <= step["tasks"] for step in verified.progress)
    assert (equal[2]["same"], equal[2]["outside"], shorter[2]["same"], shorter[2]["outside"]) == (52, 0, 42, 10)
    assert (status, total["missing"], total["same"]) == (verify.DIFFERENT, 1, 42)
    assert [(each["kind"], each["partition"], each["offset"]) for each in differences] == [("missing", 1, 2)]
    assert (tmp_path / "differences.png").stat().st_size > 5000


@pytest.mark.nightly  # the replay's tests compare committed records of two topics
def test_two_topics_are_compared_by_their_committed_records(verified: Verified, kafka: Kafka, tmp_path: Path) -> None:
    plain, transactional = kafka.create_topic(), kafka.create_topic()
    kafka.produce(plain, ["0", "1", "3"], first_ms=1_000_000)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": transactional})
    producer.init_transactions()
    for values, end in (
        (["0", "1"], producer.commit_transaction),
        (["2"], producer.abort_transaction),
        (["3"], producer.commit_transaction),
    ):
        producer.begin_transaction()
        for value in values:
            producer.produce(transactional, value, timestamp=5)
        producer.flush()
        end()
    against = ("--against-topic", transactional, "--ignore", "timestamp")

    assert verified(plain, *against, "--isolation-level", "read_committed")[0] == 0
    status, differences, _ = verified(plain, *against, "--output", str(tmp_path / "found"))

    assert status == verify.DIFFERENT
    assert [(each["kind"], each["against_offset"]) for each in differences] == [("extra", 3)]
    assert verified.spark.read.parquet(str(tmp_path / "found")).count() == 1


def test_a_missing_topic_or_archive_is_named(verified: Verified, kafka: Kafka, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="no topic no-such-topic at"):
        verified("no-such-topic", "--against-archive", str(tmp_path))
    with pytest.raises(JobFailed, match="no archive in"):
        verified(kafka.create_topic(), "--against-archive", str(tmp_path))


def test_a_stop_cancels_the_jobs_of_spark(spark: SparkSession) -> None:
    stop = threading.Event()

    def stop_and_go_on(rows: Any) -> Any:
        return rows

    with pytest.raises(JobFailed, match="stopped"), stoppable(spark, stop, Namespace(json=False)):
        threading.Timer(0.3, stop.set).start()
        spark.range(1 << 50).mapInPandas(stop_and_go_on, "id long").selectExpr("sum(id)").collect()
