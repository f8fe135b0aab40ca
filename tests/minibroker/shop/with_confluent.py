"""Invoices, receipts, stock and payments of the shop, with confluent-kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

CONSUMING = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,  # a subscription whose Metadata is lost waits for the next one
}
GIVE_UP_MS = 1000  # on a receipt: the customer waits
GIVE_UP_SECONDS = 5.0  # on a step of a transaction, which may wait for a coordinator without end
POLL_SECONDS = 0.1


class NotDelivered(Exception):
    """The broker has not confirmed a record."""


def write_invoices(servers: str, topic: str, orders: Iterable[bytes]) -> None:
    """Write an invoice for each order."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for order in orders:
        producer.produce(topic, b"invoice of " + order)
    producer.flush()


def write_receipts(servers: str, topic: str, orders: Iterable[bytes]) -> None:
    """Write a receipt for each order, until all are written. Raises NotDelivered."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": GIVE_UP_MS})
    for order in orders:
        producer.produce(topic, b"receipt of " + order, on_delivery=delivered)
    producer.flush()
    if failed:
        raise NotDelivered(failed)


class Stock:
    """How many of each article orders have taken, counted anew from the first order on by each process."""

    def __init__(self) -> None:
        self.taken: Counter[bytes] = Counter()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.taken.clear()
        for each in partitions:
            each.offset = 0
        consumer.assign(partitions)

    def count(self, servers: str, group: str, topic: str, is_enough: Callable[[], bool]) -> None:
        """Count orders as they come. Raises KafkaException."""
        consumer = Consumer({**CONSUMING, "bootstrap.servers": servers, "group.id": group})
        consumer.subscribe([topic], on_assign=self._on_assign)
        try:
            while not is_enough():
                for each in polled(consumer, 1):
                    self.taken[each.value()] += 1
        finally:
            consumer.close()


def polled(consumer: Consumer, most: int) -> list[Message]:
    """The next records. Raises KafkaException: after an error a consumer may read nothing any more."""
    messages: list[Message] = consumer.consume(most, POLL_SECONDS)
    for each in messages:
        if (error := each.error()) is not None:
            raise KafkaException(error)
    return messages


def book_payments(servers: str, group: str, orders: str, payments: str, is_enough: Callable[[], bool]) -> None:
    """Book a payment for each order exactly once, with its offset in a transaction. Raises KafkaException."""
    consumer = Consumer({**CONSUMING, "bootstrap.servers": servers, "group.id": group})
    consumer.subscribe([orders])
    producer = booking(servers, group)
    try:
        while not is_enough():
            messages = polled(consumer, 10)
            if not messages:
                continue
            try:
                producer.begin_transaction()
                for each in messages:
                    producer.produce(payments, b"payment of " + each.value())
                offsets = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), GIVE_UP_SECONDS)
                producer.commit_transaction(GIVE_UP_SECONDS)
            except KafkaException:
                try:
                    producer.abort_transaction(GIVE_UP_SECONDS)
                except KafkaException:  # fenced: the broker has aborted it; or late: the next one will have it aborted
                    producer = booking(servers, group)
                for each in reversed(messages):
                    consumer.seek(TopicPartition(each.topic(), each.partition(), each.offset()))
    finally:
        consumer.close()


def booking(servers: str, group: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": group,
            "message.timeout.ms": GIVE_UP_MS,
            "transaction.timeout.ms": GIVE_UP_MS,
        }
    )
    producer.init_transactions(GIVE_UP_SECONDS)
    return producer
