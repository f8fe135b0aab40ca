"""Appends records to a topic for tests.

Keys go to the partitions that Kafka's Java client gives them, records without a key to each partition in turn.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from minibroker.administration import refuse_unless_done
from minibroker.client.batching import batches_of, partition_for
from minibroker.client.topic_partition import TopicPartition
from minibroker.client.writing import append
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import NO_TIMESTAMP
from minibroker.protocol.record import Record as StoredRecord

if TYPE_CHECKING:
    from minibroker.client.client import Client
    from minibroker.client.transactions import Transactions

# Until a topic that a producer asks for is there; the second is the answer of Kafka 4, created or not.
CREATION_SECONDS = {ErrorCode.LEADER_NOT_AVAILABLE: 10.0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 0.5}
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
    client: Client,
    topic: str,
    given: Iterable[Given],
    *,
    partition: int | None = None,
    transactions: Transactions | None = None,
) -> list[Record]:
    """Append with acks=all; return the records in their order, each with its partition, offset and time.

    A topic that is not there is created if the broker creates topics for producers. Raises KafkaError, also for headers
    on a broker that acts as 0.10, and ClientError.
    """
    records = [as_record(each) for each in given]
    now = datetime.now(UTC)
    count = partition_count(client, topic)
    places: dict[int, list[int]] = {}  # of `records`, by partition
    for index, record in enumerate(records):
        chosen = record.partition if partition is None else partition
        if chosen is not None and not 0 <= chosen < count:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {chosen}")
        places.setdefault(partition_for(record.key, index, count) if chosen is None else chosen, []).append(index)
    for number, indexes in places.items():
        for part in batches_of(records, indexes):
            stored = [as_stored(offset, records[index], now) for offset, index in enumerate(part)]
            places_of_part = append(client, TopicPartition(topic, number), stored, transactions=transactions)
            for index, place in zip(part, places_of_part, strict=True):
                records[index] = replace(
                    records[index],
                    topic=topic,
                    partition=number,
                    offset=place.offset,
                    timestamp=as_time(place.timestamp_ms),
                )
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


def as_stored(offset: int, record: Record, now: datetime) -> StoredRecord:
    time_ms = ((record.timestamp or now).astimezone(UTC) - EPOCH) // MILLISECOND
    return StoredRecord(offset, time_ms, record.key, record.value, tuple(record.headers))


def partition_count(client: Client, topic: str) -> int:
    """The number of the topic's partitions; asking may create it. Raises KafkaError."""
    begun = time.monotonic()
    row = API_TABLE[ApiKey.METADATA].request.row("topics")(name=topic)
    while True:
        (found,) = client.ask(ApiKey.METADATA, topics=[row]).topics
        if time.monotonic() > begun + CREATION_SECONDS.get(found.error_code, 0.0):
            refuse_unless_done(found.error_code, f"produce to topic {topic}")
            return len(found.partitions)
        time.sleep(POLL_SECONDS)  # it is being created


def as_time(timestamp_ms: int) -> datetime | None:
    """None without a timestamp, and for one that is beyond what a datetime holds."""
    if timestamp_ms == NO_TIMESTAMP:
        return None
    try:
        return EPOCH + timestamp_ms * MILLISECOND
    except OverflowError:
        return None
