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
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructType

from minibroker.spark_jobs import topic_offsets
from minibroker.spark_jobs.command import Job, JobFailed, job_parser, main, say
from minibroker.spark_jobs.hadoop_files import HadoopFiles
from minibroker.spark_jobs.kafka_options import add_source, source_options, topics_of
from minibroker.spark_jobs.micro_batches import micro_batches, sentence
from minibroker.spark_jobs.report import picture, shortened, table
from minibroker.spark_jobs.sink_table import Compacted, SinkTable

RECORDS = "records"
QUARANTINE = "quarantine"
REASONS = ("late", "unreadable")
FRAMING = ("auto", "confluent", "none")
FORMATS = ("bytes", "json", "avro")
FRAME_BYTES = 5  # of Confluent's serializers: a zero, and the schema's id in four bytes
UNPARSED = "_unparsed"
# How many micro-batches lie between two summaries of the sink's log, which is what can be compacted.
COMPACT_EVERY = 10
TOPICS_SHOWN = 5  # in a picture: so many colours differ
COLOURS = {"late": "#9b9b9b", "unreadable": "#222222"}
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


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
        assert isinstance(schema, StructType)
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


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Open the stream of a Kafka source with these options, named as Spark names them."""
    return spark.readStream.format("kafka").options(**options, includeHeaders="true").load()


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
    """The two tables below one folder, and what is known of what was written in this run."""

    def __init__(self, spark: SparkSession, output: str) -> None:
        self.records = SinkTable(spark, f"{output}/{RECORDS}")
        self.quarantine = SinkTable(spark, f"{output}/{QUARANTINE}")
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
        return sorted(found, key=lambda row: (row["topic"], row["date"], row["hour"], row["fate"]))


def _observed(written: DataFrame) -> dict[str, int]:
    metrics: Any = written._jdf.queryExecution().observedMetrics().get("counted")
    return {name: int(metrics.get().getLong(at)) for at, name in enumerate(("records", *REASONS))}


class Checkpoint:
    """A query's notes of its way through the topics."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.files = HadoopFiles(spark, folder)

    def last(self, kind: str) -> int:
        """Return the number of the last micro-batch that is planned (`offsets`) or done (`commits`), or -1."""
        return max((int(name) for name in self.files.names(kind) if name.isdigit()), default=-1)

    def watermark_ms(self, batch: int) -> int:
        """Return the watermark with which a micro-batch was planned; it is the same when the batch comes again."""
        return int(json.loads(self.files.read(f"offsets/{batch}").splitlines()[1])["batchWatermarkMs"])

    def offsets(self, batch: int) -> topic_offsets.Offsets:
        """Return where the micro-batch ended, by topic and partition."""
        planned = json.loads(self.files.read(f"offsets/{batch}").splitlines()[2])
        return {topic: {int(number): at for number, at in ends.items()} for topic, ends in planned.items()}


class Lost(NamedTuple):
    """Records that were gone before they were archived."""

    topic: str
    partition: int
    first: int
    next: int  # where the partition goes on now

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        if self.next < self.first:
            return f"{where}: made anew: it was archived up to offset {self.first:,}, and now ends at {self.next:,}"
        count = self.next - self.first
        return (
            f"{where}: offsets {self.first:,} to {self.next - 1:,} ({count:,}) were deleted before they were archived"
        )


def lost(
    reached: topic_offsets.Offsets, earliest: topic_offsets.Offsets, latest: topic_offsets.Offsets
) -> Iterator[Lost]:
    """Compare where an archive has come to with what the topics still have."""
    for topic, ends in reached.items():
        for partition, offset in ends.items():
            begin, end = (each.get(topic, {}).get(partition, 0) for each in (earliest, latest))
            if end < offset:
                yield Lost(topic, partition, offset, end)
            elif begin > offset:
                yield Lost(topic, partition, offset, begin)


class Writer(NamedTuple):
    """The writing of each micro-batch."""

    archive: Archive
    checkpoint: Checkpoint
    values: Values
    watermark: str | None
    compact_below_bytes: int | None
    keep_replaced_seconds: float
    failures: list[Exception]

    def start(self, records: DataFrame, *, every_seconds: float | None) -> StreamingQuery:
        """Start writing: the present records, or every so many seconds for ever."""
        if self.watermark is not None:
            records = records.withWatermark("timestamp", self.watermark)
        writer = records.writeStream.queryName("archive").foreachBatch(self._noting_failures)
        writer = writer.option("checkpointLocation", self.checkpoint.files.folder)
        if every_seconds is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{every_seconds} seconds").start()

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
        rows = transform(records, self.values, late_before=late_before)
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


def options() -> argparse.ArgumentParser:
    """Describe the command line."""
    cli = job_parser("archive", "Topics to Parquet by topic, date and hour; each record once.")
    add_source(cli)
    cli.add_argument("--output", required=True, metavar="DIR", help="where the tables records and quarantine are")
    cli.add_argument("--checkpoint", metavar="DIR", help="from which a later run continues; default: in OUTPUT")
    cli.add_argument("--continuous", type=float, metavar="SECONDS", help="run for ever, with a micro-batch this often")
    cli.add_argument("--picture", type=Path, metavar="FILE.png", help="draw records by hour and topic")
    values = cli.add_argument_group("values")
    values.add_argument("--value-format", choices=FORMATS, default="bytes", help="decode values; bytes are kept anyway")
    values.add_argument("--schema", type=_text_of, metavar="FILE", help="of JSON: Spark's DDL or JSON; of Avro: Avro's")
    values.add_argument(
        "--writer-schema",
        type=_writer_schema,
        action="append",
        default=[],
        metavar="ID=FILE",
        help="Avro schema of the values framed with this id; without any, all are read by --schema",
    )
    values.add_argument(
        "--framing", choices=FRAMING, default="auto", help="Confluent's five bytes before a value: where found, always"
    )
    values.add_argument("--watermark", metavar="TIME", help="quarantine records this much older than the newest before")
    files = cli.add_argument_group("small files")
    files.add_argument("--compact-below", type=_bytes, metavar="SIZE", help="merge small files into such of 128m, say")
    files.add_argument("--keep-replaced-hours", type=float, default=24, metavar="HOURS", help="for readers under way")
    return cli


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"cannot read {path}: {error}") from error


def _writer_schema(text: str) -> tuple[int, str]:
    identifier, equals, path = text.partition("=")
    if not equals or not identifier.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not ID=FILE")
    return int(identifier), _text_of(path)


def _bytes(text: str) -> int:
    number, unit = (text[:-1], UNITS[text[-1].lower()]) if text[-1:].lower() in UNITS else (text, 1)
    if not number.isdigit() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 128m")
    return int(number) * unit


def values_of(arguments: argparse.Namespace) -> Values:
    """Translate the options of values. Raises JobFailed."""
    if (arguments.value_format == "bytes") != (arguments.schema is None):
        raise JobFailed("--value-format json or avro and --schema FILE need each other")
    if arguments.writer_schema and arguments.value_format != "avro":
        raise JobFailed("--writer-schema is for --value-format avro")
    return Values(arguments.value_format, arguments.schema, dict(arguments.writer_schema), arguments.framing)


def plan(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Read and transform as the command line has it; nothing runs yet."""
    return transform(read(spark, source_options(arguments)), values_of(arguments))


def run(spark: SparkSession, arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Archive until there is no more or `stop` is set; print a line about each micro-batch, and a table."""
    plan(spark, arguments)  # fails here if a schema does
    checkpoint = Checkpoint(spark, arguments.checkpoint or f"{arguments.output}/_checkpoint")
    archive = Archive(spark, arguments.output)
    _check_they_belong_together(archive, checkpoint)
    _check_nothing_is_lost(spark, checkpoint, arguments)
    writer = Writer(
        archive,
        checkpoint,
        values_of(arguments),
        arguments.watermark,
        arguments.compact_below,
        arguments.keep_replaced_hours * 3600,
        failures=[],
    )
    query = writer.start(read(spark, source_options(arguments)), every_seconds=arguments.continuous)
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


def _check_nothing_is_lost(spark: SparkSession, checkpoint: Checkpoint, arguments: argparse.Namespace) -> None:
    """Compare the checkpoint with the topics. Raises JobFailed, unless it may lose records."""
    done = checkpoint.last("commits")
    if done < 0:
        return
    reached = checkpoint.offsets(done)
    asked = source_options(arguments)
    try:
        existing = topic_offsets.partitions(spark, asked, reached)
        found = list(lost(reached, *topic_offsets.offsets(spark, asked, existing)))
    except ConnectionError as error:
        raise JobFailed(str(error)) from error
    for each in found:
        say(arguments, {"lost": each._asdict()}, f"lost: {each}")
    if found and arguments.fail_on_data_loss == "true":
        raise JobFailed(f"{found[0]}; go on without them with --fail-on-data-loss false")


def _report(hours: Sequence[Mapping[str, Any]], arguments: argparse.Namespace) -> None:
    fates = ("archived", *REASONS)
    rows = []
    for topic in sorted({row["topic"] for row in hours}):
        of_topic = [row for row in hours if row["topic"] == topic]
        counts = [sum(row["count"] for row in of_topic if row["fate"] == fate) for fate in fates]
        first, last = (f"{row['date']} {row['hour']:02}:00" for row in (of_topic[0], of_topic[-1]))
        rows.append([topic, *counts, first, last])
    head = ["topic", *fates, "first hour", "last hour"]
    if arguments.json:
        for row in rows:
            print(json.dumps(dict(zip(head, row, strict=True))), flush=True)
    else:
        print(table(head, rows), flush=True)
    if arguments.picture is not None and hours:
        draw(arguments.picture, hours)


def draw(path: Path, hours: Sequence[Mapping[str, Any]]) -> None:
    """Draw records by hour, stacked by topic, and those in quarantine on top."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    archived: Counter[str] = Counter()
    for row in hours:
        archived[row["topic"]] += row["count"] if row["fate"] == "archived" else 0
    shown = [topic for topic, _ in archived.most_common(TOPICS_SHOWN)]
    others = f"{len(archived) - len(shown)} more"
    counted: dict[str, Counter[float]] = {label: Counter() for label in [*shown, others, *COLOURS]}
    for row in hours:
        begins = float(date2num(datetime.fromisoformat(row["date"]) + timedelta(hours=row["hour"])))  # type: ignore[no-untyped-call]
        label = row["fate"] if row["fate"] != "archived" else row["topic"] if row["topic"] in shown else others
        counted[label][begins] += row["count"]
    below: Counter[float] = Counter()
    total = sum(row["count"] for row in hours)
    with picture(path, f"{total:,} records by hour (UTC)") as axes:
        for label, counts in counted.items():
            if counts:
                name = f"quarantine: {label}" if label in COLOURS else shortened(label)
                bottom, colour = [below[begins] for begins in counts], COLOURS.get(label)
                axes.bar(list(counts), list(counts.values()), 1 / 24, bottom, align="edge", label=name, color=colour)
                below.update(counts)
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.set_ylabel("records an hour")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, reverse=True)


JOB = Job(
    "archive", options, plan, run, subject=lambda arguments: f"{topics_of(arguments)} at {arguments.bootstrap_servers}"
)

if __name__ == "__main__":
    main(JOB)
