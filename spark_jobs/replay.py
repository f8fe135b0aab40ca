"""Send an archive, or rows of CSV, JSON or Parquet, to topics: in order, with their times, at their speed or another.

The rule: `read` knows files, `transform` gives each row its topic, its lane and its place in it, `write` has the
executors send (`sending.py`). Spark's own Kafka sink has no timestamps, and may send a record twice; this has a
producer with transactions for each lane. A later run with the same group goes on where this one ended. What is in order
in its files, as an archive most often is, is sent as it is read; the rest is sorted first.

    python -m minibroker.spark_jobs.replay --bootstrap-servers HOST:PORT --archive DIR --topic TOPIC
"""

from __future__ import annotations

import argparse
import hashlib
import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from minibroker.spark_jobs import sending, topic_offsets
from minibroker.spark_jobs.command import Job, JobFailed, Progress, job_parser, main, say, stoppable
from minibroker.spark_jobs.kafka_options import add_bootstrap, broker_options
from minibroker.spark_jobs.report import picture, table
from minibroker.spark_jobs.sink_table import read_tables

FORMATS = ("csv", "json", "parquet")
KEPT = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
HEADERS = "array<struct<key: string, value: binary>>"
PROMISES = {
    "exactly-once": "each record once, for readers with isolation.level=read_committed; in order in each partition",
    "at-least-once": "each record once or, after a crash, again; in order in each partition",
}
# How long after the plan is made the first record is due: tasks start, and connect, meanwhile.
LEAD_SECONDS = 2.0


def read(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Open an archive, with what is in quarantine unless that is left out, or files. Raises JobFailed."""
    if arguments.archive:
        names = ["records"] if arguments.without_quarantine else ["records", "quarantine"]
        kept = read_tables(spark, arguments.archive, names, KEPT)
        if kept is None:
            raise JobFailed(f"there is no archive in {arguments.archive}: neither records nor quarantine")
        rows = kept
    else:
        reader = spark.read.options(header="true") if arguments.format == "csv" else spark.read
        rows = reader.format(arguments.format).load(arguments.input)
    return rows.where(arguments.where) if arguments.where else rows


def transform(rows: DataFrame, *, topic: str | None, lanes: Mapping[str, int] | None = None) -> DataFrame:
    """Give each row what is sent of it, and its place: `position` in its `lane`.

    A row has columns as an archive has, of which all but `value` may be missing; without `value` it is sent as JSON.
    A lane is a partition. Where the producer is to choose partitions by key, `lanes` has how many lanes of keys a topic
    has. The place is the offset, or else the one by time, and in files of the same time as they are.
    """
    names = set(rows.columns)
    own = [name for name in rows.columns if name not in KEPT]

    def column(name: str, kind: str, otherwise: Column | None = None) -> Column:
        if name in names:
            return F.col(name).cast(kind)
        return (F.lit(None) if otherwise is None else otherwise).cast(kind)

    keyed = lanes is not None
    key = column("key", "binary")
    target = F.lit(topic) if topic else F.col("topic").cast("string")
    lane = F.col("partition").cast("int") if lanes is None else _lane_of_key(key, target, lanes)
    values = F.to_json(F.struct(*own)) if own else F.lit(None)
    times = column("timestamp", "timestamp", F.lit(0).cast("timestamp"))
    found = rows.select(
        target.alias("topic"),
        lane.alias("lane"),
        (F.lit(None).cast("int") if keyed else lane).alias("to_partition"),
        F.coalesce(F.unix_millis(times), F.lit(0)).alias("timestamp_ms"),
        key.alias("key"),
        column("value", "binary", values).alias("value"),
        column("headers", HEADERS).alias("headers"),
        *([F.col("partition").alias("from_partition")] if keyed and "offset" in names and "partition" in names else []),
        *(
            [F.col("offset").cast("long").alias("position")]
            if "offset" in names
            else [
                F.input_file_name().alias("file"),
                F.input_file_block_start().alias("block"),
                F.monotonically_increasing_id().alias("row"),
            ]
        ),
    )
    if "position" in found.columns and not keyed:
        return found
    # In a lane of keys there are offsets of several partitions.
    order = ["from_partition", "position"] if "from_partition" in found.columns else ["timestamp_ms"]
    order += [] if "position" in found.columns else ["file", "block", "row"]
    place = F.row_number().over(Window.partitionBy("topic", "lane").orderBy(*order)).cast("long") - 1
    placed = found.withColumn("place", place)
    return placed.drop("from_partition", "file", "block", "row", "position").withColumnRenamed("place", "position")


def _lane_of_key(key: Column, topic: Column, lanes: Mapping[str, int]) -> Column:
    counts = F.create_map(*(F.lit(part) for item in lanes.items() for part in item))
    return F.pmod(F.xxhash64(key), counts[topic]).cast("int")


def write(records: DataFrame, sender: sending.Sender, *, tasks: int, turns: str | None) -> list[dict[str, Any]]:
    """Send, each lane in one task, and return what each commit sent; with `turns` the rows need no sorting."""
    if sender.pace is None and turns is not None:
        return sender(records, turns)
    lanes = records.repartition(tasks, "topic", "lane")
    if sender.pace is None:
        return sender(lanes.sortWithinPartitions("topic", "lane", "position"))
    # Times may go back in a lane; its order goes first.
    before = Window.partitionBy("topic", "lane").orderBy("position").rowsBetween(Window.unboundedPreceding, 0)
    due = F.max("timestamp_ms").over(before)
    return sender(lanes.withColumn("due", due).sortWithinPartitions("due", "topic", "lane", "position").drop("due"))


def options() -> argparse.ArgumentParser:
    """Describe the command line."""
    cli = job_parser("replay", "An archive or files back into topics: order, time and partition as they were.")
    add_bootstrap(cli)
    source = cli.add_mutually_exclusive_group(required=True)
    source.add_argument("--archive", metavar="DIR", help="the output of the job archive")
    source.add_argument("--input", metavar="PATH", help="files of --format")
    cli.add_argument("--format", choices=FORMATS, default="parquet")
    cli.add_argument("--where", metavar="SQL", help="which rows, such as \"topic = 'orders' and date = '2026-01-01'\"")
    cli.add_argument("--without-quarantine", action="store_true", help="leave out what the archive put apart")
    cli.add_argument("--topic", metavar="TOPIC", help="where to; otherwise to the topic that each row names")
    cli.add_argument(
        "--partitions", choices=["original", "key"], default="original", help="key: where the producer puts the key"
    )
    cli.add_argument("--speed", type=_speed, default=None, metavar="max|TIMES", help="1 is as it was; default: max")
    cli.add_argument("--delivery", choices=list(PROMISES), default="exactly-once")
    cli.add_argument("--group", metavar="NAME", help="what is sent already is kept here; default: by source and topic")
    cli.add_argument("--picture", type=Path, metavar="FILE.png", help="draw planned against real time")
    return cli


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        times = float(text)
    except ValueError:
        times = 0
    if times <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is neither max nor a number above 0")
    return times


def group_of(arguments: argparse.Namespace) -> str:
    """Return the group that keeps the progress: the same for the same source and target."""
    source = "\n".join([str(arguments.archive or arguments.input), arguments.where or "", arguments.topic or ""])
    return arguments.group or f"replay-{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def plan(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Read and transform as the command line has it; nothing runs yet. Raises JobFailed."""
    rows = read(spark, arguments)
    if not arguments.topic and "topic" not in rows.columns:
        raise JobFailed("the rows name no topic; give --topic")
    lanes = None
    if arguments.partitions == "key" or "partition" not in rows.columns:
        distinct = [] if arguments.topic else rows.select("topic").distinct().collect()
        lanes = _partition_counts(
            spark, [arguments.topic] if arguments.topic else [row[0] for row in distinct], arguments
        )
    return transform(rows, topic=arguments.topic, lanes=lanes)


def _partition_counts(spark: SparkSession, topics: Iterable[str], arguments: argparse.Namespace) -> dict[str, int]:
    """Return how many partitions the topics have that are sent to. Raises JobFailed if one is missing."""
    try:
        existing = topic_offsets.partitions(spark, broker_options(arguments), topics)
    except ConnectionError as error:
        raise JobFailed(str(error)) from error
    for topic in topics:
        if topic not in existing:
            raise JobFailed(f"there is no topic {topic} at {arguments.bootstrap_servers}; create it first")
    return {topic: len(numbers) for topic, numbers in existing.items()}


def run(spark: SparkSession, arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Send all that is not sent yet, and print a table."""
    broker = broker_options(arguments)
    group = group_of(arguments)

    def progress() -> Progress | None:
        noted = _noted(topic_offsets.committed_metadata(spark, broker, group))
        done = sum(records for _, records in noted)
        return Progress({"sent": done, "of": count}, f"{done:,} of {count:,} records are sent") if count else None

    count = 0
    with stoppable(spark, stop, arguments, progress):
        # Each file is a partition of the rows: a task can read them in order.
        spark.conf.set("spark.sql.files.openCostInBytes", str(spark.conf.get("spark.sql.files.maxPartitionBytes")))
        records = plan(spark, arguments)
        surveyed = sending.survey(records)
        if not surveyed:
            raise JobFailed("there are no records to send")
        _check_partitions(spark, surveyed, arguments)
        count = sum(each.records for each in surveyed)
        say(
            arguments,
            {"promise": arguments.delivery, "group": group, "records": count},
            f"{count:,} records: {PROMISES[arguments.delivery]}\nhow far it is, is kept by the group {group}",
        )
        pace = None
        if arguments.speed is not None:
            noted = _noted(topic_offsets.committed_metadata(spark, broker, group))
            elapsed_ms = max((elapsed_ms for elapsed_ms, _ in noted), default=0)
            starts_at = time.time() + LEAD_SECONDS - elapsed_ms / 1000 / arguments.speed
            pace = sending.Pace(starts_at, min(each.first_ms for each in surveyed), arguments.speed)
        sender = sending.Sender(_producer(arguments), group, arguments.delivery == "exactly-once", pace)
        began = time.time()
        lanes = {(each.topic, each.lane) for each in surveyed}
        tasks = min(len(lanes), spark.sparkContext.defaultParallelism)
        sent = write(records, sender, tasks=tasks, turns=sending.turns(surveyed))
    _report(sent, time.time() - began, group, arguments)
    if arguments.picture is not None:
        draw(arguments.picture, sent, arguments.speed)
    return 0


def _noted(texts: Iterable[str]) -> list[tuple[int, int]]:
    """The notes of lanes beside their offsets: how far in the records' own time, and how many records."""
    pairs = [text.split(" ") for text in texts]
    return [(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) > 1]


def _check_partitions(spark: SparkSession, surveyed: Sequence[sending.Surveyed], arguments: argparse.Namespace) -> None:
    """Have the partitions that are sent to. Raises JobFailed."""
    counts = _partition_counts(spark, sorted({each.topic for each in surveyed}), arguments)
    for each in surveyed:
        if (each.to_partition or 0) >= counts[each.topic]:
            raise JobFailed(
                f"{each.topic} has no partition {each.to_partition}, where records are to go; add partitions,"
                " or have the key choose them by --partitions key"
            )


def _producer(arguments: argparse.Namespace) -> dict[str, str]:
    defaults = {"linger.ms": "2"} if arguments.speed is not None else {"linger.ms": "20", "batch.size": "131072"}
    given = {
        name.removeprefix("kafka."): value
        for name, value in broker_options(arguments).items()
        if name.startswith("kafka.")
    }
    return defaults | given


def _report(sent: Sequence[Mapping[str, Any]], seconds: float, group: str, arguments: argparse.Namespace) -> None:
    rows = []
    for topic, lane in sorted({(row["topic"], row["lane"]) for row in sent}):
        of_lane = [row for row in sent if (row["topic"], row["lane"]) == (topic, lane)]
        counts = [sum(row[name] for row in of_lane) for name in ("records", "skipped")]
        rows.append([topic, lane, *counts, max(row["late_ms"] for row in of_lane)])
    head = ["topic", "partition" if arguments.partitions == "original" else "lane", "sent", "sent before", "late ms"]
    total = sum(row["records"] for row in sent)
    if arguments.json:
        for row in rows:
            print(json.dumps(dict(zip(head, row, strict=True))), flush=True)
    else:
        print(table(head, rows))
    text = f"{total:,} records sent in {seconds:.1f} s, {total / seconds:,.0f} a second"
    if not total:
        text = f"all were sent before, in the group {group}; to send them again, give another --group"
    say(arguments, {"sent": total, "seconds": round(seconds, 3)}, text)


def draw(path: Path, sent: Sequence[Mapping[str, Any]], times: float | None) -> None:
    """Draw how many records were sent by then, and where the plan had been."""
    rows = [row for row in sent if row["records"]]
    total = sum(row["records"] for row in rows)
    title = f"{total:,} records, " + ("as fast as goes" if times is None else f"{times:g} times as fast as they were")
    with picture(path, title) as axes:
        axes.plot(*_so_far((row["at_ms"] / 1000, row["records"]) for row in rows), label="sent", lw=2.5)
        if times is not None:
            due = _so_far((row["planned_ms"] / 1000 / times, row["records"]) for row in rows)
            axes.plot(*due, "--", label="planned", color="#222222")
            axes.legend()
        axes.set_xlabel("seconds")
        axes.set_ylabel("records")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")


def _so_far(counts: Iterable[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """Sum counts by the time of their commit, from where the first of them may have begun."""
    ordered = sorted(counts)
    if not ordered:
        return [], []
    seconds = [second for second, _ in ordered]
    return [max(0.0, seconds[0] - sending.COMMIT_EVERY_SECONDS), *seconds], [
        0,
        *accumulate(count for _, count in ordered),
    ]


JOB = Job(
    "replay",
    options,
    plan,
    run,
    subject=lambda arguments: f"{arguments.archive or arguments.input} to {arguments.bootstrap_servers}",
)

if __name__ == "__main__":
    main(JOB)
