"""Alerts from topic to topic: a rule over JSON records, in milliseconds by Spark's Real-time Mode.

The rule: each record for which a condition of Spark SQL is true becomes an alert, with the record, its place and its
time. In Real-time Mode one long task reads each partition and passes on what it reads at once; the end of a batch only
writes the checkpoint. This mode keeps no state in Spark 4.2. What depends on the records before, alerts at the n-th
match within a time or once until a key is clear again, runs in micro-batches, by `transformWithState`.

An alert arrives at least once: those since the last checkpoint come again after a stop. Its `topic`, `partition` and
`offset` are those of the record, by which a reader knows it.

    python -m minibroker.spark_jobs.alerts --subscribe TOPIC --schema 'sensor STRING, celsius DOUBLE' \\
        --rule 'celsius > 80' --topic ALERTS --checkpoint DIR
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import IntegerType, StringType, StructType

from minibroker.spark_jobs import command_lines, query_source, topic_offsets
from minibroker.spark_jobs.command import Job, main, say_batches
from minibroker.spark_jobs.command_lines import REAL_TIME_BATCH
from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.kafka_options import LARGE_RECORDS, broker_options, read, source_options
from minibroker.spark_jobs.query_source import Checkpoint
from minibroker.spark_jobs.report import picture, table

options = command_lines.alerts
SLOTS_SECONDS = 20.0  # for the executors of a cluster to come
LOOK_AGAIN_SECONDS = 0.2
UNREADABLE = "_unreadable"  # the column that from_json fills for what does not have the schema
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
KEY_STATE = "matches_ms ARRAY<BIGINT>, is_alerted BOOLEAN"
MOMENTS = 60  # of a picture
PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "max_ms": 1.0}


class Rule(NamedTuple):
    """When a record becomes an alert."""

    condition: str  # of Spark SQL, over the fields of the records
    schema: StructType
    by: str | None = None  # the key of the state, an expression of Spark SQL; None for the key of the record
    times: int = 1  # so many matches of a key make an alert
    within_ms: float | None = None  # of each other
    once: bool = False  # no further alert of a key until one of its records does not match

    @property
    def has_state(self) -> bool:
        """Whether an alert depends on the records before."""
        return self.times > 1 or self.once


class KeyState(NamedTuple):
    """The state of a key: the times of the matches that count, and whether it has had its alert."""

    matches_ms: tuple[int, ...] = ()
    is_alerted: bool = False


def judge(rule: Rule, state: KeyState, *, is_match: bool, at_ms: int) -> tuple[KeyState, int]:
    """Return a key's state after a record, and how many matches the alert stands for; 0 for no alert."""
    if not is_match:
        return (KeyState() if rule.once else state), 0
    if state.is_alerted:
        return state, 0
    matches = [each for each in state.matches_ms if rule.within_ms is None or at_ms - each <= rule.within_ms]
    matches.append(at_ms)
    if len(matches) < rule.times:
        return KeyState(tuple(matches)), 0
    return KeyState(is_alerted=rule.once), len(matches)


class Alerting(StatefulProcessor):
    """Judges the records of a key in the order of their times; Spark gives those of a micro-batch in any."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._state: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getValueState("key", KEY_STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Yield the alerts of a key in a micro-batch."""
        kept = self._state.get()
        state = KeyState() if kept is None else KeyState(tuple(kept[0]), kept[1])
        for row in sorted(rows, key=lambda row: (row.timestamp_ms, row.topic, row.partition, row.offset)):
            state, matches = judge(self._rule, state, is_match=row.is_match, at_ms=row.timestamp_ms)
            if matches:
                yield Row(**{**row.asDict(), "matches": matches})
        if state != KeyState():
            self._state.update((list(state.matches_ms), state.is_alerted))
        elif kept is not None:
            self._state.clear()

    def close(self) -> None:
        """Release nothing: the state is Spark's."""


def transform(records: DataFrame, rule: Rule) -> DataFrame:
    """Turn records with a JSON `value` into alerts: the record's `key`, and a JSON `value`."""
    schema = StructType([*rule.schema.fields]).add(UNREADABLE, StringType())
    fields = F.from_json(F.col("value").cast("string"), schema, {"columnNameOfCorruptRecord": UNREADABLE})
    is_unreadable = F.col("fields").isNull() | F.col(f"fields.{UNREADABLE}").isNotNull()
    by = F.col("_source.key").cast("string") if rule.by is None else F.expr(rule.by).cast("string")
    judged = (
        records.select(
            fields.alias("fields"), F.struct("key", "topic", "partition", "offset", "timestamp").alias("_source")
        )
        .observe("input", F.count_if(is_unreadable).alias("unreadable"))
        .where(~is_unreadable)
        .select("fields.*", "_source")
        .select(
            by.alias("by"),
            F.coalesce(F.expr(rule.condition).cast("boolean"), F.lit(False)).alias("is_match"),
            "_source.key",
            "_source.topic",
            "_source.partition",
            "_source.offset",
            F.unix_millis("_source.timestamp").alias("timestamp_ms"),
            F.struct(*rule.schema.fieldNames()).alias("record"),
        )
    )
    if not rule.once:
        judged = judged.where("is_match")
    if rule.has_state:
        alerts = StructType([*judged.schema.fields]).add("matches", IntegerType())
        judged = judged.groupBy("by").transformWithState(Alerting(rule), alerts, "Update", "None")
    else:
        judged = judged.withColumn("matches", F.lit(1))
    columns = ("matches", "topic", "partition", "offset", "timestamp_ms", "record")
    return judged.select("key", F.to_json(F.struct(F.lit(rule.condition).alias("rule"), *columns)).alias("value"))


def write(alerts: DataFrame, options: dict[str, str], *, checkpoint: str, trigger: dict[str, Any]) -> StreamingQuery:
    """Start writing to the Kafka sink with these options; `trigger` is as `DataStreamWriter.trigger` has it."""
    writer = alerts.writeStream.queryName("alerts").format("kafka").options(**options).outputMode("update")
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()


def rule_of(arguments: argparse.Namespace) -> Rule:
    """Return the rule that the command line has. Raises JobFailed."""
    schema: Any = None
    with suppress(PySparkException):
        schema = StructType.fromDDL(arguments.schema)
    if not isinstance(schema, StructType):
        raise JobFailed(
            f"--schema: {arguments.schema!r} is no schema; give one such as 'sensor STRING, celsius DOUBLE'"
        )
    within_ms = None if arguments.within is None else arguments.within * 1000
    return Rule(arguments.rule, schema, arguments.by, arguments.times, within_ms, arguments.once)


def trigger_of(arguments: argparse.Namespace, rule: Rule) -> dict[str, Any]:
    """Return the trigger that the command line has: Real-time Mode, if nothing else is said. Raises JobFailed."""
    if arguments.available_now:
        return {"availableNow": True}
    if arguments.processing_time is not None:
        return {"processingTime": arguments.processing_time}
    if rule.has_state:
        raise JobFailed(
            "--times and --once need state, and Spark 4.2 has none in Real-time Mode; add --processing-time '0 seconds'"
        )
    return {"realTime": arguments.real_time or REAL_TIME_BATCH}


def plan(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Read and transform as the command line has it; nothing runs yet."""
    return transform(read(spark, source_options(arguments)), rule_of(arguments))


def run(spark: SparkSession, arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Run one query until `stop` is set or it ends; print a line for each batch, and the latency of all alerts."""
    rule = rule_of(arguments)
    trigger = trigger_of(arguments, rule)
    kafka = broker_options(arguments)
    begin = _end_of(spark, kafka, arguments.topic)
    topics = query_source.check(spark, arguments, Checkpoint(spark, arguments.checkpoint))
    if "realTime" in trigger:
        _require_slots(spark, sum(len(each.partitions) for each in topics.values()))
    if rule.has_state:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    sink = {**LARGE_RECORDS, **kafka, "topic": arguments.topic}
    query = write(plan(spark, arguments), sink, checkpoint=arguments.checkpoint, trigger=trigger)
    if arguments.seconds is not None:
        timer = threading.Timer(arguments.seconds, stop.set)
        timer.daemon = True
        timer.start()
    say_batches(query, arguments, stop)
    since = json.dumps({arguments.topic: begin})
    source = kafka | {"subscribe": arguments.topic, "startingOffsets": since}
    _report(latencies(spark.read.format("kafka").options(**source).load(), rule), arguments, trigger)
    return 0


def _end_of(spark: SparkSession, kafka: dict[str, str], topic: str) -> dict[int, int]:
    """The end of each partition of the topic of the alerts. Raises JobFailed if it is missing."""
    found = topic_offsets.described(spark, kafka, [topic])
    if not found:
        create = f"minibroker topics create {topic} --config message.timestamp.type=LogAppendTime"
        raise JobFailed(f"topic {topic} does not exist; create it, such as by `{create}`")
    return topic_offsets.offsets(spark, kafka, {topic: found[topic].partitions})[1][topic]


def _require_slots(spark: SparkSession, partitions: int) -> None:
    """Raise JobFailed unless Spark has a task slot for each partition: without, one would wait for a batch to end."""
    is_local = str(spark.sparkContext.master).startswith("local")
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    deadline = time.monotonic() + SLOTS_SECONDS
    while (slots := context.maxNumConcurrentTasks(profile)) < partitions:
        if is_local or time.monotonic() > deadline:
            raise JobFailed(
                f"Real-time Mode needs a task slot for each of {partitions} partitions, and Spark has {slots}; "
                f"give it more cores (--master 'local[{partitions}]'), or add --processing-time '0 seconds'"
            )
        time.sleep(LOOK_AGAIN_SECONDS)


def latencies(alerts: DataFrame, rule: Rule) -> DataFrame:
    """How long each alert of a rule took, from the record's timestamp to that of the alert: `at_ms`, `ms`.

    Without those of records that had waited for Spark: records from before the first alert.
    """
    value = F.from_json(F.col("value").cast("string"), "rule STRING, timestamp_ms BIGINT").alias("value")
    took = (
        alerts.select(value, F.unix_millis("timestamp").alias("at_ms"))
        .where(F.col("value.rule") == rule.condition)
        .select("at_ms", F.col("value.timestamp_ms").alias("record_ms"))
    )
    first = took.agg(F.min("at_ms").alias("first_ms"))
    return (
        took.crossJoin(F.broadcast(first)).where("record_ms >= first_ms").selectExpr("at_ms", "at_ms - record_ms AS ms")
    )


def _report(took: DataFrame, arguments: argparse.Namespace, trigger: dict[str, Any]) -> None:
    """Print the latency of the alerts in a table, and draw it over time."""
    took = took.cache()
    found = took.agg(
        F.count("ms").alias("alerts"), *_percentiles(), F.min("at_ms").alias("first"), F.max("at_ms").alias("last")
    ).first()
    assert found is not None
    latency = {name: found[name] for name in ("alerts", *PERCENTILES)}
    if arguments.json:
        print(json.dumps({"latency": latency}), flush=True)
    elif latency["alerts"]:
        print(f"from the record's time to its alert's in {arguments.topic}, since Spark runs:")
        print(table([name.replace("_", " ") for name in latency], [list(latency.values())]), flush=True)
    if arguments.picture is not None and latency["alerts"]:
        step_ms = max((found["last"] - found["first"]) / MOMENTS, 1.0)
        moment = F.floor((F.col("at_ms") - found["first"]) / step_ms)
        rows = took.groupBy(moment.alias("moment")).agg(*_percentiles()).orderBy("moment").collect()
        draw(rows, latency, seconds_each=step_ms / 1000, trigger=trigger, path=arguments.picture)
    took.unpersist()


def _percentiles() -> list[Column]:
    return [F.percentile("ms", share).alias(name) for name, share in PERCENTILES.items()]


def draw(
    rows: Sequence[Row], latency: dict[str, Any], *, seconds_each: float, trigger: dict[str, Any], path: Path
) -> None:
    """Draw the percentiles of each moment of a run."""
    ((mode, every),) = trigger.items()
    how = "in Real-time Mode" if mode == "realTime" else f"in micro-batches ({mode} {every})"
    title = f"From record to alert {how}: {latency['p50_ms']:,.0f} ms at the median, {latency['p99_ms']:,.0f} ms at p99"
    with picture(path, title) as axes:
        seconds = [row.moment * seconds_each for row in rows]
        for name in PERCENTILES:
            axes.plot(seconds, [max(row[name], 1) for row in rows], label=name.removesuffix("_ms"), marker=".")
        axes.fill_between(
            seconds, [max(row.p50_ms, 1) for row in rows], [max(row.p99_ms, 1) for row in rows], alpha=0.15
        )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_ylabel("ms")
        axes.set_xlabel(f"seconds since the first of {latency['alerts']:,} alerts")
        axes.legend(loc="upper right", ncols=len(PERCENTILES))


JOB = Job("alerts", options, plan, run)

# The state's class travels to the executors, which need nothing of this package.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

if __name__ == "__main__":
    main(JOB)
