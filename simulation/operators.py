"""Clients that change topics, and one that keeps the newest value of keys in a compacted topic."""

from __future__ import annotations

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
    batches_in,
    first_error,
)

COMPACTED: Place = ("compacted", 0)
KEYS = 4
TOPIC_RESOURCE, SET = 2, 0
# Settings that change nothing that is promised.
CONFIGS = {
    "segment.bytes": ("1024", "65536", "1073741824"),
    "index.interval.bytes": ("0", "4096"),
    "flush.ms": ("100", "10000"),
    "max.message.bytes": ("500000", "1000012"),
}


class Operator(Client):
    """Creates topics and deletes them, changes settings, and deletes the first records of a partition."""

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self._created = 0
        self._kept: list[str] = []

    async def work(self) -> None:
        steps = [self._create, self._create, self._configure, self._delete_records, self._delete, self._delete]
        await self.random.choice(steps)()
        await trio.sleep(self.random.choice((0.05, 0.3, 1.0)))

    async def finish(self) -> None:
        while self._kept:
            await self._delete()

    async def _ask_controller(self, api: ApiKey, version: int, **values: Any) -> Any:
        """Ask once; return the answer, None for none."""
        try:
            metadata = await self.any_broker(ApiKey.METADATA, 7, topics=[], allow_auto_topic_creation=False)
            return await self.ask(metadata.controller_id, api, version, **values)
        except (Failed, KeyError):
            return None

    async def _create(self) -> None:
        name = f"{self.name}-{self._created}"
        self.doing = f"creates {name}"
        self._created += 1
        self._kept.append(name)  # also if it is not known whether it is there
        topic: Any = (name, self.random.choice((1, 3)), min(3, len(self.book.addresses)), [], [])
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
        setting = self.random.choice(sorted(CONFIGS))
        topic = self.random.choice([*sorted(self.book.topics), *self._kept])
        self.doing = f"sets {setting} of {topic}"
        configs = [(setting, SET, self.random.choice(CONFIGS[setting]))]
        await self._ask_controller(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=[(TOPIC_RESOURCE, topic, configs)], validate_only=False
        )

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


class Upserter(IdempotentProducer):
    """Writes values of its keys, each greater than the one before; the last one that was acknowledged stays."""

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self.acknowledged: dict[str, int] = {}
        self._number = 0

    async def work(self) -> None:
        key = f"{self.name}-{self.random.randrange(KEYS)}"
        self._number += 1
        self.doing = f"writes {key}"
        sequence = self.sequences.get(COMPACTED, 0)
        record = Record(0, self.now_ms(), key.encode(), str(self._number).encode())
        event, _ = await self.append(COMPACTED, self.batch_of([record], sequence))
        if event == "ok":
            self.acknowledged[key] = self._number
            self.sequences[COMPACTED] = sequence + 1
        await trio.sleep(self.random.choice((0.0, 0.02, 0.1)))


class KeyReader(LastReader):
    """Reads the compacted topic once all others have finished: of each key of an upserter the last value is there."""

    def __init__(self, upserter: Upserter) -> None:
        super().__init__(f"reader of {upserter.name}", upserter.book, upserter.name)
        self._acknowledged = upserter.acknowledged
        self._values: dict[str, int] = {}

    def places(self) -> list[Place]:
        return [COMPACTED]

    async def finish(self) -> None:
        await super().finish()
        for key, number in self._acknowledged.items():
            if self._values.get(key, 0) < number:
                text = f"the last value of {key} is {self._values.get(key)}, and {number} was acknowledged"
                self.book.wrong("lost-value", text, COMPACTED)

    def read(self, place: Place, row: Any) -> list[list[object]]:
        for batch in batches_in(row.records or b""):
            for record in batch.records:
                self._values[record.key] = int(record.value)
            self.positions[place] = max(self.positions[place], batch.last_offset + 1)
        return []
