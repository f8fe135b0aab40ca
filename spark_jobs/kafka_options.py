"""Options of Spark's Kafka source and sink on a command line: `--starting-offsets` is the source's startingOffsets."""

from __future__ import annotations

import argparse
import os

BOOTSTRAP_VARIABLE = "MINIBROKER_BOOTSTRAP"


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
    topics.add_argument("--assign", metavar="JSON", help='{"flights": [0, 1]}')
    cli.add_argument("--starting-offsets", default="earliest", metavar="earliest|latest|JSON")
    cli.add_argument("--starting-timestamp", type=int, metavar="MS", help="takes precedence over --starting-offsets")
    cli.add_argument("--max-offsets-per-trigger", type=int, metavar="RECORDS")
    cli.add_argument("--min-partitions", type=int, metavar="N", help="split large reads over so many tasks")
    add_isolation_level(cli)
    cli.add_argument("--fail-on-data-loss", choices=["true", "false"], default="true")


def add_isolation_level(cli: argparse.ArgumentParser) -> None:
    """Add `--isolation-level`, which `broker_options` translates."""
    cli.add_argument("--isolation-level", choices=["read_uncommitted", "read_committed"], help="default: read all")


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Translate what `add_source` has read into options of Spark's Kafka source."""
    chosen = {
        "subscribe": arguments.subscribe,
        "subscribePattern": arguments.subscribe_pattern,
        "assign": arguments.assign,
        "startingOffsets": arguments.starting_offsets,
        "startingTimestamp": arguments.starting_timestamp,
        "maxOffsetsPerTrigger": arguments.max_offsets_per_trigger,
        "minPartitions": arguments.min_partitions,
        "failOnDataLoss": arguments.fail_on_data_loss,
    }
    options = {name: str(value) for name, value in chosen.items() if value is not None}
    return options | broker_options(arguments)


def broker_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Translate what `add_bootstrap` has read into options that Spark's Kafka source and sink share."""
    found = {"kafka.bootstrap.servers": arguments.bootstrap_servers}
    if getattr(arguments, "isolation_level", None):
        found["kafka.isolation.level"] = arguments.isolation_level
    return found | dict(arguments.kafka_option)


def topics_of(arguments: argparse.Namespace) -> str:
    """Return the topics of a source as they were given, for a message."""
    return str(arguments.subscribe or arguments.subscribe_pattern or arguments.assign)


def pair(text: str) -> tuple[str, str]:
    """Read KEY=VALUE; the value may have an equals sign. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value
