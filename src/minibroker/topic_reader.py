"""Reads a topic from its start for tests, and waits for more of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from minibroker.administration import refuse_unless_done
from minibroker.client.reading import decoded, fetching
from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import BrokerError
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.text import counted
from minibroker.records import Record, as_time
from minibroker.topic_offsets import ranges_of, record_counts, topic_partitions
from minibroker.waiting import WaitError

if TYPE_CHECKING:
    from minibroker.client.client import Client

PARTITION_MAX_BYTES = 1 << 20
ANSWER_MAX_BYTES = 50 << 20  # the client takes twice as much, for one large batch more
LONG_POLL_SECONDS = 1.0
SHARED_WAIT_MS = 50  # of a long poll at several leaders
POLL_SECONDS = 0.01
RECORDS_SHOWN = 10


def read_records(
    client: Client, topic: str, *, n: int | None, timeout: float, partition: int | None, read_committed: bool
) -> list[Record]:
    """All records of a topic, as soon as there are `n`; without `n`, the present ones.

    In the order of their partitions and offsets. Raises WaitError after `timeout` seconds, BrokerError without `n` if
    the topic or partition is not there, and KafkaError.
    """
    deadline = time.monotonic() + timeout
    reader = TopicReader(client, topic, read_committed=read_committed)
    while True:
        present = topic_partitions(client).get(topic, [])
        wanted = [number for number in present if partition in (None, number)]
        reader.read_to_the_end(wanted)
        records = reader.records()
        if n is None:
            if not wanted:
                raise BrokerError(absence(client, topic, partition, present))
            return records
        if len(records) >= n:
            return records
        left = deadline - time.monotonic()
        if left <= 0:
            raise WaitError(
                shortage(topic, n, timeout, records)
                if wanted
                else f"after {timeout:g} s {absence(client, topic, partition, present)}"
            )
        if wanted:
            reader.wait_for_more(wanted, min(left, LONG_POLL_SECONDS))
        else:
            time.sleep(min(left, POLL_SECONDS))


class TopicReader:
    """Reads partitions of a topic, each from where it ended the last time."""

    def __init__(self, client: Client, topic: str, *, read_committed: bool) -> None:
        self._client = client
        self._topic = topic
        self._committed_only = read_committed
        self._positions: dict[int, int] = {}
        self._records: dict[int, list[Record]] = {}

    def records(self) -> list[Record]:
        return [record for partition in sorted(self._records) for record in self._records[partition]]

    def read_to_the_end(self, partitions: list[int]) -> None:
        """Raises KafkaError."""
        new = [TopicPartition(self._topic, partition) for partition in partitions if partition not in self._positions]
        for at, offset in ranges_of(self._client, new)[0].items():
            self._positions[at.partition] = offset
            self._records[at.partition] = []
        while partitions:
            partitions = self._fetch(partitions, 0.0)

    def wait_for_more(self, partitions: list[int], seconds: float) -> None:
        """Return when there is more to read, or `seconds` have passed. Raises KafkaError."""
        self._fetch(partitions, seconds)

    def _fetch(self, partitions: list[int], seconds: float) -> list[int]:
        """Read what one answer of each leader holds; return the partitions that have more. Raises KafkaError."""
        led = self._client.led(TopicPartition(self._topic, number) for number in partitions)
        if led.pop(NO_LEADER, None) is not None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {self._topic} has partitions without a leader")
        wait_ms = round(seconds * 1000) if len(led) == 1 else min(round(seconds * 1000), SHARED_WAIT_MS)
        answers = self._client.answers(
            {
                leader: fetching(
                    leader,
                    self._topic,
                    {at.partition: self._positions[at.partition] for at in of_leader},
                    committed_only=self._committed_only,
                    max_wait_ms=wait_ms,
                    partition_bytes=PARTITION_MAX_BYTES,
                    max_bytes=ANSWER_MAX_BYTES,
                )
                for leader, of_leader in led.items()
            }
        )
        unfinished, has_moved = [], False
        for answer in answers.values():
            if isinstance(answer, Exception):
                raise answer
            for row in answer.topics[0].partitions:
                before = self._positions[row.partition]
                self._take(row)
                has_end = self._committed_only and row.last_stable_offset >= 0  # since Kafka 0.11
                end = row.last_stable_offset if has_end else row.high_watermark
                has_moved = has_moved or self._positions[row.partition] > before
                if self._positions[row.partition] < end:
                    unfinished.append(row.partition)
        return unfinished if has_moved else []

    def _take(self, row: Any) -> None:
        """Take the records of a partition. Raises KafkaError."""
        refuse_unless_done(row.error_code, f"read partition {row.partition} of topic {self._topic}")
        position = self._positions[row.partition]
        for batch in decoded(row, row.records, self._committed_only):
            if batch.error is not None:
                raise batch.error
            self._positions[row.partition] = max(self._positions[row.partition], batch.view.next_offset)
            self._records[row.partition] += [
                Record(
                    record.value,
                    record.key,
                    record.headers,
                    as_time(record.timestamp_ms),
                    self._topic,
                    row.partition,
                    record.offset,
                )
                for record in batch.records
                if record.offset >= position
            ]


def shortage(topic: str, n: int, timeout: float, records: list[Record]) -> str:
    """The message that fewer than `n` records came, with the last of them."""
    lines = [f"topic {topic} has {counted(len(records), 'record')} after {timeout:g} s, not {n}"]
    lines += [
        f"  partition {record.partition}, offset {record.offset}: key {record.key!r}, value {record.value!r}"
        for record in records[-RECORDS_SHOWN:]
    ]
    if len(records) > RECORDS_SHOWN:
        lines[0] += f"; the last {RECORDS_SHOWN}"
    return "\n".join(lines)


def absence(client: Client, topic: str, partition: int | None, present: list[int]) -> str:
    """The message that a topic or a partition is missing, with the existing ones."""
    if present:
        return f"topic {topic} has no partition {partition}, only {', '.join(map(str, present))}"
    others = ", ".join(f"{name} ({counted(count, 'record')})" for name, count in record_counts(client).items())
    return f"the broker has no topic {topic}; it has {others or 'none'}"
