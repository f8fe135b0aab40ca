"""The common part of the drivers of client libraries: what is made is kept, and polling goes on until it is enough."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from tests.integration.drivers.line_protocol import Deadline, JsonRecord, consumed, headers_to_bytes, to_bytes

Records = list[JsonRecord]
Settings = dict[str, Any]
Start = int | str  # an offset, "beginning" or "end"
Acks = list[list[Any]]  # partition, offset and timestamp of each record


def with_access(library: str, settings: Settings) -> Settings:
    """The settings, with those of the library in place of `access`: what it shows a secured broker, as JSON."""
    if "access" not in settings:
        return settings
    from minibroker.client_settings import Access, client_settings  # other environments have no minibroker

    given = dict(settings)
    own: Settings = client_settings(library, Access(**json.loads(given.pop("access"))))
    del own["bootstrap_servers"]
    return given | own


class LibraryDriver:
    """A driver whose producers and consumers are kept by the settings that they were made with.

    A library says how they are made (`_new_producer`, `_new_consumer`), how a consumer gets its partitions
    (`_assign`) and gives them back (`_unassign`), and what one poll brings (`_polled`).
    """

    _new_producer: Callable[[str, Settings], Any]
    _new_consumer: Callable[[Settings], Any]
    _assign: Callable[[Any, str, list[int], Start], None]
    _polled: Callable[[Any, int, float], Iterable[JsonRecord]]
    _offset_settings: Settings = {}  # noqa: RUF012  # of the consumer that is asked about offsets

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._kept: dict[Hashable, Any] = {}
        self._followed: Any = None

    def consume(
        self, topic: str, partitions: list[int], start: Start, settings: Settings, count: int, seconds: float
    ) -> Records:
        consumer = self._consumer(settings)
        self._assign(consumer, topic, partitions, start)
        try:
            return self._poll(consumer, count, seconds)
        finally:
            self._unassign(consumer)

    def next(self, count: int, seconds: float) -> Records:
        return self._poll(self._followed, count, seconds)

    def _producer(self, codec: str, settings: Settings) -> Any:
        return self._keep((codec, *sorted(settings.items())), lambda: self._new_producer(codec, settings))

    def _consumer(self, settings: Settings) -> Any:
        return self._keep(tuple(sorted(settings.items())), lambda: self._new_consumer(settings))

    def _keep(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def _poll(self, consumer: Any, count: int, seconds: float) -> Records:
        deadline = Deadline(seconds)
        found: Records = []
        while len(found) < count:
            left = deadline.seconds_left(f"{count} records, have {len(found)}")
            found += self._polled(consumer, count - len(found), left)
        return found

    def _unassign(self, consumer: Any) -> None:
        consumer.unsubscribe()


class KafkaPythonLike(LibraryDriver):
    """kafka-python and aiokafka, whose names are the same: the library gives its TopicPartition, and `_acked`."""

    _partition: Callable[[str, int], Any]
    _acked: Callable[[Any, list[Any]], list[Any]]
    _batches: Callable[..., dict[Any, list[Any]]]

    def produce(self, topic: str, partition: int | None, records: Records, codec: str, settings: Settings) -> Acks:
        producer = self._producer(codec, settings)
        futures = [
            producer.send(
                topic,
                partition=partition,
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
                headers=headers_to_bytes(record),
                timestamp_ms=record["timestamp_ms"],
            )
            for record in records
        ]
        acked = self._acked(producer, futures)
        if settings.get("acks") == 0:
            return [[partition, -1, None] for _ in acked]
        return [[metadata.partition, metadata.offset, metadata.timestamp] for metadata in acked]

    def follow(self, topic: str, partition: int, settings: Settings) -> int:
        self._followed = self._consumer(settings)
        self._assign(self._followed, topic, [partition], "end")
        return int(self._followed.position(self._partition(topic, partition)))

    def offsets_for_times(self, topic: str, partition: int, timestamps_ms: list[int]) -> list[Any]:
        tp, consumer = self._partition(topic, partition), self._consumer(self._offset_settings)
        found = [consumer.offsets_for_times({tp: timestamp_ms})[tp] for timestamp_ms in timestamps_ms]
        return [None if answer is None else [answer.offset, answer.timestamp] for answer in found]

    def watermarks(self, topic: str, partition: int) -> list[int]:
        tp, consumer = self._partition(topic, partition), self._consumer(self._offset_settings)
        return [consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]]

    def _assign(self, consumer: Any, topic: str, partitions: list[int], start: Start) -> None:
        assigned = [self._partition(topic, partition) for partition in partitions]
        consumer.unsubscribe()
        consumer.assign(assigned)
        if start == "beginning":
            consumer.seek_to_beginning(*assigned)
        elif start == "end":
            consumer.seek_to_end(*assigned)
        else:
            for tp in assigned:
                consumer.seek(tp, start)

    def _polled(self, consumer: Any, most: int, seconds: float) -> Iterable[JsonRecord]:
        for batch in self._batches(consumer, timeout_ms=int(seconds * 1000), max_records=most).values():
            for record in batch:
                yield consumed(
                    partition=record.partition,
                    offset=record.offset,
                    timestamp_ms=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
