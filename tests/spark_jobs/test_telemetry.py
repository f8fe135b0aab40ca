"""The telemetry job: what it makes of a broker's own explained fetches and metrics."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql import Row, SparkSession

from minibroker import Broker
from minibroker.spark_jobs import telemetry

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

RECORDS = 500
KAFKA_RECORD = "value BINARY, topic STRING, timestamp TIMESTAMP"


@pytest.fixture(scope="module")
def explained() -> Iterator[tuple[Broker, list[dict[str, Any]]]]:
    """A broker, and what it explained of a reader that caught up and then waited in vain."""
    with Broker(control=True) as broker:
        broker.create_topic("orders")
        broker.produce("orders", [b"x" * 100] * RECORDS)
        with broker.explain(api="fetch", client_id="billing-1") as found:
            settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "client.id": "billing-1"}
            consumer = Consumer(settings | {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 100})
            consumer.subscribe(["orders"])
            while sum(1 for _ in consumer.consume(RECORDS, 1.0)) == 0:
                pass
            found.wait(3, timeout_seconds=20)
            consumer.close()
        yield broker, [each.json for each in found]


def test_a_stream_of_telemetry_becomes_tables_and_a_picture(
    spark: SparkSession,
    explained: tuple[Broker, list[dict[str, Any]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker, requests = explained
    lag = {"name": "kafka_consumergroup_lag", "labels": {"consumergroup": "late", "topic": "orders", "partition": "0"}}
    lines = [*requests, [lag | {"value": 70.0}, {"name": "up", "labels": {}, "value": 1.0}], "not of a broker"]
    broker.produce("telemetry", [json.dumps(line) for line in lines])
    picture = tmp_path / "lag.png"
    arguments = ["--json", "-b", broker.bootstrap_servers, "--subscribe", "telemetry", "--picture", str(picture)]
    arguments += ["--output", str(tmp_path / "readings"), "--checkpoint", str(tmp_path / "checkpoint")]

    assert telemetry.run(spark, telemetry.options().parse_args(arguments), threading.Event()) == 0

    printed: dict[str, Any] = {}
    for line in capsys.readouterr().out.splitlines():
        printed |= json.loads(line)
    assert printed["unreadable"] == 1
    billing, late = printed["readers"]  # by their longest lag
    assert (billing["reader"], billing["topic"], billing["lag"]) == ("billing", "orders", 0)
    assert billing["longest_lag"] == RECORDS
    assert (late["reader"], late["fetches"], late["lag"]) == ("late", 0, 70)
    assert billing["fetches"] == len(requests)
    assert {"waited in vain, until its max.wait"} <= {row["reason"] for row in printed["reasons"]}
    assert sum(row["fetches"] for row in printed["reasons"]) == len(requests)
    assert picture.stat().st_size > 10_000
    assert sorted(path.name for path in (tmp_path / "readings").glob("kind=*")) == ["kind=fetch", "kind=lag"]


def request(**more: Any) -> dict[str, Any]:
    partition = {"topic": "t", "partition": 0, "asked_offset": 5, "bytes": 9, "high_watermark": 7}
    found = {
        "client_id": "consumer-spark-kafka-source-1-2-3",
        "us": {"handled": 10, "woken": -1, "answered": 2000, "sent": 4000},
        "stages_us": {"local": 10},
        "wait": None,
        "fetch": {"replica_id": -1, "partitions": [partition, partition | {"partition": 1}]},
    }
    return found | more


def read_of(spark: SparkSession, *requests: dict[str, Any]) -> list[Row]:
    rows = [(json.dumps(each).encode(), "telemetry", datetime.fromtimestamp(0, UTC)) for each in requests]
    return telemetry.transform(spark.createDataFrame(rows, KAFKA_RECORD)).collect()


def test_a_fetch_has_a_reading_of_each_partition_under_the_group_in_its_client_id(spark: SparkSession) -> None:
    first, second = read_of(spark, request())

    assert (first.reader, first.lag, first.took_ms, first.nth) == ("spark-kafka-source-1-2", 2, 4.0, 0)
    assert (second.partition, second.nth) == (1, 1)


def test_followers_other_requests_and_telemetry_itself_are_left_out(spark: SparkSession) -> None:
    partition = {"topic": "telemetry", "partition": 0, "asked_offset": 5, "bytes": 9, "high_watermark": 7}
    itself = {"replica_id": -1, "partitions": [partition]}

    assert (
        read_of(
            spark, request(fetch=request()["fetch"] | {"replica_id": 2}), request(fetch=itself), request(fetch=None)
        )
        == []
    )


def test_the_reason_of_a_fetch_is_its_longest_stage(spark: SparkSession) -> None:
    stages = [
        ({"throttle": 5}, None, "throttled by a quota"),
        ({"remote": 5, "local": 1}, {"ended_by": "time"}, "waited in vain, until its max.wait"),
        ({"remote": 5}, {"ended_by": "request", "cause": {"client_id": "orders-api"}}, "waited for records"),
        ({"response_send": 5, "local": 1}, None, "sending: its client takes it slowly"),
        ({"local": 5}, None, "reading the log"),
        ({"request_queue": 5, "local": 1}, None, "waited for its turn"),
    ]

    rows = read_of(spark, *(request(stages_us=each, wait=wait) for each, wait, _ in stages))

    assert [row.reason for row in rows if row.nth == 0] == [reason for _, _, reason in stages]
    assert rows[4].caused_by == "orders-api"
