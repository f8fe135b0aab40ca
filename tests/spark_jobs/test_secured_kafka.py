"""Spark's source and sink log in, with the options of `Broker.client_settings("spark")`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.apache_kafka import KafkaUnavailable, kafka_jars
from minibroker.client_settings import Access, client_settings
from minibroker.spark_jobs import topic_offsets
from minibroker.spark_jobs.errors import JobFailed
from tests.integration.secured import PLAIN, SASL_PLAINTEXT, SASL_SSL, SCRAM_512, SSL, SecuredBroker, secured_broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LOGINS = {"SCRAM over TLS": (SASL_SSL, SCRAM_512), "certificate": (SSL, "")}
QUICK = {"kafka.default.api.timeout.ms": "20000", "kafka.request.timeout.ms": "10000"}


@pytest.fixture(scope="module", params=["kafka", "minibroker"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    jars = None
    if request.param == "kafka":
        try:
            jars = kafka_jars()
        except KafkaUnavailable as error:
            pytest.skip(f"needs Apache Kafka 2.0.1: {error}")
    with secured_broker(tmp_path_factory.mktemp("secured"), jars) as broker:
        yield broker


def options(access: Access) -> dict[str, str]:
    found: dict[str, str] = client_settings("spark", access)
    return found


@pytest.mark.ability("logins", "Spark")
@pytest.mark.sample(of=lambda secured: secured == "minibroker")
@pytest.mark.parametrize("login", LOGINS)
def test_source_and_sink_log_in(login: str, spark: SparkSession, secured: SecuredBroker, tmp_path: Path) -> None:
    topic = secured.create_topic(f"spark-{login.replace(' ', '-')}")
    given = options(secured.access(*LOGINS[login], "admin"))

    numbers = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    numbers.write.format("kafka").options(**given).option("topic", topic).save()
    stream = (
        spark.readStream.format("kafka")
        .options(**given)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        stream.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "read"))
    )
    assert query.awaitTermination(60)

    read = spark.read.parquet(str(tmp_path / "read")).collect()
    assert sorted(row.value for row in read) == [str(number) for number in range(10)]


@pytest.mark.nightly  # by day Java's client has it: test_secured_clients.py
def test_a_wrong_password_is_an_error_of_authentication(spark: SparkSession, secured: SecuredBroker) -> None:
    topic = secured.create_topic("spark-refused")
    given = options(secured.access(SASL_PLAINTEXT, PLAIN, "admin", "wrong")) | QUICK
    records = spark.read.format("kafka").options(**given).option("subscribe", topic)

    with pytest.raises(Exception, match="SaslAuthenticationException: Authentication failed"):
        records.load().count()


@pytest.mark.sample(of=lambda secured: secured == "minibroker")
def test_a_topic_that_a_user_has_no_right_to_is_an_error_of_source_and_sink(
    spark: SparkSession, secured: SecuredBroker
) -> None:
    topic = secured.create_topic("spark-not-for-bob")
    given = options(secured.access(SASL_SSL, PLAIN, "bob")) | QUICK
    records = spark.read.format("kafka").options(**given).option("subscribe", topic)
    value = spark.range(1).selectExpr("CAST(id AS STRING) AS value")

    with pytest.raises(Exception, match="TopicAuthorizationException"):
        records.load().count()
    with pytest.raises(JobFailed, match=rf": {topic}: (Topic authorization failed|Not authorized)"):  # as jobs ask
        topic_offsets.require(spark, given, [topic])
    with pytest.raises(Exception, match=rf"Not authorized to access topics: \[{topic}\]"):
        value.write.format("kafka").options(**given).option("topic", topic).save()
