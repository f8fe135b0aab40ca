"""Compare a topic record by record with another topic or with an archive, on as many machines as Spark has.

The rule: `read` makes rows of a hash per field, `transform` pairs the rows of the two sides and gives each pair its
kind, `write` keeps the differences. Nothing but counts and a sample comes to the driver. Rows are paired by content
(two topics: offsets differ where transactions were aborted or records removed), or by offset (an archive).

    python -m minibroker.spark_jobs.verify --bootstrap-servers HOST:PORT --subscribe TOPIC --against-topic COPY
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from minibroker.spark_jobs import command_lines, topic_offsets
from minibroker.spark_jobs.command import Job, main, stoppable
from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.kafka_options import broker_options
from minibroker.spark_jobs.report import picture, say_rows, table
from minibroker.spark_jobs.sink_table import read_tables

# The exit status: 1 is for a comparison that could not be made, 2 for options.
DIFFERENT = 3
FIELDS = ("value", "timestamp", "headers", "key")
KINDS = {
    "missing": "#cb2f3f",
    "extra": "#2f6ecb",
    "changed": "#f98e52",
    "duplicated": "#4d0a35",
    "reordered": "#3b8a6e",
}
LANE = ("topic", "partition")  # in which order counts
ROW = ("own_partition", "offset", *FIELDS)
ROW_OF_SIDE = [(side, name) for side in ("left", "right") for name in ROW]
PAIR = (*LANE, "kind", "fields", *(f"{side}_{name}" for side, name in ROW_OF_SIDE))
BINS = 400


options = command_lines.verify


class Range(NamedTuple):
    """The offsets of a partition when the comparison began: what comes later is left out."""

    topic: str
    partition: int
    begin: int
    end: int


def ranges(spark: SparkSession, options: Mapping[str, str], topics: Sequence[str]) -> list[Range]:
    """Return what topics have now. Raises JobFailed if one is missing."""
    existing = topic_offsets.require(spark, options, topics)
    first, last = topic_offsets.offsets(spark, options, {topic: each.partitions for topic, each in existing.items()})
    return [
        Range(topic, number, first[topic][number], last[topic][number]) for topic in topics for number in last[topic]
    ]


def read(spark: SparkSession, options: Mapping[str, str], of: Sequence[Range]) -> DataFrame:
    """Read these offsets by a Kafka source with these options."""
    begin: topic_offsets.Offsets = {}
    end: topic_offsets.Offsets = {}
    for each in of:
        begin.setdefault(each.topic, {})[each.partition] = each.begin
        end.setdefault(each.topic, {})[each.partition] = each.end
    asked = {"assign": {topic: list(numbers) for topic, numbers in end.items()}, "startingOffsets": begin}
    asked["endingOffsets"] = end
    texts = {name: json.dumps(value) for name, value in asked.items()}
    return spark.read.format("kafka").options(**options, **texts, includeHeaders="true").load()


def read_archive(spark: SparkSession, folder: str, of: Sequence[Range]) -> tuple[DataFrame, DataFrame]:
    """Return an archive's records at these offsets, those in quarantine too, and those of the topics elsewhere.

    Raises JobFailed if there is no archive.
    """
    rows = read_tables(spark, folder, ["records", "quarantine"], [*LANE, "offset", *FIELDS])
    if rows is None:
        raise JobFailed(f"there is no archive in {folder}: neither records nor quarantine")
    within = F.broadcast(spark.createDataFrame(list(of), "topic string, partition int, begin long, end long"))
    offset = F.col("offset")
    placed = rows.where(F.col("topic").isin(sorted({each.topic for each in of}))).join(within, list(LANE), "left")
    inside = (offset >= F.col("begin")) & (offset < F.col("end"))
    return placed.where(inside), placed.where(~F.coalesce(inside, F.lit(False)))


def transform(
    records: DataFrame, against: DataFrame, *, by_offset: bool = False, ignored: Sequence[str] = ()
) -> DataFrame:
    """Pair the rows of two sides; each pair has its kind, and is `broken` where it comes before the pair before it.

    The kinds: `same`, `missing`, `extra`, `duplicated`, and by offset `changed`.
    """
    rows = _hashed(records, 0, ignored).unionByName(_hashed(against, 1, ignored))
    pairs = _paired(rows, [*LANE, "offset"] if by_offset else [*LANE, *FIELDS])
    changed = (F.when(F.col(f"left_{name}") != F.col(f"right_{name}"), F.lit(name)) for name in FIELDS)
    kind = (
        F.when(F.col("right_offset").isNull(), "missing")
        .when(F.col("left_offset").isNull(), F.when(F.col("copy") > 1, "duplicated").otherwise("extra"))
        .when(F.size("fields") > 0, "changed")
        .otherwise("same")
    )
    found = pairs.withColumn("fields", F.array_compact(F.array(*changed))).withColumn("kind", kind)
    broken: Column = F.lit(False)
    if not by_offset and not {"order", "partition"} & set(ignored):
        in_order = Window.partitionBy(*LANE, "kind").orderBy("left_offset")
        before = F.lag("right_offset").over(in_order)
        broken = (F.col("kind") == "same") & F.coalesce(F.col("right_offset") < before, F.lit(False))
    return found.select(*PAIR, broken.alias("broken"))


def differences(pairs: DataFrame, *, by_offset: bool = False, ignored: Sequence[str] = ()) -> DataFrame:
    """Return the pairs that are not the same, and those out of order.

    By content, what is missing and what is extra make a `changed` pair if they differ in one field; the earliest first.
    """
    kind = F.when(F.col("broken"), "reordered").otherwise(F.col("kind"))
    different = pairs.where((F.col("kind") != "same") | F.col("broken")).withColumn("kind", kind).select(*PAIR)
    if by_offset:
        return different
    alone = F.col("kind").isin("missing", "extra")
    found, rest = different.where(~alone), different.where(alone)
    both = F.col("left_offset").isNotNull() & F.col("right_offset").isNotNull()
    for field in [name for name in FIELDS if name not in ignored]:
        again = _paired(_unpaired(rest), [*LANE, *(name for name in FIELDS if name != field)])
        kind = F.when(both, "changed").when(F.col("left_offset").isNull(), "extra").otherwise("missing")
        fields = F.when(both, F.array(F.lit(field))).otherwise(F.array().cast("array<string>"))
        again = again.withColumns({"kind": kind, "fields": fields}).select(*PAIR)
        found, rest = found.unionByName(again.where(both)), again.where(~both)
    return found.unionByName(rest)


def _hashed(records: DataFrame, side: int, ignored: Sequence[str]) -> DataFrame:
    """Rows of 64 bits a field, instead of the fields."""
    hashes = (F.lit(0).cast("long") if name in ignored else F.xxhash64(F.col(name).isNull(), name) for name in FIELDS)
    partition = F.lit(-1) if "partition" in ignored else F.col("partition")
    return records.select(
        "topic",
        partition.alias("partition"),
        F.lit(side).alias("side"),
        F.col("partition").alias("own_partition"),
        "offset",
        *(hashed.alias(name) for name, hashed in zip(FIELDS, hashes, strict=True)),
    )


def _paired(rows: DataFrame, on: Sequence[str]) -> DataFrame:
    """Pair the rows of the two sides that are equal in these columns: the first with the first, and so on."""
    copies = Window.partitionBy(*on, "side").orderBy("own_partition", "offset")
    numbered = rows.withColumn("copy", F.row_number().over(copies))
    values = (F.max(F.when(F.col("side") == at, F.col(name))) for at in range(2) for name in ROW)
    pairs = numbered.groupBy(*on, "copy").agg(
        *(value.alias(f"{side}_{name}") for value, (side, name) in zip(values, ROW_OF_SIDE, strict=True))
    )
    return pairs.drop(*ROW)


def _unpaired(pairs: DataFrame) -> DataFrame:
    """The rows of pairs that have one."""
    side = F.when(F.col("left_offset").isNull(), 1).otherwise(0).alias("side")
    return pairs.select(*LANE, side, *(F.coalesce(f"left_{name}", f"right_{name}").alias(name) for name in ROW))


def write(found: DataFrame, output: str) -> None:
    """Keep differences as Parquet: kind, partition and offset on each side, and the fields that changed."""
    shown(found).write.mode("overwrite").parquet(output)


def shown(found: DataFrame) -> DataFrame:
    """Return differences without hashes."""
    return found.select(
        "kind",
        "topic",
        F.col("left_own_partition").alias("partition"),
        F.col("left_offset").alias("offset"),
        F.col("right_own_partition").alias("against_partition"),
        F.col("right_offset").alias("against_offset"),
        "fields",
    )


class Comparison(NamedTuple):
    """The two sides, read but not yet compared."""

    pairs: DataFrame
    by_offset: bool
    of: list[Range]
    elsewhere: DataFrame | None  # records of an archive that the topic has no longer, or not yet


def compare(spark: SparkSession, arguments: argparse.Namespace) -> Comparison:
    """Read the two sides and pair them as the command line has it; nothing runs yet. Raises JobFailed."""
    asked = broker_options(arguments)
    topics = arguments.subscribe.split(",")
    of = ranges(spark, asked, topics)
    by_offset = (arguments.match or ("offset" if arguments.against_archive else "content")) == "offset"
    elsewhere = None
    if arguments.against_archive:
        against, elsewhere = read_archive(spark, arguments.against_archive, of)
    elif len(topics) > 1:
        raise JobFailed("--against-topic compares one topic; run it for each")
    else:
        there = {**asked, "kafka.bootstrap.servers": arguments.against_bootstrap_servers or arguments.bootstrap_servers}
        against = read(spark, there, ranges(spark, there, [arguments.against_topic]))
        against = against.withColumn("topic", F.lit(topics[0]))
    pairs = transform(read(spark, asked, of), against, by_offset=by_offset, ignored=arguments.ignore)
    return Comparison(pairs, by_offset, of, elsewhere)


def plan(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Read and transform as the command line has it; nothing runs yet."""
    return compare(spark, arguments).pairs


def run(spark: SparkSession, arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Compare, print a table and a sample of the differences, and return 0, or DIFFERENT."""
    with stoppable(spark, stop, arguments):
        compared = compare(spark, arguments)
        outside = compared.elsewhere.count() if compared.elsewhere is not None else 0
        lanes = _counted(compared.pairs)
        equal = not any(
            lane[kind] for lane in lanes for kind in ("missing", "extra", "duplicated", "changed", "broken")
        )
        sample: list[dict[str, Any]] = []
        binned: list[dict[str, Any]] = []
        if not equal:
            found = differences(compared.pairs, by_offset=compared.by_offset, ignored=arguments.ignore).persist()
            by_lane = found.groupBy(*LANE).pivot("kind", list(KINDS)).count().fillna(0).collect()
            kinds = {(row.topic, row.partition): {kind: row[kind] for kind in KINDS} for row in by_lane}
            lanes = [lane | kinds.get((lane["topic"], lane["partition"]), {}) for lane in lanes]
            places = shown(found).orderBy("topic", F.coalesce("partition", "against_partition"), _place())
            sample = [row.asDict() for row in places.limit(arguments.show).collect()]
            if arguments.output:
                write(found, arguments.output)
            if arguments.picture:
                binned = _binned(found, compared.of)
    _report(lanes, sample, outside, equal, arguments)
    if arguments.picture:
        draw(arguments.picture, binned, compared.of, sum(lane[kind] for lane in lanes for kind in KINDS))
    return 0 if equal else DIFFERENT


def _counted(pairs: DataFrame) -> list[dict[str, Any]]:
    kind = F.col("kind")
    rows = pairs.groupBy(*LANE).agg(
        F.count("left_offset").alias("records"),
        F.count("right_offset").alias("against"),
        *(F.count_if(kind == name).alias(name) for name in ("same", "missing", "extra", "changed", "duplicated")),
        F.count_if("broken").alias("broken"),
    )
    found = [{**row.asDict(), "reordered": row.broken} for row in rows.collect()]
    return sorted(found, key=lambda lane: (lane["topic"], lane["partition"]))


def _place() -> Column:
    return F.coalesce("offset", "against_offset")


def _binned(found: DataFrame, of: Sequence[Range]) -> list[dict[str, Any]]:
    width = max(1, max((each.end for each in of), default=0) // BINS)
    place = (F.floor(_place() / width) * width).alias("from_offset")
    partition = F.coalesce("partition", "against_partition").alias("partition")
    return [row.asDict() for row in shown(found).groupBy("topic", partition, "kind", place).count().collect()]


def _report(
    lanes: Sequence[Mapping[str, Any]],
    sample: Sequence[Mapping[str, Any]],
    outside: int,
    equal: bool,
    arguments: argparse.Namespace,
) -> None:
    other = arguments.against_topic or arguments.against_archive
    names = [*LANE, "records", "against", "same", *KINDS]
    total = {name: sum(lane[name] for lane in lanes) for name in names[2:]}
    say_rows(arguments, names, [[lane[name] for name in names] for lane in lanes])
    if arguments.json:
        for row in sample:
            print(json.dumps({"difference": row}), flush=True)
        print(json.dumps({"equal": equal, **total, "outside": outside}), flush=True)
        return
    if outside:
        print(f"{outside:,} more records of the archive are before the topic's first offset, or came after the start")
    if sample:
        print(table(list(sample[0]), [[_text(value) for value in row.values()] for row in sample]))
    records = f"{total['records']:,} records of {arguments.subscribe}"
    count = sum(total[kind] for kind in KINDS)
    print(f"equal: {records} and {other}" if equal else f"different: {count:,} of {records}, and {other}", flush=True)


def _text(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value


def draw(path: Path, binned: Sequence[Mapping[str, Any]], of: Sequence[Range], count: int) -> None:
    """Draw a line for each partition, with its differences by offset."""
    places = {(each.topic, each.partition): at for at, each in enumerate(of)}
    title = f"{count:,} differences by offset" if count else "no differences"
    with picture(path, title) as axes:
        axes.hlines(range(len(of)), [each.begin for each in of], [each.end for each in of], colors="#c8c8c8", lw=6)
        for at, (kind, colour) in enumerate(KINDS.items()):
            rows = [row for row in binned if row["kind"] == kind]
            if not rows:
                continue
            total = sum(row["count"] for row in rows)
            lanes = [places.get((row["topic"], row["partition"]), -1) + (at - 2) * 0.12 for row in rows]
            sizes = [min(16 + row["count"], 200) for row in rows]
            axes.scatter(
                [row["from_offset"] for row in rows], lanes, sizes, color=colour, label=f"{kind}: {total:,}", zorder=3
            )
        axes.set_yticks(range(len(of)), [f"{each.topic}-{each.partition}" for each in of])
        axes.set_ylim(-0.6, len(of) - 0.4)
        axes.invert_yaxis()
        axes.set_xlabel("offset")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        if binned:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=len(KINDS), frameon=False)


JOB = Job(
    "verify", options, plan, run, subject=lambda arguments: f"{arguments.subscribe} at {arguments.bootstrap_servers}"
)

if __name__ == "__main__":
    main(JOB)
