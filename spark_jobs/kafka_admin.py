"""Asks a Kafka cluster about topics with the Kafka client that Spark's connector brings, by the source's own options.

So whatever logs the source in, logs this in too, and a job needs no other client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

ANSWER_TIMEOUT_MS = 15_000
PREFIX = "kafka."  # of options of Spark's source and sink that are Kafka's own


class KafkaUnanswered(RuntimeError):
    """The cluster did not answer, or with an error; the message is Kafka's."""


class Partition(NamedTuple):
    topic: str
    partition: int


class KafkaAdmin:
    """A connection to the cluster; used in a `with`."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        """`options` are those of Spark's Kafka source or sink."""
        assert spark._jvm is not None
        self._jvm: Any = spark._jvm
        settings = self._jvm.java.util.HashMap()
        for name, value in options.items():
            if name.startswith(PREFIX):
                settings.put(name.removeprefix(PREFIX), value)
        for name in ("default.api.timeout.ms", "request.timeout.ms"):
            settings.put(name, str(ANSWER_TIMEOUT_MS))
        with _answers():
            self._client = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)

    def __enter__(self) -> KafkaAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def partitions(self, topics: Sequence[str]) -> list[Partition]:
        """The partitions of these topics. Raises KafkaUnanswered, also if one of them does not exist."""
        with _answers():
            described = self._client.describeTopics(self._jvm.java.util.ArrayList(topics)).allTopicNames().get()
        return [Partition(topic, each.partition()) for topic in topics for each in described[topic].partitions()]

    def partitions_read(self, options: Mapping[str, str]) -> list[Partition]:
        """The partitions that a source with these options reads now. Raises KafkaUnanswered."""
        if assigned := options.get("assign"):
            return [Partition(topic, each) for topic, numbers in json.loads(assigned).items() for each in numbers]
        if pattern := options.get("subscribePattern"):
            with _answers():
                names = list(self._client.listTopics().names().get())
            return self.partitions([name for name in names if re.fullmatch(pattern, name)])
        return self.partitions(options["subscribe"].split(","))

    def end_offsets(self, topic: str) -> dict[str, int]:
        """The end of each partition of a topic by its number, as Spark's startingOffsets has them."""
        admin = self._jvm.org.apache.kafka.clients.admin
        asked = self._jvm.java.util.HashMap()
        for name, number in self.partitions([topic]):
            asked.put(self._jvm.org.apache.kafka.common.TopicPartition(name, number), admin.OffsetSpec.latest())
        with _answers():
            found = self._client.listOffsets(asked).all().get()
        return {str(partition.partition()): found[partition].offset() for partition in asked}


@contextmanager
def _answers() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise KafkaUnanswered(str(cause.getMessage())) from error
