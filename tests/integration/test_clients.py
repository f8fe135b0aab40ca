"""Real client libraries read what every other one wrote, equal to the byte, whatever the codec."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.integration.clients import CLIENTS, LIBRARIES, Client
from tests.integration.conftest import GetClient, NewTopic
from tests.integration.records import CODECS_OF_TODAY, Record, numbered
from tests.matrices import pairwise

Write = Callable[[Client, str], tuple[str, int, list[Record]]]
REFERENCE_READER = "kafka-python-3.0"


@pytest.fixture(params=CLIENTS)
def writer(client: GetClient, request: pytest.FixtureRequest) -> Client:
    return client(request.param)


@pytest.fixture(scope="module")
def write(client: GetClient, new_topic: NewTopic) -> Write:
    """Let a client write its shapes with a codec, once: a topic a client, a partition a codec."""
    topics: dict[str, str] = {}
    written: dict[tuple[str, str], list[Record]] = {}

    def get(writer: Client, codec: str) -> tuple[str, int, list[Record]]:
        partition, name = CODECS_OF_TODAY.index(codec), writer.name
        if name not in topics:
            topics[name] = new_topic(f"matrix-{name}", partitions=len(CODECS_OF_TODAY))
        if (name, codec) not in written:
            before_ms = time.time_ns() // 1_000_000
            acked = writer.produce(topics[name], writer.kind.shapes(), partition=partition, codec=codec)
            written[name, codec] = with_timestamps(client, topics[name], partition, acked, before_ms)
        return topics[name], partition, written[name, codec]

    return get


def with_timestamps(client: GetClient, topic: str, partition: int, acked: list[Record], before_ms: int) -> list[Record]:
    """Fill in the timestamps that a client chose and did not report, as the first reader sees them."""
    if all(record.timestamp_ms is not None for record in acked):
        return acked
    seen = client(REFERENCE_READER).consume(topic, len(acked), partitions=[partition])
    after_ms = time.time_ns() // 1_000_000
    assert all(row.timestamp_ms is not None and before_ms <= row.timestamp_ms <= after_ms for row in seen)
    return [replace(record, timestamp_ms=row.timestamp_ms) for record, row in zip(acked, seen, strict=True)]


@pytest.mark.ability("records")
@pytest.mark.parametrize("codec", CODECS_OF_TODAY)
def test_acked_offsets_are_dense_from_zero(write: Write, writer: Client, codec: str) -> None:
    _, partition, records = write(writer, codec)

    assert [(partition, i) for i in range(len(records))] == [(row.partition, row.offset) for row in records]


@pytest.mark.ability("records")
@pytest.mark.parametrize(
    ("writer", "reader", "codec"), pairwise(CLIENTS, CLIENTS, CODECS_OF_TODAY), indirect=["writer"]
)
def test_records_of_one_client_are_read_by_another(
    client: GetClient, write: Write, writer: Client, reader: str, codec: str
) -> None:
    topic, partition, written = write(writer, codec)
    consumer = client(reader)

    read = consumer.consume(topic, len(written), partitions=[partition])

    assert [consumer.kind.sees(record) for record in written] == read


@pytest.mark.ability("idempotence")
@pytest.mark.parametrize("idempotence", [True, False])
@pytest.mark.parametrize("writer", LIBRARIES, indirect=True)
def test_many_batches_keep_their_order_with_and_without_idempotence(
    new_topic: NewTopic, writer: Client, idempotence: bool
) -> None:
    topic = new_topic("ordered")
    records = numbered(2000, size_bytes=200)

    acked = writer.produce(topic, records, enable_idempotence=idempotence)

    assert list(range(2000)) == [record.offset for record in acked]
    assert [record.value for record in records] == [record.value for record in writer.consume(topic, 2000)]


@pytest.mark.ability("records")
@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("writer", LIBRARIES, indirect=True)
def test_records_arrive_with_any_acks(new_topic: NewTopic, writer: Client, acks: int | str) -> None:
    if (writer.name, acks) == ("kafka-python-2.3", 0):
        pytest.skip("kafka-python 2.3 keeps a last request with acks=0 in its buffer, with Apache Kafka too")
    topic = new_topic("acks")
    records = numbered(20)

    writer.produce(topic, records, enable_idempotence=False, acks=acks)

    assert [record.value for record in records] == [record.value for record in writer.consume(topic, 20)]


@pytest.mark.ability("records")
def test_a_key_chooses_the_same_partition_each_time(new_topic: NewTopic, writer: Client) -> None:
    topic = new_topic("keyed", partitions=4)
    records = [Record(key=f"key {i % 5}".encode(), value=b"%d" % i) for i in range(15)]

    acked = writer.produce(topic, records, partition=None)

    for key in {record.key for record in acked}:
        assert len({record.partition for record in acked if record.key == key}) == 1
    read = writer.consume(topic, 15, partitions=range(4))
    assert sorted((row.partition, row.offset, row.value) for row in acked) == sorted(
        (row.partition, row.offset, row.value) for row in read
    )
