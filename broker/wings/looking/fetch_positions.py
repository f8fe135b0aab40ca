"""The positions of clients by their fetches: the lag of clients that commit nothing, such as Spark's source.

A consumer that assigns its partitions itself names no group in any request. What is known of it is its client id, which
Java's consumer makes of its group (`protocol/client_ids.py`), its host, and its fetches. So for each client id and host
the last fetch of each partition is kept, and the groups that this client id has joined or committed to.

The handlers of Fetch, and of the requests that name a group, are led around by this module. A Fetch updates a dict with
the offsets that it asks for. An answer with records replaces an offset by the place in the log where these end; the
offset there is looked up when it is asked for. All is in memory: at most `READERS_MAX` clients and twice
`POSITIONS_MAX` partitions, those that fetched last, for `KEPT_MS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Handler
from minibroker.broker.parts import BrokerParts
from minibroker.broker.pending import Pending, then
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.client_ids import group_in
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID
from minibroker.protocol.messages.fetch import replica_id_of
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import NO_OFFSET
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.log.log import Log

READERS_MAX = 1_000
POSITIONS_MAX = 20_000
GROUPS_MAX = 8  # of one client id and host
KEPT_MS = 86_400_000
BASE_OFFSET_DIGITS = 20  # of the name of a segment
OF_GROUPS = (ApiKey.JOIN_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
UNREAD = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)

Body = Any


class Delivered(NamedTuple):
    """An answer with records: the offset that was asked for, and where in which segment the records end."""

    asked_offset: int
    segment_base_offset: int
    end_position: int
    high_watermark: int
    at_ms: int  # of the monotonic clock

    def end_offset(self, log: Log) -> int:
        """Return the offset after the records; the one that was asked for if their segment is gone or compacted, or
        cannot be read: metrics are looked at when a disk fails."""
        try:
            found = log.offset_at(self.segment_base_offset, self.end_position)
        except OSError:
            found = None
        return self.asked_offset if found is None else max(self.asked_offset, min(found, self.high_watermark))


Position = int | Delivered  # the offset that was asked for, or what was delivered


def fetched_offset(position: Position, log: Log) -> int:
    """Return the offset after the last record that was delivered, or the one that was asked for since."""
    return position.end_offset(log) if isinstance(position, Delivered) else position


class Reader:
    """The clients with one client id on one host; `client_id` is empty if they name none.

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

    def note_answer(self, answer: Body, now_ms: int) -> None:
        """Note where records end; forget partitions that are unknown, or that the client may not read."""
        self.fetched_ms = now_ms
        for name, rows in answer.topics:
            for row in rows:
                partition, code, high_watermark, records = row[0], row[1], row[2], row[7]
                if code in UNREAD:
                    self.positions.pop(TopicPartition(name, partition), None)
                if isinstance(records, ConvertedSlice):
                    records = records.records
                if isinstance(records, FileSlice) and records.size_bytes > 0:
                    key = TopicPartition(name, partition)
                    before = self.positions.get(key, NO_OFFSET)
                    self.positions[key] = Delivered(
                        before.asked_offset if isinstance(before, Delivered) else before,
                        int(records.file.path.name[:BASE_OFFSET_DIGITS]),
                        records.position + records.size_bytes,
                        high_watermark,
                        now_ms,
                    )

    def names(self) -> list[str]:
        """Return the groups of these clients, the newest last; without any, the one that the client id names."""
        return self.groups or [group_in(self.client_id)]

    def at_ms(self, position: Position) -> int:
        """Return when the client has fetched last at a position."""
        return position.at_ms if isinstance(position, Delivered) else self.fetched_ms


class FetchPositions:
    """The readers of this broker, by client id and host."""

    def __init__(self, parts: BrokerParts) -> None:
        self._clock = parts.timers.clock
        self._readers: dict[tuple[str, str], Reader] = {}
        self._numbers = count(1)
        self._rows_since_made_room = 0
        handlers = parts.handlers
        handlers.lead_around(ApiKey.FETCH, self._fetch)
        for key in OF_GROUPS:
            if key in handlers.by_key:
                handlers.lead_around(key, self._of_group)
        parts.own.when_deleted(self.forget)

    def _fetch(self, handler: Handler, request: Request, client: Client) -> Body | Pending[Body]:
        """Note the offsets of a consumer's request before it is served, and its answer afterwards."""
        body = request.body
        if replica_id_of(body) != CONSUMER_REPLICA_ID:
            return handler(request, client)
        asked = {TopicPartition(name, row.partition): row.fetch_offset for name, rows in body.topics for row in rows}
        reader = self.of(request.client_id, client.host, len(asked))
        reader.positions.update(asked)
        return then(handler(request, client), partial(self._note_answer, reader))

    def _note_answer(self, reader: Reader, answer: Body) -> Body:
        reader.note_answer(answer, self._clock.monotonic_ms())
        return answer

    def _of_group(self, handler: Handler, request: Request, client: Client) -> Body | Pending[Body]:
        self.note_group(request.client_id, client.host, request.body.group_id)
        return handler(request, client)

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
