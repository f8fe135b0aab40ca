"""The alert job: what it makes of records, alone and by what came before, and from topic to topic."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from minibroker.spark_jobs import alerts, checkpoint
from minibroker.spark_jobs.alerts import Rule
from minibroker.spark_jobs.errors import JobFailed

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

SCHEMA = "sensor STRING, celsius DOUBLE"
HOT, COLD = 90.0, 20.0
ARRIVAL_SECONDS = 60
KAFKA_RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"


def rule(**state: Any) -> Rule:
    return Rule("celsius > 80", StructType().add("sensor", "string").add("celsius", "double"), **state)


def reading(celsius: float | str | None, sensor: str = "a") -> str:
    return json.dumps({"sensor": sensor, "celsius": celsius})


def arriving(kafka: Kafka, topic: str) -> Iterator[dict[str, Any]]:
    """Yield the alerts of a topic as they arrive."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while True:
        record = consumer.poll(ARRIVAL_SECONDS)
        assert record is not None and record.error() is None, f"no alert in {topic}"
        yield json.loads(record.value() or b"")


class Pipe(NamedTuple):
    """A topic of readings, one for alerts about them, and the job between them."""

    kafka: Kafka
    readings: str
    alerts: str
    checkpoint: str

    def arguments(self, *more: str) -> argparse.Namespace:
        known = ["--json", "-b", self.kafka.bootstrap, "--topic", self.alerts]
        known += [] if "--assign" in more else ["--subscribe", self.readings]
        known += ["--schema", SCHEMA, "--rule", "celsius > 80", "--checkpoint", self.checkpoint]
        return alerts.options().parse_args([*known, "--starting-offsets", "earliest", *more])

    def found(self, count: int) -> list[dict[str, Any]]:
        return list(islice(arriving(self.kafka, self.alerts), count))


@pytest.fixture
def pipe(kafka: Kafka, tmp_path: Path) -> Pipe:
    topic = kafka.create_topic(partitions=2)
    return Pipe(kafka, topic, kafka.create_topic(), str(tmp_path / "checkpoint"))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def latency_in(printed: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [json.loads(line)["latency"] for line in printed.splitlines() if "latency" in line]
    return found[0]


def test_an_alert_has_the_record_its_place_and_its_time(spark: SparkSession) -> None:
    values = [reading(HOT), reading(COLD), reading(None), reading("warm"), "no JSON", None]
    rows = [
        (b"k", value and value.encode(), "readings", 2, offset, datetime.fromtimestamp(offset, UTC))
        for offset, value in enumerate(values)
    ]

    (alert,) = alerts.transform(spark.createDataFrame(rows, KAFKA_RECORD), rule()).collect()

    assert alert.key == b"k"
    assert json.loads(alert.value) == {
        "rule": "celsius > 80",
        "matches": 1,
        "topic": "readings",
        "partition": 2,
        "offset": 0,
        "timestamp_ms": 0,
        "record": {"sensor": "a", "celsius": HOT},
    }


def test_real_time_mode_passes_on_records_while_its_batch_lasts(
    spark: SparkSession, pipe: Pipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "latency.png"
    stop = threading.Event()
    seen: list[dict[str, Any]] = []

    def look() -> None:
        try:
            following = arriving(pipe.kafka, pipe.alerts)
            seen.append(next(following))
            pipe.kafka.produce(pipe.readings, [reading(HOT, "b")], partition=1, first_ms=now_ms())
            seen.append(next(following))
        finally:
            stop.set()

    # Before the first alert, so that it counts as having waited.
    pipe.kafka.produce(pipe.readings, [reading(HOT), reading(COLD), "no JSON"])
    looking = threading.Thread(target=look)
    looking.start()
    assert alerts.run(spark, pipe.arguments("--real-time", "5 minutes", "--picture", str(picture)), stop) == 0
    looking.join()

    assert [(each["partition"], each["record"]["sensor"]) for each in seen] == [(0, "a"), (1, "b")]
    assert latency_in(capsys.readouterr().out)["alerts"] == 1
    assert picture.stat().st_size > 10_000


@pytest.mark.nightly
def test_state_outlives_a_stop(spark: SparkSession, pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--available-now", "--times", "3", "--within", "60", "--by", "sensor")

    pipe.kafka.produce(pipe.readings, [reading(HOT), reading(HOT, "b"), reading(COLD), reading(HOT)])
    assert alerts.run(spark, pipe.arguments(*options), threading.Event()) == 0
    assert latency_in(capsys.readouterr().out) == dict.fromkeys(alerts.PERCENTILES) | {"alerts": 0}
    assert checkpoint.run(spark, checkpoint.options().parse_args([pipe.checkpoint]), threading.Event()) == 0
    kept = capsys.readouterr().out
    assert "operator 0 (transformWithStateInPySparkExec), key: 2 keys" in kept
    assert '"value": {"matches_ms": [1000000, 1003000], "is_alerted": false}' in kept
    pipe.kafka.produce(pipe.readings, [reading(HOT), "no JSON"], partition=1, first_ms=1_010_000)
    assert alerts.run(spark, pipe.arguments(*options), threading.Event()) == 0

    (alert,) = pipe.found(1)
    assert (alert["matches"], alert["partition"], alert["record"]["sensor"]) == (3, 1, "a")
    printed = capsys.readouterr().out
    assert sum(json.loads(line).get("unreadable", 0) for line in printed.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--times", "2"], "--processing-time '0 seconds'"),
        ([], r"needs a task slot for each of 3 partitions, and Spark has 2; .*local\["),
        (
            ["--topic", "no-such"],
            "topic no-such does not exist; create it, such as by `minibroker topics create no-such --config",
        ),
        (["--schema", "celsius"], "--schema: 'celsius' is no schema"),
    ],
)
def test_a_job_that_cannot_run_is_refused_with_the_next_step(
    spark: SparkSession, pipe: Pipe, options: list[str], reason: str
) -> None:
    pipe.kafka.add_partitions(pipe.readings, 3)

    with pytest.raises(JobFailed, match=reason):
        alerts.run(spark, pipe.arguments(*options), threading.Event())
