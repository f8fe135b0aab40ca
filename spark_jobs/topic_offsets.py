"""The beginning and the end of topics now, asked with the Kafka client that Spark's connector brings.

The rule: it takes the options of Spark's Kafka source, so that a secured broker needs nothing more.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.kafka_options import broker_options, source_options, topics_of

Offsets = dict[str, dict[int, int]]  # by topic and partition
READ_COMMITTED = "read_committed"
# A broker that is slow answers within this; Java's own default is a minute.
PATIENCE = {"request.timeout.ms": "5000", "default.api.timeout.ms": "15000"}
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of a broker before Kafka 2.8
LATEST_MS = ((1 << 63) - 1) // 1000  # that Spark can hold, in the year 294247


class Topic(NamedTuple):
    """A topic as a broker describes it; `id` differs if it is made anew. None: the broker has no ids."""

    id: str | None
    partitions: list[int]


def read_by(spark: SparkSession, options: Mapping[str, str]) -> dict[str, Topic]:
    """Return the topics that a source with these options reads now. Raises JobFailed if one of its names is missing."""
    assigned = json.loads(options.get("assign", "{}"))
    if pattern := options.get("subscribePattern"):
        with _admin(spark, options) as admin:
            names = [str(name) for name in admin.listTopics().names().get()]
        jvm: Any = spark.sparkContext._jvm
        matches = jvm.java.util.regex.Pattern.matches  # Python's patterns differ
        return described(spark, options, [name for name in names if matches(pattern, name)])
    found = require(spark, options, assigned or options["subscribe"].split(","))
    for topic, numbers in assigned.items():
        if missing := sorted(set(numbers) - set(found[topic].partitions)):
            raise JobFailed(f"{topic} has no partition {missing[0]} at {options['kafka.bootstrap.servers']}")
    return {topic: Topic(each.id, assigned.get(topic, each.partitions)) for topic, each in found.items()}


def require(spark: SparkSession, options: Mapping[str, str], topics: Iterable[str]) -> dict[str, Topic]:
    """Return these topics. Raises JobFailed if one is missing."""
    found = described(spark, options, topics := list(topics))
    for topic in topics:
        if topic not in found:
            raise JobFailed(f"there is no topic {topic} at {options['kafka.bootstrap.servers']}; create it first")
    return found


def described(spark: SparkSession, options: Mapping[str, str], topics: Iterable[str]) -> dict[str, Topic]:
    """Return those topics that exist. Raises JobFailed if no broker answers, or there is no right to ask."""
    found = {}
    with _admin(spark, options) as admin:
        futures = admin.describeTopics(_java_list(spark, sorted(set(topics)))).topicNameValues()
        for name in futures:
            try:
                topic = futures[name].get()
            except Py4JJavaError as error:
                cause = error.java_exception.getCause() or error.java_exception
                if "UnknownTopicOrPartitionException" in str(cause):
                    continue
                where = options["kafka.bootstrap.servers"]
                raise JobFailed(f"{where}: {name}: {cause.getMessage() or cause}") from error
            known = str(topic.topicId())
            numbers = sorted(info.partition() for info in topic.partitions())
            found[str(name)] = Topic(None if known == NO_TOPIC_ID else known, numbers)
    return found


def offsets(
    spark: SparkSession, options: Mapping[str, str], topics: Mapping[str, Iterable[int]]
) -> tuple[Offsets, Offsets]:
    """Return the first offset and the one after the last, of partitions that exist.

    With `kafka.isolation.level` of read_committed the latter is the last stable offset.
    """
    jvm: Any = spark.sparkContext._jvm
    spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
    with _admin(spark, options) as admin:
        earliest, latest = (_listed(spark, admin, options, topics, each) for each in (spec.earliest(), spec.latest()))
    return earliest, latest


def beyond_times(spark: SparkSession, arguments: argparse.Namespace) -> str:
    """Return the line about the records whose times Spark cannot hold, for which its source fails. Raises JobFailed."""
    is_source = hasattr(arguments, "assign")
    options = source_options(arguments) if is_source else broker_options(arguments)
    names = None if is_source else [arguments.subscribe, *filter(None, [getattr(arguments, "against_topic", None)])]
    topics = read_by(spark, options) if names is None else described(spark, options, names)
    jvm: Any = spark.sparkContext._jvm
    spec = jvm.org.apache.kafka.clients.admin.OffsetSpec.forTimestamp(LATEST_MS + 1)
    with _admin(spark, options) as admin:
        of = {topic: each.partitions for topic, each in topics.items()}
        first = {
            f"{topic}-{number}": offset
            for topic, offsets in _listed(spark, admin, options, of, spec).items()
            for number, offset in offsets.items()
            if offset >= 0
        }
    where = ", ".join(f"{partition} at offset {offset}" for partition, offset in first.items()) or str(
        topics_of(arguments) if is_source else ", ".join(topics)
    )
    return (
        f"{where}: the record's time is outside of the years that Spark can hold, -290308 to 294247; delete the records"
        " up to it by `minibroker topics delete-records`, and go on with --fail-on-data-loss false"
    )


def committed(
    spark: SparkSession, options: Mapping[str, str], group: str, topics: Iterable[str]
) -> dict[tuple[str, int], str]:
    """Return what a consumer group has noted beside its offsets of these topics."""
    with _admin(spark, options) as admin:
        found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        noted = {(str(each.topic()), int(each.partition())): found[each] for each in found}
    return {place: str(each.metadata()) for place, each in noted.items() if each is not None and place[0] in topics}


def _listed(
    spark: SparkSession, admin: Any, options: Mapping[str, str], topics: Mapping[str, Iterable[int]], spec: Any
) -> Offsets:
    jvm: Any = spark.sparkContext._jvm
    kafka = jvm.org.apache.kafka
    isolation = kafka.common.IsolationLevel.valueOf(options.get("kafka.isolation.level", "read_uncommitted").upper())
    asked = jvm.java.util.HashMap()
    for topic, numbers in topics.items():
        for number in numbers:
            asked[kafka.common.TopicPartition(topic, int(number))] = spec
    answered = admin.listOffsets(asked, kafka.clients.admin.ListOffsetsOptions(isolation)).all().get()
    found: Offsets = {topic: {} for topic in topics}
    for partition in answered:
        found[partition.topic()][partition.partition()] = answered[partition].offset()
    return found


@contextmanager
def _admin(spark: SparkSession, options: Mapping[str, str]) -> Iterator[Any]:
    jvm: Any = spark.sparkContext._jvm
    settings = jvm.java.util.Properties()
    given = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    for name, value in ({} if PATIENCE.keys() & given.keys() else PATIENCE).items():
        settings[name] = value
    for name, value in given.items():
        settings[name] = value
    admin = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        yield admin
    except Py4JJavaError as error:
        cause = error.java_exception.getCause() or error.java_exception
        raise JobFailed(f"{options['kafka.bootstrap.servers']}: {cause.getMessage()}") from error
    finally:
        if admin is not None:
            admin.close()


def _java_list(spark: SparkSession, values: Iterable[str]) -> Any:
    jvm: Any = spark.sparkContext._jvm
    found = jvm.java.util.ArrayList()
    for value in values:
        found.add(value)
    return found
