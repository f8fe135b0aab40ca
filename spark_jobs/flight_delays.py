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
import json
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from types import FrameType
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from minibroker.spark_jobs.session import ConnectorUnavailable, connector_is_missing, spark_session

LATE_FROM_MINUTES = 15
LOOK_AGAIN_SECONDS = 0.5
WINDOW_DAYS = 1
WATERMARK_DAYS = 14
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
STAGES = {
    "connector": "fetching Spark's Kafka connector, once",
    "session": "starting Spark",
    "query": "starting the query",
}

FLIGHT = StructType(
    [
        StructField("scheduled_departure", TimestampType()),
        StructField("origin", StringType()),
        StructField("carrier", StringType()),
        StructField("departure_delay_minutes", IntegerType()),
    ]
)


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Open the stream of a Kafka source with these options, named as Spark names them."""
    return spark.readStream.format("kafka").options(**options).load()


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
    return (
        records.select(flight.alias("flight"))
        .select("flight.*")
        .observe("input", F.count_if(F.col("scheduled_departure").isNull()).alias("unreadable"))
        .withWatermark("scheduled_departure", watermark)
        # The second condition is never true. It names the event time, and so keeps Spark's optimizer from moving the
        # filter below the watermark, where the end of the stream would be filtered out before it is seen.
        .where(F.col("origin").isNotNull() | (F.col("scheduled_departure") < F.lit("0001-01-01").cast("timestamp")))
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
    writer = (
        delays.writeStream.queryName("flight_delays")
        .format("parquet")
        .outputMode("append")
        .option("path", output)
        .option("checkpointLocation", checkpoint)
    )
    if every_seconds is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_seconds} seconds").start()


def batches(query: StreamingQuery, *, stop: threading.Event, until: datetime | None = None) -> Iterable[dict[str, Any]]:
    """Yield facts about each micro-batch until the query ends, `stop` is set, or all windows up to a time are written.

    Raises the query's error.
    """
    seen = -1
    records = 0
    running = True
    while running:
        running = not query.awaitTermination(LOOK_AGAIN_SECONDS)  # type: ignore[arg-type]  # a fraction is fine
        if stop.is_set():
            query.stop()
        for progress in query.recentProgress:
            # Idle triggers repeat the last batch's id with no rows.
            if progress["batchId"] <= seen:
                continue
            seen = progress["batchId"]
            records += progress["numInputRows"]
            observed = progress["observedMetrics"].get("input")
            watermark = progress["eventTime"].get("watermark")
            # A batch writes the windows that its watermark has passed.
            if until is not None and watermark and datetime.fromisoformat(watermark) >= until:
                stop.set()
            yield {
                "batch": seen,
                "records": progress["numInputRows"],
                "records_so_far": records,
                "unreadable": observed["unreadable"] if observed else 0,
                "too_late": sum(state["numRowsDroppedByWatermark"] for state in progress["stateOperators"]),
                "watermark": watermark,
                "latest": progress["eventTime"].get("max"),
                "milliseconds": progress["batchDuration"],
            }


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Translate the command line into options of Spark's Kafka source."""
    chosen = {
        "kafka.bootstrap.servers": arguments.bootstrap_servers,
        "subscribe": arguments.subscribe,
        "subscribePattern": arguments.subscribe_pattern,
        "assign": arguments.assign,
        "startingOffsets": arguments.starting_offsets,
        "startingTimestamp": arguments.starting_timestamp,
        "maxOffsetsPerTrigger": arguments.max_offsets_per_trigger,
        "failOnDataLoss": arguments.fail_on_data_loss,
    }
    options = {name: str(value) for name, value in chosen.items() if value is not None}
    for pair in arguments.kafka_option:
        name, _, value = pair.partition("=")
        options[name] = value
    return options


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    cli = argparse.ArgumentParser(prog="flight_delays", description="Flight delays from Kafka to Parquet.")
    cli.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT")
    topics = cli.add_mutually_exclusive_group(required=True)
    topics.add_argument("--subscribe", metavar="TOPIC[,TOPIC...]")
    topics.add_argument("--subscribe-pattern", metavar="REGEX")
    topics.add_argument("--assign", metavar="JSON", help='{"flights": [0, 1]}')
    cli.add_argument("--starting-offsets", default="earliest", metavar="earliest|latest|JSON")
    cli.add_argument("--starting-timestamp", type=int, metavar="MS", help="takes precedence over --starting-offsets")
    cli.add_argument("--max-offsets-per-trigger", type=int, metavar="RECORDS")
    cli.add_argument("--fail-on-data-loss", choices=["true", "false"], default="true")
    cli.add_argument("--kafka-option", action="append", default=[], metavar="KEY=VALUE", type=_pair)
    cli.add_argument("--output", required=True, metavar="DIR", help="Parquet files")
    cli.add_argument("--checkpoint", required=True, metavar="DIR", help="from which a later run continues")
    cli.add_argument("--window", default=f"{WINDOW_DAYS} day")
    cli.add_argument("--window-start", default="5 hours", metavar="AFTER_MIDNIGHT_UTC")
    cli.add_argument("--watermark", default=f"{WATERMARK_DAYS} days", help="how late a record may come, in event time")
    cli.add_argument("--continuous", type=float, metavar="SECONDS", help="run for ever, with a micro-batch this often")
    cli.add_argument("--until", metavar="TIME", type=_time, help="end when all windows up to this time are written")
    cli.add_argument("--json", action="store_true", help="a line of JSON for each stage and each micro-batch")
    return cli


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _pair(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return text


def run(spark: SparkSession, arguments: argparse.Namespace, *, stop: threading.Event) -> None:
    """Run one query until it ends, `stop` is set or `--until` is reached; print a line about each micro-batch."""
    delays = transform(
        read(spark, source_options(arguments)),
        window=arguments.window,
        window_start=arguments.window_start,
        watermark=arguments.watermark,
    )
    query = write(delays, output=arguments.output, checkpoint=arguments.checkpoint, every_seconds=arguments.continuous)
    for facts in batches(query, stop=stop, until=arguments.until):
        print(json.dumps(facts) if arguments.json else _sentence(facts), flush=True)


def _print_stage(stage: str, arguments: argparse.Namespace) -> None:
    print(json.dumps({"stage": stage}) if arguments.json else STAGES[stage], flush=True)


def _sentence(facts: dict[str, Any]) -> str:
    text = f"batch {facts['batch']}: {facts['records']:,} records, {facts['records_so_far']:,} so far"
    text += f", watermark {facts['watermark']}"
    for trouble in ("unreadable", "too_late"):
        if facts[trouble]:
            text += f", {facts[trouble]:,} {trouble.replace('_', ' ')}: not in the result"
    return text


def _set_by_signals() -> threading.Event:
    """An event that the first signal sets; the second ends the process, should the query not stop."""
    stop = threading.Event()

    def on_signal(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in STOP_SIGNALS:
        signal.signal(number, on_signal)
    return stop


def main(command_line: Sequence[str] | None = None) -> None:
    """Run the job as a command; exit with status 0, or with 1 and the reason."""
    arguments = parser().parse_args(command_line)
    # While Spark starts, Ctrl-C ends the process at once, and the JVM with it: an exception could be lost in there.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if connector_is_missing():
        _print_stage("connector", arguments)
    _print_stage("session", arguments)
    try:
        spark = spark_session("flight_delays")
    except ConnectorUnavailable as reason:
        sys.exit(f"flight_delays: {reason}")
    _print_stage("query", arguments)
    try:
        run(spark, arguments, stop=_set_by_signals())
    except StreamingQueryException as reason:
        # Spark's log has the query's plan and the trace.
        topics = arguments.subscribe or arguments.subscribe_pattern or arguments.assign
        sys.exit(f"flight_delays: {topics} at {arguments.bootstrap_servers}: {str(reason).splitlines()[0]}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
