"""Clients of 2015 to 2017 and those of today: each reads what the other wrote, in formats of three generations.

What each version of a request reads and writes is in the recorded conversations, in
tests/golden/conversations/kafka-2.0.1/.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from minibroker.protocol import record as wire_record
from minibroker.protocol.compression import Codec
from minibroker.protocol.message_set import build_message_set
from tests.integration.brokers import BrokerProcess
from tests.integration.clients import CLIENTS, OLD_CLIENTS
from tests.integration.conftest import GetClient, NewTopic
from tests.integration.records import CODEC_IDS, CODECS, FIRST_TIMESTAMP_MS, Record, every_shape, numbered
from tests.integration.wire import connection_to, write
from tests.matrices import each_once, pairwise

NEW_CLIENT = "java-3.9"
REFERENCE_READER = "kafka-python-3.0"
WRITTEN_WITH = {0: 0, 1: 2}  # magic: version of Produce


@pytest.mark.ability("old formats")
@pytest.mark.parametrize(("name", "codec", "is_reader"), pairwise(OLD_CLIENTS, CODECS, [True, False]))
def test_old_and_new_clients_read_every_shape_of_record_of_each_other(
    client: GetClient, new_topic: NewTopic, name: str, codec: str, is_reader: bool
) -> None:
    topic, old = new_topic("shapes"), client(name)
    writer, reader = (client(NEW_CLIENT), old) if is_reader else (old, client(REFERENCE_READER))
    shapes = [record if is_reader else replace(record, headers=()) for record in every_shape()]

    written = writer.produce(topic, shapes, codec=codec)

    read = reader.consume(topic, len(written))
    assert [old.kind.sees(record) for record in written] == [old.kind.sees(record) for record in read]


@pytest.mark.ability("old formats")
@pytest.mark.parametrize(("name", "codec"), each_once(OLD_CLIENTS, CODECS))
def test_an_old_client_reads_many_fetches_without_loss_or_duplicate(
    client: GetClient, new_topic: NewTopic, name: str, codec: str
) -> None:
    topic = new_topic("much-new-data")
    client(NEW_CLIENT).produce(topic, numbered(20_000, size_bytes=150), codec=codec)

    read = client(name).consume(topic, 20_000, max_partition_fetch_bytes=300_000)

    assert [(i, b"%d" % i) for i in range(20_000)] == [(record.offset, record.key) for record in read]


@pytest.mark.ability("old formats")
@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("name", OLD_CLIENTS)
def test_an_old_client_starts_in_the_middle_of_a_new_batch(
    client: GetClient, new_topic: NewTopic, name: str, codec: str
) -> None:
    topic = new_topic("from-the-middle")
    client(NEW_CLIENT).produce(topic, numbered(100), codec=codec, linger_ms=100)

    read = client(name).consume(topic, 63, start=37)

    assert list(range(37, 100)) == [record.offset for record in read]


def test_a_first_batch_larger_than_the_fetch_gets_through_since_fetch_v3(
    client: GetClient, new_topic: NewTopic
) -> None:
    topic = new_topic("large")
    written = client(NEW_CLIENT).produce(topic, [Record(b"key", b"even " * 100_000, timestamp_ms=FIRST_TIMESTAMP_MS)])

    read = client("java-0.10.2").consume(topic, 1, max_partition_fetch_bytes=10_000)

    assert written == read


@pytest.mark.ability("groups")
@pytest.mark.parametrize("name", OLD_CLIENTS)
def test_an_old_client_goes_on_where_its_group_committed(client: GetClient, new_topic: NewTopic, name: str) -> None:
    topic = new_topic("in-a-group", partitions=2)
    for partition in (0, 1):
        client(NEW_CLIENT).produce(topic, numbered(10, first=10 * partition), partition=partition, codec="gzip")
    reader = client(name)

    first = reader.consume_in_group(topic, f"group-{topic}", 20)
    client(NEW_CLIENT).produce(topic, numbered(5, first=20), partition=1)
    second = reader.consume_in_group(topic, f"group-{topic}", 5)

    assert sorted(int(record.key or b"") for record in first) == list(range(20))
    assert [int(record.key or b"") for record in second] == list(range(20, 25))


@pytest.mark.ability("idempotence", "java-0.11")
@pytest.mark.parametrize("codec", CODECS)
def test_the_first_idempotent_client_writes_each_record_once(
    client: GetClient, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic("idempotent")

    written = client("java-0.11").produce(topic, numbered(1000), codec=codec, enable_idempotence="true")

    assert [record.offset for record in written] == list(range(1000))
    assert [record.key for record in client(REFERENCE_READER).consume(topic, 1000)] == [row.key for row in written]


@pytest.mark.ability("transactions", "java-0.11")
def test_the_first_transactional_client_commits_and_aborts(client: GetClient, new_topic: NewTopic) -> None:
    topic = new_topic("transactional")
    old = client("java-0.11")
    for number, end in enumerate(("commitTransaction", "abortTransaction", "commitTransaction")):
        rows = [record.as_json() for record in numbered(3, first=3 * number)]
        what = {"topic": topic, "partition": 0, "records": rows, "codec": "none"}
        old.call("transact", **what, settings={"transactional_id": topic}, end=end)

    committed = old.consume(topic, 6, isolation_level="read_committed")
    # librdkafka set to brokers of 0.10 reads no further than the second marker, of Apache Kafka too
    everything = [client(name).consume(topic, 9) for name in OLD_CLIENTS if name != "librdkafka-as-0.10"]

    assert [record.key for record in committed] == [b"0", b"1", b"2", b"6", b"7", b"8"]
    for found in everything:
        assert [(record.offset, record.key) for record in found] == [(i + i // 3, b"%d" % i) for i in range(9)]


def old_records(count: int = 5) -> list[wire_record.Record]:
    return [
        wire_record.Record(i, FIRST_TIMESTAMP_MS + i, None if i == 1 else b"key %d" % i, b"value %d" % i)
        for i in range(count)
    ]


@pytest.mark.ability("old formats")
@pytest.mark.parametrize(("reader", "magic", "codec"), pairwise(CLIENTS, [0, 1], CODECS))
def test_records_of_old_producers_are_read_by_new_clients(
    broker: BrokerProcess, client: GetClient, new_topic: NewTopic, reader: str, magic: int, codec: str
) -> None:
    topic = new_topic("old-producer")
    rows = old_records()
    data = bytes(build_message_set(rows, magic=magic, codec=Codec(CODEC_IDS[codec])))
    with connection_to(broker.bootstrap) as connection:
        assert write(connection, topic, data, version=WRITTEN_WITH[magic]).error_code == 0

    found = client(reader).consume(topic, len(rows))

    assert [(row.offset, row.key, row.value) for row in rows] == [(row.offset, row.key, row.value) for row in found]
    if magic == 1:
        assert [row.timestamp_ms for row in rows] == [row.timestamp_ms for row in found]
