"""Formats of three generations: what new clients read of old ones, and what a topic's configs make of their records.

What each version of a request reads and writes is in the recorded conversations (tests/conformance/scripts/).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from minibroker.protocol import record as wire_record
from minibroker.protocol.batches import scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.message_set import build_message_set
from tests.integration.brokers import BrokerProcess
from tests.integration.clients import CLIENTS
from tests.integration.conftest import GetClient, NewTopic
from tests.integration.records import CODEC_IDS, CODECS, FIRST_TIMESTAMP_MS, Record, numbered
from tests.integration.wire import connection_to, read, write
from tests.matrices import pairwise

WRITTEN_WITH = {0: 0, 1: 2}  # magic: version of Produce


def old_records(count: int = 5) -> list[wire_record.Record]:
    return [
        wire_record.Record(i, FIRST_TIMESTAMP_MS + i, None if i == 1 else b"key %d" % i, b"value %d" % i)
        for i in range(count)
    ]


def stored(broker: BrokerProcess, topic: str) -> tuple[set[int], set[int]]:
    """The formats and codecs of what the topic has, as it is kept."""
    with connection_to(broker.bootstrap) as connection:
        data = bytes(read(connection, topic).records)
    views = list(scan_batches(data, 0, len(data)))
    return {view.magic for view in views}, {view.attributes & 7 for view in views}


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


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_topic_of_an_old_format_takes_records_of_new_clients(
    broker: BrokerProcess, client: GetClient, new_topic: NewTopic, name: str, version: str
) -> None:
    topic = new_topic("old-format", configs={"message.format.version": version})
    rows = numbered(5 if name == "kcat" else 20)
    user = client(name)

    user.produce(topic, rows, codec="gzip", enable_idempotence=False)

    found = user.consume(topic, len(rows))
    assert [(i, row.key, row.value) for i, row in enumerate(rows)] == [
        (row.offset, row.key, row.value) for row in found
    ]
    assert stored(broker, topic)[0] == {0 if version == "0.9.0" else 1}


@pytest.mark.parametrize("kept", ["gzip", "snappy", "lz4", "uncompressed"])
@pytest.mark.parametrize("sent", CODECS)
def test_a_topic_with_a_codec_of_its_own_keeps_records_in_that(
    broker: BrokerProcess, client: GetClient, new_topic: NewTopic, sent: str, kept: str
) -> None:
    topic = new_topic("recompressed", configs={"compression.type": kept})
    rows = [replace(row, headers=(("kept", b"1"),)) for row in numbered(50, first_timestamp_ms=FIRST_TIMESTAMP_MS)]
    user = client("java-3.9")

    written = user.produce(topic, rows, codec=sent)

    assert user.consume(topic, 50) == written
    assert stored(broker, topic)[1] == {CODEC_IDS.get(kept, 0)}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_what_a_producer_compressed_is_kept_as_it_is(
    broker: BrokerProcess, client: GetClient, new_topic: NewTopic, writer: str, codec: str
) -> None:
    topic = new_topic("producers-codec")

    client(writer).produce(topic, [Record(b"key", b"even " * 1000)], codec=codec)

    assert stored(broker, topic) == ({2}, {CODEC_IDS[codec]})
