"""How a broker serves its readers: explained fetches and metrics from a topic, to Parquet, tables and a picture.

The rule: a record's value is one line of `minibroker explain -o json` or of `minibroker metrics show -o json`. Each
partition of a consumer's fetch becomes a reading, and so does each group's lag in the metrics. The tables and the
picture are of all readings that are in the output, also those of earlier runs.

    minibroker explain --control PATH --api fetch -o json | minibroker produce telemetry &
    python -m minibroker.spark_jobs.telemetry --subscribe telemetry --output DIR --checkpoint DIR
"""

from __future__ import annotations

import argparse
import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from minibroker.spark_jobs import command_lines, query_source
from minibroker.spark_jobs.command import Job, main, say_batches
from minibroker.spark_jobs.kafka_options import read, source_options, topics_of
from minibroker.spark_jobs.micro_batches import start
from minibroker.spark_jobs.query_source import Checkpoint
from minibroker.spark_jobs.report import picture, say, table

options = command_lines.telemetry
STAGES = ("request_queue", "local", "remote", "throttle", "response_queue", "response_send")
EXPLAINED = f"""
    client_id STRING, us STRUCT<handled: BIGINT, woken: BIGINT, answered: BIGINT, sent: BIGINT>,
    stages_us STRUCT<{", ".join(f"{stage}: BIGINT" for stage in STAGES)}>,
    wait STRUCT<ended_by: STRING, cause: STRUCT<client_id: STRING>>,
    fetch STRUCT<replica_id: BIGINT, partitions: ARRAY<STRUCT<
        topic: STRING, partition: INT, asked_offset: BIGINT, bytes: BIGINT, high_watermark: BIGINT>>>
"""
METRICS = "ARRAY<STRUCT<name: STRING, labels: MAP<STRING, STRING>, value: DOUBLE>>"
LAGS = ("kafka_consumergroup_lag", "minibroker_consumergroup_fetch_lag")
# The group in the client id of a consumer: `consumer-GROUP-N` of Java's clients, `NAME-N` of others.
GROUP = r"^(?:consumer-(.+)|(.*[^\d-].*))-\d+$"
READING = """
    kind STRING, reader STRING, client STRING, topic STRING, partition INT, offset BIGINT, lag BIGINT, bytes BIGINT,
    nth INT, took_ms DOUBLE, reason STRING, caused_by STRING
"""
READINGS = f"at TIMESTAMP, {READING}"
MOMENTS = 60  # of a picture
READERS = 8  # in a picture: the colours of which it can tell apart are six, with two repeated
MS = 1000


def transform(records: DataFrame) -> DataFrame:
    """Turn explained requests and metrics into readings; fetches of the topic of telemetry itself are left out."""
    text = F.ltrim(F.col("value").cast("string"))
    is_metrics = text.startswith("[")
    parsed = records.select(
        F.col("timestamp").alias("at"),
        F.col("topic").alias("source"),
        F.when(~is_metrics, F.from_json(text, EXPLAINED)).alias("request"),
        F.when(is_metrics, F.from_json(text, METRICS)).alias("metrics"),
    )
    is_unreadable = F.col("metrics").isNull() & F.col("request.us").isNull()
    return (
        parsed.observe("input", F.count_if(is_unreadable).alias("unreadable"))
        .select("at", "source", F.explode(F.concat(_of_fetch(), _of_metrics())).alias("reading"))
        .select("at", "source", "reading.*")
        .where(F.col("topic") != F.col("source"))
        .drop("source")
    )


def _of_fetch() -> Column:
    """The readings of an explained fetch of a consumer, one a partition; none of another request."""
    client = F.coalesce(F.col("request.client_id"), F.lit(""))
    group = F.concat(F.regexp_extract(client, GROUP, 1), F.regexp_extract(client, GROUP, 2))

    def reading(partition: Column, nth: Column) -> Column:
        lag = F.greatest(partition["high_watermark"] - partition["asked_offset"], F.lit(0))
        return F.struct(
            F.lit("fetch").alias("kind"),
            F.when(group == "", client).otherwise(group).alias("reader"),
            client.alias("client"),
            partition["topic"].alias("topic"),
            partition["partition"].alias("partition"),
            partition["asked_offset"].alias("offset"),
            F.when(partition["high_watermark"] >= 0, lag).alias("lag"),
            partition["bytes"].alias("bytes"),
            nth.alias("nth"),
            (
                F.greatest(*(F.col(f"request.us.{step}") for step in ("handled", "woken", "answered", "sent"))) / MS
            ).alias("took_ms"),
            _reason().alias("reason"),
            F.col("request.wait.cause.client_id").alias("caused_by"),
        ).cast(f"STRUCT<{_fields(READING)}>")

    is_consumer = F.col("request.fetch.replica_id") < 0
    return F.when(is_consumer, F.transform("request.fetch.partitions", reading)).otherwise(_no_readings())


def _of_metrics() -> Column:
    """The readings in metrics: the lag of each group, in each partition."""

    def reading(sample: Column) -> Column:
        nothing = F.lit(None)
        return F.struct(
            F.lit("lag").alias("kind"),
            sample["labels"]["consumergroup"].alias("reader"),
            nothing.alias("client"),
            sample["labels"]["topic"].alias("topic"),
            sample["labels"]["partition"].alias("partition"),
            nothing.alias("offset"),
            sample["value"].alias("lag"),
            *(nothing.alias(name) for name in ("bytes", "nth", "took_ms", "reason", "caused_by")),
        ).cast(f"STRUCT<{_fields(READING)}>")

    lags = F.filter("metrics", lambda sample: sample["name"].isin(*LAGS))
    return F.when(F.col("metrics").isNotNull(), F.transform(lags, reading)).otherwise(_no_readings())


def _no_readings() -> Column:
    return F.array().cast(f"ARRAY<STRUCT<{_fields(READING)}>>")


def _fields(columns: str) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in (column.split() for column in columns.split(",")))


def _reason() -> Column:
    """The longest stage of a request, in words."""
    us = {stage: F.coalesce(F.col(f"request.stages_us.{stage}"), F.lit(0)) for stage in STAGES}
    longest = F.greatest(*us.values())
    waited = (
        F.when(F.col("request.wait.ended_by") == "time", "waited in vain, until its max.wait")
        .when(F.col("request.wait.ended_by") == "fault", "held back by a fault")
        .otherwise("waited for records")
    )
    return (
        F.when(us["throttle"] == longest, "throttled by a quota")
        .when(us["remote"] == longest, waited)
        .when(us["response_send"] == longest, "sending: its client takes it slowly")
        .when(us["local"] == longest, "reading the log")
        .otherwise("waited for its turn")
    )


def write(readings: DataFrame, *, output: str, checkpoint: str, every_seconds: float | None) -> StreamingQuery:
    """Start writing Parquet files by kind of reading: of the present records, or every so many seconds for ever."""
    writer = readings.writeStream.queryName("telemetry").partitionBy("kind")
    return start(writer.format("parquet").option("path", output), checkpoint=checkpoint, every_seconds=every_seconds)


def readers(readings: DataFrame) -> DataFrame:
    """How fast each reader reads a topic, and how far behind it is; `seconds` is from its first fetch to its last."""
    of_partition = readings.groupBy("reader", "topic", "partition").agg(
        F.count_if(F.col("kind") == "fetch").alias("fetches"),
        F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        F.coalesce(F.max("offset") - F.min("offset"), F.lit(0)).alias("records"),
        F.min("at").alias("first"),
        F.max("at").alias("last"),
        F.max_by("lag", "at").alias("lag"),
        F.max("lag").alias("longest_lag"),
    )
    seconds = F.greatest(F.max("last").cast("double") - F.min("first").cast("double"), F.lit(0.001))
    return (
        of_partition.groupBy("reader", "topic")
        .agg(
            F.sum("fetches").alias("fetches"),
            F.round(F.sum("records") / seconds, 1).alias("records_per_second"),
            F.round(F.sum("bytes") / seconds / 1e6, 3).alias("mb_per_second"),
            F.sum("lag").alias("lag"),
            F.sum("longest_lag").alias("longest_lag"),
        )
        .orderBy(F.desc("longest_lag"), "reader", "topic")
    )


def reasons(readings: DataFrame) -> DataFrame:
    """Sum up for what fetches took their time: each counts once, by its longest stage."""
    return (
        readings.where("nth = 0")
        .groupBy("reader", "reason")
        .agg(
            F.count("took_ms").alias("fetches"),
            F.percentile("took_ms", 0.5).alias("p50_ms"),
            F.percentile("took_ms", 0.99).alias("p99_ms"),
            F.max("took_ms").alias("max_ms"),
            F.mode("caused_by").alias("mostly_ended_by"),
        )
        .orderBy(F.desc(F.col("p50_ms") * F.col("fetches")))
    )


def plan(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Read and transform as the command line has it; nothing runs yet."""
    return transform(read(spark, source_options(arguments)))


def run(spark: SparkSession, arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Run one query until it ends or `stop` is set; print the tables of all readings then."""
    query_source.check(spark, arguments, Checkpoint(spark, arguments.checkpoint))
    query = write(
        plan(spark, arguments),
        output=arguments.output,
        checkpoint=arguments.checkpoint,
        every_seconds=arguments.continuous,
    )
    say_batches(query, arguments, stop)
    try:
        readings = spark.read.schema(READINGS).parquet(arguments.output)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        say(arguments, {"readings": 0}, f"nothing in {topics_of(arguments)} yet")
        return 0
    _report(readings, arguments)
    return 0


def _report(readings: DataFrame, arguments: argparse.Namespace) -> None:
    for name, frame in (("readers", readers(readings)), ("reasons", reasons(readings))):
        rows = frame.collect()
        if arguments.json:
            print(json.dumps({name: [row.asDict() for row in rows]}), flush=True)
        elif rows:
            print(table([column.replace("_", " ") for column in frame.columns], rows) + "\n", flush=True)
    if arguments.picture is not None:
        lags, seconds_each = lag_over_time(readings)
        draw(lags, seconds_each, arguments.picture)


def lag_over_time(readings: DataFrame) -> tuple[dict[str, list[float]], float]:
    """The lag of each reader at moments of equal distance, and their distance in seconds.

    A partition that was not looked at in a moment has the lag that it had before.
    """
    span = readings.agg(F.min("at").cast("double").alias("first"), F.max("at").cast("double").alias("last")).first()
    if span is None or span["first"] is None:
        return {}, 0.0
    each = max((span["last"] - span["first"]) / MOMENTS, 0.001)
    moment = F.floor((F.col("at").cast("double") - span["first"]) / each).alias("moment")
    rows: list[Row] = (
        readings.where("lag IS NOT NULL")
        .groupBy("reader", "topic", "partition", moment)
        .agg(F.max_by("lag", "at").alias("lag"))
        .orderBy("moment")
        .collect()
    )
    known: dict[str, dict[Any, int]] = defaultdict(dict)
    lags: dict[str, list[float]] = {}
    for row in rows:
        line = lags.setdefault(row.reader, [float("nan")] * row.moment)
        line.extend([float(sum(known[row.reader].values()))] * (row.moment - len(line)))
        known[row.reader][row.topic, row.partition] = row.lag
    for reader, line in lags.items():
        line.append(float(sum(known[reader].values())))
    return lags, each


def draw(lags: dict[str, list[float]], seconds_each: float, path: Path) -> None:
    """Draw the lag of the readers that were furthest behind."""
    longest = sorted(lags, key=lambda reader: -max(lags[reader], default=0))[:READERS]
    title = (
        f"Lag over time: {longest[0]} was furthest behind, by {max(lags[longest[0]]):,.0f} records"
        if longest
        else "Lag over time: no reader"
    )
    with picture(path, title) as axes:
        for reader in longest:
            axes.step([number * seconds_each for number in range(len(lags[reader]))], lags[reader], label=reader)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_ylabel("records not fetched yet")
        axes.set_xlabel("seconds since the first reading")
        if longest:
            axes.legend(loc="best")


JOB = Job("telemetry", options, plan, run)

if __name__ == "__main__":
    main(JOB)
