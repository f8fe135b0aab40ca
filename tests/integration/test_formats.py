"""Formats of three generations: what old requests write and read, and what a topic's configs make of records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minibroker.protocol import record as wire_record
from minibroker.protocol.api import ApiKey
from minibroker.protocol.batches import iter_all_records, scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record_batch import build_batch
from tests.integration.brokers import BrokerProcess
from tests.integration.clients import CLIENTS
from tests.integration.conftest import GetClient, NewTopic
from tests.integration.records import CODEC_IDS, CODECS, FIRST_TIMESTAMP_MS, Record, numbered
from tests.integration.wire import RawConnection, fetch_body, produce_body, the_partition
from tests.matrices import pairwise

CORRUPT_MESSAGE = 2
INVALID_TIMESTAMP = 32
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
ROOM = 2**20
WRITTEN_WITH = {0: 0, 1: 2, 2: 3}  # magic: version of Produce
READ_WITH = {0: 1, 1: 3, 2: 4}  # magic: version of Fetch


def old_records(count: int = 5) -> list[wire_record.Record]:
    return [
        wire_record.Record(i, FIRST_TIMESTAMP_MS + i, None if i == 1 else b"key %d" % i, b"value %d" % i)
        for i in range(count)
    ]


def encoded(magic: int, codec: str, rows: list[wire_record.Record]) -> bytes:
    if magic == 2:
        return bytes(build_batch(rows, codec=Codec(CODEC_IDS[codec])))
    return bytes(build_message_set(rows, magic=magic, codec=Codec(CODEC_IDS[codec])))


def write(broker: BrokerProcess, topic: str, magic: int, data: bytes) -> int:
    """Produce with the version that carries this format; return the error code."""
    with RawConnection(broker.host, broker.port) as connection:
        answer = connection.call(ApiKey.PRODUCE, WRITTEN_WITH[magic], produce_body(topic, data))
    return int(the_partition(answer).error_code)


def read(broker: BrokerProcess, topic: str, magic: int) -> tuple[set[int], set[int], list[wire_record.Record]]:
    """Fetch with a version for this format; return the formats and codecs that came, and the records."""
    with RawConnection(broker.host, broker.port) as connection:
        row = the_partition(connection.call(ApiKey.FETCH, READ_WITH[magic], fetch_body(topic, max_bytes=ROOM)))
    assert row.error_code == 0
    data = bytes(row.records)
    views = list(scan_batches(data, 0, len(data)))
    rows = [row for view in views for row in iter_all_records(data, view, max_decompressed_bytes=ROOM)]
    return {view.magic for view in views}, {view.attributes & 7 for view in views}, rows


def contents(rows: list[wire_record.Record], *, with_timestamps: bool) -> list[tuple[object, ...]]:
    return [(row.offset, row.timestamp_ms if with_timestamps else None, row.key, row.value) for row in rows]


@pytest.mark.parametrize(("asked", "written", "codec"), pairwise([0, 1, 2], [0, 1, 2], CODECS))
def test_each_fetch_gets_a_format_it_can_read_whatever_was_written(
    broker: BrokerProcess, new_topic: NewTopic, written: int, asked: int, codec: str
) -> None:
    topic = new_topic("formats")
    rows = old_records()
    assert write(broker, topic, written, encoded(written, codec, rows)) == 0

    magics, _, found = read(broker, topic, asked)

    assert magics == {asked} if asked < 2 else magics <= {0, 1, 2}
    has_timestamps = written > 0 and asked > 0
    assert contents(found, with_timestamps=has_timestamps) == contents(rows, with_timestamps=has_timestamps)


@pytest.mark.parametrize(("reader", "magic", "codec"), pairwise(CLIENTS, [0, 1], CODECS))
def test_records_of_old_producers_are_read_by_new_clients(
    broker: BrokerProcess, client: GetClient, new_topic: NewTopic, reader: str, magic: int, codec: str
) -> None:
    topic = new_topic("old-producer")
    rows = old_records()
    assert write(broker, topic, magic, encoded(magic, codec, rows)) == 0

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
    assert read(broker, topic, 2)[0] == {0 if version == "0.9.0" else 1}


def test_an_idempotent_batch_is_refused_by_a_topic_of_an_old_format(broker: BrokerProcess, new_topic: NewTopic) -> None:
    topic = new_topic("old-format", configs={"message.format.version": "0.10.2"})
    batch = bytes(build_batch(old_records(), producer_id=5, producer_epoch=0, base_sequence=0))

    assert write(broker, topic, 2, batch) == UNSUPPORTED_FOR_MESSAGE_FORMAT


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
    assert read(broker, topic, 2)[1] == {CODEC_IDS.get(kept, 0)}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_what_a_producer_compressed_is_kept_as_it_is(
    broker: BrokerProcess, client: GetClient, new_topic: NewTopic, writer: str, codec: str
) -> None:
    topic = new_topic("producers-codec")

    client(writer).produce(topic, [Record(b"key", b"even " * 1000)], codec=codec)

    magics, codecs, _ = read(broker, topic, 2)
    assert (magics, codecs) == ({2}, {CODEC_IDS[codec]})


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_refuses_records_without_a_key(
    broker: BrokerProcess, new_topic: NewTopic, codec: str, magic: int
) -> None:
    topic = new_topic("compacted", configs={"cleanup.policy": "compact"})
    keyed = [row._replace(key=b"key") for row in old_records()]

    assert write(broker, topic, magic, encoded(magic, codec, old_records())) == CORRUPT_MESSAGE
    assert write(broker, topic, magic, encoded(magic, codec, keyed)) == 0

    assert len(read(broker, topic, 2)[2]) == len(keyed)


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_too_far_from_now_are_refused_where_that_is_asked_for(
    broker: BrokerProcess, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic("recent-only", configs={"message.timestamp.difference.max.ms": "60000"})

    assert write(broker, topic, 2, encoded(2, codec, old_records())) == INVALID_TIMESTAMP

    assert read(broker, topic, 2)[2] == []


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [1, 2])
def test_an_offset_is_found_by_timestamp_inside_a_batch_of_any_format(
    broker: BrokerProcess, client: GetClient, new_topic: NewTopic, magic: int, codec: str
) -> None:
    topic = new_topic("by-time")
    assert write(broker, topic, magic, encoded(magic, codec, old_records())) == 0

    found = client("kafka-python-3.0").offsets_for_times(topic, [FIRST_TIMESTAMP_MS + i for i in range(6)])

    assert found == [*([i, FIRST_TIMESTAMP_MS + i] for i in range(5)), None]
