"""Confirmations and the ledger of the shop, with aiokafka."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

GIVE_UP_MS = 1000  # on a confirmation; it is tried again
POLL_MS = 100


def consumer_of(servers: str, group: str, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=200,
    )


async def confirm(servers: str, group: str, orders: str, confirmations: str, is_enough: Callable[[], bool]) -> None:
    """Confirm each order. Raises KafkaError."""
    async with (
        consumer_of(servers, group, orders) as consumer,
        AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=GIVE_UP_MS) as producer,
    ):
        while not is_enough():
            polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=1)
            for records in polled.values():
                for each in records:
                    await producer.send_and_wait(confirmations, b"confirmation of " + each.value)
                await consumer.commit()


async def enter(servers: str, group: str, payments: str, ledger: str, is_enough: Callable[[], bool]) -> None:
    """Enter each payment in the ledger once, though it may come twice. Raises KafkaError."""
    async with (
        consumer_of(servers, group, payments) as consumer,
        AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer,
    ):
        seen = await values_of(servers, ledger)
        while not is_enough():
            polled = await consumer.getmany(timeout_ms=POLL_MS)
            for records in polled.values():
                for each in records:
                    if each.value not in seen:
                        await producer.send_and_wait(ledger, each.value)
                        seen.add(each.value)
                await consumer.commit()


async def values_of(servers: str, topic: str) -> set[bytes]:
    """All values of a topic of one partition."""
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        values = set()
        while await consumer.position(partition) < end:
            values.update(
                each.value for records in (await consumer.getmany(timeout_ms=POLL_MS)).values() for each in records
            )
        return values
