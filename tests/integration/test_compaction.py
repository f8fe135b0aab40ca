"""Compaction as clients see it, and as Apache Kafka 2.0.1 does it with the same records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition

from benchmarks.apache_kafka import ApacheKafka
from minibroker.conformance.raw_connection import RawConnection
from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import build_records
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.storage.files.checkpoints import OffsetCheckpointFile
from minibroker.storage.files.file_names import CLEANER_OFFSET_CHECKPOINT
from tests.integration.brokers import BrokerProcess, Minibroker
from tests.integration.conftest import StartMinibroker
from tests.integration.data_directories import EARLIEST, LATEST, fetch_all, offset_at, produce, write_transactions
from tests.integration.kafka_tools import dump_log_segments
from tests.integration.librdkafka import consumer_of
from tests.integration.members import wait_until
from tests.integration.topics import create_topic, create_topic_over, records_in

SETTINGS: dict[str, str | int] = {
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 4_000_000,
    "log.retention.ms": -1,  # of records with old timestamps
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "offsets.topic.num.partitions": 1,
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0",
    "index.interval.bytes": "200",
}
# name: message format, codec
TOPICS = {
    "plain": (2, Codec.NONE),
    "gzip": (2, Codec.GZIP),
    "snappy": (2, Codec.SNAPPY),
    "lz4": (2, Codec.LZ4),
    "format-0": (0, Codec.NONE),
    "format-0-gzip": (0, Codec.GZIP),
    "format-1": (1, Codec.NONE),
    "format-1-snappy": (1, Codec.SNAPPY),
    "idempotent": (2, Codec.NONE),
}
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "2.0"}
TRANSACTIONS = "transactions"
BATCHES, RECORDS_A_BATCH, KEYS = 120, 5, 37
FIRST_MS = 1_500_000_000_000
DEADLINE_SECONDS = 120.0

Rows = list[tuple[int, bytes | None, bytes | None, int]]


def fill(broker: BrokerProcess) -> None:
    """Write the same records to whichever broker it is."""
    with RawConnection(broker.host, broker.port) as connection:
        for topic, (magic, codec) in TOPICS.items():
            create_topic_over(connection, topic, configs={**COMPACTED, "message.format.version": FORMATS[magic]})
            for number in range(BATCHES):
                for batch in batches_of(topic, number, magic, codec):
                    produce(connection, topic, batch, magic=magic)
        create_topic_over(connection, TRANSACTIONS, configs=COMPACTED)
    rows = ([row_of(number) for number in range(first, first + 10)] for first in range(0, 400, 10))
    write_transactions(broker, TRANSACTIONS, rows, linger_ms=50)


def batches_of(topic: str, number: int, magic: int, codec: Codec) -> Iterator[bytearray]:
    producer = {"producer_id": 4000, "producer_epoch": 0, "base_sequence": number * RECORDS_A_BATCH}
    # Brokers forget producers after a week.
    first_ms = time.time_ns() // 1_000_000 if topic == "idempotent" else FIRST_MS
    rows = [Record(i, first_ms + number, *pair_of(number * RECORDS_A_BATCH + i)) for i in range(RECORDS_A_BATCH)]
    if magic < 2 and codec is Codec.NONE:
        for row in rows:
            yield build_records([row._replace(offset=0)], magic=magic, base_offset=0)
    else:
        options: Any = producer if topic == "idempotent" else {}
        yield build_records(rows, magic=magic, base_offset=0, codec=codec, **options)


def pair_of(number: int) -> tuple[bytes, bytes | None]:
    """Keys of several lengths, one of them never overwritten; one value in seven a tombstone."""
    key = b"once %d" % number if number % 101 == 0 else b"%0*d" % (1 + number % 3 * 20, number * 7919 % KEYS)
    return key, None if number % 7 == 0 else b"value %d " % number * 3


def row_of(number: int) -> dict[str, Any]:
    key, value = pair_of(number)
    return {"key": key, "value": value, "timestamp": FIRST_MS + number}


def wait_until_compacted(data_dir: Path, topics: list[str], *, least_offset: int | None = None) -> None:
    """Return once everything but the active segments, or up to an offset, is compacted, as the checkpoint says."""
    checkpoint = OffsetCheckpointFile(data_dir / CLEANER_OFFSET_CHECKPOINT)

    def is_compacted() -> bool:
        offsets = checkpoint.read() if checkpoint.path.exists() and checkpoint.path.stat().st_size else {}
        due = {topic: active_base(data_dir, topic) if least_offset is None else least_offset for topic in topics}
        return all(offsets.get(TopicPartition(topic, 0), -1) >= offset for topic, offset in due.items())

    wait_until(is_compacted, f"{topics} compacted", seconds=DEADLINE_SECONDS)


def active_base(data_dir: Path, topic: str) -> int:
    return max(int(path.stem) for path in (data_dir / f"{topic}-0").glob("*.log"))


def served(broker: BrokerProcess, topic: str) -> Rows:
    """All records, offsets and times included, markers left out."""
    with RawConnection(broker.host, broker.port) as connection:
        start, end = (offset_at(connection, topic, which)[0] for which in (EARLIEST, LATEST))
        return [
            (record.offset, record.key, record.value, record.timestamp_ms)
            for answer in fetch_all(connection, topic, start, end)
            for record in records_in(bytes(answer.records))
        ]


@pytest.fixture
def broker(start_minibroker: StartMinibroker) -> Minibroker:
    return start_minibroker(settings=SETTINGS).wait_until_ready()


def test_a_compacted_topic_is_read_as_the_newest_value_of_each_key(broker: Minibroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    create_topic(broker, "table", configs=COMPACTED)
    newest: dict[bytes, bytes | None] = {}
    for number in range(3000):
        key, newest[key] = (pair := pair_of(number))
        producer.produce("table", key=key, value=pair[1], partition=0)
        if number % 20 == 0:
            producer.flush(20)
    producer.flush(20)

    wait_until_compacted(broker.data_dir, ["table"])
    found = served(broker, "table")

    offsets = [offset for offset, _, _, _ in found]
    assert offsets == sorted(set(offsets))
    assert {key: value for _, key, value, _ in found} == newest
    active = active_base(broker.data_dir, "table")
    assert len([offset for offset in offsets if offset < active]) <= len(newest)
    assert offset_at_end(broker, "table") == 3000


def test_killed_while_it_compacts_a_broker_loses_no_value(start_minibroker: StartMinibroker, tmp_path: Path) -> None:
    random, newest = Random(7), dict[bytes, bytes | None]()
    number = 0
    for life in range(6):
        data_dir = tmp_path / "one" / "data"
        broker = start_minibroker(settings={**SETTINGS, "log.cleaner.backoff.ms": 1}).wait_until_ready()
        if life == 0:
            create_topic(broker, "table", configs=COMPACTED)
        elif life == 5:
            break
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
        for _ in range(40 + random.randrange(40)):
            for _ in range(20):
                key, newest[key] = (pair := pair_of(number))
                producer.produce("table", key=key, value=pair[1], partition=0)
                number += 1
            assert producer.flush(20) == 0
        broker.kill()

    wait_until_compacted(data_dir, ["table"])

    assert {key: value for _, key, value, _ in served(broker, "table")} == newest
    assert offset_at_end(broker, "table") >= number


def offset_at_end(broker: BrokerProcess, topic: str) -> int:
    with RawConnection(broker.host, broker.port) as connection:
        return offset_at(connection, topic, LATEST)[0]


def test_committed_offsets_are_compacted_and_there_after_a_restart(start_minibroker: StartMinibroker) -> None:
    settings = {**SETTINGS, "offsets.topic.segment.bytes": 4000}
    broker = start_minibroker(settings=settings).wait_until_ready()
    with RawConnection(broker.host, broker.port) as connection:
        create_topic_over(connection, "read", configs={})
    consumer = consumer_of(broker.bootstrap, "readers")
    for offset in range(300):
        consumer.commit(offsets=[KafkaPartition("read", 0, offset)], asynchronous=False)

    wait_until_compacted(broker.data_dir, [GROUP_METADATA_TOPIC], least_offset=240)
    segments = list((broker.data_dir / f"{GROUP_METADATA_TOPIC}-0").glob("*.log"))
    assert sum(path.stat().st_size for path in segments) < 10_000  # of 300 commits more than 30,000 without
    consumer.close()
    assert broker.terminate() == 0
    again = start_minibroker(settings=settings).wait_until_ready()
    consumer = consumer_of(again.bootstrap, "readers")

    (committed,) = consumer.committed([KafkaPartition("read", 0)], timeout=20)

    assert committed.offset == 299
    consumer.close()


def test_apache_kafka_compacts_the_same_records_to_the_same_and_its_tool_accepts_every_file(
    jars: Path, tmp_path: Path, broker: Minibroker
) -> None:
    everything = [*TOPICS, TRANSACTIONS]
    fill(broker)
    wait_until_compacted(broker.data_dir, everything)
    ours = {topic: served(broker, topic) for topic in everything}
    with ApacheKafka(jars, tmp_path / "kafka", settings=SETTINGS, heap="512m") as kafka:
        fill(kafka)
        wait_until_compacted(kafka.data_dir, everything)
        for topic in TOPICS:
            theirs = served(kafka, topic)
            if topic == "idempotent":  # at times of their own
                assert [row[:3] for row in ours[topic]] == [row[:3] for row in theirs]
            else:
                assert ours[topic] == theirs, topic
        # librdkafka's batches, and with them the segments, are not cut the same way every time.
        newest_of_ours = {key: (value, time_ms) for _, key, value, time_ms in ours[TRANSACTIONS]}
        theirs = served(kafka, TRANSACTIONS)
        assert {key: (value, time_ms) for _, key, value, time_ms in theirs} == newest_of_ours

    assert broker.terminate() == 0
    folders = [broker.data_dir / f"{topic}-0" for topic in everything]
    logs = [path for folder in folders for path in sorted(folder.glob("*.log"))]
    said = dump_log_segments(jars, logs, "--deep-iteration")
    indexes = [path for folder in folders for kind in ("index", "timeindex") for path in folder.glob(f"*.{kind}")]
    said_of_indexes = dump_log_segments(jars, indexes, "--index-sanity-check")

    assert "isvalid: false" not in said
    records = [line for line in said.splitlines() if "isvalid: true" in line and "endTxnMarker" not in line]
    assert len(records) == sum(map(len, ours.values()))
    for complaint in ("Mismatches", "Index timestamp mismatch", "does not", "Exception", "Non-consecutive"):
        assert complaint not in said_of_indexes
