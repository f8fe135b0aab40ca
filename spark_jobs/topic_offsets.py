"""The beginning and the end of topics now, asked with the Kafka client that Spark's connector brings.

The rule: it takes the options of Spark's Kafka source, so that a secured broker needs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

Offsets = dict[str, dict[int, int]]  # by topic and partition
READ_COMMITTED = "read_committed"


def names(spark: SparkSession, options: Mapping[str, str]) -> list[str]:
    """Return the names of all topics, without Kafka's internal ones."""
    with _admin(spark, options) as admin:
        return sorted(str(name) for name in admin.listTopics().names().get())


def partitions(spark: SparkSession, options: Mapping[str, str], topics: Iterable[str]) -> dict[str, list[int]]:
    """Return the partitions of those topics that exist."""
    jvm: Any = spark.sparkContext._jvm
    found = {}
    with _admin(spark, options) as admin:
        existing = set(admin.listTopics().names().get())
        described = admin.describeTopics(_java_list(spark, sorted(set(topics) & existing))).allTopicNames().get()
        for name in described:
            found[str(name)] = sorted(info.partition() for info in described[name].partitions())
    assert jvm is not None
    return found


def offsets(
    spark: SparkSession, options: Mapping[str, str], topics: Mapping[str, Iterable[int]]
) -> tuple[Offsets, Offsets]:
    """Return the first offset and the one after the last, of partitions that exist.

    With `kafka.isolation.level` of read_committed the latter is the last stable offset.
    """
    jvm: Any = spark.sparkContext._jvm
    kafka = jvm.org.apache.kafka
    isolation = kafka.common.IsolationLevel.valueOf(options.get("kafka.isolation.level", "read_uncommitted").upper())
    with _admin(spark, options) as admin:

        def ask(spec: Any) -> Offsets:
            asked = jvm.java.util.HashMap()
            for topic, numbers in topics.items():
                for number in numbers:
                    asked[kafka.common.TopicPartition(topic, int(number))] = spec
            answered = admin.listOffsets(asked, kafka.clients.admin.ListOffsetsOptions(isolation)).all().get()
            found: Offsets = {topic: {} for topic in topics}
            for partition in answered:
                found[partition.topic()][partition.partition()] = answered[partition].offset()
            return found

        spec = kafka.clients.admin.OffsetSpec
        return ask(spec.earliest()), ask(spec.latest())


def committed_metadata(spark: SparkSession, options: Mapping[str, str], group: str) -> list[str]:
    """Return what a consumer group has noted beside its offsets."""
    with _admin(spark, options) as admin:
        committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        return [str(committed[partition].metadata()) for partition in committed if committed[partition] is not None]


@contextmanager
def _admin(spark: SparkSession, options: Mapping[str, str]) -> Iterator[Any]:
    jvm: Any = spark.sparkContext._jvm
    settings = jvm.java.util.Properties()
    for name, value in options.items():
        if name.startswith("kafka."):
            settings[name.removeprefix("kafka.")] = value
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    try:
        yield admin
    except Py4JJavaError as error:
        cause = error.java_exception.getCause() or error.java_exception
        raise ConnectionError(f"{options['kafka.bootstrap.servers']}: {cause.getMessage()}") from error
    finally:
        admin.close()


def _java_list(spark: SparkSession, values: Iterable[str]) -> Any:
    jvm: Any = spark.sparkContext._jvm
    found = jvm.java.util.ArrayList()
    for value in values:
        found.add(value)
    return found
