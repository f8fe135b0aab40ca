"""The positions of clients by their fetches: the lag of those that commit nothing, such as Spark's source.

A consumer that assigns its partitions itself names no group in any request. What is known of it is its client id, which
Java's consumer makes of its group (`protocol/client_ids.py`), its host, and its fetches. So for each client id and host
the last fetch of each partition is kept, and the groups that this client id has joined or committed to.

A fetch updates a dict with its rows as they were decoded. An answer with records replaces a row by the place in the log
where these end; the offset there is looked up when it is asked for. All is in memory: at most `READERS_MAX` clients and
twice `POSITIONS_MAX` partitions, those that fetched last, for `KEPT_MS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from minibroker.broker.replica.fetched_partition import FetchedPartition
from minibroker.broker.replica.partition_read import FetchRow
from minibroker.broker.time.clock import Clock
from minibroker.protocol.client_ids import group_in
from minibroker.protocol.primitives import TopicPartition, new
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.log.log import Log

READERS_MAX = 1_000
POSITIONS_MAX = 20_000
GROUPS_MAX = 8  # of one client id and host
KEPT_MS = 86_400_000


class Delivered(NamedTuple):
    """An answer with records: from where it was read to where in the segment the records end."""

    start: LogOffsetMetadata  # of the offset that was asked for
    end_position: int
    high_watermark: int
    at_ms: int  # of the monotonic clock

    def end_offset(self, log: Log) -> int:
        """Return the offset after the records; the one that was asked for if their segment is gone or compacted."""
        asked_offset = self.start.message_offset
        found = log.offset_at(self.start.segment_base_offset, self.end_position)
        return asked_offset if found is None else max(asked_offset, min(found, self.high_watermark))


Position = FetchRow | Delivered


def fetched_offset(position: Position, log: Log) -> int:
    """Return the offset after the last record that was delivered, or the one that was asked for since."""
    return position.end_offset(log) if isinstance(position, Delivered) else position.fetch_offset


class Reader:
    """The clients with one client id on one host; `client_id` is empty for those that name none.

    Readers are numbered as they come.
    """

    __slots__ = ("client_id", "fetched_ms", "groups", "host", "number", "positions")

    def __init__(self, number: int, client_id: str, host: str, now_ms: int) -> None:
        self.number = number
        self.client_id = client_id
        self.host = host
        self.fetched_ms = now_ms
        self.groups: list[str] = []  # the newest last
        self.positions: dict[TopicPartition, Position] = {}

    def note_request(self, rows: Mapping[TopicPartition, FetchRow], unread: Collection[TopicPartition]) -> None:
        """Note the rows of a request; leave out partitions that are `unread`: unknown, or not allowed."""
        if not unread:
            self.positions.update(rows)
        else:
            self.positions.update({each: row for each, row in rows.items() if each not in unread})

    def note_answer(self, answered: Sequence[FetchedPartition], now_ms: int) -> None:
        """Note an answer."""
        self.fetched_ms = now_ms
        for result in answered:
            records = result.records
            if isinstance(records, ConvertedSlice):
                records = records.records
            if isinstance(records, FileSlice) and records.size_bytes > 0 and result.start is not None:
                end_position = records.position + records.size_bytes
                self.positions[result.topic_partition] = new(
                    Delivered, (result.start, end_position, result.high_watermark, now_ms)
                )

    def names(self) -> list[str]:
        """Return the groups of these clients, the newest last; without any, the one that the client id names."""
        return self.groups or [group_in(self.client_id)]

    def at_ms(self, position: Position) -> int:
        """Return when the client has fetched last at a position."""
        return position.at_ms if isinstance(position, Delivered) else self.fetched_ms


class FetchPositions:
    """The readers of this broker, by client id and host."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readers: dict[tuple[str, str], Reader] = {}
        self._numbers = count(1)
        self._rows_since_made_room = 0

    def of(self, client_id: str | None, host: str, rows: int = 0) -> Reader:
        """Return the reader of this name; a new one, and so many rows since room was made, make room again."""
        key = client_id or "", host
        reader = self._readers.get(key)
        self._rows_since_made_room += rows
        if reader is None or self._rows_since_made_room > POSITIONS_MAX:
            now_ms = self._clock.monotonic_ms()
            self._make_room(now_ms)
            self._rows_since_made_room = rows
            reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = Reader(next(self._numbers), *key, now_ms)
        return reader

    def note_group(self, client_id: str | None, host: str, group_id: str) -> None:
        """Note that clients of this name have joined a group, or committed to it."""
        groups = self.of(client_id, host).groups
        if not groups or groups[-1] != group_id:
            if group_id in groups:
                groups.remove(group_id)
            groups.append(group_id)
            del groups[:-GROUPS_MAX]

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that were deleted."""
        for topic_partition in topic_partitions:
            for reader in self._readers.values():
                reader.positions.pop(topic_partition, None)

    def all(self) -> list[Reader]:
        """Return the readers of the last `KEPT_MS`, by number."""
        self._drop_old(self._clock.monotonic_ms())
        return list(self._readers.values())

    def _make_room(self, now_ms: int) -> None:
        self._drop_old(now_ms)
        positions = sum(len(each.positions) for each in self._readers.values())
        while self._readers and (len(self._readers) >= READERS_MAX or positions > POSITIONS_MAX):
            oldest = min(self._readers, key=lambda each: self._readers[each].fetched_ms)
            positions -= len(self._readers.pop(oldest).positions)

    def _drop_old(self, now_ms: int) -> None:
        for key in [key for key, each in self._readers.items() if now_ms - each.fetched_ms > KEPT_MS]:
            del self._readers[key]
