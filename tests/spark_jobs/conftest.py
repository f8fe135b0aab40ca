"""A broker, a Spark session and topics of their own for the tests of the Spark jobs.

The broker is `minibroker serve` in a process; MINIBROKER_TEST_BOOTSTRAP names another one to test with, for
instance Apache Kafka itself.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="pip install -e '.[demo]'")
pytest.importorskip("confluent_kafka", reason="pip install -e '.[demo]'")
pytest.importorskip("matplotlib", reason="pip install -e '.[demo]'")

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from pyspark.sql import SparkSession

from minibroker.demo import processes
from minibroker.spark_jobs.session import ConnectorUnavailable, connector_jars, spark_session


class Kafka(NamedTuple):
    """The broker as a test uses it, besides the reading and writing that Spark does."""

    bootstrap: str
    admin: AdminClient
    names: Iterator[int]

    def create_topic(
        self, *, partitions: int = 1, name: str | None = None, config: Mapping[str, str] | None = None
    ) -> str:
        topic = name or f"spark-test-{os.getpid()}-{next(self.names)}"
        given = {"retention.ms": "-1", **(config or {})}
        _done(self.admin.create_topics([NewTopic(topic, partitions, 1, config=given)], operation_timeout=30))
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        _done(self.admin.create_partitions([NewPartitions(topic, total)], operation_timeout=30))

    def delete_topic(self, topic: str) -> None:
        _done(self.admin.delete_topics([topic], operation_timeout=30))

    def make_anew(self, topic: str) -> None:
        """Delete the topic and create it again, empty."""
        self.delete_topic(topic)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                self.create_topic(name=topic)
            except KafkaException as error:
                # Apache Kafka deletes later than it says it has.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            else:
                return
        pytest.fail(f"{topic} is still there")

    def configure(self, topic: str, name: str, value: str) -> None:
        """Set a setting of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        _done(self.admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, *, partition: int, before: int) -> None:
        _done(self.admin.delete_records([TopicPartition(topic, partition, before)]))

    def produce(self, topic: str, values: list[str], *, partition: int = 0, first_ms: int = 1_000_000) -> None:
        """Send the values, a second of event time apart."""
        failures: list[str] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value=value.encode(),
                partition=partition,
                timestamp=first_ms + 1000 * number,
                on_delivery=lambda error, _: failures.append(error.str()) if error else None,
            )
        assert producer.flush(30) == 0
        assert failures == []


def _done(futures: Mapping[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(60)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # pyspark leaves the sockets that results come through to the garbage collector.
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    elsewhere = os.environ.get("MINIBROKER_TEST_BOOTSTRAP")
    if elsewhere:
        yield elsewhere
        return
    folder = tmp_path_factory.mktemp("broker")
    with processes.broker(folder / "data", log=folder / "broker.log") as running:
        yield running.address


@pytest.fixture(scope="session")
def kafka(bootstrap: str) -> Kafka:
    return Kafka(bootstrap, AdminClient({"bootstrap.servers": bootstrap}), itertools.count())


@pytest.fixture(scope="session")
def jars() -> list[Path]:
    """Return the connector's jars, or skip with the reason."""
    try:
        return connector_jars()
    except ConnectorUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def spark(jars: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")), "spark.driver.memory": "768m"}
    # Interpreted, and planned once: compiling each query for a few rows takes a sixth of the CPU time. The demo's test,
    # and each job that runs in a process, have Spark's own choice.
    settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    settings |= {"spark.sql.adaptive.enabled": "false"}
    # Spark 4.0.0 leaves a folder called artifacts wherever it was started.
    with contextlib.chdir(tmp_path_factory.mktemp("spark")):
        session = spark_session("minibroker tests", master="local[2]", config=settings)
    yield session
    session.stop()


@pytest.fixture
def query_name(request: pytest.FixtureRequest) -> str:
    """Return the test's name as one that a query and its memory table can have."""
    return re.sub(r"\W+", "_", request.node.name)
