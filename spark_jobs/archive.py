"""Keep topics as Parquet, hour by hour: each record once, whole, and what cannot be read or comes late apart.

The rule: `read` knows Kafka, `transform` knows what a value holds, `write` knows files. An archive is two tables,
`records` and `quarantine`, partitioned by topic, date and hour of the record's timestamp (UTC). Each record is in one
of them, with its key, value, headers, timestamp, partition and offset as they came; `record` is the value decoded.
Each micro-batch is committed as Spark's file sink does (`sink_table.py`), and each run continues from its checkpoint.

    python -m minibroker.spark_jobs.archive --bootstrap-servers HOST:PORT --subscribe TOPIC --output DIR
"""

from __future__ import annotations

import argparse
import json
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructType

from minibroker.spark_jobs import command_lines, query_source
from minibroker.spark_jobs.command import Job, main
from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.hadoop_files import HadoopFiles
from minibroker.spark_jobs.kafka_options import read, source_options
from minibroker.spark_jobs.micro_batches import micro_batches, sentence, start
from minibroker.spark_jobs.query_source import Checkpoint
from minibroker.spark_jobs.report import picture, say, say_rows, shortened
from minibroker.spark_jobs.sink_table import QUERY, Compacted, SinkTable
from minibroker.spark_jobs.subjects import Subjects

options = command_lines.archive
RECORDS = "records"
QUARANTINE = "quarantine"
REASONS = ("late", "unreadable")
FRAME_BYTES = 5  # of Confluent's serializers: a zero, and the schema's id in four bytes
UNPARSED = "_unparsed"
# How many micro-batches lie between two summaries of the sink's log, which is what can be compacted.
COMPACT_EVERY = 10
TOPICS_SHOWN = 5  # in a picture: so many colours differ
DATE = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)")
COLOURS = {"late": "#9b9b9b", "unreadable": "#222222"}


class Values(NamedTuple):
    """How values are decoded; `schema` is a schema of Spark's (DDL or JSON) for JSON, Avro's for Avro."""

    format: str = "bytes"
    schema: str | None = None
    writer_schemas: Mapping[int, str] = {}
    framing: str = "auto"

    def columns(self) -> dict[str, Column]:
        """Return the columns of the decoded value; `record` is null where it cannot be read."""
        value = F.col("value")
        if self.format == "bytes":
            return {}
        if self.framing == "none":
            return {"record": self._decoded(value)}
        framed = (F.length(value) >= FRAME_BYTES) & (F.substring(value, 1, 1) == F.lit(bytearray(1)))
        schema_id = F.when(framed, F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).cast("int"))
        body = F.when(framed, F.expr(f"substring(value, {FRAME_BYTES + 1})"))
        record = self._decoded(body)
        if self.writer_schemas:
            written = self.writer_schemas.items()
            record = F.coalesce(*(F.when(schema_id == key, self._decoded(body, schema)) for key, schema in written))
        if self.framing == "auto":
            record = F.when(framed, record).otherwise(self._decoded(F.when(~framed, value)))
        return {"schema_id": schema_id, "record": record}

    def _decoded(self, content: Column, written: str | None = None) -> Column:
        assert self.schema is not None
        if self.format == "avro":
            # As the one field of a record, which is spelled the same in bytes: what cannot be read is then null, and
            # not a record of nulls.
            options = {"mode": "PERMISSIVE", "avroSchema": _in_a_record(self.schema)}
            return from_avro(content, _in_a_record(written or self.schema), options)["record"]
        is_json = self.schema.lstrip().startswith("{")
        schema = StructType.fromJson(json.loads(self.schema)) if is_json else StructType.fromDDL(self.schema)
        if not isinstance(schema, StructType):
            raise TypeError(f"{schema} has no fields")
        parsed = F.from_json(
            content.cast("string"),
            schema.add(UNPARSED, StringType()),
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNPARSED},
        )
        return F.when(parsed[UNPARSED].isNull(), parsed.dropFields(UNPARSED))


BYTES = Values()


def _in_a_record(schema: str) -> str:
    field = {"name": "record", "type": json.loads(schema)}
    return json.dumps({"type": "record", "name": "OneField", "fields": [field]})


def transform(records: DataFrame, values: Values = BYTES, *, late_before: Column | None = None) -> DataFrame:
    """Give each record its hour, its decoded value and, if it belongs in quarantine, the reason.

    A record without a value has nothing to read. Of a record that is late and unreadable, the latter is the reason.
    """
    kept = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
    decoded = records.select(*kept, *(column.alias(name) for name, column in values.columns().items()))
    reason = F.lit(None).cast("string")
    if late_before is not None:
        reason = F.when(F.col("timestamp") < late_before, "late").otherwise(reason)
    if "record" in decoded.columns:
        reason = F.when(F.col("record").isNull() & F.col("value").isNotNull(), "unreadable").otherwise(reason)
    hour = {"date": F.to_date("timestamp"), "hour": F.hour("timestamp")}
    return decoded.select("*", reason.alias("reason"), *(column.alias(name) for name, column in hour.items()))


class Archive:
    """The two tables below one folder, and the files that this run has written."""

    def __init__(self, spark: SparkSession, output: str) -> None:
        self.records = SinkTable(spark, f"{output}/{RECORDS}")
        self.quarantine = SinkTable(spark, f"{output}/{QUARANTINE}")
        self.files = HadoopFiles(spark, output)
        self.counted: dict[int, dict[str, int]] = {}  # by micro-batch: its records, and those of each reason

    def add(self, batch: int, records: DataFrame, *, quarantine_used: bool) -> None:
        """Write a micro-batch to the tables. The same one again changes nothing."""
        reason = F.col("reason")
        if not quarantine_used:
            self.records.add(batch, records.drop("reason"))
            self.quarantine.add_nothing(batch)
            return
        counts = [F.count_if(reason == name).alias(name) for name in REASONS]
        counted = records.observe("counted", F.count(F.lit(1)).alias("records"), *counts)
        good = counted.where(reason.isNull()).drop("reason")
        # Nothing is known yet of a batch that the records had before a crash.
        written = self.records.add(batch, good)
        known = None if written is None else _observed(written)
        if known is not None:
            self.counted[batch] = known
        if known is not None and not any(known[name] for name in REASONS):
            self.quarantine.add_nothing(batch)
            return
        apart = self.quarantine.add(batch, counted.where(reason.isNotNull()))
        if apart is not None and known is None:
            self.counted[batch] = _observed(apart)

    def hours(self) -> list[dict[str, Any]]:
        """Count what the tables hold by topic, hour and fate: `archived`, or the reason of quarantine."""
        found = []
        for each, fate in ((self.records, F.lit("archived")), (self.quarantine, F.col("reason"))):
            rows = each.read()
            if rows is not None:
                counted = rows.groupBy("topic", "date", "hour", fate.alias("fate")).count()
                found += [row.asDict() for row in counted.collect()]
        return sorted(found, key=lambda row: (row["topic"], _day(row["date"]), row["hour"], row["fate"]))


def _day(date: str) -> tuple[int, ...]:
    """Year, month and day; a year may have a sign, and more than four digits."""
    found = DATE.fullmatch(date)
    return tuple(map(int, found.groups())) if found else ()


def _observed(written: DataFrame) -> dict[str, int]:
    metrics: Any = written._jdf.queryExecution().observedMetrics().get("counted")
    return {name: int(metrics.get().getLong(at)) for at, name in enumerate(("records", *REASONS))}


class Writer(NamedTuple):
    """The writing of each micro-batch."""

    archive: Archive
    checkpoint: Checkpoint
    values: Values
    subjects: Subjects | None
    watermark: str | None
    compact_below_bytes: int | None
    keep_replaced_seconds: float
    failures: list[Exception]

    def start(self, records: DataFrame, *, every_seconds: float | None) -> StreamingQuery:
        """Start writing: the present records, or every so many seconds for ever."""
        if self.watermark is not None:
            records = records.withWatermark("timestamp", self.watermark)
        writer = records.writeStream.queryName("archive").foreachBatch(self._noting_failures)
        return start(writer, checkpoint=self.checkpoint.files.folder, every_seconds=every_seconds)

    def _noting_failures(self, records: DataFrame, batch: int) -> None:
        # What Spark makes of an exception in here is a trace of text.
        try:
            self._write(records, batch)
        except Exception as failure:
            self.failures.append(failure)
            raise

    def _write(self, records: DataFrame, batch: int) -> None:
        late_before = None
        if self.watermark is not None:
            late_before = F.timestamp_millis(F.lit(self.checkpoint.watermark_ms(batch)))
        values = self.values
        if self.subjects is not None:  # a value of this batch may have a schema that is younger than the last one
            values = values._replace(writer_schemas=self.subjects.schemas())
        rows = transform(records, values, late_before=late_before)
        self.archive.add(batch, rows, quarantine_used=late_before is not None or "record" in rows.columns)
        if (batch + 1) % COMPACT_EVERY == 0:
            self.compact()

    def compact(self) -> Compacted:
        """Merge small files of both tables, if asked to."""
        files = into = 0
        for each in (self.archive.records, self.archive.quarantine) if self.compact_below_bytes else ():
            assert self.compact_below_bytes is not None
            done = each.compact(below_bytes=self.compact_below_bytes, keep_replaced_seconds=self.keep_replaced_seconds)
            files, into = files + done.files, into + done.into
        return Compacted(files, into)


def subjects_of(arguments: argparse.Namespace) -> Subjects | None:
    """Return what `--schema-registry` asks for. Raises JobFailed."""
    if arguments.schema_registry is None:
        return None
    if arguments.value_format != "avro" or arguments.writer_schema or arguments.framing == "none":
        raise JobFailed(
            "--schema-registry needs --value-format avro, has the writer schemas, and finds them by framing"
        )
    if arguments.subscribe is None:
        raise JobFailed("--schema-registry needs --subscribe, since the subjects are TOPIC-value")
    names = [f"{topic.strip()}-value" for topic in arguments.subscribe.split(",")]
    if len(names) > 1 and arguments.schema is None:
        raise JobFailed("several topics may have different schemas: give --schema FILE, which all are read into")
    return Subjects(arguments.schema_registry, names)


def values_of(arguments: argparse.Namespace, subjects: Subjects | None) -> Values:
    """Translate the options of values; what they leave to the registry is of this moment. Raises JobFailed."""
    written = dict(arguments.writer_schema) if subjects is None else subjects.schemas()
    schema = arguments.schema
    if schema is None and subjects is not None:
        schema = list(written.values())[-1]
    if (arguments.value_format == "bytes") != (schema is None):
        raise JobFailed("--value-format json or avro and --schema FILE need each other")
    if arguments.writer_schema and arguments.value_format != "avro":
        raise JobFailed("--writer-schema is for --value-format avro")
    values = Values(arguments.value_format, schema, written, arguments.framing)
    try:
        values.columns()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        kind = "Avro" if arguments.value_format == "avro" else "Spark"
        raise JobFailed(f"a schema of {kind} is needed, and this is none: {error}") from error
    return values


def records_of(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Open the stream that the command line has, with headers."""
    return read(spark, source_options(arguments) | {"includeHeaders": "true"})


def plan(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Read and transform as the command line has it; nothing runs yet."""
    return transform(records_of(spark, arguments), values_of(arguments, subjects_of(arguments)))


def run(spark: SparkSession, arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Archive until there is no more or `stop` is set; print a line about each micro-batch, and a table."""
    subjects = subjects_of(arguments)
    values = values_of(arguments, subjects)
    transform(records_of(spark, arguments), values)  # fails here if a schema does
    checkpoint = Checkpoint(spark, arguments.checkpoint or f"{arguments.output}/_checkpoint")
    archive = Archive(spark, arguments.output)
    _check_they_belong_together(archive, checkpoint)
    query_source.check(spark, arguments, checkpoint)
    writer = Writer(
        archive,
        checkpoint,
        values,
        subjects,
        arguments.watermark,
        arguments.compact_below,
        arguments.keep_replaced_hours * 3600,
        failures=[],
    )
    query = writer.start(records_of(spark, arguments), every_seconds=arguments.continuous)
    archive.files.replace(QUERY, str(query.id))
    try:
        so_far = 0
        for facts in micro_batches(query, stop=stop):
            # A batch that is read for both tables counts twice for Spark.
            facts |= dict.fromkeys(REASONS, 0) | archive.counted.pop(facts["batch"], {})
            so_far += facts["records"]
            facts["records_so_far"] = so_far
            say(arguments, facts, sentence(facts, left_out=REASONS, fate="in quarantine"))
    except PySparkException as failure:
        if writer.failures and not isinstance(writer.failures[0], PySparkException | Py4JError):
            raise JobFailed(str(writer.failures[0])) from writer.failures[0]
        raise (writer.failures or [failure])[0] from None
    done = writer.compact()
    if done.files:
        say(arguments, {"compacted": done._asdict()}, f"compacted {done.files:,} files into {done.into:,}")
    _report(archive.hours(), arguments)
    return 0


def _check_they_belong_together(archive: Archive, checkpoint: Checkpoint) -> None:
    """A new checkpoint counts from 0, and the sink takes numbers that it has for batches that came again."""
    planned, done = checkpoint.last("offsets"), checkpoint.last("commits")
    for each in (archive.records, archive.quarantine):
        if each.last_batch() > planned:
            raise JobFailed(
                f"{each.files.folder} has micro-batches that {checkpoint.files.folder} knows nothing of;"
                " give the checkpoint that it was written with, or another --output"
            )
        if each.last_batch() < done:
            raise JobFailed(
                f"{each.files.folder} lacks micro-batches that {checkpoint.files.folder} has done;"
                " give the --output that it wrote, or another --checkpoint"
            )


def _report(hours: Sequence[Mapping[str, Any]], arguments: argparse.Namespace) -> None:
    fates = ("archived", *REASONS)
    rows = []
    for topic in sorted({row["topic"] for row in hours}):
        of_topic = [row for row in hours if row["topic"] == topic]
        counts = [sum(row["count"] for row in of_topic if row["fate"] == fate) for fate in fates]
        first, last = (f"{row['date']} {row['hour']:02}:00" for row in (of_topic[0], of_topic[-1]))
        rows.append([topic, *counts, first, last])
    say_rows(arguments, ["topic", *fates, "first hour", "last hour"], rows)
    if arguments.picture is not None and hours:
        draw(arguments.picture, hours)


def draw(path: Path, hours: Sequence[Mapping[str, Any]]) -> None:
    """Draw records by hour, stacked by topic, and those in quarantine on top."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    archived: Counter[str] = Counter()
    for row in hours:
        archived[row["topic"]] += row["count"] if row["fate"] == "archived" else 0
    drawn = [row for row in hours if MINYEAR <= _day(row["date"])[0] <= MAXYEAR]  # Python has no other years
    shown = [topic for topic, _ in archived.most_common(TOPICS_SHOWN)]
    others = f"{len(archived) - len(shown)} more"
    counted: dict[str, Counter[float]] = {label: Counter() for label in [*shown, others, *COLOURS]}
    for row in drawn:
        begins = float(date2num(datetime.fromisoformat(row["date"]) + timedelta(hours=row["hour"])))  # type: ignore[no-untyped-call]
        label = row["fate"] if row["fate"] != "archived" else row["topic"] if row["topic"] in shown else others
        counted[label][begins] += row["count"]
    below: Counter[float] = Counter()
    total = sum(row["count"] for row in hours)
    outside = total - sum(row["count"] for row in drawn)
    title = f"{total:,} records by hour (UTC)" + (
        f", {outside:,} of them outside of the years drawn" if outside else ""
    )
    with picture(path, title) as axes:
        for label, counts in counted.items():
            if counts:
                name = f"quarantine: {label}" if label in COLOURS else shortened(label)
                bottom, colour = [below[begins] for begins in counts], COLOURS.get(label)
                axes.bar(list(counts), list(counts.values()), 1 / 24, bottom, align="edge", label=name, color=colour)
                below.update(counts)
        if below:
            margin = (max(below) - min(below) + 1) / 20
            first, last = (float(date2num(each)) for each in (datetime.min, datetime(MAXYEAR, 12, 31)))  # type: ignore[no-untyped-call]
            axes.set_xlim(max(min(below) - margin, first), min(max(below) + margin, last))
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.set_ylabel("records an hour")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, reverse=True)


JOB = Job("archive", options, plan, run)

if __name__ == "__main__":
    main(JOB)
