"""The command line of each job, without Spark: `minibroker jobs run NAME --help` needs none.

Options of Spark's Kafka source and sink have their names there: `--starting-offsets` is the source's startingOffsets.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

BOOTSTRAP_VARIABLE = "MINIBROKER_BOOTSTRAP"
FRAMING = ("auto", "confluent", "none")  # of values in an archive
VALUE_FORMATS = ("bytes", "json", "avro")
PICTURES = (".png", ".svg", ".pdf", ".jpg")
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
ROW_FORMATS = ("csv", "json", "parquet")  # of what is replayed
PROMISES = {
    "exactly-once": "each record once, for readers with isolation.level=read_committed; in order in each partition",
    "at-least-once": "each record once or, after a crash, again; in order in each partition",
}
REAL_TIME_BATCH = "30 seconds"
WINDOW_DAYS = 1
WATERMARK_DAYS = 14


def job_parser(name: str, about: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every job has."""
    cli = argparse.ArgumentParser(prog=f"minibroker jobs run {name}", description=about, allow_abbrev=False)
    spark = cli.add_argument_group("Spark")
    spark.add_argument("--master", default="local[*]", help="such as spark://HOST:7077; spark-submit's own goes first")
    spark.add_argument("--spark-config", action="append", default=[], metavar="KEY=VALUE", type=pair)
    spark.add_argument("--event-log", metavar="DIR", help="write what Spark's history server shows")
    spark.add_argument("--dry-run", action="store_true", help="show the plan, and run nothing")
    cli.add_argument("--json", action="store_true", help="a line of JSON for each stage and each result")
    return cli


def add_bootstrap(cli: argparse.ArgumentParser) -> None:
    """Add `--bootstrap-servers`, with the default of the other commands, and `--kafka-option`."""
    cli.add_argument(
        "-b",
        "--bootstrap-servers",
        default=os.environ.get(BOOTSTRAP_VARIABLE, "127.0.0.1:9092"),
        metavar="HOST:PORT",
        help=f"default: ${BOOTSTRAP_VARIABLE}, else 127.0.0.1:9092",
    )
    cli.add_argument(
        "--kafka-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        type=pair,
        help="another option of Spark's Kafka source or sink, such as kafka.security.protocol=SASL_SSL",
    )


def add_source(cli: argparse.ArgumentParser) -> None:
    """Add what a Kafka source is given: the broker, the topics, where to start, how much at a time."""
    add_bootstrap(cli)
    topics = cli.add_mutually_exclusive_group(required=True)
    topics.add_argument("--subscribe", metavar="TOPIC[,TOPIC...]")
    topics.add_argument("--subscribe-pattern", metavar="REGEX")
    topics.add_argument("--assign", type=_assigned, metavar="JSON", help='{"flights": [0, 1]}')
    cli.add_argument("--starting-offsets", default="earliest", metavar="earliest|latest|JSON")
    cli.add_argument("--starting-timestamp", type=int, metavar="MS", help="takes precedence over --starting-offsets")
    cli.add_argument("--max-offsets-per-trigger", type=int, metavar="RECORDS")
    cli.add_argument("--min-partitions", type=int, metavar="N", help="split large reads over so many tasks")
    add_isolation_level(cli)
    cli.add_argument("--fail-on-data-loss", choices=["true", "false"], default="true")


def add_isolation_level(cli: argparse.ArgumentParser) -> None:
    """Add `--isolation-level`, which `broker_options` translates."""
    cli.add_argument("--isolation-level", choices=["read_uncommitted", "read_committed"], help="default: read all")


def alerts() -> argparse.ArgumentParser:
    """A rule over JSON records."""
    cli = job_parser("alerts", "Alerts about JSON records, from topic to topic.")
    add_source(cli)
    cli.set_defaults(starting_offsets="latest")
    cli.add_argument("--schema", required=True, metavar="DDL", help="of the records: 'sensor STRING, celsius DOUBLE'")
    cli.add_argument("--rule", required=True, metavar="SQL", help="a condition over its fields: 'celsius > 80'")
    cli.add_argument("--topic", required=True, help="for the alerts; its message.timestamp.type is best LogAppendTime")
    cli.add_argument("--checkpoint", required=True, metavar="DIR", help="from which a later run continues")
    trigger = cli.add_mutually_exclusive_group()
    trigger.add_argument(
        "--real-time", metavar="DURATION", help=f"Real-time Mode, with a checkpoint this often: '{REAL_TIME_BATCH}'"
    )
    trigger.add_argument("--processing-time", metavar="DURATION", help="micro-batches this often: '0 seconds'")
    trigger.add_argument("--available-now", action="store_true", help="micro-batches of what is there, then end")
    state = cli.add_argument_group("state, in micro-batches")
    state.add_argument("--times", type=_positive, default=1, metavar="N", help="alert at every N-th match of a key")
    state.add_argument("--within", type=float, metavar="SECONDS", help="count only matches that are so close together")
    state.add_argument("--once", action="store_true", help="alert once, until a record of the key does not match")
    state.add_argument("--by", metavar="SQL", help="the key, such as a field; otherwise that of the record")
    cli.add_argument("--seconds", type=float, help="end after this time")
    cli.add_argument("--picture", type=_picture, metavar="FILE.png", help="draw the time from record to alert")
    return cli


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def archive() -> argparse.ArgumentParser:
    """Topics to Parquet."""
    cli = job_parser("archive", "Topics to Parquet by topic, date and hour; each record once.")
    add_source(cli)
    cli.add_argument("--output", required=True, metavar="DIR", help="where the tables records and quarantine are")
    cli.add_argument("--checkpoint", metavar="DIR", help="from which a later run continues; default: in OUTPUT")
    cli.add_argument("--continuous", type=float, metavar="SECONDS", help="run for ever, with a micro-batch this often")
    cli.add_argument("--picture", type=_picture, metavar="FILE.png", help="draw records by hour and topic")
    values = cli.add_argument_group("values")
    values.add_argument(
        "--value-format", choices=VALUE_FORMATS, default="bytes", help="decode values; bytes are kept anyway"
    )
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
        "--schema-registry", metavar="URL", help="of Avro: where the schemas of TOPIC-value are; --schema is the latest"
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


def delays() -> argparse.ArgumentParser:
    """Flight delays."""
    cli = job_parser("delays", "Flight delays from Kafka to Parquet.")
    add_source(cli)
    cli.add_argument("--output", required=True, metavar="DIR", help="Parquet files")
    cli.add_argument("--checkpoint", required=True, metavar="DIR", help="from which a later run continues")
    cli.add_argument("--window", default=f"{WINDOW_DAYS} day")
    cli.add_argument("--window-start", default="5 hours", metavar="AFTER_MIDNIGHT_UTC")
    cli.add_argument("--watermark", default=f"{WATERMARK_DAYS} days", help="how late a record may come, in event time")
    cli.add_argument("--continuous", type=float, metavar="SECONDS", help="run for ever, with a micro-batch this often")
    cli.add_argument("--until", metavar="TIME", type=_time, help="end when all windows up to this time are written")
    return cli


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def replay() -> argparse.ArgumentParser:
    """Rows into topics."""
    cli = job_parser("replay", "An archive or files back into topics: order, time and partition as they were.")
    add_bootstrap(cli)
    source = cli.add_mutually_exclusive_group(required=True)
    source.add_argument("--archive", metavar="DIR", help="the output of the job archive")
    source.add_argument("--input", metavar="PATH", help="files of --format")
    cli.add_argument("--format", choices=ROW_FORMATS, default="parquet")
    cli.add_argument("--where", metavar="SQL", help="which rows, such as \"topic = 'orders' and date = '2026-01-01'\"")
    cli.add_argument("--without-quarantine", action="store_true", help="leave out what the archive put apart")
    target = cli.add_mutually_exclusive_group(required=True)
    target.add_argument("--topic", metavar="TOPIC", help="where to")
    target.add_argument("--original-topics", action="store_true", help="to the topic that each row names")
    cli.add_argument(
        "--partitions", choices=["original", "key"], default="original", help="key: where the producer puts the key"
    )
    cli.add_argument("--speed", type=_speed, default=None, metavar="max|TIMES", help="1 is as it was; default: max")
    cli.add_argument("--delivery", choices=list(PROMISES), default="exactly-once")
    cli.add_argument("--group", metavar="NAME", help="what is sent already is kept here; default: by source and topic")
    cli.add_argument("--picture", type=_picture, metavar="FILE.png", help="draw planned against real time")
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


def telemetry() -> argparse.ArgumentParser:
    """How a broker serves its readers."""
    cli = job_parser("telemetry", "Explained fetches and metrics of a broker, from a topic to Parquet.")
    add_source(cli)
    cli.add_argument("--output", required=True, metavar="DIR", help="Parquet files, by kind of reading")
    cli.add_argument("--checkpoint", required=True, metavar="DIR", help="from which a later run continues")
    cli.add_argument("--continuous", type=float, metavar="SECONDS", help="run for ever, with a micro-batch this often")
    cli.add_argument("--picture", type=_picture, metavar="FILE.png", help="draw the lag of each reader over time")
    return cli


def verify() -> argparse.ArgumentParser:
    """Two topics, or a topic and an archive."""
    cli = job_parser("verify", "Compare a topic with another, or with an archive, record by record.")
    add_bootstrap(cli)
    cli.add_argument("--subscribe", required=True, metavar="TOPIC", help="with an archive, several: TOPIC,TOPIC")
    other = cli.add_mutually_exclusive_group(required=True)
    other.add_argument("--against-topic", metavar="TOPIC")
    other.add_argument("--against-archive", metavar="DIR", help="the output of the job archive")
    cli.add_argument("--against-bootstrap-servers", metavar="HOST:PORT", help="where the other topic is, if elsewhere")
    add_isolation_level(cli)
    cli.add_argument("--match", choices=["offset", "content"], help="default: offset with an archive, else content")
    cli.add_argument(
        "--ignore",
        action="append",
        default=[],
        choices=["timestamp", "headers", "order", "partition"],
        help="what may differ; may be repeated",
    )
    cli.add_argument("--show", type=int, default=20, metavar="N", help="print so many differences")
    cli.add_argument("--output", metavar="DIR", help="write all differences there as Parquet")
    cli.add_argument("--picture", type=_picture, metavar="FILE.png", help="draw where the differences are")
    return cli


def checkpoint() -> argparse.ArgumentParser:
    """The state in a checkpoint."""
    cli = job_parser("checkpoint", "The state in the checkpoint of a streaming query.")
    cli.add_argument("folder", metavar="DIR", help="the query's checkpointLocation")
    return cli


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix not in PICTURES:
        raise argparse.ArgumentTypeError(f"{text!r} does not end as a picture: {', '.join(PICTURES)}")
    return path


def _assigned(text: str) -> str:
    """Read the partitions of topics; the text stays as Spark takes it. Raises ArgumentTypeError."""
    try:
        found = json.loads(text)
        is_fine = all(numbers and all(type(each) is int for each in numbers) for numbers in found.values())
    except (AttributeError, TypeError, ValueError):
        is_fine = False
    if not is_fine:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON such as " + '{"flights": [0, 1]}')
    return text


def pair(text: str) -> tuple[str, str]:
    """Read KEY=VALUE; the value may have an equals sign. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    parser.__name__: parser for parser in (alerts, archive, delays, replay, telemetry, verify)
}
