"""Clients that change topics and settings, and one that keeps the newest value of keys in a compacted topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import trio

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.simulation.clients import (
    Book,
    Client,
    Failed,
    IdempotentProducer,
    LastReader,
    Place,
    Producer,
    batches_in,
    first_error,
)

COMPACTED: Place = ("compacted", 0)
KEYS = 4
TOPIC_RESOURCE, BROKER_RESOURCE, SET = 2, 4, 0
OWN_TOPICS = 3  # that an operator creates, writes to, deletes and creates again
MOST_PARTITIONS = 4
LARGE = "x" * 300
# Settings that change nothing that is promised.
CONFIGS = {
    "segment.bytes": ("1024", "65536", "1048576"),  # the last is never full; one may take its space at once
    "index.interval.bytes": ("0", "4096"),
    "flush.ms": ("100", "10000"),
    "max.message.bytes": ("500000", "1000012"),
}
OWNED_CONFIGS = CONFIGS | {
    "compression.type": ("producer", "gzip", "lz4", "uncompressed"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "preallocate": ("false", "true"),
}
CONFIGS_OF_SEVERAL = OWNED_CONFIGS | {"min.insync.replicas": ("1", "2")}
BROKER_CONFIGS = {
    "num.replica.fetchers": ("1", "3"),
    "message.max.bytes": ("500000", "1000012"),
    "log.index.interval.bytes": ("0", "4096"),
}
OWN_CONFIGS: tuple[list[tuple[str, str]], ...] = (
    [],
    [("segment.bytes", "1024"), ("retention.bytes", "2000")],
    [("segment.bytes", "1024"), ("retention.ms", "1000")],
)


class Operator(Client):
    """Creates topics and deletes them, changes settings, and deletes the first records of a partition."""

    kept_at_end = 0
    configs: Mapping[str, Sequence[str]] = CONFIGS

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self._created = 0
        self._kept: list[str] = []

    async def work(self) -> None:
        await self.random.choice(self.steps())()
        await trio.sleep(self.random.choice((0.05, 0.3, 1.0)))

    def steps(self) -> list[Callable[[], Awaitable[None]]]:
        return [self._create, self._create, self._configure, self._delete_records, self._delete, self._delete]

    async def finish(self) -> None:
        while len(self._kept) > self.kept_at_end:
            await self._delete()

    async def _ask_controller(self, api: ApiKey, version: int, **values: Any) -> Any:
        """Ask once; return the answer, None for none."""
        try:
            metadata = await self.any_broker(ApiKey.METADATA, 7, topics=[], allow_auto_topic_creation=False)
            return await self.ask(metadata.controller_id, api, version, **values)
        except (Failed, KeyError):
            return None

    def _new_topic(self) -> tuple[str, list[tuple[str, str]]]:
        """Draw a name, and settings."""
        self._created += 1
        return f"{self.name}-{self._created - 1}", []

    async def _create(self) -> None:
        name, configs = self._new_topic()
        if name in self._kept:
            return
        self.doing = f"creates {name}"
        self._kept.append(name)  # also if it is not known whether it is there
        self.book.deleted_topics.discard(name)
        topic: Any = (name, self.random.choice((1, 3)), min(3, len(self.book.addresses)), [], configs)
        await self._ask_controller(ApiKey.CREATE_TOPICS, 3, topics=[topic], timeout_ms=1000)

    async def _delete(self) -> None:
        if not self._kept:
            return
        name = self.random.choice(self._kept)
        self.doing = f"deletes {name}"
        answer = await self._ask_controller(ApiKey.DELETE_TOPICS, 3, topic_names=[name], timeout_ms=1000)
        error = None if answer is None else answer.topics[0].error_code
        if error == ErrorCode.NONE or (error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self.book.is_finishing):
            self._kept.remove(name)
            self.book.deleted_topics.add(name)
        else:
            await self.pause()

    async def _configure(self) -> None:
        await self._set(TOPIC_RESOURCE, [*sorted(self.book.topics), *self._kept], self.configs)

    async def _set(self, kind: int, names: Sequence[str], known: Mapping[str, Sequence[str]]) -> None:
        setting = self.random.choice(sorted(known))
        name = self.random.choice(names)
        self.doing = f"sets {setting} of {name or 'the brokers'}"
        resource = kind, name, [(setting, SET, self.random.choice(known[setting]))]
        await self._ask_controller(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=[resource], validate_only=False)

    async def _delete_records(self) -> None:
        place = self.random.choice(self.book.places())
        needed = [offset for (_, each), offset in self.book.needed.items() if each == place]
        offset = self.random.randint(0, min([self.book.acked.get(place, 0), *needed]))
        row = {"topic": place[0], "partition": place[1], "offset": offset}
        self.doing = f"deletes the records of {place[0]}-{place[1]} below {offset}"
        self.book.write(self.name, "invoke", "delete_records", **row)
        try:
            answer = await self.ask(
                await self.leader_of(place),
                ApiKey.DELETE_RECORDS,
                0,
                topics=[(place[0], [(place[1], offset)])],
                timeout_ms=1000,
            )
        except Failed:
            answer = None
        is_done = answer is not None and first_error(answer) == ErrorCode.NONE
        self.forget()
        self.book.write(self.name, "ok" if is_done else "info", "delete_records", **row)


class TopicOwner(Operator, Producer):
    """An operator that writes to its topics, creates those anew that it has deleted, adds partitions, and changes more
    settings, of brokers too.
    """

    acks = 1
    kept_at_end = 1

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self.configs = CONFIGS_OF_SEVERAL if len(book.addresses) > 1 else OWNED_CONFIGS

    def steps(self) -> list[Callable[[], Awaitable[None]]]:
        return [*super().steps(), self._fill, self._fill, self._fill, self._configure_brokers, self._grow]

    def _new_topic(self) -> tuple[str, list[tuple[str, str]]]:
        return f"{self.name}-{self.random.randrange(OWN_TOPICS)}", self.random.choice(OWN_CONFIGS)

    async def _configure_brokers(self) -> None:
        await self._set(BROKER_RESOURCE, [""], BROKER_CONFIGS)

    async def _fill(self) -> None:
        """Write to a topic of its own, if it is there."""
        if not self._kept:
            return
        place = self.random.choice(self._kept), 0
        self.doing = f"writes to {place[0]}"
        with trio.move_on_after(1):
            for _ in range(self.random.randint(1, 5)):
                await self.produce(place, self._batch([LARGE] * self.random.randint(1, 3), -1))

    async def _grow(self) -> None:
        """Add a partition to a topic."""
        name = self.random.choice(sorted(self.book.topics))
        count = self.book.topics[name] + 1
        if count > MOST_PARTITIONS:
            return
        self.doing = f"gives {name} {count} partitions"
        topics = [(name, count, None)]
        await self._ask_controller(ApiKey.CREATE_PARTITIONS, 1, topics=topics, timeout_ms=1000, validate_only=False)
        answer = await self.any_broker(ApiKey.METADATA, 7, topics=[(None, name)], allow_auto_topic_creation=False)
        self.book.topics[name] = max(self.book.topics[name], len(answer.topics[0].partitions))


class Upserter(IdempotentProducer):
    """Writes values of its keys, each greater than the one before, and deletes some; the last change that was
    acknowledged stays.
    """

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self.acknowledged: dict[str, int] = {}
        self.deleted: dict[str, int] = {}  # the last tombstone, also if its end is unknown
        self._number = 0

    async def work(self) -> None:
        key = f"{self.name}-{self.random.randrange(KEYS)}"
        self._number += 1
        self.doing = f"writes {key}"
        sequence = self.sequences.get(COMPACTED, 0)
        is_deletion = self.book.is_beside and self.random.random() < 0.2
        if is_deletion:
            self.deleted[key] = self._number
        record = Record(0, self.now_ms(), key.encode(), None if is_deletion else str(self._number).encode())
        event, _ = await self.append(COMPACTED, self.batch_of([record], sequence))
        if event == "ok":
            self.acknowledged[key] = self._number
            self.sequences[COMPACTED] = sequence + 1
        await trio.sleep(self.random.choice((0.0, 0.02, 0.1)))


class KeyReader(LastReader):
    """Reads the compacted topic once all others have finished: of each key of an upserter the last value is there."""

    def __init__(self, upserter: Upserter) -> None:
        super().__init__(f"reader of {upserter.name}", upserter.book, upserter.name)
        self._upserter = upserter
        self._values: dict[str, int] = {}

    def places(self) -> list[Place]:
        return [COMPACTED]

    async def finish(self) -> None:
        await super().finish()
        for key, number in self._upserter.acknowledged.items():
            found = self._values.get(key, self._upserter.deleted.get(key, 0))
            if found < number:
                text = f"the last value of {key} is {self._values.get(key)}, and {number} was acknowledged"
                self.book.wrong("lost-value", text, COMPACTED)

    def read(self, place: Place, row: Any) -> list[list[object]]:
        for batch in batches_in(row.records or b""):
            for record in batch.records:
                if record.value:
                    self._values[record.key] = int(record.value)
                else:
                    self._values.pop(record.key, None)
            self.positions[place] = max(self.positions[place], batch.last_offset + 1)
        return []
