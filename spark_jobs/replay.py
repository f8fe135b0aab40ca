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

from minibroker.spark_jobs import command_lines, sending, topic_offsets
from minibroker.spark_jobs.command import Job, Progress, main, stoppable
from minibroker.spark_jobs.command_lines import PROMISES
from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.hadoop_files import HadoopFiles
from minibroker.spark_jobs.kafka_options import LARGE_RECORDS, broker_options
from minibroker.spark_jobs.report import picture, say, say_rows
from minibroker.spark_jobs.sink_table import QUERY, SinkTable, read_tables

options = command_lines.replay
LARGE = {name.removeprefix("kafka."): value for name, value in LARGE_RECORDS.items()}
KEPT = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
HEADERS = "array<struct<key: string, value: binary>>"
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
    came_from = [name for name in ("topic", "partition") if keyed and "offset" in names and name in names]
    key = column("key", "binary")
    target = F.lit(topic) if topic else F.col("topic").cast("string")
    lane = F.col("partition").cast("int") if lanes is None else _lane_of_key(key, target, lanes)
    values = F.to_json(F.struct(*own)) if own else F.lit(None)
    found = rows.select(
        target.alias("topic"),
        lane.alias("lane"),
        (F.lit(None).cast("int") if keyed else lane).alias("to_partition"),
        F.unix_millis(column("timestamp", "timestamp")).alias("timestamp_ms"),
        key.alias("key"),
        column("value", "binary", values).alias("value"),
        column("headers", HEADERS).alias("headers"),
        *(F.col(name).alias(f"from_{name}") for name in came_from),
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
    order = ["timestamp_ms", "file", "block", "row"]
    if "position" in found.columns:
        order = [*(f"from_{name}" for name in came_from), "position"]
    place = F.row_number().over(Window.partitionBy("topic", "lane").orderBy(*order)).cast("long") - 1
    return found.withColumn("position", place).drop("from_topic", "from_partition", "file", "block", "row")


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


def group_of(arguments: argparse.Namespace, source: str) -> str:
    """Return the group that keeps the progress: the same for the same source and target."""
    told = "\n".join([source, arguments.where or "", arguments.topic or ""])
    return arguments.group or f"replay-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def fingerprint(spark: SparkSession, arguments: argparse.Namespace, source: str, records: DataFrame) -> str:
    """Return what tells these rows from all others: it is noted beside each offset of the group.

    An archive is known by the query that writes it, and may grow, unless its rows are numbered anew in each run. Files
    are known by their names, sizes and times.
    """
    files = HadoopFiles(spark, source)
    if arguments.input:
        known = sorted(str(files.status(path)) for path in records.inputFiles())
    elif files.exists(QUERY):
        known = [files.read(QUERY)]
    else:
        checkpoint = "_checkpoint/metadata"  # of an archive before there was that file
        known = [str(json.loads(files.read(checkpoint))["id"])] if files.exists(checkpoint) else []
    if arguments.archive and arguments.partitions == "key":
        known += [str(SinkTable(spark, f"{source}/{name}").last_batch()) for name in ("records", "quarantine")]
    chosen = [arguments.where, arguments.without_quarantine, arguments.partitions, arguments.input and arguments.format]
    return hashlib.sha256("\n".join([source, *known, *map(str, chosen)]).encode()).hexdigest()[:12]


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
    elif arguments.topic and {"topic", "offset"} <= set(rows.columns):
        several = sorted(row[0] for row in rows.select("topic").distinct().limit(2).collect())
        if len(several) > 1:
            raise JobFailed(
                f"the rows are of {several[0]}, {several[1]} and perhaps more topics, whose offsets do not fit into one"
                f" topic; choose one by --where \"topic = '{several[0]}'\", or give --original-topics"
            )
    return transform(rows, topic=arguments.topic, lanes=lanes)


def _partition_counts(spark: SparkSession, topics: Iterable[str], arguments: argparse.Namespace) -> dict[str, int]:
    """Return how many partitions the topics have that are sent to. Raises JobFailed if one is missing."""
    found = topic_offsets.require(spark, broker_options(arguments), topics)
    return {topic: len(each.partitions) for topic, each in found.items()}


def run(spark: SparkSession, arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Send all that is not sent yet, and print a table."""
    broker = broker_options(arguments)
    source = HadoopFiles(spark, arguments.archive or arguments.input).folder
    group = group_of(arguments, source)
    topics: set[str] = set()

    def progress() -> Progress | None:
        if not count:
            return None
        done = sum(records for _, records, _ in _noted(topic_offsets.committed(spark, broker, group, topics)).values())
        return Progress({"sent": done, "of": count}, f"{done:,} of {count:,} records are sent")

    count = 0
    with stoppable(spark, stop, arguments, progress):
        # Each file is a partition of the rows: a task can read them in order.
        spark.conf.set("spark.sql.files.openCostInBytes", str(spark.conf.get("spark.sql.files.maxPartitionBytes")))
        records = plan(spark, arguments)
        surveyed = sending.survey(records)
        if not surveyed:
            raise JobFailed("there are no records to send")
        _check_partitions(spark, surveyed, arguments)
        topics |= {each.topic for each in surveyed}
        identity = fingerprint(spark, arguments, source, records)
        noted = _noted(topic_offsets.committed(spark, broker, group, topics))
        for (topic, number), (_, _, of) in noted.items():
            if of != identity:
                raise JobFailed(
                    f"the group {group} keeps how far other rows were sent to {topic}-{number}: the source has changed"
                    " since, or the options that choose rows; to send all of these, give another --group"
                )
        count = sum(each.records for each in surveyed)
        say(
            arguments,
            {"promise": arguments.delivery, "group": group, "records": count},
            f"{count:,} records: {PROMISES[arguments.delivery]}\nhow far it is, is kept by the group {group}",
        )
        if early := sum(each.early for each in surveyed):
            text = f"{early:,} records have a time before 1970, which Kafka's client cannot send: they get none"
            say(arguments, {"without_time": early}, text)
        times = [each.first_ms for each in surveyed if each.first_ms is not None]
        pace = None
        if arguments.speed is not None:
            elapsed_ms = max((elapsed_ms for elapsed_ms, _, _ in noted.values()), default=0)
            starts_at = time.time() + LEAD_SECONDS - elapsed_ms / 1000 / arguments.speed
            pace = sending.Pace(starts_at, min(times, default=0), arguments.speed)
        sender = sending.Sender(_producer(arguments), group, identity, arguments.delivery == "exactly-once", pace)
        began = time.time()
        lanes = {(each.topic, each.lane) for each in surveyed}
        tasks = min(len(lanes), spark.sparkContext.defaultParallelism)
        sent = write(records, sender, tasks=tasks, turns=sending.turns(surveyed))
    _report(sent, time.time() - began, group, arguments)
    if arguments.picture is not None:
        draw(arguments.picture, sent, arguments.speed)
    return 0


def _noted(texts: Mapping[tuple[str, int], str]) -> dict[tuple[str, int], tuple[int, int, str]]:
    """The notes of lanes beside their offsets: how far in the records' own time, how many records, and their source.

    A note of anyone else is of no source.
    """
    found = {}
    for place, text in texts.items():
        elapsed, total, *source = text.split(" ") if text.count(" ") == 2 else ("0", "0", "")
        found[place] = (int(elapsed), int(total), source[0])
    return found


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
    return LARGE | defaults | given


def _report(sent: Sequence[Mapping[str, Any]], seconds: float, group: str, arguments: argparse.Namespace) -> None:
    rows = []
    for topic, lane in sorted({(row["topic"], row["lane"]) for row in sent}):
        of_lane = [row for row in sent if (row["topic"], row["lane"]) == (topic, lane)]
        counts = [sum(row[name] for row in of_lane) for name in ("records", "skipped")]
        rows.append([topic, lane, *counts, max(row["late_ms"] for row in of_lane)])
    head = ["topic", "partition" if arguments.partitions == "original" else "lane", "sent", "sent before", "late ms"]
    total = sum(row["records"] for row in sent)
    say_rows(arguments, head, rows)
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
