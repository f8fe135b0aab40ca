"""Driver of aiokafka: one event loop, stepped by one operation at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.integration.drivers.line_protocol import (
    Deadline,
    JsonRecord,
    consumed,
    headers_to_bytes,
    serve,
    to_bytes,
)

# One connection carries fetches and questions about offsets: a question waits for the fetch before it.
OFFSET_SETTINGS = {"fetch_max_wait_ms": 50}


class AiokafkaDriver:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[tuple[Any, ...], Any] = {}
        self._consumers: dict[tuple[Any, ...], Any] = {}
        self._followed: Any = None

    # producing

    async def produce(
        self,
        topic: str,
        partition: int | None,
        records: list[JsonRecord],
        codec: str,
        settings: dict[str, Any],
    ) -> list[Any]:
        producer = await self._producer(codec, settings)
        futures = [
            await producer.send(
                topic,
                partition=partition,
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
                headers=headers_to_bytes(record),
                timestamp_ms=record["timestamp_ms"],
            )
            for record in records
        ]
        async with asyncio.timeout(30):
            acked = await asyncio.gather(*futures)
        if settings.get("acks") == 0:
            return [[partition, -1, None] for _ in acked]
        return [[metadata.partition, metadata.offset, metadata.timestamp] for metadata in acked]

    async def _producer(self, codec: str, settings: dict[str, Any]) -> Any:
        key = (codec, *sorted(settings.items()))
        if key not in self._producers:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if codec == "none" else codec,
                **({"linger_ms": 5} | settings),
            )
            await producer.start()
            self._producers[key] = producer
        return self._producers[key]

    # consuming

    async def consume(
        self,
        topic: str,
        partitions: list[int],
        start: int | str,
        count: int,
        seconds: float,
        settings: dict[str, Any],
    ) -> list[JsonRecord]:
        consumer = await self._assigned(topic, partitions, start, settings)
        try:
            return await self._poll(consumer, count, seconds)
        finally:
            consumer.unsubscribe()

    async def follow(self, topic: str, partition: int, settings: dict[str, Any]) -> int:
        self._followed = await self._assigned(topic, [partition], "end", settings)
        return int(await self._followed.position(TopicPartition(topic, partition)))

    async def next(self, count: int, seconds: float) -> list[JsonRecord]:
        return await self._poll(self._followed, count, seconds)

    async def offsets_for_times(self, topic: str, partition: int, timestamps_ms: list[int]) -> list[Any]:
        found: list[Any] = []
        consumer = await self._consumer(OFFSET_SETTINGS)
        for timestamp_ms in timestamps_ms:
            tp = TopicPartition(topic, partition)
            answer = (await consumer.offsets_for_times({tp: timestamp_ms}))[tp]
            found.append(None if answer is None else [answer.offset, answer.timestamp])
        return found

    async def watermarks(self, topic: str, partition: int) -> list[int]:
        tp = TopicPartition(topic, partition)
        consumer = await self._consumer(OFFSET_SETTINGS)
        return [(await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]]

    async def _assigned(self, topic: str, partitions: list[int], start: int | str, settings: dict[str, Any]) -> Any:
        consumer = await self._consumer(settings)
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        consumer.unsubscribe()
        consumer.assign(assigned)
        if start == "beginning":
            await consumer.seek_to_beginning(*assigned)
        elif start == "end":
            await consumer.seek_to_end(*assigned)
        else:
            for tp in assigned:
                consumer.seek(tp, start)
        return consumer

    async def _consumer(self, settings: dict[str, Any]) -> Any:
        key = tuple(sorted(settings.items()))
        if key not in self._consumers:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap, auto_offset_reset="none", group_id=None, **settings
            )
            await consumer.start()
            self._consumers[key] = consumer
        return self._consumers[key]

    async def _poll(self, consumer: Any, count: int, seconds: float) -> list[JsonRecord]:
        deadline = Deadline(seconds)
        found: list[JsonRecord] = []
        while len(found) < count:
            left = deadline.seconds_left(f"{count} records, have {len(found)}")
            batches = await consumer.getmany(timeout_ms=int(left * 1000), max_records=count - len(found))
            for batch in batches.values():
                found += [
                    consumed(
                        partition=record.partition,
                        offset=record.offset,
                        timestamp_ms=record.timestamp,
                        key=record.key,
                        value=record.value,
                        headers=record.headers,
                    )
                    for record in batch
                ]
        return found


def stepped(loop: asyncio.AbstractEventLoop, operation: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
    return lambda **arguments: loop.run_until_complete(operation(**arguments))


def main() -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    driver = AiokafkaDriver(sys.argv[1])
    serve({name: stepped(loop, getattr(driver, name)) for name in dir(driver) if not name.startswith("_")})


if __name__ == "__main__":
    main()
