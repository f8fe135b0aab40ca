"""Java's Avro serializers on the registry of a broker, beside confluent-kafka's.

They are Flink's, over the Java client of Confluent's registry, which their jar brings. Confluent's own serializers are
not in Maven's central repository.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

import minibroker
from benchmarks.apache_kafka import KafkaUnavailable, jvm_options
from benchmarks.kafka_jars import kafka_folder, kafka_jars
from tests.jvm import QUICK_JVM
from tests.setup_clients import compiled_for_kafka

pytest.importorskip("proto_schema_parser", reason="the registry needs its extra: pip install -e '.[schemas]'")
pytest.importorskip("httpx2", reason="serializers need theirs: pip install 'confluent-kafka[avro,json,protobuf]'")

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.ability("serializers", "Flink"),
]

FLINK = "1.20.0"
COORDINATES = (
    "org.apache.flink:flink-sql-avro-confluent-registry:{release}",
    "org.apache.flink:flink-core:{release}",
    "org.apache.kafka:kafka-clients:3.9.0",
)
JAVA_SECONDS = 120.0
TOPIC = "users"
CONTEXT = SerializationContext(TOPIC, MessageField.VALUE)

Java = Callable[..., subprocess.CompletedProcess[str]]


def user(*fields: dict[str, object]) -> str:
    return json.dumps({"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}, *fields]})


FIRST = user()
SECOND = user({"name": "age", "type": "int", "default": -1})
BREAKING = user({"name": "mail", "type": "string"})


@pytest.fixture
def broker() -> Iterator[minibroker.Broker]:
    with minibroker.Broker(schema_registry=True) as broker:
        broker.create_topic(TOPIC)
        yield broker


@pytest.fixture
def java(broker: minibroker.Broker) -> Java:
    """Write names in records of a schema, or without names read all records by it."""
    try:
        jars = kafka_jars(kafka_folder(f"flink-{FLINK}"), release=FLINK, coordinates=COORDINATES)
        classes = compiled_for_kafka("JavaRegistry", f"{jars}/*")
    except (KafkaUnavailable, RuntimeError) as reason:
        pytest.skip(str(reason))
    command = ["java", *jvm_options(QUICK_JVM), "-cp", f"{classes}:{jars}/*", "JavaRegistry"]
    command += [broker.bootstrap_servers, broker.schema_registry_url, TOPIC]

    def run(schema: str, *names: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, schema, *names], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False
        )

    return run


def test_java_and_python_read_each_others_records_by_each_others_schemas(broker: minibroker.Broker, java: Java) -> None:
    written = java(FIRST, "a", "b")
    assert written.returncode == 0, written.stderr
    with SchemaRegistryClient({"url": broker.schema_registry_url}) as registry:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(TOPIC, AvroSerializer(registry, SECOND)({"name": "c", "age": 3}, CONTEXT))
        producer.flush()
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC])
        found = [AvroDeserializer(registry, SECOND)(each.value(), CONTEXT) for each in consumer.consume(3, timeout=30)]
        consumer.close()
        versions = registry.get_versions(f"{TOPIC}-value")

    assert found == [{"name": "a", "age": -1}, {"name": "b", "age": -1}, {"name": "c", "age": 3}]
    assert versions == [1, 2]
    assert [json.loads(line) for line in java(SECOND).stdout.splitlines()] == found
    assert [json.loads(line) for line in java(FIRST).stdout.splitlines()] == [{"name": name} for name in "abc"]


def test_java_is_refused_a_schema_that_breaks_a_consumer_with_the_fields_name(java: Java) -> None:
    first = java(FIRST, "a")
    refused = java(BREAKING, "b")

    assert first.returncode == 0, first.stderr
    assert refused.returncode == 1
    assert "RestClientException" in refused.stderr
    assert "field mail of the reader has no default" in refused.stderr
