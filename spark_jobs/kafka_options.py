"""Translates the options of a command line into those of Spark's Kafka source and sink."""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession

# Of a producer: whatever fits into its buffer; the topic has the say. Java's own default is a MiB.
LARGE_RECORDS = {"kafka.max.request.size": str(32 << 20)}


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Open the stream of a Kafka source with these options, named as Spark names them."""
    return spark.readStream.format("kafka").options(**options).load()


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Translate what `command_lines.add_source` has read into options of Spark's Kafka source."""
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
    """Translate what `command_lines.add_bootstrap` has read into options that Spark's Kafka source and sink share."""
    found = {"kafka.bootstrap.servers": arguments.bootstrap_servers}
    if getattr(arguments, "isolation_level", None):
        found["kafka.isolation.level"] = arguments.isolation_level
    return found | dict(arguments.kafka_option)


def topics_of(arguments: argparse.Namespace) -> str:
    """Return the topics of a source as they were given, for a message."""
    return str(arguments.subscribe or arguments.subscribe_pattern or arguments.assign)
