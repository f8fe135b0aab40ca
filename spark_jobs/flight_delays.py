"""How late do flights leave? Delays by origin and carrier, in windows of event time, from Kafka to Parquet.

The rule: `read` knows Kafka, `transform` knows flights, `write` knows files; `transform` takes a table or a stream. A
window is written once, when the watermark has passed its end. Each run continues from its checkpoint, and every
record counts once in the result, also after a crash.

A stream's last windows would stay open for ever, since no later record closes them. So a stream ends with one record
in each partition, sent when all others are acknowledged: it is later than the last flight by a window and the
watermark, and so closes every window that has a flight. It has no `origin`, and is in no result.

    python -m minibroker.spark_jobs.flight_delays --bootstrap-servers HOST:PORT --output DIR --checkpoint DIR
"""

from __future__ import annotations

import argparse
import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from minibroker.spark_jobs import command_lines, query_source
from minibroker.spark_jobs.command import Job, main, say_batches
from minibroker.spark_jobs.command_lines import WATERMARK_DAYS, WINDOW_DAYS
from minibroker.spark_jobs.kafka_options import read, source_options
from minibroker.spark_jobs.micro_batches import start
from minibroker.spark_jobs.query_source import Checkpoint

options = command_lines.delays
LATE_FROM_MINUTES = 15
FLIGHT = StructType(
    [
        StructField("scheduled_departure", TimestampType()),
        StructField("origin", StringType()),
        StructField("carrier", StringType()),
        StructField("departure_delay_minutes", IntegerType()),
    ]
)


def transform(
    records: DataFrame,
    *,
    window: str = f"{WINDOW_DAYS} day",
    window_start: str = "5 hours",
    watermark: str = f"{WATERMARK_DAYS} days",
) -> DataFrame:
    """Turn records with a JSON `value` into delays per window, origin and carrier.

    A day from 05:00 UTC is New York's, in winter to the minute. `watermark` must exceed how far apart in
    event time two partitions can be within one micro-batch: a backlog is not read evenly.
    """
    flight = F.from_json(F.col("value").cast("string"), FLIGHT)
    delay = F.col("departure_delay_minutes")
    is_flight = F.col("origin").isNotNull()
    return (
        records.select(flight.alias("flight"))
        .select("flight.*")
        .observe(
            "input",
            F.count_if(F.col("scheduled_departure").isNull()).alias("unreadable"),
            F.unix_millis(F.max(F.when(is_flight, F.col("scheduled_departure")))).alias("latest_ms"),
            F.count_if(~is_flight & F.col("scheduled_departure").isNotNull()).alias("ends"),
        )
        .withWatermark("scheduled_departure", watermark)
        # The second condition is never true. It names the event time, and so keeps Spark's optimizer from moving the
        # filter below the watermark, where the end of the stream would be filtered out before it is seen.
        .where(is_flight | (F.col("scheduled_departure") < F.lit("0001-01-01").cast("timestamp")))
        .groupBy(F.window("scheduled_departure", window, startTime=window_start), "origin", "carrier")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count_if(delay.isNull()).alias("cancelled"),
            F.count_if(delay >= LATE_FROM_MINUTES).alias("late"),
            F.sum(delay).alias("delay_minutes"),
            F.avg(delay).alias("mean_delay_minutes"),
            F.percentile_approx(delay, 0.9).alias("p90_delay_minutes"),
        )
        .select(F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "*")
        .drop("window")
    )


def write(delays: DataFrame, *, output: str, checkpoint: str, every_seconds: float | None) -> StreamingQuery:
    """Start writing Parquet files, each window once: of the present records, or every so many seconds for ever."""
    writer = delays.writeStream.queryName("flight_delays").outputMode("append")
    return start(writer.format("parquet").option("path", output), checkpoint=checkpoint, every_seconds=every_seconds)


def plan(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Read and transform as the command line has it; nothing runs yet."""
    return transform(
        read(spark, source_options(arguments)),
        window=arguments.window,
        window_start=arguments.window_start,
        watermark=arguments.watermark,
    )


def run(spark: SparkSession, arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Run one query until it ends, `stop` is set or `--until` is reached; print a line about each micro-batch."""
    query_source.check(spark, arguments, Checkpoint(spark, arguments.checkpoint))
    query = write(
        plan(spark, arguments),
        output=arguments.output,
        checkpoint=arguments.checkpoint,
        every_seconds=arguments.continuous,
    )
    say_batches(query, arguments, stop, until=arguments.until)
    return 0


JOB = Job("delays", options, plan, run)

if __name__ == "__main__":
    main(JOB)
