"""Brings `Sending.java` to Spark's executors, which sends what a replay sends, and runs it there.

The rule: the JVM that reads a record sends it, with the Kafka client of Spark's connector: nothing goes through Python.
Spark's own compiler (Janino) compiles the source, as it does the code of queries; executors get a jar of it.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

SOURCE = Path(__file__).with_name("Sending.java")
# In the order in which `Sending.java` reads them; a survey needs the first of them only.
SURVEYED = ("topic", "lane", "position", "to_partition", "timestamp_ms")
COLUMNS = (*SURVEYED, "key", "value", "headers")
SENT = ("at_ms", "records", "skipped", "planned_ms", "late_ms")
NO_TIME = (1 << 63) - 1  # Long.MAX_VALUE
COMMIT_EVERY_SECONDS = 1.0
COMMIT_EVERY_RECORDS = 100_000


class Pace(NamedTuple):
    """When a record is due: at `starts_at_seconds` of the clock the one of `first_ms`, the others as far from it."""

    starts_at_seconds: float
    first_ms: int
    times: float


class Sender(NamedTuple):
    """How to send, with the settings of Java's producer."""

    producer: Mapping[str, str]
    group: str
    source: str  # beside each offset, so that nobody takes the progress of other rows for that of his
    transactional: bool
    pace: Pace | None

    def __call__(self, rows: DataFrame, turns: str | None = None) -> list[dict[str, Any]]:
        """Send rows of COLUMNS, each lane in one task; return what each commit of a lane sent.

        With `turns` a task reads the partitions of the rows in that order.
        """
        code = _code(rows.sparkSession)
        pace = self.pace or Pace(time.time(), 0, 0)
        function = code(
            dict(self.producer),
            self.group,
            self.source,
            self.transactional,
            float(pace.times),
            int(pace.starts_at_seconds * 1000),
            pace.first_ms,
            COMMIT_EVERY_RECORDS,
            int(COMMIT_EVERY_SECONDS * 1000),
        )
        read = _rows(rows, COLUMNS)
        if turns is not None:
            jvm: Any = rows.sparkSession.sparkContext._jvm
            read = read.coalesce(turns.count(" ") + 1, False, jvm.scala.Option.apply(code.Turns(turns)), None)
        found = []
        for line in read.toJavaRDD().mapPartitions(function).collect():
            topic, lane, *counts = line.split("\t")
            found.append({"topic": topic, "lane": int(lane), **dict(zip(SENT, map(int, counts), strict=True))})
        return found


class Surveyed(NamedTuple):
    """The records of a lane in a partition of the rows, such as a file."""

    partition: int
    topic: str
    lane: int
    to_partition: int | None
    records: int
    first: int  # position
    last: int
    in_order: bool
    first_ms: int | None  # of those that have a time
    early: int = 0  # before 1970, but for -1, which Kafka has for no time


def survey(rows: DataFrame) -> list[Surveyed]:
    """Look through all rows, without what is in them."""
    function = _code(rows.sparkSession).Survey()
    found = []
    for line in _rows(rows, SURVEYED).toJavaRDD().mapPartitions(function).collect():
        partition, topic, *numbers = line.split("\t")
        lane, to_partition, records, first, last, in_order, first_ms, early = map(int, numbers)
        to = None if to_partition < 0 else to_partition
        begins = None if first_ms == NO_TIME else first_ms
        found.append(Surveyed(int(partition), topic, lane, to, records, first, last, bool(in_order), begins, early))
    return found


def turns(surveyed: Sequence[Surveyed]) -> str | None:
    """Return which partitions of the rows to read one after the other, so that each lane is in order, by task.

    None if that takes sorting: a partition is not in order, has several lanes, or overlaps with another of its lane.
    """
    ordered = sorted(surveyed, key=lambda each: (each.topic, each.lane, each.first))
    if not all(each.in_order for each in ordered) or len({each.partition for each in ordered}) < len(ordered):
        return None
    tasks = []
    for _, lane in groupby(ordered, key=lambda each: (each.topic, each.lane)):
        pieces = list(lane)
        if any(after.first <= before.last for before, after in pairwise(pieces)):
            return None
        tasks.append(",".join(str(each.partition) for each in pieces))
    return " ".join(tasks)


def _rows(rows: DataFrame, columns: Sequence[str]) -> Any:
    """The rows as Spark has them, in its RDD."""
    return rows.select(*columns)._jdf.queryExecution().toRdd()


def _code(spark: SparkSession) -> Any:
    """The class of `Sending.java`, compiled and known to the executors."""
    context = spark.sparkContext
    jvm: Any = context._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    jar = Path(context._temp_dir) / "minibroker-sending.jar"
    if not jar.exists():
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(SOURCE.read_text(encoding="utf-8"))
        with zipfile.ZipFile(jar, "w") as classes:
            for name, code in compiler.getBytecodes().items():
                classes.writestr(f"{name.replace('.', '/')}.class", bytes(code))
        context._jsc.addJar(str(jar))
        loader.addURL(jvm.java.net.URI(jar.as_uri()).toURL())
    return jvm.minibroker.Sending
