"""Reads a topic from its start for tests, over one connection, by Kafka's protocol, and waits for more of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from minibroker.administration import offered_version, refuse_unless_done
from minibroker.errors import BrokerError
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.batches import iter_all_records, scan_batches
from minibroker.protocol.control_records import ControlType, read_control_type
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID, EARLIEST_TIMESTAMP
from minibroker.protocol.text import counted
from minibroker.records import Record, as_time
from minibroker.topic_offsets import offsets_at, record_counts, topic_partitions
from minibroker.waiting import WaitError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.administration import Connection
    from minibroker.protocol.batches import BatchView
    from minibroker.protocol.record import Record as StoredRecord

LAST_VERSION_OF_FETCH = 11
ISOLATION_LEVELS = {False: 0, True: 1}  # read_committed?
PARTITION_MAX_BYTES = 1 << 20
ANSWER_MAX_BYTES = 50 << 20  # the connection takes twice as much, for one large batch more
DECOMPRESSED_MAX_BYTES = 1 << 28
LONG_POLL_SECONDS = 1.0
POLL_SECONDS = 0.01
RECORDS_SHOWN = 10


def read_records(
    connection: Connection, topic: str, *, n: int | None, timeout: float, partition: int | None, read_committed: bool
) -> list[Record]:
    """All records of a topic, as soon as there are `n`; without `n`, those that are there.

    In the order of their partitions and offsets. Raises WaitError after `timeout` seconds, BrokerError without `n` if
    the topic or partition is not there, and KafkaError.
    """
    deadline = time.monotonic() + timeout
    reader = TopicReader(connection, topic, read_committed=read_committed)
    while True:
        present = topic_partitions(connection).get(topic, [])
        wanted = [number for number in present if partition in (None, number)]
        reader.read_to_the_end(wanted)
        records = reader.records()
        if n is None:
            if not wanted:
                raise BrokerError(absence(connection, topic, partition, present))
            return records
        if len(records) >= n:
            return records
        left = deadline - time.monotonic()
        if left <= 0:
            raise WaitError(
                shortage(topic, n, timeout, records)
                if wanted
                else f"after {timeout:g} s {absence(connection, topic, partition, present)}"
            )
        if wanted:
            reader.wait_for_more(wanted, min(left, LONG_POLL_SECONDS))
        else:
            time.sleep(min(left, POLL_SECONDS))


class TopicReader:
    """Reads partitions of a topic, each from where it ended the last time."""

    def __init__(self, connection: Connection, topic: str, *, read_committed: bool) -> None:
        self._connection = connection
        self._topic = topic
        self._isolation_level = ISOLATION_LEVELS[read_committed]
        self._version = offered_version(connection, ApiKey.FETCH, LAST_VERSION_OF_FETCH)
        self._positions: dict[int, int] = {}
        self._records: dict[int, list[Record]] = {}

    def records(self) -> list[Record]:
        return [record for partition in sorted(self._records) for record in self._records[partition]]

    def read_to_the_end(self, partitions: list[int]) -> None:
        """Raises KafkaError."""
        new = [(self._topic, partition) for partition in partitions if partition not in self._positions]
        for (_, partition), offset in offsets_at(self._connection, new, EARLIEST_TIMESTAMP).items():
            self._positions[partition] = offset
            self._records[partition] = []
        while partitions:
            partitions = self._fetch(partitions, 0.0)

    def wait_for_more(self, partitions: list[int], seconds: float) -> None:
        """Return when there is more to read, or `seconds` have passed. Raises KafkaError."""
        self._fetch(partitions, seconds)

    def _fetch(self, partitions: list[int], seconds: float) -> list[int]:
        """Read what one answer holds; return the partitions that have more. Raises KafkaError."""
        rows = API_TABLE[ApiKey.FETCH].request.row
        wanted = [
            rows("topics.partitions")(
                partition=partition, fetch_offset=self._positions[partition], max_bytes=PARTITION_MAX_BYTES
            )
            for partition in partitions
        ]
        answer = self._connection.ask(
            ApiKey.FETCH,
            self._version,
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=round(seconds * 1000),
            min_bytes=1,
            max_bytes=ANSWER_MAX_BYTES,
            isolation_level=self._isolation_level,
            topics=[rows("topics")(topic=self._topic, partitions=wanted)],
        )
        unfinished, has_moved = [], False
        for row in answer.topics[0].partitions:
            before = self._positions[row.partition]
            self._take(row)
            end = row.last_stable_offset if self._isolation_level and self._version >= 4 else row.high_watermark
            has_moved = has_moved or self._positions[row.partition] > before
            if self._positions[row.partition] < end:
                unfinished.append(row.partition)
        return unfinished if has_moved else []

    def _take(self, row: Any) -> None:
        """Take the records of a partition. Raises KafkaError."""
        refuse_unless_done(row.error_code, f"read partition {row.partition} of topic {self._topic}")
        position = self._positions[row.partition]
        for record in stored_records(row):
            if record.offset >= position:
                self._records[row.partition].append(
                    Record(
                        record.value,
                        record.key,
                        record.headers,
                        as_time(record.timestamp_ms),
                        self._topic,
                        row.partition,
                        record.offset,
                    )
                )
        for view in scan_batches(row.records, 0, len(row.records)):
            self._positions[row.partition] = max(self._positions[row.partition], view.next_offset)


def stored_records(row: Any) -> Iterator[StoredRecord]:
    """The records of a partition's row in a Fetch answer, without markers and, if it names them, aborted records."""
    for _, records in stored_batches(row, len(row.records)):
        yield from records


def stored_batches(row: Any, end: int) -> Iterator[tuple[BatchView, Iterator[StoredRecord]]]:
    """The batches of `stored_records`, of the first `end` bytes of the row's records."""
    aborted = sorted(row.aborted_transactions or (), key=lambda each: each.first_offset, reverse=True)
    aborting: set[int] = set()  # producers whose records are aborted at this point
    for view in scan_batches(row.records, 0, end):
        while aborted and aborted[-1].first_offset <= view.last_offset:
            aborting.add(aborted.pop().producer_id)
        records = iter_all_records(row.records, view, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES)
        if view.is_control:
            if any(read_control_type(record.key) is ControlType.ABORT for record in records):
                aborting.discard(view.producer_id)
        elif not (view.is_transactional and view.producer_id in aborting):
            yield view, records


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


def absence(connection: Connection, topic: str, partition: int | None, present: list[int]) -> str:
    """The message that a topic or a partition is missing, with those that are there."""
    if present:
        return f"topic {topic} has no partition {partition}, only {', '.join(map(str, present))}"
    others = ", ".join(f"{name} ({counted(count, 'record')})" for name, count in record_counts(connection).items())
    return f"the broker has no topic {topic}; it has {others or 'none'}"
