"""Appends records to a topic for tests, over one connection, by Kafka's protocol.

Keys go to the partitions that Kafka's Java client gives them, records without a key to each partition in turn.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from minibroker.administration import offered_version, refuse_unless_done
from minibroker.any_cluster.record_batches import batches_of, partition_for
from minibroker.errors import BrokerError
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record import NO_TIMESTAMP
from minibroker.protocol.record import Record as StoredRecord
from minibroker.protocol.record_batch import build_batch

if TYPE_CHECKING:
    from minibroker.administration import Connection

TIMEOUT_MS = 30_000
ALL_IN_SYNC = -1
LAST_VERSION_OF_PRODUCE = 3
FIRST_WITH_MAGIC_2 = 3
CREATION_SECONDS = 10.0
POLL_SECONDS = 0.005
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic, as `Broker.records` returns it and `Broker.produce` takes it.

    `headers` are pairs of a name and bytes or None. `timestamp` is in UTC, and None where there is none (message format
    0). `Broker.produce` ignores `topic` and `offset`, chooses the partition if that is None, and the time likewise.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: datetime | None = None
    topic: str = ""
    partition: int | None = None
    offset: int | None = None


Bytes = bytes | str | None
# A value, a key with its value, or a whole record; text is encoded as UTF-8.
Given = Bytes | tuple[Bytes, Bytes] | Record


def append_records(
    connection: Connection, topic: str, given: Iterable[Given], *, partition: int | None = None
) -> list[Record]:
    """Append with acks=all; return the records in their order, each with its partition, offset and time.

    A topic that is not there is created if the broker creates topics for producers. Raises KafkaError and, for headers
    on a broker that acts as 0.10, BrokerError.
    """
    version = offered_version(connection, ApiKey.PRODUCE, LAST_VERSION_OF_PRODUCE)
    records = [as_record(each) for each in given]
    if version < FIRST_WITH_MAGIC_2 and any(record.headers for record in records):
        raise BrokerError("records have headers since Kafka 0.11, and this broker acts as 0.10")
    count = partition_count(connection, topic)
    places: dict[int, list[int]] = {}  # of `records`, by partition
    for index, record in enumerate(records):
        chosen = record.partition if partition is None else partition
        places.setdefault(partition_for(record.key, index, count) if chosen is None else chosen, []).append(index)
    for number, indexes in places.items():
        for part in batches_of(records, indexes):
            appended = append_batch(connection, version, topic, number, [records[index] for index in part])
            for index, record in zip(part, appended, strict=True):
                records[index] = record
    return records


def as_record(given: Given) -> Record:
    """Raises TypeError."""
    if isinstance(given, Record):
        return given
    key, value = given if isinstance(given, tuple) else (None, given)
    return Record(as_bytes(value), as_bytes(key))


def as_bytes(given: Bytes) -> bytes | None:
    """Raises TypeError."""
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    raise TypeError(f"a record is bytes, str or None, a (key, value) of those, or a Record, not {given!r}")


def partition_count(connection: Connection, topic: str) -> int:
    """The number of the topic's partitions; asking may create it. Raises KafkaError."""
    deadline = time.monotonic() + CREATION_SECONDS
    while True:
        (row,) = connection.ask(
            ApiKey.METADATA, topics=[API_TABLE[ApiKey.METADATA].request.row("topics")(name=topic)]
        ).topics
        if row.error_code != ErrorCode.LEADER_NOT_AVAILABLE or time.monotonic() > deadline:
            refuse_unless_done(row.error_code, f"produce to topic {topic}")
            return len(row.partitions)
        time.sleep(POLL_SECONDS)  # it is being created


def append_batch(
    connection: Connection, version: int, topic: str, partition: int, records: list[Record]
) -> list[Record]:
    """Append one batch to a partition. Raises KafkaError."""
    now = datetime.now(UTC)
    times = [((record.timestamp or now).astimezone(UTC) - EPOCH) // MILLISECOND for record in records]
    stored = [
        StoredRecord(offset, time_ms, record.key, record.value, tuple(record.headers))
        for offset, (record, time_ms) in enumerate(zip(records, times, strict=True))
    ]
    batch = build_batch(stored) if version >= FIRST_WITH_MAGIC_2 else build_message_set(stored, magic=1)
    rows = API_TABLE[ApiKey.PRODUCE].request.row
    partitions = [rows("topics.partitions")(partition=partition, records=bytes(batch))]
    answer = connection.ask(
        ApiKey.PRODUCE,
        version,
        acks=ALL_IN_SYNC,
        timeout_ms=TIMEOUT_MS,
        topics=[rows("topics")(topic=topic, partitions=partitions)],
    )
    (row,) = answer.topics[0].partitions
    refuse_unless_done(row.error_code, f"produce to partition {partition} of topic {topic}")
    return [
        replace(
            record,
            topic=topic,
            partition=partition,
            offset=row.base_offset + number,
            timestamp=as_time(each.timestamp_ms if row.log_append_time_ms < 0 else row.log_append_time_ms),
        )
        for number, (record, each) in enumerate(zip(records, stored, strict=True))
    ]


def as_time(timestamp_ms: int) -> datetime | None:
    """None without a timestamp, and for one that is beyond what a datetime holds."""
    if timestamp_ms == NO_TIMESTAMP:
        return None
    try:
        return EPOCH + timestamp_ms * MILLISECOND
    except OverflowError:
        return None
