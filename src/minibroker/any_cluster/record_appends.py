"""Appends records as they are, by Produce requests of our own, where a client library would change or refuse them.

librdkafka takes the time 0 for the present and ends a header's name at a NUL; kafka-python refuses a null header, and a
record with neither key nor value.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import ProduceRequest, answer_to, connected, errors, release_of
from minibroker.any_cluster.partition_offsets import leaders_of
from minibroker.any_cluster.record_lines import NewRecord
from minibroker.client.batching import batches_of, partition_for, size_of
from minibroker.errors import CommandFailed
from minibroker.protocol.compression import Codec
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch

NEWEST_PRODUCE = 8  # before the flexible versions; every broker since 0.11 has one of 3 to 8
MAGIC_2_SINCE = (0, 11)
BATCH_BYTES = 1_000_000
ANSWER_MS = 15_000
RETRY_SECONDS = 0.1
NO_LEADER = errors.LeaderNotAvailableError.errno
ELSEWHERE = {NO_LEADER, errors.NotLeaderForPartitionError.errno}  # nothing was written


class Place(NamedTuple):
    """The place of a record, and its time there in ms since 1970."""

    partition: int
    offset: int
    timestamp_ms: int


def append(client: Any, topic: str, records: Sequence[NewRecord]) -> list[Place]:
    """Append with acks=all; return the place of each. Nothing is sent twice that may have been written.

    Raises as `appended`.
    """
    places: dict[int, Place] = {}
    for indexes, found in appended(client, topic, records):
        places.update(zip(indexes, found, strict=True))
    return [places[index] for index in range(len(records))]


def appended(
    client: Any, topic: str, records: Sequence[NewRecord], codec: Codec = Codec.NONE, batch_bytes: int = BATCH_BYTES
) -> Iterator[tuple[list[int], list[Place]]]:
    """Append batch by batch; yield the indexes of each batch's records, and their places.

    A key chooses the partition as in Java's client; records without one go to the same partition. Raises errors of
    kafka-python, and CommandFailed if the topic does not exist.
    """
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
            yield part, append_batch(client, topic, partition, [records[index] for index in part], codec)


def append_batch(client: Any, topic: str, partition: int, records: Sequence[NewRecord], codec: Codec) -> list[Place]:
    """Append one batch, where its leader is by now. Raises errors of kafka-python."""
    now = time.time_ns() // 1_000_000
    times = [now if record.timestamp_ms is None else record.timestamp_ms for record in records]
    data = encoded(records, times, codec, release_of(client))
    deadline = time.monotonic() + ANSWER_MS / 1000
    while True:
        leader = leaders_of(client, topic)[partition]
        error_code = NO_LEADER
        if leader >= 0:
            row = answer_to(client, request(topic, partition, data), broker=leader).responses[0].partition_responses[0]
            error_code = row.error_code
        if error_code == 0:
            break
        if error_code not in ELSEWHERE or time.monotonic() > deadline:
            raise errors.for_code(error_code)()
        time.sleep(RETRY_SECONDS)
    appended_ms = row.log_append_time_ms
    return [
        Place(partition, row.base_offset + number, timestamp_ms if appended_ms < 0 else appended_ms)
        for number, timestamp_ms in enumerate(times)
    ]


def encoded(
    records: Sequence[NewRecord], times: Sequence[int], codec: Codec, release: tuple[int, ...]
) -> bytes | bytearray:
    """A batch, or for Kafka 0.10 a message set. Raises CommandFailed for headers in the latter."""
    rows = [
        Record(offset, timestamp_ms, record.key, record.value, tuple(record.headers))
        for offset, (record, timestamp_ms) in enumerate(zip(records, times, strict=True))
    ]
    if release >= MAGIC_2_SINCE:
        return build_batch(rows, codec=codec)
    if any(record.headers for record in rows):
        raise CommandFailed("records have headers since Kafka 0.11; leave them out for this broker")
    return build_message_set(rows, magic=1, codec=codec)


def request(topic: str, partition: int, data: bytes | bytearray) -> Any:
    of_topic = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=ANSWER_MS,
        topic_data=[
            of_topic(
                name=topic,
                partition_data=[of_topic.PartitionProduceData(index=partition, records=bytes(data))],
            )
        ],
        max_version=NEWEST_PRODUCE,
    )


class ExactAppends:
    """Collects records, and appends them in batches over a connection of its own."""

    def __init__(self, cluster: Cluster, topic: str, settings: Mapping[str, str], batch_bytes: int) -> None:
        self._cluster = cluster
        self._topic = topic
        codec = settings.get("compression.type", "none").upper()
        self._codec = Codec[codec] if codec in Codec.__members__ else Codec.NONE
        self._batch_bytes = min(batch_bytes, BATCH_BYTES)
        self._closing = ExitStack()
        self._client: Any = None
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
        except errors.KafkaConnectionError as error:
            self.refusal = errors.KafkaTimeoutError(str(error))  # some may be written
        except (errors.KafkaError, CommandFailed) as error:
            self.refusal = error

    def close(self) -> None:
        self._closing.close()
