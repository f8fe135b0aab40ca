"""Appends records as they are, by Produce requests of our own, where a client library would change or refuse them.

librdkafka takes the time 0 for the present and ends a header's name at a NUL; kafka-python refuses a null header, and a
record with neither key nor value.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import connected
from minibroker.any_cluster.partition_offsets import leaders_of
from minibroker.any_cluster.record_lines import NewRecord
from minibroker.client.batching import batches_of, partition_for, size_of
from minibroker.client.client import Client
from minibroker.client.errors import ClientError, NoAnswer
from minibroker.client.topic_partition import TopicPartition
from minibroker.client.writing import Place
from minibroker.client.writing import append as append_batch
from minibroker.errors import CommandFailed
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import Record

BATCH_BYTES = 1_000_000


def append(client: Client, topic: str, records: Sequence[NewRecord]) -> list[Place]:
    """Append with acks=all; return the place of each. Nothing is sent twice that may have been written.

    Raises as `appended`.
    """
    places: dict[int, Place] = {}
    for indexes, found in appended(client, topic, records):
        places.update(zip(indexes, found, strict=True))
    return [places[index] for index in range(len(records))]


def appended(
    client: Client, topic: str, records: Sequence[NewRecord], codec: Codec = Codec.NONE, batch_bytes: int = BATCH_BYTES
) -> Iterator[tuple[list[int], list[Place]]]:
    """Append batch by batch; yield the indexes of each batch's records, and their places.

    A key chooses the partition as in Java's client; records without one go to the same partition. Raises
    errors of the client, and CommandFailed if the topic does not exist.
    """
    now = time.time_ns() // 1_000_000
    leaders = leaders_of(client, topic)
    any_partition = random.choice(sorted(leaders))
    indexes: dict[int, list[int]] = {}  # of `records`, by partition
    for index, record in enumerate(records):
        chosen = record.partition
        if chosen is None:
            chosen = any_partition if record.key is None else partition_for(record.key, index, len(leaders))
        indexes.setdefault(chosen, []).append(index)
    for partition, of_partition in indexes.items():
        for part in batches_of(records, of_partition, batch_bytes):
            stored = [as_stored(offset, records[index], now) for offset, index in enumerate(part)]
            yield part, append_batch(client, TopicPartition(topic, partition), stored, codec)


def as_stored(offset: int, record: NewRecord, now_ms: int) -> Record:
    timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
    return Record(offset, timestamp_ms, record.key, record.value, tuple(record.headers))


class ExactAppends:
    """Collects records, and appends them in batches over a connection of its own."""

    def __init__(self, cluster: Cluster, topic: str, settings: Mapping[str, str], batch_bytes: int) -> None:
        self._cluster = cluster
        self._topic = topic
        codec = settings.get("compression.type", "none").upper()
        self._codec = Codec[codec] if codec in Codec.__members__ else Codec.NONE
        self._batch_bytes = min(batch_bytes, BATCH_BYTES)
        self._closing = ExitStack()
        self._client: Client | None = None
        self._waiting: list[NewRecord] = []
        self._waiting_bytes = 0
        self.acknowledged = 0
        self.refusal: Exception | None = None

    def send(self, record: NewRecord) -> None:
        self._waiting.append(record)
        self._waiting_bytes += size_of(record)
        if self._waiting_bytes >= self._batch_bytes:
            self.flush()

    def flush(self) -> None:
        """Append what waits; an error is the refusal."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not waiting or self.refusal is not None:
            return
        try:
            if self._client is None:
                self._client = self._closing.enter_context(connected(self._cluster))
            for indexes, _ in appended(self._client, self._topic, waiting, self._codec, self._batch_bytes):
                self.acknowledged += len(indexes)
        except NoAnswer as error:
            self.refusal = KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error))  # some may be written
        except (KafkaError, ClientError, CommandFailed) as error:
            self.refusal = error

    def close(self) -> None:
        self._closing.close()
