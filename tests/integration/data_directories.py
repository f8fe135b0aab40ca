"""A data directory with a bit of everything, and all that a broker says of it, to be compared with the next broker's.

Both are done over the wire, so that minibroker and Apache Kafka can each do either.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer

from minibroker.conformance.raw_connection import RawConnection
from minibroker.protocol.api import ApiKey
from minibroker.protocol.batches import scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.files.checkpoints import OffsetCheckpointFile
from minibroker.storage.files.file_names import LOG_START_OFFSET_CHECKPOINT
from tests.integration.brokers import BrokerProcess
from tests.integration.members import answer_of, wait_until
from tests.integration.records import ALL_BYTES, FIRST_TIMESTAMP_MS, incompressible
from tests.integration.topics import create_topic_over
from tests.integration.wire import read, the_partition
from tests.requests import list_offsets_body, produce_body

SETTINGS: dict[str, str | int] = {
    "log.flush.start.offset.checkpoint.interval.ms": 100,
    "log.retention.ms": -1,  # of records with old timestamps
    "log.cleaner.enable": "false",
}
SMALL_SEGMENTS = {"segment.bytes": "3000", "index.interval.bytes": "300"}
TOPICS: dict[str, dict[str, str]] = {
    "codecs": SMALL_SEGMENTS,
    "lz4": SMALL_SEGMENTS,
    "append-time": {"message.timestamp.type": "LogAppendTime", **SMALL_SEGMENTS},
    "format-0": {"message.format.version": "0.9.0", **SMALL_SEGMENTS},
    "format-1": {"message.format.version": "0.10.2", **SMALL_SEGMENTS},
    "trimmed": SMALL_SEGMENTS,
    "producers": SMALL_SEGMENTS,
    "single-records": SMALL_SEGMENTS,
    "empty": {},
}
TRIMMED_BELOW = 17  # in the middle of a batch, in the middle of a segment
BATCHES = 12
RECORDS_A_BATCH = 5
PRODUCERS = (4000, 4001)
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY)
PACKED_DIFFERENTLY = "lz4"  # by Kafka's library, when records are packed anew for an old client
PRODUCE_VERSION = {0: 1, 1: 2, 2: 5}  # by magic
NOT_YET = (3, 5, 6)  # error codes of a topic that has just been created
WHOLE_SEGMENT_BYTES = 1 << 24
EARLIEST, LATEST = -2, -1
READ_COMMITTED = 1


class Served(NamedTuple):
    """One broker's facts of one partition."""

    log_start_offset: int
    high_watermark: int
    records: bytes  # from the log start offset on, all segments
    aborted: list[tuple[int, int]]  # of all transactions: producer and first offset
    offsets: dict[int, tuple[int, int]]  # by timestamp asked for: offset and timestamp found
    converted: dict[tuple[int, int], bytes]  # records for old clients, by Fetch version and offset


def fill(broker: BrokerProcess) -> None:
    """Create the topics, and write what makes their segments differ."""
    with RawConnection(broker.host, broker.port) as connection:
        for name, configs in TOPICS.items():
            create_topic_over(connection, name, configs=configs)
        for number in range(BATCHES):
            rows = various_records(number)
            codec = CODECS[number % len(CODECS)]
            for name in ("codecs", "append-time", "trimmed"):
                produce(connection, name, build_batch(rows, codec=codec))
            produce(connection, "lz4", build_batch(rows, codec=Codec.LZ4))
            for magic in (0, 1):
                old = build_message_set(rows, magic=magic, codec=codec)
                produce(connection, f"format-{magic}", old, magic=magic)
            for row in rows:
                produce(connection, "single-records", build_batch([row._replace(offset=0)], codec=codec))
            for producer_id in PRODUCERS:
                produce(connection, "producers", sequenced_batch(producer_id, number))
        delete_records(connection, "trimmed", TRIMMED_BELOW)


def write_transactions(broker: BrokerProcess, topic: str, transactions: Iterable[list[Any]], **settings: Any) -> None:
    """Transactions of rows, a row as `Producer.produce` takes it; the second of every three is aborted."""
    config = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"writes-{topic}"}
    producer = Producer(config | {name.replace("_", "."): value for name, value in settings.items()})
    producer.init_transactions(30)
    for number, rows in enumerate(transactions):
        producer.begin_transaction()
        for row in rows:
            producer.produce(topic, partition=0, **row)
        producer.flush(20)
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(20)


def wait_for_checkpoint(data_dir: Path) -> None:
    """Return once a crash would not undo what `fill` deleted: that is written down from time to time only."""
    checkpoint = OffsetCheckpointFile(data_dir / LOG_START_OFFSET_CHECKPOINT)
    wait_until(lambda: checkpoint.read().get(TopicPartition("trimmed", 0)) == TRIMMED_BELOW, "the log start offset")


def various_records(number: int) -> list[Record]:
    """Keys and values, present, empty and null; headers; timestamps that do not rise."""
    first_ms = FIRST_TIMESTAMP_MS + 1000 * number
    return [
        Record(0, first_ms, b"key %d" % number, incompressible(100, seed=number)),
        Record(1, first_ms + 7, None, b"even " * 30),
        Record(2, first_ms - 9, b"tombstone", None),
        Record(3, first_ms + 3, b"", b"", (("trace", b"1"), ("trace", b""), ("none", None))),
        Record(4, first_ms + 4, ALL_BYTES, b"last of %d" % number),
    ]


def sequenced_batch(producer_id: int, number: int) -> bytearray:
    """The batch of that number of an idempotent producer. Its time is now: brokers forget producers in a week."""
    now_ms = time.time_ns() // 1_000_000
    rows = [Record(i, now_ms, b"%d" % producer_id, b"%d.%d" % (number, i)) for i in range(RECORDS_A_BATCH)]
    return build_batch(rows, producer_id=producer_id, producer_epoch=0, base_sequence=RECORDS_A_BATCH * number)


def produce(connection: RawConnection, topic: str, records: bytes | bytearray, *, magic: int = 2) -> Any:
    """Write to partition 0 and return its row of the answer."""
    row = when_led(connection, ApiKey.PRODUCE, PRODUCE_VERSION[magic], **produce_body(topic, bytes(records)))
    assert row.error_code == 0, (topic, row)
    return row


def when_led(connection: RawConnection, key: ApiKey, version: int, /, **body: Any) -> Any:
    """The partition's row of the answer, once the broker leads it."""
    return answer_of(
        lambda: the_partition(connection.call(key, version, **body)), NOT_YET, f"the leader for {key.name}"
    )


def delete_records(connection: RawConnection, topic: str, before_offset: int) -> None:
    answer = connection.call(ApiKey.DELETE_RECORDS, 1, topics=[(topic, [(0, before_offset)])], timeout_ms=10_000)
    assert the_partition(answer).error_code == 0


def everything_served(broker: BrokerProcess, topics: Iterable[str]) -> dict[str, Served]:
    with RawConnection(broker.host, broker.port) as connection:
        return {topic: served(connection, topic) for topic in topics}


def served(connection: RawConnection, topic: str) -> Served:
    start = offset_at(connection, topic, EARLIEST)[0]
    end = offset_at(connection, topic, LATEST)[0]
    answers = list(fetch_all(connection, topic, start, end))
    last = answers[-1] if answers else fetch(connection, topic, start)
    assert (last.log_start_offset, last.high_watermark, last.last_stable_offset) == (start, end, end)
    return Served(
        log_start_offset=start,
        high_watermark=end,
        records=b"".join(bytes(answer.records) for answer in answers),
        aborted=sorted({(txn.producer_id, txn.first_offset) for row in answers for txn in row.aborted_transactions}),
        offsets={time_ms: offset_at(connection, topic, time_ms) for time_ms in times_worth_asking(topic)},
        converted={
            (version, offset): bytes(fetch(connection, topic, offset, version=version).records)
            for version in (1, 3)
            for offset in range(start, end + 1)
            if topic != PACKED_DIFFERENTLY
        },
    )


def times_worth_asking(topic: str) -> range:
    if topic in ("format-0", "append-time"):
        return range(0)  # has no timestamps, has those of the clock
    return range(FIRST_TIMESTAMP_MS - 1, FIRST_TIMESTAMP_MS + 1000 * BATCHES, 499)


def fetch_all(connection: RawConnection, topic: str, start: int, end: int) -> Iterator[Any]:
    """The answers of as many fetches as there are segments."""
    while start < end:
        answer = fetch(connection, topic, start)
        data = bytes(answer.records)
        views = list(scan_batches(data, 0, len(data)))
        assert views, f"nothing at {start} of {topic}, which ends at {end}"
        assert views[-1].end_position == len(data)
        yield answer
        start = views[-1].next_offset


def fetch(connection: RawConnection, topic: str, offset: int, *, version: int = 8) -> Any:
    """Read as a consumer of committed records does; old versions read all."""
    options = {"max_partition_bytes": WHOLE_SEGMENT_BYTES, "isolation_level": READ_COMMITTED}
    row = read(connection, topic, version=version, offset=offset, **options)
    assert row.error_code == 0, (topic, offset, row)
    return row


def offset_at(connection: RawConnection, topic: str, time_ms: int) -> tuple[int, int]:
    """The offset found for a timestamp, or for EARLIEST and LATEST; with the timestamp there."""
    row = when_led(connection, ApiKey.LIST_OFFSETS, 1, **list_offsets_body(topic, timestamp_ms=time_ms))
    assert row.error_code == 0, row
    return row.offset, row.timestamp
